//! Tokenizers, random walks under a grammar, and a checker of JSON against schemas, for the tests of this folder.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod schema;

use mettle_engine::{TokenConstraint, TokenMask};
use mettle_structured::{Grammar, GrammarCompiler, Limits, Spec, StructuredError};
use mettle_text::Tokenizer;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

pub struct Vocabulary {
    pub tokenizer: Arc<Tokenizer>,
    pub eos: u32,
    pub compiler: GrammarCompiler,
}

impl Vocabulary {
    pub fn new(tokenizer: Arc<Tokenizer>) -> Vocabulary {
        let eos = tokenizer.eos().expect("an end-of-sequence token");
        Vocabulary {
            compiler: GrammarCompiler::new(&tokenizer, &[eos]).unwrap(),
            tokenizer,
            eos,
        }
    }

    pub fn compile(&self, spec: Spec) -> Result<Grammar, StructuredError> {
        self.compiler.compile(&spec, &Limits::default())
    }
}

pub fn fixture(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/models/qwen2");
    std::fs::read(folder.join(name)).unwrap()
}

/// A fixture's tokenizer: bytes and a few merges.
pub fn tiny() -> &'static Vocabulary {
    static TINY: OnceLock<Vocabulary> = OnceLock::new();
    TINY.get_or_init(|| {
        let config = fixture("tokenizer_config.json");
        let tokenizer = Tokenizer::from_json(&fixture("tokenizer.json"), Some(&config)).unwrap();
        Vocabulary::new(Arc::new(tokenizer))
    })
}

/// The same with more tokens, from id 300 on: their text, and whether they are special.
pub fn tiny_with(tokens: &[(&str, bool)]) -> Vocabulary {
    let mut json: serde_json::Value = serde_json::from_slice(&fixture("tokenizer.json")).unwrap();
    let added = json["added_tokens"].as_array_mut().unwrap();
    for (id, (content, special)) in (300..).zip(tokens) {
        added.push(
            serde_json::json!({"id": id, "content": content, "special": special,
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}),
        );
    }
    let config = fixture("tokenizer_config.json");
    let tokenizer = Tokenizer::from_json(json.to_string().as_bytes(), Some(&config)).unwrap();
    Vocabulary::new(Arc::new(tokenizer))
}

/// The default model's, 49,152 tokens. `cargo xtask test` fetches it.
pub fn real() -> &'static Vocabulary {
    use mettle_weights::download::{DEFAULT_MODEL, Home, Located, locate};
    static REAL: OnceLock<Vocabulary> = OnceLock::new();
    REAL.get_or_init(|| {
        let home = Home::discover(std::env::var_os("METTLE_HOME").map(PathBuf::from)).unwrap();
        let Located::Path(path) = locate(DEFAULT_MODEL, &home).unwrap() else {
            panic!("{DEFAULT_MODEL} is not here yet: run `cargo xtask test`");
        };
        let model = mettle_models::Model::open(&path, Default::default()).unwrap();
        Vocabulary::new(model.tokenizer().unwrap())
    })
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

/// What a walk found at one place: the text so far and whether it may end here.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], bool);

/// Follows random allowed tokens for `free` steps, then those that close something, to an end. Checks on the way that
/// every allowed token can be followed by another and that one that is not allowed is refused.
pub fn walk(
    vocabulary: &Vocabulary,
    grammar: &Grammar,
    seed: u64,
    free: usize,
    visit: Visit,
) -> String {
    let mut random = Random(seed);
    let mut constraint = grammar.constraint();
    let mut bytes = Vec::new();
    for step in 0..2000 {
        let allowed = allowed_in(vocabulary, constraint.as_mut());
        assert!(!allowed.is_empty(), "dead end after {}", show(&bytes));
        let may_end = allowed.contains(&vocabulary.eos);
        visit(&bytes, may_end);
        let tokens: Vec<u32> = allowed
            .into_iter()
            .filter(|id| *id != vocabulary.eos)
            .collect();
        for id in &tokens {
            assert!(!vocabulary.tokenizer.is_special(*id), "special token {id}");
        }
        look_around(
            vocabulary,
            constraint.as_ref(),
            &tokens,
            &mut random,
            &bytes,
        );
        if may_end && (step >= free || tokens.is_empty() || random.below(8) == 0) {
            return String::from_utf8(bytes).unwrap();
        }
        let token = match step < free {
            true => tokens[random.below(tokens.len())],
            false => closing(vocabulary, &tokens, &mut random),
        };
        constraint.accept(token).unwrap();
        bytes.extend_from_slice(vocabulary.tokenizer.token_bytes(token).unwrap());
        if constraint.is_finished() {
            visit(&bytes, true);
            assert_eq!(
                allowed_in(vocabulary, constraint.as_mut()),
                [vocabulary.eos]
            );
            return String::from_utf8(bytes).unwrap();
        }
    }
    panic!("no end after {}", show(&bytes));
}

fn look_around(
    vocabulary: &Vocabulary,
    at: &dyn TokenConstraint,
    allowed: &[u32],
    random: &mut Random,
    bytes: &[u8],
) {
    let text = |id: u32| show(vocabulary.tokenizer.token_bytes(id).unwrap_or_default());
    for _ in 0..2.min(allowed.len()) {
        let id = allowed[random.below(allowed.len())];
        let mut fork = at.fork();
        fork.accept(id).unwrap();
        let next = allowed_in(vocabulary, fork.as_mut());
        assert!(
            !next.is_empty(),
            "{} is a dead end after {}",
            text(id),
            show(bytes)
        );
    }
    let id = random.below(vocabulary.tokenizer.vocab_size()) as u32;
    if id != vocabulary.eos && !allowed.contains(&id) {
        assert!(
            at.fork().accept(id).is_err(),
            "{} after {}",
            text(id),
            show(bytes)
        );
    }
}

/// Through a mask that is wider than the tokenizer, as models' logits are.
pub fn allowed_in(vocabulary: &Vocabulary, constraint: &mut dyn TokenConstraint) -> Vec<u32> {
    let size = vocabulary.tokenizer.vocab_size() + 100;
    let mut mask = TokenMask::new(size);
    constraint.mask(&mut mask).unwrap();
    let allowed: Vec<u32> = (0..size as u32).filter(|id| mask.is_allowed(*id)).collect();
    assert!(
        allowed
            .iter()
            .all(|id| (*id as usize) < vocabulary.tokenizer.vocab_size())
    );
    allowed
}

/// A token that ends what is open rather than one that opens more.
fn closing(vocabulary: &Vocabulary, allowed: &[u32], random: &mut Random) -> u32 {
    let starts = |wanted: &[u8]| {
        let fits = |id: &&u32| vocabulary.tokenizer.token_bytes(**id) == Some(wanted);
        allowed.iter().find(fits).copied()
    };
    let wanted: [&[u8]; 7] = [b"\"", b"}", b"]", b"0", b":", b"e", b"<"];
    let found = wanted.iter().find_map(|wanted| starts(wanted));
    found.unwrap_or_else(|| allowed[random.below(allowed.len())])
}

pub fn show(bytes: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(bytes))
}

/// Follows `text` byte by byte: whether it may end there, `None` where a byte is not allowed.
pub fn follow(vocabulary: &Vocabulary, grammar: &Grammar, text: &str) -> Option<bool> {
    let mut constraint = grammar.constraint();
    for byte in text.bytes() {
        let one = |id: &u32| vocabulary.tokenizer.token_bytes(*id) == Some(&[byte]);
        let id = allowed_in(vocabulary, constraint.as_mut())
            .into_iter()
            .find(one)?;
        constraint.accept(id).unwrap();
    }
    Some(allowed_in(vocabulary, constraint.as_mut()).contains(&vocabulary.eos))
}
