//! Owns the one error type of this crate.

/// What can go wrong with a tokenizer, a template or a text, always because of the input.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    #[error("{file} is not valid JSON: {reason}")]
    Json { file: &'static str, reason: String },
    #[error("{file}: `{key}` must be {expected}, found {found}")]
    JsonType {
        file: &'static str,
        key: String,
        expected: &'static str,
        found: String,
    },
    #[error("tokenizer.json cannot be used: {0}")]
    TokenizerJson(String),
    #[error("tokenizer.model cannot be used: {0}")]
    TokenizerModel(String),
    #[error("tokenizer model `{model}` is not supported; supported: {supported}")]
    UnsupportedModel {
        model: String,
        supported: &'static str,
    },
    #[error("pre-tokenizer `{pre}` is not supported; supported: {supported}")]
    UnsupportedPretokenizer { pre: String, supported: String },
    #[error("the vocabulary is broken: {0}")]
    BrokenVocabulary(String),
    #[error("the text could not be tokenized: {0}")]
    Encode(String),
    #[error("a stop string must not be empty")]
    EmptyStop,
    #[error("the model has no chat template; use --raw to send the prompt as it is")]
    NoChatTemplate,
    #[error("the chat template does not compile: {0}")]
    TemplateSyntax(String),
    #[error("the chat template failed: {0}")]
    TemplateRender(String),
    /// The template itself refused the conversation (`raise_exception`).
    #[error("the chat template refused the messages: {0}")]
    TemplateRefused(String),
    #[error("the chat template ran for more than {limit} instructions (an endless loop?)")]
    TemplateFuel { limit: u64 },
    #[error("the chat template produced more than {limit} bytes")]
    TemplateOutput { limit: usize },
    #[error("the chat template has {size} bytes, the limit is {limit}")]
    TemplateSource { size: usize, limit: usize },
    #[error("the chat template was given up after {limit:?}")]
    TemplateTime { limit: std::time::Duration },
    #[error("the chat template is still busy with {threads} conversations that were given up")]
    TemplateThreads { threads: usize },
    #[error("the template argument `{0}` would replace one of the template's own variables")]
    ReservedArgument(String),
    #[error("add_generation_prompt and continue_final_message exclude each other")]
    GenerationPromptAndContinue,
    #[error("continue_final_message: {0}")]
    CannotContinue(&'static str),
    #[error("the messages use every one of the {0} code points reserved for marking text")]
    NoFreeMarker(usize),
}
