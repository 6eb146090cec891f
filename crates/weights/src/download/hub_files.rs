//! Owns the fetching of a model's files from the hub: the list, the choice among them, and the order.

use super::catalogue::CatalogueEntry;
use super::home::Home;
use super::http::Http;
use super::hub::{HubId, is_plain_file, parts_of, pick_gguf};
use super::part_file::Expected;
use super::progress::{Options, Progress};
use crate::error::{Result, WeightsError};
use crate::gguf::PartName;
use crate::safetensors::{INDEX, Index, SINGLE};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Written when all that an id without a pick means has come. Holds the name of the GGUF file, or nothing where the
/// whole folder is the model.
pub const COMPLETE: &str = ".complete";

/// What a model may need beside its weights.
const SIDE_FILES: [&str; 8] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "modules.json",
    "sentence_bert_config.json",
    POOLING,
];

/// How sentence-transformers makes one vector of a text: the only file of a folder in the repository.
const POOLING: &str = "1_Pooling/config.json";

/// SentencePiece's own, for repositories that have no tokenizer.json.
const SENTENCEPIECE_FILES: [&str; 2] = ["tokenizer.model", "spiece.model"];

#[derive(Deserialize)]
struct Listing {
    /// The commit that `main` points at: all files are fetched from it, even when `main` moves meanwhile.
    sha: String,
    siblings: Vec<RemoteFile>,
}

#[derive(Deserialize)]
struct RemoteFile {
    rfilename: String,
    size: Option<u64>,
    lfs: Option<LargeFile>,
}

impl RemoteFile {
    /// The name that the file gets here. Repositories keep the parts of split models in a folder per type.
    fn name(&self) -> &str {
        match self.rfilename.split_once('/') {
            Some((folder, part)) if is_plain_file(folder) && PartName::parse(part).is_some() => {
                part
            }
            _ => &self.rfilename,
        }
    }
}

#[derive(Deserialize)]
struct LargeFile {
    sha256: String,
}

/// A catalogue entry's file: what it must contain is known, so no list is needed.
pub fn fetch_entry(
    entry: &CatalogueEntry,
    place: &Path,
    options: &Options,
    progress: &mut dyn Progress,
) -> Result<PathBuf> {
    let url = format!(
        "{}/{}/resolve/main/{}",
        options.hub_endpoint, entry.hub_repository, entry.file
    );
    let expected = Expected {
        bytes: Some(entry.bytes),
        sha256: Some(entry.sha256.to_owned()),
    };
    progress.begin(entry.file, Some(entry.bytes));
    let fetched = Http::new(options).file(&url, place, &expected, progress);
    progress.finish();
    fetched
}

/// A hub model: a folder with safetensors where there are some and no other file was picked, else one GGUF model: a file or all its parts.
pub fn fetch_model(
    id: &HubId,
    home: &Home,
    options: &Options,
    progress: &mut dyn Progress,
) -> Result<PathBuf> {
    let repository = Repository::list(id, home, options)?;
    let has = |name: &str| repository.file(name).is_ok();
    if id.pick.is_some() || !(has(SINGLE) || has(INDEX)) {
        let names: Vec<&str> = repository.names().collect();
        let name = pick_gguf(id, id.pick.as_deref(), &names)?;
        let parts = parts_of(name);
        // Before gigabytes are fetched for nothing.
        for part in &parts {
            repository.file(part)?;
        }
        for part in &parts {
            repository.fetch(part, progress)?;
        }
        let path = repository.folder.join(name);
        if id.pick.is_none() {
            repository.mark_complete(name)?;
        }
        return Ok(path);
    }
    repository.file("config.json")?;
    for name in SIDE_FILES.into_iter().filter(|name| has(name)) {
        repository.fetch(name, progress)?;
    }
    if !has("tokenizer.json") {
        for name in SENTENCEPIECE_FILES.into_iter().filter(|name| has(name)) {
            repository.fetch(name, progress)?;
        }
    }
    if has(SINGLE) {
        repository.fetch(SINGLE, progress)?;
    } else {
        let index = Index::read(&repository.fetch(INDEX, progress)?)?;
        for shard in index.shards() {
            repository.fetch(shard, progress)?;
        }
    }
    repository.mark_complete("")?;
    Ok(repository.folder)
}

struct Repository<'a> {
    id: &'a HubId,
    http: Http<'a>,
    endpoint: &'a str,
    listing: Listing,
    folder: PathBuf,
}

impl<'a> Repository<'a> {
    fn list(id: &'a HubId, home: &Home, options: &'a Options) -> Result<Repository<'a>> {
        let http = Http::new(options);
        let endpoint = options.hub_endpoint.as_str();
        let url = format!("{endpoint}/api/models/{}?blobs=true", id.repository());
        let mut listing: Listing = http.json(&url)?;
        // The rest lies in subfolders or has names we would not write to disk; of a model only split parts and one small
        // file do.
        let is_wanted = |f: &RemoteFile| is_plain_file(f.name()) || f.name() == POOLING;
        listing.siblings.retain(is_wanted);
        if !listing.sha.chars().all(|c| c.is_ascii_hexdigit()) || listing.sha.is_empty() {
            return Err(WeightsError::Network {
                url,
                reason: format!("{:?} is not a commit", listing.sha),
            });
        }
        Ok(Repository {
            id,
            http,
            endpoint,
            listing,
            folder: home.hub_folder(id),
        })
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.listing.siblings.iter().map(RemoteFile::name)
    }

    fn file(&self, name: &str) -> Result<&RemoteFile> {
        let found = self.listing.siblings.iter().find(|f| f.name() == name);
        found.ok_or_else(|| {
            WeightsError::HubChoice(format!("{} has no file {name}", self.id.repository()))
        })
    }

    fn mark_complete(&self, gguf: &str) -> Result<()> {
        let marker = self.folder.join(COMPLETE);
        std::fs::write(&marker, gguf).map_err(WeightsError::io("write", &marker))
    }

    fn fetch(&self, name: &str, progress: &mut dyn Progress) -> Result<PathBuf> {
        let file = self.file(name)?;
        let place = self.folder.join(name);
        let expected = Expected {
            bytes: file.size,
            sha256: file.lfs.as_ref().map(|l| l.sha256.to_ascii_lowercase()),
        };
        // Files enter the folder checked and whole, so one with a checksum and the right size is that file. Small
        // files have no checksum and may have changed: they are fetched again.
        let there = std::fs::metadata(&place).is_ok_and(|m| Some(m.len()) == expected.bytes);
        if there && expected.sha256.is_some() {
            return Ok(place);
        }
        let url = format!(
            "{}/{}/resolve/{}/{}",
            self.endpoint,
            self.id.repository(),
            self.listing.sha,
            file.rfilename
        );
        progress.begin(name, file.size);
        let fetched = self.http.file(&url, &place, &expected, progress);
        progress.finish();
        fetched
    }
}
