//! Owns `mettle serve`: the banner, the signals, and the order in which things end.

use super::settings;
use crate::args::ServeArgs;
use crate::config::{ReasoningParser, Settings, ToolParser, engine_flags, server_flags};
use crate::interrupt::{self, Interrupt};
use crate::session::{Load, PAGE_TOKENS, Session};
use crate::terminal::{bytes, note, paint};
use anyhow::Context;
use mettle_server::{
    App, AppOptions, Asset, EngineFacts, Pooling, ReasoningFormat, ToolFormat, serve,
};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpListener;

pub fn run(args: ServeArgs) -> anyhow::Result<()> {
    let model = args.positional_model.as_ref().or(args.model.as_ref());
    let mut flags = engine_flags(model, &args.engine);
    flags.extend(server_flags(&args.server));
    let settings = settings(flags)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the server's threads")?;
    // The port is taken before the model is loaded: a taken one is told at once.
    let listener = runtime.block_on(listen(&settings))?;
    let interrupt = Interrupt::install()?;
    let load = Load {
        sequences: settings.max_num_seqs,
        queue: settings.max_queue,
    };
    let session = Session::open(&settings, &interrupt, load)?;
    let address = listener.local_addr()?;
    let app = app(&session, &settings);
    banner(&session, &settings, address);
    runtime.block_on(serve(
        listener,
        Arc::new(app),
        stop_signal(),
        settings.shutdown_timeout,
    ))?;
    session.engine.shutdown();
    note("stopped");
    Ok(())
}

async fn listen(settings: &Settings) -> anyhow::Result<TcpListener> {
    let (host, port) = (settings.host.as_str(), settings.port);
    TcpListener::bind((host, port)).await.with_context(|| {
        format!("cannot listen on {host} port {port} (--host and --port choose others)")
    })
}

fn app(session: &Session, settings: &Settings) -> App {
    let names = match settings.served_model_name.is_empty() {
        // Where a file lies is nobody else's business.
        true if Path::new(&settings.model).exists() => vec![session.model.name.clone()],
        true => vec![settings.model.clone()],
        false => settings.served_model_name.clone(),
    };
    let options = AppOptions {
        model_names: names,
        template: session.template.clone(),
        generation: session.model.generation.clone(),
        eos_ids: session.model.eos_ids.clone(),
        api_keys: settings.api_keys.clone(),
        tool_format: tool_format(session, settings),
        reasoning_format: reasoning_format(session, settings),
        pooling: pooling(session, settings),
        normalize: session.model.sentence.normalize.unwrap_or(true),
        allowed_origins: settings.allowed_origins.clone(),
        max_logprobs: settings.max_logprobs,
        request_timeout: settings.request_timeout,
        body_limit: settings.max_body_bytes,
        facts: facts(session, settings),
        page: Some(page),
        ..AppOptions::new("")
    };
    App::new(session.engine.clone(), session.tokenizer.clone(), options)
}

/// As asked for, as the model's files say, or as most of its kind do.
fn pooling(session: &Session, settings: &Settings) -> Pooling {
    let own = session.model.sentence.pooling;
    let own = own.and_then(|pooling| match pooling {
        mettle_plan::Pooling::Mean => Some(Pooling::Mean),
        mettle_plan::Pooling::Last => Some(Pooling::Last),
        mettle_plan::Pooling::First => Some(Pooling::First),
        // Of patches of an image.
        mettle_plan::Pooling::MeanOf(_) => None,
    });
    settings
        .pooling
        .or(own)
        .unwrap_or(match session.engine.limits().gives_logits {
            true => Pooling::Last,
            false => Pooling::Mean,
        })
}

fn page(path: &str) -> Option<Asset> {
    let file = mettle_page::asset(path)?;
    Some(Asset {
        bytes: file.bytes,
        content_type: file.content_type,
        etag: file.etag,
        content_security_policy: mettle_page::CONTENT_SECURITY_POLICY,
    })
}

fn tool_format(session: &Session, settings: &Settings) -> Option<ToolFormat> {
    match settings.tool_call_parser {
        ToolParser::Auto => ToolFormat::detect(session.model.chat_template.as_ref()?),
        ToolParser::Format(format) => Some(format),
    }
}

fn reasoning_format(session: &Session, settings: &Settings) -> Option<ReasoningFormat> {
    match settings.reasoning_parser {
        ReasoningParser::Auto => ReasoningFormat::detect(session.model.chat_template.as_ref()?),
        ReasoningParser::None => None,
        ReasoningParser::Format(format) => Some(format),
    }
}

fn facts(session: &Session, settings: &Settings) -> EngineFacts {
    let memory = &session.memory;
    EngineFacts {
        backend: session.backend.clone(),
        backend_reason: session.backend_reason.clone(),
        device: session.device.to_owned(),
        max_num_seqs: settings.max_num_seqs,
        max_num_batched_tokens: session.batched_tokens,
        page_tokens: PAGE_TOKENS,
        weight_bytes: memory.weight_bytes as u64,
        kv_bytes: memory.kv_bytes as u64,
        scratch_bytes: memory.scratch_bytes as u64,
    }
}

/// Done at the first SIGINT or SIGTERM; a second one ends the program at once.
async fn stop_signal() {
    signal().await;
    note("stopping: requests under way may end; again to stop at once");
    tokio::spawn(async {
        signal().await;
        std::process::exit(interrupt::EXIT_CODE.into());
    });
}

#[cfg(unix)]
async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).expect("the runtime handles signals");
    let mut interrupt = signal(SignalKind::interrupt()).expect("the runtime handles signals");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

#[cfg(not(unix))]
async fn signal() {
    tokio::signal::ctrl_c()
        .await
        .expect("the runtime handles signals");
}

fn banner(session: &Session, settings: &Settings, address: SocketAddr) {
    let stderr = io::stderr();
    let memory = &session.memory;
    let url = format!("http://{address}");
    note(&format!(
        "{} {} ({}, {} tokens of context), loaded in {:.2} s",
        paint(&stderr, "1", "mettle serve"),
        session.model.name,
        session.model.architecture(),
        session.engine.limits().context,
        session.load_time.as_secs_f64(),
    ));
    note(&format!(
        "backend   {} ({})",
        session.backend, session.backend_reason
    ));
    note(&format!(
        "memory    weights {}, KV cache {}, scratch {}",
        bytes(memory.weight_bytes as u64),
        bytes(memory.kv_bytes as u64),
        bytes(memory.scratch_bytes as u64)
    ));
    note(&format!("page      {url}/"));
    let limits = session.engine.limits();
    let mut routes = Vec::new();
    if limits.gives_logits {
        routes.extend([
            "/v1/chat/completions",
            "/v1/completions",
            "/v1/responses",
            "/v1/messages",
        ]);
    }
    if limits.gives_hidden {
        routes.push("/v1/embeddings");
    }
    routes.extend(["/v1/models", "/metrics"]);
    note(&format!("routes    {url}{}", routes.join(" ")));
    let key = match settings.api_keys.is_empty() {
        true => "",
        false => " -H 'Authorization: Bearer KEY'",
    };
    let (path, body) = match session.template {
        _ if !limits.gives_logits => (
            "embeddings",
            r#"{"input": "What is the capital of Germany?"}"#,
        ),
        Some(_) => (
            "chat/completions",
            r#"{"messages": [{"role": "user", "content": "What is the capital of Germany?"}]}"#,
        ),
        None => (
            "completions",
            r#"{"prompt": "The capital of Germany is", "max_tokens": 8}"#,
        ),
    };
    note(&format!(
        "try       curl {url}/v1/{path}{key} -H 'Content-Type: application/json' -d '{body}'"
    ));
}
