//! Owns the rules that clippy cannot see.

use crate::steps::repository;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::Path;

/// Which of our crates each crate may use. Dependencies point one way: towards the data.
const MAY_USE: [(&str, &[&str]); 18] = [
    ("tensor", &[]),
    ("weights", &["tensor"]),
    ("text", &[]),
    ("plan", &["tensor"]),
    ("models", &["plan", "tensor", "text", "weights"]),
    ("cpu", &["plan", "tensor"]),
    ("kernels", &[]),
    ("gpu", &["kernels", "plan", "tensor"]),
    ("cuda", &["gpu", "kernels"]),
    ("metal", &["gpu", "kernels"]),
    ("bench", &["gpu", "kernels", "plan", "tensor"]),
    ("engine", &["plan", "text"]),
    ("structured", &["engine", "text"]),
    ("page", &[]),
    ("server", &["engine", "plan", "structured", "text"]),
    ("validate", &["models", "plan", "tensor"]),
    // The only place that names a concrete backend.
    (
        "cli",
        &[
            "bench", "cpu", "cuda", "engine", "gpu", "kernels", "metal", "models", "page", "plan",
            "server", "tensor", "text", "validate", "weights",
        ],
    ),
    ("xtask", &[]),
];

const LONGEST_FILE: usize = 700;
const LARGEST_FILE: u64 = 1_000_000;

pub fn run() -> Result<()> {
    let mut faults = Vec::new();
    dependencies(&mut faults)?;
    files(&mut faults)?;
    match faults.is_empty() {
        true => Ok(()),
        false => bail!("tidy found {}:\n{}", faults.len(), faults.join("\n")),
    }
}

fn dependencies(faults: &mut Vec<String>) -> Result<()> {
    for entry in std::fs::read_dir(repository().join("crates"))? {
        let folder = entry?.path();
        let name = folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let Some((_, allowed)) = MAY_USE.iter().find(|(n, _)| *n == name) else {
            faults.push(format!("crates/{name}: not in xtask's list of crates"));
            continue;
        };
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml"))
            .with_context(|| format!("crates/{name}/Cargo.toml"))?;
        for used in shipped_dependencies(&manifest) {
            if !allowed.contains(&used) {
                faults.push(format!("crates/{name} may not use mettle-{used}"));
            }
        }
    }
    Ok(())
}

/// Our crates that a manifest names outside its dev-dependencies: tests may look sideways, what ships may not.
fn shipped_dependencies(manifest: &str) -> Vec<&str> {
    let mut section = "";
    let mut found = Vec::new();
    for line in manifest.lines().map(str::trim) {
        let mut entry = line;
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']');
            // A dependency may be a table of its own: [dependencies.mettle-plan].
            entry = section.rsplit('.').next().unwrap_or_default();
        }
        if section.contains("dependencies")
            && !section.contains("dev-dependencies")
            && let Some(rest) = entry.strip_prefix("mettle-")
        {
            found.extend(rest.split(['.', ' ', '=']).next());
        }
    }
    found
}

/// Files that git tracks or would track.
fn files(faults: &mut Vec<String>) -> Result<()> {
    let mut system_files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let listed = std::process::Command::new("git")
        .current_dir(repository())
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .output()
        .context("git ls-files")?;
    if !listed.status.success() {
        bail!(
            "git ls-files: {}",
            String::from_utf8_lossy(&listed.stderr).trim()
        );
    }
    for name in String::from_utf8_lossy(&listed.stdout).lines() {
        let path = repository().join(name);
        let Ok(metadata) = std::fs::metadata(&path) else {
            continue;
        };
        if metadata.len() > LARGEST_FILE {
            faults.push(format!(
                "{name}: {} bytes, at most {LARGEST_FILE}",
                metadata.len()
            ));
        }
        if name.ends_with(".rs") {
            source(name, &path, faults)?;
            if let Some(owner) = names_a_system(name, &path)? {
                system_files.entry(owner).or_default().push(name.to_owned());
            }
        }
    }
    for (owner, files) in system_files.iter().filter(|(_, files)| files.len() > 1) {
        faults.push(format!(
            "{owner}: cfg(target_os) in more than one file: {}",
            files.join(", ")
        ));
    }
    Ok(())
}

fn source(name: &str, path: &Path, faults: &mut Vec<String>) -> Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| name.to_owned())?;
    if !text.starts_with("//!") {
        faults.push(format!("{name}: its first line does not say what it owns"));
    }
    let lines = text.lines().count();
    if lines > LONGEST_FILE {
        faults.push(format!("{name}: {lines} lines, at most {LONGEST_FILE}"));
    }
    // Written in two parts so that this file does not find itself.
    for stub in [
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("#[ig", "nore"),
    ] {
        if text.contains(stub) {
            faults.push(format!("{name}: {stub}"));
        }
    }
    Ok(())
}

/// The crate of a file that ships code for one operating system only; tests may be as particular as they like.
fn names_a_system(name: &str, path: &Path) -> Result<Option<String>> {
    let Some((owner, file)) = name.split_once("/src/") else {
        return Ok(None);
    };
    let text = std::fs::read_to_string(path)?;
    let shipped = text.split("#[cfg(test)]").next().unwrap_or_default();
    let found = shipped.contains("target_os") && !file.contains("tests");
    Ok((found && owner != "xtask").then(|| owner.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_found_in_every_form_but_dev() {
        let manifest = "[dependencies]\nmettle-a.workspace = true\nother = \"1\"\n[dev-dependencies]\n\
            mettle-b = { path = \"b\" }\n[build-dependencies]\nmettle-c = \"1\"\n[dependencies.mettle-d]\n\
            path = \"d\"\n[target.'cfg(unix)'.dependencies]\nmettle-e = \"1\"\n[dev-dependencies.mettle-f]";
        assert_eq!(shipped_dependencies(manifest), ["a", "c", "d", "e"]);
    }
}
