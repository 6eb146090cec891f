//! Owns the work between a body and the engine: parsing, templates and tokenizing take longer than other connections
//! should wait, so they have threads of their own.

use crate::app::App;
use crate::error::ApiError;
use std::sync::Arc;

pub async fn prepare<T: Send + 'static>(
    app: &Arc<App>,
    work: impl FnOnce(&Arc<App>) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let app = app.clone();
    tokio::task::spawn_blocking(move || work(&app))
        .await
        .map_err(|_| ApiError::Internal("the request could not be prepared".into()))?
}
