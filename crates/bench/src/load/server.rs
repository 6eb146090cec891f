//! Owns what is learned of a server before the load: its model, its limits, how prompts can be written, that it answers.

use super::exchange::{Endpoint, RequestOptions};
use super::http::{Client, refusal};
use super::material::{Content, Material, letters, words};
use super::outcome::Failure;
use super::url::BaseUrl;
use crate::error::BenchError;
use crate::random::Random;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use std::time::Duration;

/// Fewer different tokens than this are no random prompt.
const LEAST_IDS: usize = 16;
/// Texts from which ids are gathered.
const TOKENIZED_TEXTS: usize = 8;
/// Words of the two prompts by which the cost of a word is measured.
const MEASURED_WORDS: [usize; 2] = [8, 72];
/// An answer of one token that takes longer than this says that no load should be put on.
const PROBE_TIME: Duration = Duration::from_secs(120);

#[derive(Clone, Debug)]
pub struct Server {
    pub(super) client: Client,
    pub model: String,
    /// Tokens of prompt and answer, where the server tells.
    pub max_model_len: Option<usize>,
    pub endpoint: Endpoint,
    pub(super) material: Material,
}

impl Server {
    /// Finds the model (the first that is served, if none is named) and how to write prompts, and has one answered.
    pub async fn connect(
        url: BaseUrl,
        key: Option<String>,
        model: Option<String>,
        endpoint: Endpoint,
    ) -> Result<Server, BenchError> {
        let client = Client::new(url, key).await?;
        let card = match models(&client, model.as_deref()).await {
            Err(failure) if model.is_none() => {
                return Err(BenchError::Refused {
                    url: client.url.to_string(),
                    what: "to list its models",
                    why: failure.message,
                });
            }
            card => card.ok().flatten(),
        };
        let listed = card.as_ref().map(|(id, _)| id.clone());
        let max_model_len = card.and_then(|(_, context)| context);
        let mut server = Server {
            model: model.or(listed).ok_or(BenchError::NoModel)?,
            client,
            max_model_len,
            endpoint,
            material: Material::Ids(Vec::new()),
        };
        server.material = server.find_material().await?;
        Ok(server)
    }

    /// How prompts are written, for people.
    pub fn prompts_are(&self) -> &'static str {
        match self.material {
            Material::Ids(_) => "token ids",
            Material::Words { .. } => "words",
        }
    }

    /// Tokens of a text, where the server counts them for us.
    pub async fn tokenize(&self, text: &str) -> Option<Vec<u32>> {
        let body = json!({
            "model": self.model,
            // vLLM's name and llama.cpp's.
            "prompt": text,
            "content": text,
            "add_special_tokens": false,
            "add_special": false,
        });
        let body = body.to_string().into_bytes();
        let answer = self.client.fetch(Method::POST, "/tokenize", body).await;
        let (status, body) = answer.ok()?;
        let value: Value = serde_json::from_slice(&body).ok()?;
        let tokens = value.get("tokens").filter(|_| status.is_success())?;
        serde_json::from_value(tokens.clone()).ok()
    }

    async fn find_material(&self) -> Result<Material, BenchError> {
        if self.endpoint == Endpoint::Completions
            && let Some(ids) = self.ordinary_ids().await
        {
            let content = Content::Ids(ids.iter().copied().take(8).collect());
            if self.probe(&content).await?.is_ok() {
                return Ok(Material::Ids(ids));
            }
        }
        self.measure_words().await
    }

    /// Ids that plain text consists of.
    async fn ordinary_ids(&self) -> Option<Vec<u32>> {
        // Some servers refuse to tokenize what could not be a prompt; a word here is at most eight tokens.
        let words = self.max_model_len.unwrap_or(2048) / 8;
        let mut random = Random::new(0);
        let mut ids = Vec::new();
        for _ in 0..TOKENIZED_TEXTS {
            let text = letters(words.clamp(1, 2000), &mut random);
            ids.extend(self.tokenize(&text).await?);
        }
        ids.sort_unstable();
        ids.dedup();
        (ids.len() >= LEAST_IDS).then_some(ids)
    }

    async fn measure_words(&self) -> Result<Material, BenchError> {
        let mut counted = [0.0; 2];
        for (count, tokens) in MEASURED_WORDS.iter().zip(&mut counted) {
            let text = words(*count, &mut Random::new(*count as u64));
            let answer = self.probe(&Content::Text(text)).await?;
            let usage = answer.map_err(|failure| BenchError::Refused {
                url: self.client.url.to_string(),
                what: "a prompt",
                why: failure.message,
            })?;
            // A server that counts nothing is taken to see a word as a token.
            *tokens = usage.unwrap_or(*count) as f64;
        }
        let [few, many] = MEASURED_WORDS.map(|count| count as f64);
        let tokens_per_word = ((counted[1] - counted[0]) / (many - few)).max(0.1);
        let overhead = (counted[0] - few * tokens_per_word).max(0.0);
        Ok(Material::Words {
            tokens_per_word,
            overhead,
        })
    }

    /// An answer of one token; gives the tokens of the prompt, if the server counts them. A server that does not take
    /// this kind of prompt is a failure inside, one that does not work an error.
    async fn probe(&self, content: &Content) -> Result<Result<Option<usize>, Failure>, BenchError> {
        let options = RequestOptions {
            endpoint: self.endpoint,
            model: self.model.clone(),
            ignore_eos: false,
            temperature: 0.0,
            timeout: PROBE_TIME,
            cache_salt: "probe".to_owned(),
        };
        let body = options.body(content, 1, false);
        let sent = self.client.fetch(Method::POST, self.endpoint.path(), body);
        let unreachable = |why: String| BenchError::Unreachable {
            url: self.client.url.to_string(),
            why,
        };
        let (status, body) = match tokio::time::timeout(PROBE_TIME, sent).await {
            Ok(answer) => answer.map_err(|failure| unreachable(failure.to_string()))?,
            Err(_) => {
                let limit = PROBE_TIME.as_secs();
                return Err(unreachable(format!("no answer of one token in {limit} s")));
            }
        };
        if status.is_success() {
            let value: Value = serde_json::from_slice(&body).unwrap_or_default();
            let tokens = value
                .pointer("/usage/prompt_tokens")
                .and_then(Value::as_u64);
            return Ok(Ok(tokens.map(|tokens| tokens as usize)));
        }
        let failure = refusal(status, &body);
        let is_about_the_prompt =
            status == StatusCode::BAD_REQUEST || status == StatusCode::UNPROCESSABLE_ENTITY;
        match is_about_the_prompt {
            true => Ok(Err(failure)),
            false => Err(BenchError::Refused {
                url: self.client.url.to_string(),
                what: "a first request",
                why: failure.message,
            }),
        }
    }
}

/// The named model's entry in the server's list, or the first one: its name and the context it has.
async fn models(
    client: &Client,
    named: Option<&str>,
) -> Result<Option<(String, Option<usize>)>, Failure> {
    let (status, body) = client.fetch(Method::GET, "/v1/models", Vec::new()).await?;
    if !status.is_success() {
        return Err(refusal(status, &body));
    }
    let value: Value = serde_json::from_slice(&body).unwrap_or_default();
    let list = value.get("data").and_then(Value::as_array);
    let id = |card: &Value| card.get("id").and_then(Value::as_str).map(str::to_owned);
    let card = list.and_then(|list| {
        let is_named = |card: &&Value| named.is_some() && id(card).as_deref() == named;
        list.iter().find(is_named).or(list.first())
    });
    Ok(card.and_then(|card| {
        let context = card.get("max_model_len").and_then(Value::as_u64);
        Some((id(card)?, context.map(|tokens| tokens as usize)))
    }))
}
