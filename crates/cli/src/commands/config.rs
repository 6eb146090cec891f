//! Owns `mettle config`: every setting, its value and where that came from.

use crate::args::ConfigArgs;
use crate::config::{
    Config, INHERITED, KEYS, Settings, engine_flags, environment, file_in, server_flags,
};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

pub fn run(args: ConfigArgs) -> anyhow::Result<()> {
    let mut flags = engine_flags(args.model.as_ref(), &args.engine);
    flags.extend(server_flags(&args.server));
    let config = Config::resolve(flags, environment)?;
    // What cannot be used is an error here too, not a line to overlook.
    Settings::new(&config)?;
    let text = match args.json {
        true => serde_json::to_string_pretty(&as_json(&config))? + "\n",
        false => as_text(&config),
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// A value as it may be shown: secrets are not.
fn shown(config: &Config, name: &str) -> Option<String> {
    let key = KEYS.iter().find(|key| key.name == name)?;
    let value = &config.get(name).value;
    match (value.is_empty(), key.is_secret) {
        (true, _) if name == "home" => Some(config.home.display().to_string()),
        (true, _) => None,
        (false, true) => Some("(set)".to_owned()),
        (false, false) => Some(value.clone()),
    }
}

pub fn as_text(config: &Config) -> String {
    let mut text = String::new();
    for key in KEYS {
        let value = shown(config, key.name).unwrap_or(format!("({})", key.unset));
        let origin = config.get(key.name).origin.to_string();
        text += &format!("{:<24} {value:<28} {origin}\n", key.name);
    }
    text += &format!("\nfile: {}\n", file_in(&config.home).display());
    if !config.inherited.is_empty() {
        text += "\nvariables of earlier engines that are set:\n";
    }
    for (name, value) in &config.inherited {
        text += &format!("{name}={value}: {}\n", meaning(name));
    }
    text
}

fn as_json(config: &Config) -> Value {
    let setting = |key: &crate::config::Key| {
        let found = config.get(key.name);
        let value = json!({
            "value": shown(config, key.name),
            "origin": found.origin.to_string(),
        });
        (key.name.to_owned(), value)
    };
    let inherited = |(name, value): &(&'static str, String)| {
        let value = json!({ "value": value, "meaning": meaning(name) });
        ((*name).to_owned(), value)
    };
    json!({
        "file": file_in(&config.home),
        "settings": KEYS.iter().map(setting).collect::<Map<_, _>>(),
        "inherited": config.inherited.iter().map(inherited).collect::<Map<_, _>>(),
    })
}

fn meaning(name: &str) -> &'static str {
    let known = INHERITED.iter().find(|(known, _)| *known == name);
    known.map_or("", |(_, meaning)| *meaning)
}
