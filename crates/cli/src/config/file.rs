//! Owns the config file: lines of `key = value`, comments after `#`, values bare or in quotes.

use super::{ConfigError, KEYS, Origin, file_in};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

#[derive(Debug, Default)]
pub struct ConfigFile {
    path: PathBuf,
    values: BTreeMap<String, (String, usize)>,
}

impl ConfigFile {
    /// The file in `home`; none is as good as an empty one.
    pub fn read(home: &Path) -> Result<ConfigFile, ConfigError> {
        let path = file_in(home);
        match std::fs::read_to_string(&path) {
            Ok(text) => ConfigFile::parse(path, &text),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(ConfigFile::default()),
            Err(error) => Err(ConfigError(format!(
                "cannot read {}: {error}",
                path.display()
            ))),
        }
    }

    pub fn parse(path: PathBuf, text: &str) -> Result<ConfigFile, ConfigError> {
        let mut values = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            let wrong = |problem: String| {
                ConfigError(format!("{}:{}: {problem}", path.display(), index + 1))
            };
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let Some((key, value)) = line.split_once('=') else {
                return Err(wrong(format!("`{line}` is not of the form key = value")));
            };
            // TOML writers like underscores.
            let key = key.trim().replace('_', "-");
            // The folder that the file is in cannot be set in the file.
            if key == "home" || !KEYS.iter().any(|known| known.name == key) {
                return Err(wrong(format!(
                    "there is no setting {key}; see mettle config"
                )));
            }
            let value = unquoted(value).map_err(|problem| wrong(format!("{key}: {problem}")))?;
            if values.insert(key.clone(), (value, index + 1)).is_some() {
                return Err(wrong(format!("{key} is set twice")));
            }
        }
        Ok(ConfigFile { path, values })
    }

    pub fn get(&self, key: &str) -> Option<(String, Origin)> {
        let (value, line) = self.values.get(key)?;
        let origin = Origin::File {
            path: self.path.clone(),
            line: *line,
        };
        Some((value.clone(), origin))
    }
}

fn unquoted(value: &str) -> Result<String, &'static str> {
    let value = value.trim();
    let Some(rest) = value.strip_prefix('"') else {
        let bare = value.split('#').next().unwrap_or(value);
        return Ok(bare.trim().to_owned());
    };
    let (inside, after) = rest.split_once('"').ok_or("the closing quote is missing")?;
    match after.trim() {
        "" => Ok(inside.to_owned()),
        comment if comment.starts_with('#') => Ok(inside.to_owned()),
        _ => Err("there is something after the closing quote"),
    }
}
