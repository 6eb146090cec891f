//! Owns the model hub's names: `owner/name`, with a choice of file after a colon.

use crate::error::{Result, WeightsError};
use crate::gguf::PartName;
use std::fmt;

/// `owner/name`, `owner/name:file.gguf` or `owner/name:Q4_K_M`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubId {
    pub owner: String,
    pub name: String,
    pub pick: Option<String>,
}

impl HubId {
    /// Reads an id; `None` where the text cannot be one. Nothing that passes can leave a folder.
    pub fn parse(text: &str) -> Option<HubId> {
        let (repository, pick) = match text.split_once(':') {
            Some((repository, pick)) => (repository, Some(pick)),
            None => (text, None),
        };
        let (owner, name) = repository.split_once('/')?;
        let plain = is_hub_name(owner) && is_hub_name(name) && pick.is_none_or(is_plain_file);
        plain.then(|| HubId {
            owner: owner.to_owned(),
            name: name.to_owned(),
            pick: pick.map(str::to_owned),
        })
    }

    pub fn repository(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }

    /// The id of the folder that `Home::hub_folder` makes.
    pub fn from_folder_name(folder: &str) -> Option<HubId> {
        let (owner, name) = folder.split_once("--")?;
        HubId::parse(&format!("{owner}/{name}"))
    }
}

impl fmt::Display for HubId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.repository())?;
        match &self.pick {
            Some(pick) => write!(f, ":{pick}"),
            None => Ok(()),
        }
    }
}

/// The hub's own rules for the two parts of an id.
fn is_hub_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !text.is_empty()
        && text.len() <= 96
        && text.chars().all(plain)
        && !text.starts_with(['.', '-'])
        && !text.ends_with(['.', '-'])
        && !text.contains("--")
        && !text.contains("..")
}

/// The files of the model that `gguf` is, or is a part of, in order.
pub fn parts_of(gguf: &str) -> Vec<String> {
    match PartName::parse(gguf) {
        Some(part) => part.all().collect(),
        None => vec![gguf.to_owned()],
    }
}

/// A file name that stays in its folder on every system, hides nothing and means itself in a URL.
pub fn is_plain_file(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_graphic() && !"/\\:?*\"<>|%#".contains(c);
    !name.is_empty() && name.len() <= 255 && !name.starts_with('.') && name.chars().all(plain)
}

/// The one of `names` that `pick` means: the name itself, or a part of it such as `Q4_K_M` between dashes or dots.
/// A split model is one choice, and its first part stands for it.
pub fn pick_gguf<'a>(id: &HubId, pick: Option<&str>, names: &[&'a str]) -> Result<&'a str> {
    let candidates: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| name.to_ascii_lowercase().ends_with(".gguf"))
        .filter(|name| PartName::parse(name).is_none_or(|part| part.part == 1))
        .collect();
    let matching: Vec<&str> = match pick {
        None => candidates.clone(),
        Some(pick) => candidates
            .iter()
            .copied()
            .filter(|name| {
                *name == pick || name.split(['-', '.']).any(|p| p.eq_ignore_ascii_case(pick))
            })
            .collect(),
    };
    match matching.as_slice() {
        [one] => Ok(one),
        _ if candidates.is_empty() => Err(WeightsError::HubChoice(format!(
            "{} holds neither model.safetensors nor a .gguf file",
            id.repository()
        ))),
        other => Err(WeightsError::HubChoice(format!(
            "{id} means {} files; give one as {}:FILE out of:{}",
            match other.len() {
                0 => "none of the".to_owned(),
                several => format!("{several} .gguf"),
            },
            id.repository(),
            candidates
                .iter()
                .map(|name| format!("\n      {name}"))
                .collect::<String>()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_and_paths_are_not() {
        let id = HubId::parse("org/name-1.5:Q4_K_M").unwrap();
        assert_eq!(id.to_string(), "org/name-1.5:Q4_K_M");
        assert_eq!(
            HubId::from_folder_name("org--name"),
            HubId::parse("org/name")
        );
        for text in [
            "name",
            "a/b/c",
            "../name",
            "./name",
            "org/..",
            "/name",
            "org/",
            "~/x",
            "org/a b",
            "org/name:",
            "org/name:../x.gguf",
            "org/name:a/b.gguf",
            "o--g/name",
            "org\\x/name",
        ] {
            assert_eq!(HubId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_pick_is_a_file_or_a_quantization() {
        let id = HubId::parse("org/name").unwrap();
        let names = [
            "config.json",
            "m-Q4_K_M.gguf",
            "m.q8_0.gguf",
            "m-Q4_K_S.gguf",
        ];
        let pick = |pick| pick_gguf(&id, pick, &names);
        assert_eq!(pick(Some("q4_k_m")).unwrap(), "m-Q4_K_M.gguf");
        assert_eq!(pick(Some("Q8_0")).unwrap(), "m.q8_0.gguf");
        assert_eq!(pick(Some("m-Q4_K_S.gguf")).unwrap(), "m-Q4_K_S.gguf");
        let split = ["m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"];
        assert_eq!(pick_gguf(&id, None, &split).unwrap(), split[0]);
        assert_eq!(pick_gguf(&id, Some("q8_0"), &split).unwrap(), split[0]);
        assert_eq!(parts_of(split[0]), split);
        let error = pick(None).unwrap_err().to_string();
        expect_test::expect![[r#"
            org/name means 3 .gguf files; give one as org/name:FILE out of:
                  m-Q4_K_M.gguf
                  m.q8_0.gguf
                  m-Q4_K_S.gguf"#]]
        .assert_eq(&error);
        assert!(
            pick(Some("Q4_K"))
                .unwrap_err()
                .to_string()
                .contains("means none of the files")
        );
    }
}
