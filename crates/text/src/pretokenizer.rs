//! Owns the pre-tokenizers a GGUF file can name: which expressions split the text, and the BPE
//! options that go with them.

use crate::TextError;

/// What `tokenizer.ggml.pre` stands for.
#[derive(Debug)]
pub(crate) struct Pretokenizer {
    names: &'static [&'static str],
    /// Applied one after the other, each to the pieces of the one before.
    pub(crate) patterns: &'static [&'static str],
    /// A piece that is a whole vocabulary entry is that token, whatever the merges say.
    pub(crate) ignore_merges: bool,
    /// Canonical composition (NFC) comes before splitting.
    pub(crate) compose: bool,
    /// Whether a file that says nothing about it gets a BOS.
    pub(crate) add_bos: bool,
}

pub(crate) const GPT2_PATTERN: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

const LLAMA3_PATTERN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// DeepSeek's own list of the letters that have two cases, as of an older Unicode.
const DEEPSEEK_LETTERS: &str = r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";

const DEEPSEEK_IDEOGRAPHS: &str = r"[一-龥ࠀ-一가-퟿]+";

const KNOWN: &[Pretokenizer] = &[
    Pretokenizer {
        names: &[
            "gpt-2",
            "gpt2",
            "default",
            "phi-2",
            "mellum",
            "modern-bert",
            "exaone4",
            "gigachat",
            "a.x-4.0",
        ],
        patterns: &[GPT2_PATTERN],
        ignore_merges: false,
        compose: false,
        add_bos: false,
    },
    Pretokenizer {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "lfm2",
            "midm-2.0",
        ],
        patterns: &[LLAMA3_PATTERN],
        ignore_merges: true,
        compose: false,
        add_bos: true,
    },
    // Phi-4, and Llama 3 models whose tokenizer.json was changed.
    Pretokenizer {
        names: &["dbrx", "smaug-bpe"],
        patterns: &[LLAMA3_PATTERN],
        ignore_merges: false,
        compose: false,
        add_bos: false,
    },
    // gpt-oss and Phi-4-mini.
    Pretokenizer {
        names: &["gpt-4o", "llama4", "kanana2"],
        patterns: &[
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
        ignore_merges: false,
        compose: false,
        add_bos: false,
    },
    Pretokenizer {
        names: &["deepseek-coder"],
        patterns: &[
            r"[\r\n]",
            r"\s?\p{L}+",
            r"\s?\p{P}+",
            DEEPSEEK_IDEOGRAPHS,
            r"\p{N}",
        ],
        ignore_merges: false,
        compose: false,
        add_bos: false,
    },
    Pretokenizer {
        names: &["deepseek-llm"],
        patterns: &[
            r"[\r\n]",
            DEEPSEEK_LETTERS,
            r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
            r"\s+$",
            DEEPSEEK_IDEOGRAPHS,
            r"\p{N}",
        ],
        ignore_merges: false,
        compose: false,
        add_bos: false,
    },
    Pretokenizer {
        names: &["qwen2", "deepseek-r1-qwen", "megrez", "kormo"],
        patterns: &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
        ignore_merges: false,
        compose: true,
        add_bos: false,
    },
    Pretokenizer {
        names: &[
            "smollm",
            "codeshell",
            "exaone",
            "minerva-7b",
            "starcoder",
            "refact",
        ],
        patterns: &[r"\p{N}", GPT2_PATTERN],
        ignore_merges: false,
        compose: false,
        add_bos: false,
    },
    Pretokenizer {
        names: &["tekken"],
        patterns: &[
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
        ignore_merges: true,
        compose: false,
        add_bos: true,
    },
];

/// Looks up `tokenizer.ggml.pre`; files older than that key meant GPT-2.
pub(crate) fn named(pre: Option<&str>) -> Result<&'static Pretokenizer, TextError> {
    let pre = pre.unwrap_or("default");
    KNOWN
        .iter()
        .find(|known| known.names.contains(&pre))
        .ok_or_else(|| TextError::UnsupportedPretokenizer {
            pre: pre.to_owned(),
            supported: KNOWN
                .iter()
                .flat_map(|known| known.names)
                .copied()
                .collect::<Vec<_>>()
                .join(", "),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::splitter::Splitter;

    #[test]
    fn every_pattern_splits_in_linear_time() {
        for pattern in KNOWN.iter().flat_map(|known| known.patterns) {
            assert!(Splitter::new(pattern, true).is_some(), "{pattern}");
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let message = named(Some("chameleon")).unwrap_err().to_string();
        assert!(
            message.contains("`chameleon`")
                && message.contains("minerva-7b, starcoder, refact, tekken"),
            "{message}"
        );
    }
}
