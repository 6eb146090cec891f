//! Owns the prompts of a run: random ones, ones that share beginnings, or the first turns of recorded conversations.

use super::material::{Content, Material};
use super::server::Server;
use crate::error::BenchError;
use crate::random::Random;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// As vLLM does with recorded conversations: neither trivial nor endless ones.
const SHORTEST: usize = 4;
const LONGEST_PROMPT: usize = 1024;
const LONGEST_TOTAL: usize = 2048;
/// Where nobody counts tokens.
const TOKENS_PER_CHARACTER: f64 = 0.25;

#[derive(Clone, Debug, PartialEq)]
pub struct Prompt {
    pub content: Content,
    /// As far as it is known before the server counts.
    pub input_len: usize,
    pub output_len: usize,
}

#[derive(Clone, Debug)]
pub enum Dataset {
    Random {
        input_len: usize,
        output_len: usize,
        /// Lengths are drawn from `len * (1 - spread)` to `len * (1 + spread)`.
        spread: f64,
    },
    /// Each prompt begins with one of a few shared beginnings.
    Prefix {
        prefix_len: usize,
        prefixes: usize,
        /// What follows the beginning.
        input_len: usize,
        output_len: usize,
    },
    Conversations {
        path: PathBuf,
        /// First question and its answer.
        turns: Vec<(String, String)>,
        /// Instead of the length of the recorded answer.
        output_len: Option<usize>,
    },
}

#[derive(Deserialize)]
struct Conversation {
    #[serde(default, alias = "conversation")]
    conversations: Vec<Turn>,
}

#[derive(Deserialize)]
struct Turn {
    #[serde(alias = "content")]
    value: String,
}

impl Dataset {
    /// Reads a file of conversations in ShareGPT's form.
    pub fn conversations(path: &Path, output_len: Option<usize>) -> Result<Dataset, BenchError> {
        let bad = |why: String| BenchError::BadDataset {
            path: path.to_owned(),
            why,
        };
        let text = std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
        let all: Vec<Conversation> =
            serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?;
        let first_two = |c: Conversation| {
            let mut turns = c.conversations.into_iter().map(|turn| turn.value);
            Some((turns.next()?, turns.next()?))
        };
        let turns: Vec<_> = all.into_iter().filter_map(first_two).collect();
        if turns.is_empty() {
            return Err(bad("it holds no conversation of two turns".to_owned()));
        }
        Ok(Dataset::Conversations {
            path: path.to_owned(),
            turns,
            output_len,
        })
    }

    /// `count` prompts that are the same for the same seed and server.
    pub async fn prompts(
        &self,
        server: &Server,
        count: usize,
        seed: u64,
    ) -> Result<Vec<Prompt>, BenchError> {
        let prompts = match self {
            Dataset::Conversations {
                path,
                turns,
                output_len,
            } => {
                let found = recorded(server, turns, *output_len, count, seed).await;
                if found.is_empty() {
                    let path = path.clone();
                    let why = format!(
                        "no conversation has a question of {SHORTEST} to {LONGEST_PROMPT} tokens and at most {LONGEST_TOTAL} with its answer"
                    );
                    return Err(BenchError::BadDataset { path, why });
                }
                found
            }
            made => made.made(&server.material, count, seed),
        };
        for prompt in &prompts {
            let (input, output) = (prompt.input_len, prompt.output_len);
            let needed = input + output;
            if let Some(limit) = server.max_model_len.filter(|limit| needed > *limit) {
                return Err(BenchError::TooLong {
                    input,
                    output,
                    needed,
                    limit,
                });
            }
        }
        Ok(prompts)
    }

    fn made(&self, material: &Material, count: usize, seed: u64) -> Vec<Prompt> {
        let mut random = Random::fork(seed, PROMPTS);
        match *self {
            Dataset::Random {
                input_len,
                output_len,
                spread,
            } => {
                let mut prompt = |_| {
                    let input_len = around(input_len, spread, &mut random);
                    Prompt {
                        content: material.prompt(None, input_len, &mut random),
                        input_len,
                        output_len: around(output_len, spread, &mut random),
                    }
                };
                (0..count).map(&mut prompt).collect()
            }
            Dataset::Prefix {
                prefix_len,
                prefixes,
                input_len,
                output_len,
            } => {
                let shared: Vec<Content> = (0..prefixes)
                    .map(|_| material.piece(prefix_len, &mut random))
                    .collect();
                let mut prompt = |number: usize| Prompt {
                    content: material.prompt(
                        Some(&shared[number % prefixes]),
                        input_len,
                        &mut random,
                    ),
                    input_len: prefix_len + input_len,
                    output_len,
                };
                (0..count).map(&mut prompt).collect()
            }
            Dataset::Conversations { .. } => unreachable!("they are not made"),
        }
    }

    /// For people and records.
    pub fn describe(&self) -> String {
        match self {
            Dataset::Random {
                input_len,
                output_len,
                spread,
            } => {
                let spread = match *spread > 0.0 {
                    true => format!(" ± {:.0} %", spread * 100.0),
                    false => String::new(),
                };
                format!("random, {input_len} tokens in, {output_len} out{spread}")
            }
            Dataset::Prefix {
                prefix_len,
                prefixes,
                input_len,
                output_len,
            } => format!(
                "{prefixes} shared prefixes of {prefix_len} tokens, then {input_len} in, {output_len} out"
            ),
            Dataset::Conversations { path, turns, .. } => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                format!("{} conversations of {name}", turns.len())
            }
        }
    }

    /// Whether answers go on to their full length unless told otherwise.
    pub fn ignores_eos(&self) -> bool {
        !matches!(self, Dataset::Conversations { .. })
    }
}

const PROMPTS: u64 = 0x50;

fn around(length: usize, spread: f64, random: &mut Random) -> usize {
    let reach = (length as f64 * spread).floor() as usize;
    let lowest = length.saturating_sub(reach).max(1);
    lowest + random.below((length + reach).max(lowest) - lowest + 1)
}

async fn recorded(
    server: &Server,
    turns: &[(String, String)],
    output_len: Option<usize>,
    count: usize,
    seed: u64,
) -> Vec<Prompt> {
    let mut random = Random::fork(seed, PROMPTS);
    let mut order: Vec<usize> = (0..turns.len()).collect();
    for place in (1..order.len()).rev() {
        order.swap(place, random.below(place + 1));
    }
    let mut prompts: Vec<Prompt> = Vec::new();
    for number in order {
        if prompts.len() == count {
            break;
        }
        let (question, answer) = &turns[number];
        let input_len = tokens(server, question).await;
        let recorded_len = tokens(server, answer).await;
        let output_len = output_len.unwrap_or(recorded_len);
        let is_fit = input_len >= SHORTEST
            && recorded_len >= SHORTEST
            && input_len <= LONGEST_PROMPT
            && input_len + output_len <= LONGEST_TOTAL;
        if is_fit {
            prompts.push(Prompt {
                content: Content::Text(question.clone()),
                input_len,
                output_len,
            });
        }
    }
    // A small file is gone through again.
    let found = prompts.len();
    for number in found..if found == 0 { 0 } else { count } {
        prompts.push(prompts[number % found].clone());
    }
    prompts
}

async fn tokens(server: &Server, text: &str) -> usize {
    match server.tokenize(text).await {
        Some(ids) => ids.len(),
        None => (text.chars().count() as f64 * TOKENS_PER_CHARACTER).ceil() as usize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_prompts_are_fixed_by_their_seed() {
        let material = Material::Ids((0..500).collect());
        let dataset = Dataset::Random {
            input_len: 10,
            output_len: 20,
            spread: 0.5,
        };
        let prompts = dataset.made(&material, 50, 1);
        assert_eq!(prompts, dataset.made(&material, 50, 1));
        assert_ne!(prompts, dataset.made(&material, 50, 2));
        for prompt in &prompts {
            let Content::Ids(ids) = &prompt.content else {
                panic!("ids make ids")
            };
            assert_eq!(ids.len(), prompt.input_len);
            assert!((5..=15).contains(&prompt.input_len));
            assert!((10..=30).contains(&prompt.output_len));
        }
        let inputs = |p: &Prompt| p.input_len;
        assert!(prompts.iter().map(inputs).max() > prompts.iter().map(inputs).min());
    }

    #[test]
    fn prefixes_are_shared_and_the_rest_is_not() {
        let material = Material::Ids((0..500).collect());
        let dataset = Dataset::Prefix {
            prefix_len: 8,
            prefixes: 2,
            input_len: 6,
            output_len: 3,
        };
        let prompts = dataset.made(&material, 4, 1);
        let ids = |number: usize| match &prompts[number].content {
            Content::Ids(ids) => ids.clone(),
            Content::Text(text) => panic!("{text}"),
        };
        assert_eq!(ids(0)[..8], ids(2)[..8]);
        assert_ne!(ids(0)[..8], ids(1)[..8]);
        assert_ne!(ids(0)[8..], ids(2)[8..]);
        assert_eq!(prompts[0].input_len, 14);
    }

    #[test]
    fn files_without_conversations_are_refused_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("data.json");
        for (text, why) in [
            ("", "EOF"),
            ("[]", "no conversation"),
            (
                r#"[{"conversations":[{"value":"alone"}]}]"#,
                "no conversation",
            ),
            (r#"{"a":1}"#, "expected a sequence"),
        ] {
            std::fs::write(&file, text).unwrap();
            let error = Dataset::conversations(&file, None).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains('\n'), "{error}");
        }
        let missing = Dataset::conversations(&folder.path().join("no"), None);
        assert!(missing.unwrap_err().to_string().contains("No such file"));
        let text = r#"[{"id":"x","conversations":[{"from":"human","value":"hello"},{"from":"gpt","value":"hi"}]}]"#;
        std::fs::write(&file, text).unwrap();
        let Dataset::Conversations { turns, .. } = Dataset::conversations(&file, None).unwrap()
        else {
            panic!("conversations are conversations")
        };
        assert_eq!(turns, [("hello".to_owned(), "hi".to_owned())]);
    }
}
