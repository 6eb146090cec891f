//! Owns the kernel sources: plain text inside the binary, shared headers put in where they are included.

use crate::error::KernelError;

/// One `.metal` file.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    pub name: &'static str,
    text: &'static str,
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(Source { name: $name, text: include_str!(concat!("../metal/", $name)) }),*]
    };
}

static SOURCES: &[Source] = files![
    "attention_decode.metal",
    "attention_prefill.metal",
    "attention_prefill_staged.metal",
    "elementwise.metal",
    "head_norm.metal",
    "linear.metal",
    "linear_quantized.metal",
    "linear_quantized_staged.metal",
    "linear_reduce.metal",
    "linear_small.metal",
    "linear_small_quantized.metal",
    "linear_staged.metal",
    "rms_norm.metal",
    "rope.metal",
    "top_k.metal",
];

static SELF_TESTS: &[Source] = files!["selftest.metal"];

static HEADERS: &[Source] = files![
    "common/attention_prefill.h",
    "common/element.h",
    "common/fragment.h",
    "common/lane.h",
    "common/linear.h",
    "common/linear_dense.h",
    "common/linear_quantized.h",
    "common/linear_tile.h",
    "common/pages.h",
    "common/quantized.h",
    "common/reduce.h",
    "common/stage.h",
];

/// Every kernel source, as it stands in the repository.
pub fn sources() -> &'static [Source] {
    SOURCES
}

/// Kernels with faults, for the emulator's own tests. Part of no device's library.
pub fn self_tests() -> &'static [Source] {
    SELF_TESTS
}

impl Source {
    pub fn text(&self) -> &'static str {
        self.text
    }

    /// The text with every shared header in place of its first include, so that a compiler needs no include path.
    /// `#line` makes its messages name the files of the repository.
    pub fn flattened(&self) -> Result<String, KernelError> {
        let mut out = String::new();
        let mut seen = Vec::new();
        flatten(self.name, self.text, &mut seen, &mut out)?;
        Ok(out)
    }
}

fn flatten(
    name: &str,
    text: &str,
    seen: &mut Vec<String>,
    out: &mut String,
) -> Result<(), KernelError> {
    out.push_str(&format!("#line 1 \"{name}\"\n"));
    for (index, line) in text.lines().enumerate() {
        let included = line
            .strip_prefix("#include \"")
            .and_then(|rest| rest.split('"').next());
        let Some(included) = included else {
            out.push_str(line);
            out.push('\n');
            continue;
        };
        if !seen.iter().any(|s| s == included) {
            seen.push(included.to_string());
            let header = HEADERS.iter().find(|h| h.name == included).ok_or_else(|| {
                KernelError::UnknownInclude {
                    includer: name.to_string(),
                    name: included.to_string(),
                }
            })?;
            flatten(header.name, header.text, seen, out)?;
        }
        out.push_str(&format!("#line {} \"{name}\"\n", index + 2));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_include_is_named() {
        let mut out = String::new();
        let text = "#include \"common/nothing.h\"\n";
        let error = flatten("k.metal", text, &mut Vec::new(), &mut out).unwrap_err();
        assert_eq!(
            error.to_string(),
            "k.metal includes common/nothing.h, which is not one of the shared headers"
        );
    }

    #[test]
    fn a_header_appears_once_and_lines_keep_their_numbers() {
        let mut out = String::new();
        let text = "a\n#include \"common/reduce.h\"\n#include \"common/reduce.h\"\nb\n";
        flatten("k.metal", text, &mut Vec::new(), &mut out).unwrap();
        assert_eq!(out.matches("#line 1 \"common/reduce.h\"").count(), 1);
        assert!(out.ends_with("#line 3 \"k.metal\"\n#line 4 \"k.metal\"\nb\n"));
    }
}
