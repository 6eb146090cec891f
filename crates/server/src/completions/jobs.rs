//! Owns the way from a request on the wire to requests for the engine, one per prompt, each checked against its limits.

use super::prompt::Prompts;
use super::types::CompletionRequest;
use crate::answers::Job;
use crate::app::App;
use crate::error::ApiError;
use mettle_text::SpecialTokens;

/// Tokens of an answer where the request says nothing.
const DEFAULT_MAX_TOKENS: usize = 16;

/// One prompt, ready for the engine.
#[derive(Clone, Debug)]
pub struct PromptJob {
    pub job: Job,
    /// The prompt's text, where it is to stand before the answer.
    pub echo: Option<String>,
    pub logprobs: Option<usize>,
    pub prompt_logprobs: bool,
    pub return_token_ids: bool,
}

impl CompletionRequest {
    pub fn jobs(&self, app: &App) -> Result<Vec<PromptJob>, ApiError> {
        app.check_generating_model(self.model.as_deref())?;
        let form = self.constraint.form()?;
        let constraint = form.map(|form| form.compile(app)).transpose()?;
        let options = self.generation.answer_options()?;
        let sampling = self.generation.sampling(app)?;
        let job = |ids: Vec<u32>, text: Option<&str>| {
            let (prompt, is_cut) = self.generation.truncate(ids, app);
            let mut request =
                self.generation
                    .request(prompt, sampling.clone(), app, DEFAULT_MAX_TOKENS);
            let echoed = self.logprobs.filter(|_| self.echo);
            // The prompt alone is an answer too: the engine then has its log-probabilities to give.
            let nothing_else = (request.max_tokens == 0).then_some(0);
            request.logprobs = self.logprobs;
            request.prompt_logprobs = request.prompt_logprobs.max(echoed).or(nothing_else);
            request.constraint = constraint.clone();
            request.validate(app.engine.limits())?;
            let echo = self.echo.then(|| match text.filter(|_| !is_cut) {
                Some(text) => text.to_owned(),
                None => app.tokenizer.decode(&request.prompt, false),
            });
            Ok(PromptJob {
                job: Job {
                    request,
                    options: options.clone(),
                },
                echo,
                logprobs: self.logprobs,
                prompt_logprobs: self.generation.prompt_logprobs.is_some(),
                return_token_ids: self.generation.return_token_ids,
            })
        };
        match &self.prompt {
            Prompts::Ids(lists) => lists.iter().map(|ids| job(ids.clone(), None)).collect(),
            Prompts::Texts(texts) => texts
                .iter()
                .map(|text| {
                    let ids = app.encode(text, SpecialTokens::Parse, self.add_special_tokens)?;
                    job(ids, Some(text))
                })
                .collect(),
        }
    }
}
