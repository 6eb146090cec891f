//! Owns the page at `/`: its files, embedded in the binary. Knows no server and no engine.
//!
//! The server answers `GET` with [`asset`] of the path, sends [`CONTENT_SECURITY_POLICY`] and `Cache-Control: no-cache`,
//! and 304 where `If-None-Match` carries the tag: a new binary then shows its new page at once.

use std::sync::LazyLock;

/// The policy to send with the page. It has no inline script or style and loads nothing from elsewhere.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// One file of the page, with what its response needs.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    pub bytes: &'static [u8],
    pub content_type: &'static str,
    /// A strong validator with its quotes: other contents, other tag.
    pub etag: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! files {
    ($($path:literal $file:literal $kind:expr;)*) => {
        &[$(($path, include_bytes!(concat!("../assets/", $file)), $kind)),*]
    };
}

/// All below `/page/`, so that they take no name from the API.
const FILES: &[(&str, &[u8], &str)] = files! {
    "/" "index.html" HTML;
    "/page/style.css" "style.css" CSS;
    "/page/chat.css" "chat.css" CSS;
    "/page/engine.css" "engine.css" CSS;
    "/page/theme.js" "theme.js" JAVASCRIPT;
    "/page/app.js" "app.js" JAVASCRIPT;
    "/page/api.js" "api.js" JAVASCRIPT;
    "/page/answers.js" "answers.js" JAVASCRIPT;
    "/page/charts.js" "charts.js" JAVASCRIPT;
    "/page/chat.js" "chat.js" JAVASCRIPT;
    "/page/dom.js" "dom.js" JAVASCRIPT;
    "/page/engine.js" "engine.js" JAVASCRIPT;
    "/page/format.js" "format.js" JAVASCRIPT;
    "/page/inline.js" "inline.js" JAVASCRIPT;
    "/page/key.js" "key.js" JAVASCRIPT;
    "/page/markdown.js" "markdown.js" JAVASCRIPT;
    "/page/message.js" "message.js" JAVASCRIPT;
    "/page/page_map.js" "page_map.js" JAVASCRIPT;
    "/page/settings.js" "settings.js" JAVASCRIPT;
    "/page/store.js" "store.js" JAVASCRIPT;
    "/page/icon.svg" "icon.svg" SVG;
};

static ETAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let tag = |(_, bytes, _): &(&str, &[u8], &str)| format!("\"{:016x}\"", fnv1a(bytes));
    FILES.iter().map(tag).collect()
});

/// The file that a request for `path` (no query) is answered with.
pub fn asset(path: &str) -> Option<Asset> {
    let at = FILES.iter().position(|(name, ..)| *name == path)?;
    let (_, bytes, content_type) = FILES[at];
    Some(Asset {
        bytes,
        content_type,
        etag: &ETAGS[at],
    })
}

/// Every path that [`asset`] knows.
pub fn paths() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(path, ..)| *path)
}

/// FNV-1a: tells versions of a file apart, and needs no dependency.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::fnv1a;

    #[test]
    fn the_hash_is_fnv1a() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
