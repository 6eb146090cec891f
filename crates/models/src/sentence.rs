//! Owns what a model's files say of the way from its tokens' vectors to one of a text, in sentence-transformers' words:
//! `modules.json`, the pooling module's config, `sentence_bert_config.json`.

use crate::config::Config;
use crate::error::{ModelError, Result};
use crate::text_files::read;
use mettle_plan::Pooling;
use serde_json::Value;
use std::path::Path;

/// Absent: the files do not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sentence {
    pub pooling: Option<Pooling>,
    /// Whether vectors are given length 1.
    pub normalize: Option<bool>,
    /// Tokens of a text that the model was meant for: no more than its context.
    pub longest: Option<usize>,
}

const MODULES: &str = "modules.json";
const LIMITS: &str = "sentence_bert_config.json";

/// Pooling by the flag that older files have set and the word of newer ones.
const KINDS: [(&str, &str, Option<Pooling>); 6] = [
    ("pooling_mode_cls_token", "cls", Some(Pooling::First)),
    ("pooling_mode_mean_tokens", "mean", Some(Pooling::Mean)),
    ("pooling_mode_lasttoken", "lasttoken", Some(Pooling::Last)),
    ("pooling_mode_max_tokens", "max", None),
    (
        "pooling_mode_mean_sqrt_len_tokens",
        "mean_sqrt_len_tokens",
        None,
    ),
    ("pooling_mode_weightedmean_tokens", "weightedmean", None),
];

impl Sentence {
    /// Of a folder; one without `modules.json` says nothing.
    pub fn of_folder(folder: &Path) -> Result<Sentence> {
        let Some(modules) = json(folder, MODULES)? else {
            return Ok(Sentence::default());
        };
        let longest = match json(folder, LIMITS)? {
            Some(limits) => Config::new(LIMITS, &limits)?.size_or_none("max_seq_length")?,
            None => None,
        };
        let mut sentence = Sentence {
            pooling: None,
            normalize: Some(false),
            longest,
        };
        let wrong = || ModelError::Json {
            file: MODULES.into(),
            reason: "it is not a list of modules".into(),
        };
        for module in modules.as_array().ok_or_else(wrong)? {
            let module = Config::new(MODULES, module)?;
            let kind = module.text("type")?;
            match kind.rsplit('.').next().unwrap_or(kind) {
                "Transformer" => {}
                "Pooling" => {
                    let path = module.text_or_none("path")?.unwrap_or_default();
                    sentence.pooling = Some(pooling(folder, path)?);
                }
                "Normalize" => sentence.normalize = Some(true),
                _ => {
                    let supported = "Transformer, Pooling and Normalize are";
                    return Err(module.unsupported("type", supported));
                }
            }
        }
        Ok(sentence)
    }
}

fn pooling(folder: &Path, path: &str) -> Result<Pooling> {
    let name = format!("{path}/config.json");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !path.chars().all(is_plain) {
        return Err(ModelError::Dimensions {
            source_name: MODULES.into(),
            problem: format!("path {path:?} is not the name of a folder"),
        });
    }
    let json = json(folder, &name)?.ok_or_else(|| ModelError::MissingKey {
        source_name: MODULES.into(),
        key: name.clone(),
    })?;
    let config = Config::new(&name, &json)?;
    config.ignore(&[
        "word_embedding_dimension",
        "embedding_dimension",
        "include_prompt",
    ]);
    let word = config.text_or_none("pooling_mode")?;
    let mut found = Vec::new();
    for (flag, its_word, kind) in KINDS {
        if config.flag_or_none(flag)? == Some(true) || word == Some(its_word) {
            found.push((if word.is_some() { "pooling_mode" } else { flag }, kind));
        }
    }
    config.finish()?;
    let supported = "one of cls, mean and lasttoken is";
    match found[..] {
        [(_, Some(pooling))] => Ok(pooling),
        [] => Err(config.unsupported("pooling_mode", supported)),
        // None that we have, or several, which would be put side by side.
        [.., (key, _)] => Err(config.unsupported(key, supported)),
    }
}

fn json(folder: &Path, name: &str) -> Result<Option<Value>> {
    let Some(bytes) = read(folder, name)? else {
        return Ok(None);
    };
    let json = serde_json::from_slice(&bytes).map_err(|e| ModelError::Json {
        file: name.to_owned(),
        reason: e.to_string(),
    });
    json.map(Some)
}
