//! Owns `/v1/embeddings`, for which the engine has no way yet: its requests make tokens only.

use crate::error::ApiError;

pub async fn create() -> ApiError {
    ApiError::NotBuilt("embeddings are not available yet: the engine gives tokens only".into())
}
