//! Owns `mettle chat`: a conversation in the terminal.

use super::run::{chat_ids, show};
use super::settings;
use crate::args::{ChatArgs, SamplingArgs};
use crate::config::engine_flags;
use crate::interrupt::Interrupt;
use crate::sampling::ask;
use crate::session::{Load, Session};
use crate::terminal::{note, paint};
use anyhow::{Context, bail};
use mettle_text::Message;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

const HELP: &str = "\
/help           this
/clear          forgets the conversation
/system TEXT    starts over with a system message; without TEXT, without one
/save FILE      writes the conversation as JSON
/exit           leaves, as does Ctrl-D

Ctrl-C stops an answer; at the prompt it leaves.";

pub fn run(args: ChatArgs) -> anyhow::Result<()> {
    let settings = settings(engine_flags(args.model.as_ref(), &args.engine))?;
    let interrupt = Interrupt::install()?;
    let session = Session::open(&settings, &interrupt, Load::SINGLE)?;
    session.check_generates()?;
    if session.template.is_none() {
        let name = &session.model.name;
        bail!("{name} has no chat template, so it cannot chat; mettle run --raw continues a text");
    }
    note(&paint(
        &io::stderr(),
        "2",
        &format!("{} on {}; /help", session.model.name, session.backend),
    ));
    let mut sampling = args.sampling;
    if session.model.generation.temperature.is_none() {
        // A small model that always takes the likeliest token soon says the same for ever.
        let temperature = *sampling.temperature.get_or_insert(0.7);
        if temperature > 0.0 {
            sampling.top_p.get_or_insert(0.9);
        }
    }
    let mut chat = Chat {
        messages: Vec::new(),
        session,
        sampling,
        seed: settings.seed,
        interrupt,
    };
    chat.start(args.system);
    let mut lines = Lines::open(&settings.home)?;
    while let Some(line) = lines.next()? {
        if !chat.take(line.trim())? {
            break;
        }
    }
    chat.session.engine.shutdown();
    Ok(())
}

struct Chat {
    session: Session,
    sampling: SamplingArgs,
    seed: Option<u64>,
    messages: Vec<Message>,
    interrupt: Interrupt,
}

impl Chat {
    fn start(&mut self, system: Option<String>) {
        let system = system.filter(|text| !text.is_empty());
        self.messages = system
            .map(|text| Message::new("system", text))
            .into_iter()
            .collect();
    }

    /// Does what a line says; false where it says to leave. A failed command or answer is told and the chat goes on.
    fn take(&mut self, line: &str) -> anyhow::Result<bool> {
        let (command, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        match command {
            "" => {}
            "/exit" | "/quit" | "/bye" => return Ok(false),
            "/help" | "/?" => note(HELP),
            "/clear" => self.start(self.system()),
            "/system" => self.start(Some(rest.to_owned())),
            "/save" => self.tell(self.save(rest)),
            _ if command.starts_with('/') => {
                note(&format!("there is no command {command}; /help lists them"));
            }
            _ => {
                let outcome = self.answer(line);
                match outcome {
                    // Nobody reads any more.
                    Err(error) if error.is::<io::Error>() => return Err(error),
                    outcome => self.tell(outcome),
                }
            }
        }
        Ok(self.session.engine.is_alive())
    }

    fn system(&self) -> Option<String> {
        let first = self.messages.first().filter(|m| m.role == "system")?;
        first.content.as_str().map(str::to_owned)
    }

    fn answer(&mut self, line: &str) -> anyhow::Result<()> {
        self.messages.push(Message::new("user", line));
        let asked = chat_ids(&self.session, &self.messages)
            .and_then(|ids| ask(&self.session, &self.sampling, self.seed, ids));
        let mut answer = match asked {
            Ok(answer) => answer,
            Err(error) => {
                self.messages.pop();
                return Err(error).context("not asked (/clear starts over)");
            }
        };
        self.interrupt.reset();
        let text = show(&mut answer, &self.interrupt)?;
        writeln!(io::stdout())?;
        // What was shown of a stopped answer is part of the conversation.
        self.messages.push(Message::new("assistant", text));
        self.interrupt.reset();
        Ok(())
    }

    fn save(&self, file: &str) -> anyhow::Result<()> {
        if file.is_empty() {
            bail!("/save needs the name of a file");
        }
        let json = serde_json::to_string_pretty(&self.messages)?;
        std::fs::write(file, json + "\n").with_context(|| format!("cannot write {file}"))?;
        note(&format!("{} messages are in {file}", self.messages.len()));
        Ok(())
    }

    fn tell(&self, outcome: anyhow::Result<()>) {
        if let Err(error) = outcome {
            let label = paint(&io::stderr(), "1;31", "error:");
            note(&format!("{label} {error:#}"));
        }
    }
}

/// What is typed, or piped in.
enum Lines {
    Typed {
        editor: Box<DefaultEditor>,
        history: PathBuf,
    },
    Piped(io::Lines<io::StdinLock<'static>>),
}

impl Lines {
    fn open(home: &Path) -> anyhow::Result<Lines> {
        if !io::stdin().is_terminal() {
            return Ok(Lines::Piped(io::stdin().lock().lines()));
        }
        let mut editor = DefaultEditor::new().context("cannot use this terminal")?;
        let history = home.join("chat-history.txt");
        // There is none the first time.
        let _ = editor.load_history(&history);
        Ok(Lines::Typed {
            editor: Box::new(editor),
            history,
        })
    }

    /// The next line; `None` at the end of input or at Ctrl-C.
    fn next(&mut self) -> anyhow::Result<Option<String>> {
        let (editor, history) = match self {
            Lines::Piped(lines) => return Ok(lines.next().transpose()?),
            Lines::Typed { editor, history } => (editor, history),
        };
        match editor.readline(">>> ") {
            Ok(line) => {
                if !line.trim().is_empty() {
                    // A history that cannot be kept is no reason to stop talking.
                    let _ = editor.add_history_entry(&line);
                    let folder = history.parent().map(std::fs::create_dir_all);
                    if let Some(Ok(())) = folder {
                        let _ = editor.save_history(history);
                    }
                }
                Ok(Some(line))
            }
            Err(ReadlineError::Eof | ReadlineError::Interrupted) => Ok(None),
            Err(error) => Err(error).context("cannot read the line"),
        }
    }
}
