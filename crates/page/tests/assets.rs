//! Owns the proof that the page is whole, stays on this server and fits a strict policy.

use mettle_page::{CONTENT_SECURITY_POLICY, asset, paths};
use std::collections::BTreeSet;
use std::path::Path;

fn text(path: &str) -> &'static str {
    let asset = asset(path).unwrap_or_else(|| panic!("{path} is not served"));
    std::str::from_utf8(asset.bytes).expect(path)
}

fn with_ending(ending: &str) -> Vec<(&'static str, &'static str)> {
    let found: Vec<_> = paths().filter(|path| path.ends_with(ending)).collect();
    assert!(!found.is_empty(), "no {ending} at all");
    found.into_iter().map(|path| (path, text(path))).collect()
}

/// What stands between `before` and the next `after`, everywhere in `text`.
fn between<'a>(text: &'a str, before: &str, after: char) -> Vec<&'a str> {
    let pieces = text.split(before).skip(1);
    pieces
        .map(|rest| rest.split(after).next().unwrap_or(""))
        .collect()
}

#[test]
fn everything_referenced_is_served_and_everything_served_is_referenced() {
    let mut referenced = BTreeSet::from(["/".to_owned()]);
    for attribute in ["href=\"", "src=\""] {
        for target in between(text("/"), attribute, '"') {
            if !target.starts_with('#') {
                referenced.insert(format!("/{target}"));
            }
        }
    }
    for (path, script) in with_ending(".js") {
        for target in between(script, " from \"", '"') {
            let name = target
                .strip_prefix("./")
                .unwrap_or_else(|| panic!("{path} imports {target}"));
            referenced.insert(format!("/page/{name}"));
        }
    }
    let served: BTreeSet<String> = paths().map(str::to_owned).collect();
    assert_eq!(referenced, served);
}

#[test]
fn every_file_of_the_folder_is_embedded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = match name.as_str() {
            "index.html" => "/".to_owned(),
            _ => format!("/page/{name}"),
        };
        let on_disk = std::fs::read(entry.path()).unwrap();
        assert!(asset(&path).is_some_and(|a| a.bytes == on_disk), "{name}");
    }
}

#[test]
fn nothing_comes_from_the_network() {
    for path in paths() {
        // A namespace is a name, not an address.
        let text = text(path).replace("http://www.w3.org/2000/svg", "");
        for scheme in ["http://", "https://", "ws://", "wss://", "\"//", "'//"] {
            assert!(!text.contains(scheme), "{path} contains {scheme}");
        }
    }
    for (path, style) in with_ending(".css") {
        assert!(
            !style.contains("@import") && !style.contains("url("),
            "{path}"
        );
    }
}

#[test]
fn a_strict_policy_holds() {
    assert!(CONTENT_SECURITY_POLICY.starts_with("default-src 'none'"));
    assert!(!CONTENT_SECURITY_POLICY.contains("unsafe"));
    let html = text("/");
    for inline in [
        "<style", " style=", "onclick=", "onload=", "<script>", "<iframe",
    ] {
        assert!(!html.contains(inline), "{inline} in index.html");
    }
    for (path, script) in with_ending(".js") {
        for way in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "\"style\"",
            "DOMParser",
        ] {
            assert!(!script.contains(way), "{path} uses {way}");
        }
    }
}

#[test]
fn every_element_that_a_script_asks_for_is_in_the_page() {
    let html = text("/");
    let mut asked = 0;
    for (path, script) in with_ending(".js") {
        for id in between(script, "byId(\"", '"') {
            assert!(html.contains(&format!("id=\"{id}\"")), "{path} asks #{id}");
            asked += 1;
        }
        for name in
            between(script, "#icon-", '"')
                .into_iter()
                .chain(between(script, "iconButton(\"", '"'))
        {
            let symbol = format!("id=\"icon-{name}\"");
            assert!(
                name.contains('$') || html.contains(&symbol),
                "{path}: {symbol}"
            );
        }
    }
    for id in ["for=\"", "aria-controls=\"", "href=\"#icon-"] {
        let prefix = if id.ends_with("icon-") { "icon-" } else { "" };
        for target in between(html, id, '"') {
            assert!(
                html.contains(&format!("id=\"{prefix}{target}\"")),
                "{target}"
            );
        }
    }
    assert!(
        asked > 40,
        "only {asked} elements found: has byId a new name?"
    );
    let ids = between(html, " id=\"", '"');
    let distinct: BTreeSet<_> = ids.iter().collect();
    assert_eq!(ids.len(), distinct.len(), "an id is used twice");
}

/// The fields of `/engine/state`, and at the end those that the page works out itself. It shows `kv.free` without the
/// cached pages and `kv.used` without the shared ones.
const STATE: &[&str] = &[
    "model",
    "backend",
    "backend_reason",
    "uptime_seconds",
    "limits.max_model_len",
    "limits.max_num_seqs",
    "limits.max_num_batched_tokens",
    "requests.running",
    "requests.waiting",
    "requests.finished",
    "requests.preemptions",
    "tokens.prompt_total",
    "tokens.generated_total",
    "tokens.prompt_per_second",
    "tokens.generated_per_second",
    "latency.ttft_ms.p50",
    "latency.ttft_ms.p95",
    "latency.itl_ms.p50",
    "latency.itl_ms.p95",
    "kv.pages",
    "kv.shared",
    "kv.cached",
    "kv.page_tokens",
    "prefix.queries",
    "prefix.hits",
    "memory.weights",
    "memory.kv",
    "memory.scratch",
    "prefix.rate",
    "kv.in_use",
    "kv.unshared",
    "kv.empty",
    "memory.total",
];

#[test]
fn the_engine_view_shows_every_field_of_the_state_and_no_other() {
    let html = text("/");
    let shown: BTreeSet<&str> = between(html, "data-field=\"", '"').into_iter().collect();
    assert_eq!(shown, STATE.iter().copied().collect());
    for history in between(html, "data-history=\"", '"') {
        assert!(STATE.contains(&history), "{history}");
    }
    let formats = text("/page/format.js");
    for kind in between(html, "data-format=\"", '"') {
        let known = [
            format!("  {kind}: "),
            format!("  {kind},"),
            format!("=== \"{kind}\""),
        ];
        assert!(known.iter().any(|way| formats.contains(way)), "{kind}");
    }
}

#[test]
fn sizes_and_kinds_are_sane() {
    let mut total = 0;
    for path in paths() {
        let asset = asset(path).unwrap();
        assert!(
            asset.bytes.len() > 100 && asset.bytes.len() < 30_000,
            "{path}: {}",
            asset.bytes.len()
        );
        total += asset.bytes.len();
        let kind = match path.rsplit('.').next().unwrap() {
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "svg" => "image/svg+xml",
            _ => "text/html; charset=utf-8",
        };
        assert_eq!(asset.content_type, kind, "{path}");
    }
    // Uncompressed, and loaded in one go on a phone over Wi-Fi.
    assert!(total < 150_000, "the page has grown to {total} bytes");
}

#[test]
fn tags_are_quoted_and_tell_files_apart() {
    let tags: BTreeSet<&str> = paths().map(|path| asset(path).unwrap().etag).collect();
    assert_eq!(tags.len(), paths().count());
    for tag in tags {
        assert!(
            tag.len() == 18 && tag.starts_with('"') && tag.ends_with('"'),
            "{tag}"
        );
    }
}

#[test]
fn other_paths_are_not_served() {
    for path in [
        "",
        "/index.html",
        "/page",
        "/page/",
        "page/app.js",
        "/page/../src/lib.rs",
        "/page/APP.JS",
        "/v1/models",
        "/page/app.js?x",
    ] {
        assert!(asset(path).is_none(), "{path}");
    }
}
