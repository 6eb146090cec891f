//! Owns `mettle run`: one prompt, its answer on stdout as it comes.

use super::settings;
use crate::args::RunArgs;
use crate::config::engine_flags;
use crate::interrupt::{Interrupt, Interrupted};
use crate::sampling::ask;
use crate::session::{Load, Session};
use anyhow::{Context, bail};
use mettle_engine::{Answer, FinishReason};
use mettle_text::{Message, RenderOptions, TextError, encode_chat};
use std::io::{self, Read, Write};

pub fn run(args: RunArgs) -> anyhow::Result<()> {
    let settings = settings(engine_flags(args.model.as_ref(), &args.engine))?;
    let prompt = match args.prompt.as_str() {
        "-" => read_stdin()?,
        prompt => prompt.to_owned(),
    };
    let interrupt = Interrupt::install()?;
    let session = Session::open(&settings, &interrupt, Load::SINGLE)?;
    // Models that answer with a decoder of their own have no conversations, but for those that bring a template.
    let has_encoder = session.engine.limits().encoder.is_some();
    let ids = match args.raw || (has_encoder && session.template.is_none()) {
        true => session.encode(&prompt)?,
        false => {
            let system = args.system.as_deref().map(|s| Message::new("system", s));
            let user = Message::new("user", prompt.trim_end_matches('\n'));
            chat_ids(
                &session,
                &[system.into_iter().collect(), vec![user]].concat(),
            )?
        }
    };
    let mut answer = ask(&session, &args.sampling, settings.seed, ids)?;
    let text = show(&mut answer, &interrupt)?;
    if !text.ends_with('\n') {
        writeln!(io::stdout())?;
    }
    session.engine.shutdown();
    match interrupt.is_pressed() {
        true => Err(Interrupted.into()),
        false => Ok(()),
    }
}

fn read_stdin() -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let read = io::stdin().read_to_end(&mut bytes);
    read.context("cannot read the prompt from stdin")?;
    String::from_utf8(bytes).context("the prompt on stdin is not UTF-8")
}

/// Token ids of a conversation, ready for the next answer.
pub fn chat_ids(session: &Session, messages: &[Message]) -> anyhow::Result<Vec<u32>> {
    session.check_generates()?;
    let template = session.template.as_ref().ok_or(TextError::NoChatTemplate)?;
    let options = RenderOptions {
        add_generation_prompt: true,
        ..RenderOptions::default()
    };
    Ok(encode_chat(
        &session.tokenizer,
        template,
        messages,
        &options,
    )?)
}

/// Writes an answer to stdout as it comes; Ctrl-C ends it early. Gives its text.
pub fn show(answer: &mut Answer, interrupt: &Interrupt) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut stdout = io::stdout().lock();
    while let Some(piece) = answer.next_piece() {
        if interrupt.is_pressed() {
            answer.abort();
            break;
        }
        stdout.write_all(piece.text.as_bytes())?;
        stdout.flush()?;
        text.push_str(&piece.text);
    }
    match answer.end().map(|end| &end.reason) {
        Some(FinishReason::Error(reason)) => bail!("the engine failed: {reason}"),
        _ => Ok(text),
    }
}
