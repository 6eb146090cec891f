//! Owns the list of models: one model under each of its names.

use crate::app::App;
use crate::error::ApiError;
use axum::Json;
use axum::extract::{Path, State};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

#[derive(Debug, Serialize, ToSchema)]
pub struct ModelList {
    object: &'static str,
    data: Vec<ModelCard>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct ModelCard {
    id: String,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    root: String,
    parent: Option<String>,
    max_model_len: usize,
}

pub async fn list(State(app): State<Arc<App>>) -> Json<ModelList> {
    let names = &app.options.model_names;
    Json(ModelList {
        object: "list",
        data: names.iter().map(|name| card(&app, name)).collect(),
    })
}

pub async fn one(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Json<ModelCard>, ApiError> {
    app.check_model(Some(&id))?;
    Ok(Json(card(&app, &id)))
}

fn card(app: &App, name: &str) -> ModelCard {
    ModelCard {
        id: name.to_owned(),
        object: "model",
        created: app.started,
        owned_by: "mettle",
        root: app.model_name().to_owned(),
        parent: None,
        max_model_len: app.engine.limits().context,
    }
}
