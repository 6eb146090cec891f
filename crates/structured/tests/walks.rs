//! Random walks under a grammar end in what was asked for, whatever the tokens.

mod common;

use common::schema::fits;
use common::{Vocabulary, allowed_in, follow, real, show, tiny, walk};
use mettle_structured::{GrammarCompiler, Limits, Spec, StructuralTag};
use serde_json::{Value, json};

fn both() -> [(&'static Vocabulary, u64, usize); 2] {
    [(tiny(), 12, 40), (real(), 6, 30)]
}

fn schemas() -> Vec<Value> {
    vec![
        json!({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0,
            "maximum": 150}}, "required": ["name", "age"], "additionalProperties": false}),
        json!({"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 4}),
        json!({"enum": ["a", "bc", 7, null, true]}),
        json!({"type": "string", "minLength": 3, "maxLength": 5}),
        json!({"type": "string", "pattern": "^[a-f]{2}-[0-9]+$"}),
        json!({"type": ["integer", "null"], "title": "ignored", "x-unknown": {"deep": 1}}),
        json!({"$defs": {"node": {"type": "object", "properties": {"value": {"type": "boolean"}, "next": {"anyOf":
            [{"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["value", "next"],
            "additionalProperties": false}}, "$ref": "#/$defs/node"}),
        json!({"$defs": {"cat": {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type":
            "integer", "minimum": 1, "maximum": 9}}, "required": ["kind", "lives"], "additionalProperties": false},
            "dog": {"type": "object", "properties": {"kind": {"const": "dog"}}, "required": ["kind"],
            "additionalProperties": false}}, "oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}]}),
        json!({"allOf": [{"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]},
            {"type": "object", "properties": {"b": {"const": 1}}, "required": ["b"]}]}),
    ]
}

/// JSON sets no bounds to numbers, this reader does (1e999): exponents are left away where there may be some.
fn parsed(text: &[u8], has_exponents: bool) -> Option<Value> {
    let text = std::str::from_utf8(text).ok()?;
    let exponents = regex::Regex::new("([0-9])[eE][+-]?[0-9]+").unwrap();
    match has_exponents {
        true => serde_json::from_str(&exponents.replace_all(text, "$1")).ok(),
        false => serde_json::from_str(text).ok(),
    }
}

#[test]
fn json_fits_its_schema_and_may_end_where_it_is_complete() {
    for (vocabulary, seeds, free) in both() {
        for schema in schemas() {
            let grammar = vocabulary
                .compile(Spec::JsonSchema(schema.clone()))
                .unwrap();
            for seed in 0..seeds {
                let complete = |text: &[u8]| {
                    let parsed = parsed(text, schema.to_string().contains("\"number\""));
                    parsed.is_some_and(|value| fits(&value, &schema, &schema))
                };
                let text = walk(vocabulary, &grammar, seed, free, &mut |text, may_end| {
                    // Whitespace that may follow is a matter of taste.
                    let trimmed = !text.last().is_some_and(u8::is_ascii_whitespace);
                    if may_end || (trimmed && complete(text)) {
                        assert!(complete(text), "{schema}: may end after {}", show(text));
                        assert!(may_end, "{schema}: may not end after {}", show(text));
                    }
                });
                assert!(complete(text.as_bytes()), "{schema}: {text}");
            }
        }
    }
}

#[test]
fn json_objects_are_objects() {
    for (vocabulary, seeds, free) in both() {
        let grammar = vocabulary.compile(Spec::JsonObject).unwrap();
        for seed in 0..seeds {
            let text = walk(vocabulary, &grammar, seed, free, &mut |_, _| {});
            let value = parsed(text.as_bytes(), true).unwrap_or_else(|| panic!("{text}"));
            assert!(value.is_object(), "{text}");
        }
    }
}

#[test]
fn text_matches_its_regex_and_may_end_exactly_where_it_does() {
    for (vocabulary, seeds, free) in both() {
        for pattern in [
            "[a-c]{2,5}x?",
            "^\\d{3}-\\d{4}$",
            "(?:ja|nein|vielleicht)( !)*",
            "é+/\\w*",
            "a|b$",
            "\\p{Greek}{1,3}",
        ] {
            let whole = regex::Regex::new(&format!("^(?:{pattern})$")).unwrap();
            let grammar = vocabulary.compile(Spec::Regex(pattern.to_owned())).unwrap();
            for seed in 0..seeds {
                let text = walk(vocabulary, &grammar, seed, free, &mut |text, may_end| {
                    let matches = std::str::from_utf8(text).is_ok_and(|text| whole.is_match(text));
                    assert_eq!(may_end, matches, "{pattern} after {}", show(text));
                });
                assert!(whole.is_match(&text), "{pattern}: {text}");
            }
        }
    }
}

#[test]
fn an_answer_is_one_of_the_choices_and_each_can_be_reached() {
    let choices = [
        "yes",
        "yesterday",
        "no \"quotes\" \\",
        "line\nbreak",
        "日本",
        " space",
        "%json {}",
    ];
    let choices: Vec<String> = choices.iter().map(|c| (*c).to_owned()).collect();
    for (vocabulary, seeds, free) in both() {
        let grammar = vocabulary.compile(Spec::Choice(choices.clone())).unwrap();
        for seed in 0..4 * seeds {
            let text = walk(vocabulary, &grammar, seed, free, &mut |text, may_end| {
                let is_choice = choices.iter().any(|choice| choice.as_bytes() == text);
                assert_eq!(may_end, is_choice, "after {}", show(text));
            });
            assert!(choices.contains(&text), "{text}");
        }
        for choice in &choices {
            let ids = vocabulary
                .tokenizer
                .encode(choice, mettle_text::SpecialTokens::Plain, false);
            let mut constraint = grammar.constraint();
            for id in ids.unwrap() {
                assert!(
                    allowed_in(vocabulary, constraint.as_mut()).contains(&id),
                    "{choice}"
                );
                constraint.accept(id).unwrap();
            }
            assert!(
                allowed_in(vocabulary, constraint.as_mut()).contains(&vocabulary.eos),
                "{choice}"
            );
        }
    }
}

#[test]
fn a_grammar_is_followed() {
    let sums = r#"
        start: term ("+" term)*
        term: NUMBER | "(" start ")"
        NUMBER: /[0-9]{1,3}/
    "#;
    for (vocabulary, seeds, free) in both() {
        let grammar = vocabulary.compile(Spec::Grammar(sums.to_owned())).unwrap();
        for seed in 0..seeds {
            // Closing brackets come where digits do: give random walks time to find them.
            let text = walk(vocabulary, &grammar, seed, free.min(8), &mut |_, _| {});
            let depth = |end: usize| {
                let count = |c: char| text[..end].matches(c).count() as isize;
                count('(') - count(')')
            };
            assert_eq!(depth(text.len()), 0, "{text}");
            assert!(
                text.char_indices().all(|(end, _)| depth(end) >= 0),
                "{text}"
            );
            assert!(
                text.chars()
                    .all(|c| c.is_ascii_digit() || "()+".contains(c)),
                "{text}"
            );
        }
    }
}

#[test]
fn gbnf_without_recursion_is_followed_exactly() {
    for (gbnf, pattern) in [
        ("root ::= [a-z]{0,6} \"end\"", "[a-z]{0,6}end"),
        (
            "root ::= \"a\" | # one\n \"b\" [^x\\]\\n-]{1,2}\nunused ::= root",
            "a|b[^x\\]\\n-]{1,2}",
        ),
        (
            "root ::= pair (\",\" pair){0,2}\npair ::= key-name \"=\" .?\nkey-name ::= [A-Z_]+",
            "(?s)[A-Z_]+=.?(?:,[A-Z_]+=.?){0,2}",
        ),
        (
            "root ::= \"\\x41\\u00e9\\\"/\" [/&~[\\]]+ |",
            "(?:A\u{e9}\"/[/&~\\[\\]]+)?",
        ),
    ] {
        let whole = regex::Regex::new(&format!("^(?:{pattern})$")).unwrap();
        for (vocabulary, seeds, free) in both() {
            let grammar = vocabulary.compile(Spec::Grammar(gbnf.to_owned())).unwrap();
            for seed in 0..seeds {
                let text = walk(
                    vocabulary,
                    &grammar,
                    seed,
                    free.min(12),
                    &mut |text, may_end| {
                        let matches =
                            std::str::from_utf8(text).is_ok_and(|text| whole.is_match(text));
                        assert_eq!(may_end, matches, "{gbnf} after {}", show(text));
                    },
                );
                assert!(whole.is_match(&text), "{gbnf}: {text}");
            }
        }
    }
}

#[test]
fn gbnf_with_recursion_is_followed() {
    let json = r#"
        root   ::= object
        value  ::= object | array | string | number | ("true" | "false" | "null") ws
        object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
        array  ::= "[" ws ( value ("," ws value)* )? "]" ws
        string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
        number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ws
        ws     ::= | " " | "\n" [ \t]{0,20}
    "#;
    for (vocabulary, seeds, free) in both() {
        let grammar = vocabulary.compile(Spec::Grammar(json.to_owned())).unwrap();
        let mut longest = 0;
        for seed in 0..2 * seeds {
            let text = walk(vocabulary, &grammar, seed, free, &mut |_, _| {});
            // Half of a surrogate pair may stand alone by this grammar, and in no string.
            let text = text.replace("\\u", "\\\\u");
            let value: Value =
                serde_json::from_str(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert!(value.is_object());
            longest = longest.max(text.len());
        }
        assert!(longest > 20, "{longest}");
    }
}

#[test]
fn structural_tags_leave_text_free_and_constrain_what_a_trigger_opens() {
    let tag = json!({"type": "structural_tag", "triggers": ["<f="], "structures": [
        {"begin": "<f=a>", "schema": {"type": "integer"}, "end": "</f>"},
        {"begin": "<f=b>", "schema": {"enum": ["x", "y"]}, "end": "</f>"}]});
    let tag = StructuralTag::from_json(&tag).unwrap();
    let whole = regex::Regex::new(
        r#"(?s)^(?:[^<]|<[^f]|<f[^=])*(?:<f=a>\s*-?[0-9]+\s*</f>|<f=b>\s*"[xy]"\s*</f>|[^<]|<[^f]|<f[^=])*(?:<|<f)?$"#,
    )
    .unwrap();
    for (vocabulary, seeds, _) in both() {
        let grammar = vocabulary
            .compile(Spec::StructuralTag(tag.clone()))
            .unwrap();
        for seed in 0..seeds {
            let text = walk(vocabulary, &grammar, seed, 30, &mut |_, _| {});
            assert!(whole.is_match(&text), "{text:?}");
        }
        let after = |text: &str| follow(vocabulary, &grammar, text);
        assert_eq!(after("free < text <f"), Some(true));
        assert_eq!(after("free <f="), Some(false));
        assert_eq!(after("free <f=c"), None);
        assert_eq!(after("free <f=a>\"x"), None);
        assert_eq!(after("one <f=a>12</f> two <f=b>\"y\"</f>"), Some(true));
        assert_eq!(
            after("one <f=a>12</f> two <f=b>\"y\"</f> and <f=a>1"),
            Some(false)
        );
    }
}

#[test]
fn triggers_of_several_kinds_open_their_own_structures() {
    let tag = |triggers: [&str; 2]| {
        let tag = json!({"triggers": triggers, "structures": [
            {"begin": "<f=", "schema": {"type": "integer"}, "end": ">"},
            {"begin": "[g:", "schema": {"type": "boolean"}, "end": "]"}]});
        tiny().compile(Spec::StructuralTag(StructuralTag::from_json(&tag).unwrap()))
    };
    let grammar = tag(["<f", "[g"]).unwrap();
    for (text, may_end) in [
        ("a [g:true] b <f=1> [g:false]", Some(true)),
        ("a [g", Some(false)),
        ("a [g <f=", None),
        ("a <f=true", None),
        ("a [g:1", None),
        ("a [g:true] <f", Some(false)),
    ] {
        assert_eq!(follow(tiny(), &grammar, text), may_end, "{text}");
    }
    for triggers in [["<f", "<"], ["<f", "x"], ["<f", ""], ["<f", "<f"]] {
        tag(triggers).expect_err(&format!("{triggers:?}"));
    }
}

#[test]
fn a_token_that_ends_texts_is_never_part_of_one() {
    let tokenizer = &tiny().tokenizer;
    let [a, b] = ["a", "b"].map(|text| tokenizer.id_of(text).unwrap());
    let compiler = GrammarCompiler::new(tokenizer, &[a, tiny().eos]).unwrap();
    let grammar = compiler.compile(&Spec::Regex("[ab]{1,2}".to_owned()), &Limits::default());
    let mut constraint = grammar.unwrap().constraint();
    let first = allowed_in(tiny(), constraint.as_mut());
    assert!(first.contains(&b) && !first.contains(&a), "{first:?}");
    constraint.accept(b).unwrap();
    let second = allowed_in(tiny(), constraint.as_mut());
    assert!(
        [a, b, tiny().eos].iter().all(|id| second.contains(id)),
        "{second:?}"
    );
}

#[test]
fn a_request_does_not_disturb_another_with_the_same_grammar() {
    let vocabulary = tiny();
    let grammar = vocabulary
        .compile(Spec::Regex("a{3}|b{3}".to_owned()))
        .unwrap();
    let (mut one, mut two) = (grammar.constraint(), grammar.clone().constraint());
    let a = vocabulary
        .tokenizer
        .encode("a", mettle_text::SpecialTokens::Plain, false)
        .unwrap()[0];
    one.accept(a).unwrap();
    let before = allowed_in(vocabulary, two.as_mut());
    let mut fork = one.fork();
    assert_eq!(
        allowed_in(vocabulary, fork.as_mut()),
        allowed_in(vocabulary, one.as_mut())
    );
    fork.accept(a).unwrap();
    assert_ne!(
        allowed_in(vocabulary, two.as_mut()),
        allowed_in(vocabulary, one.as_mut())
    );
    assert_eq!(allowed_in(vocabulary, two.as_mut()), before);
    assert!(one.accept(vocabulary.eos).is_err() || !one.is_finished());
}

#[test]
fn masks_of_the_real_vocabulary_are_quick() {
    let vocabulary = real();
    let schema = schemas().swap_remove(0);
    let compiled = std::time::Instant::now();
    let grammar = vocabulary
        .compiler
        .compile(&Spec::JsonSchema(schema), &Limits::default())
        .unwrap();
    let compile_time = compiled.elapsed();
    let mut constraint = grammar.constraint();
    let mut mask = mettle_engine::TokenMask::new(vocabulary.tokenizer.vocab_size());
    let text = r#"{"name": "a longer name than most, of forty characters", "age": 42}"#;
    let ids = vocabulary
        .tokenizer
        .encode(text, mettle_text::SpecialTokens::Plain, false)
        .unwrap();
    let started = std::time::Instant::now();
    for id in &ids {
        constraint.mask(&mut mask).unwrap();
        assert!(mask.is_allowed(*id), "{id}");
        constraint.accept(*id).unwrap();
        mask.clear();
    }
    let each = started.elapsed() / ids.len() as u32;
    println!("compiled in {compile_time:?}, {each:?} a mask");
    // The engine's patience with a mask; measured: 20 microseconds.
    assert!(each < mettle_engine::MASK_PATIENCE, "{each:?} a mask");
    assert!(constraint.is_finished());
}

#[test]
fn an_answer_after_reasoning_has_its_form() {
    for (vocabulary, seeds, _) in both() {
        for (answer, opened, pattern) in [
            (Spec::Regex("[0-9]{1,4}".to_owned()), true, "[0-9]{1,4}"),
            (Spec::Regex("[0-9]{1,4}".to_owned()), false, "[0-9]{1,4}"),
            (
                Spec::Choice(vec!["yes".into(), "no".into()]),
                true,
                "yes|no",
            ),
            (
                Spec::JsonSchema(json!({"enum": ["x", 7]})),
                false,
                "\"x\"|7",
            ),
            (Spec::Grammar("root ::= \"b\" root?".to_owned()), true, "b+"),
        ] {
            let thought = if opened { "" } else { "<think>" };
            let whole =
                regex::Regex::new(&format!("(?s)^{thought}.*?</think>\n{{0,2}}(?:{pattern})$"));
            let whole = whole.unwrap();
            let direct = regex::Regex::new(&format!("^(?:{pattern})$")).unwrap();
            let spec = Spec::AfterReasoning {
                answer: Box::new(answer),
                opened,
            };
            let grammar = vocabulary.compile(spec).unwrap();
            for seed in 0..seeds {
                let mut constraint = grammar.constraint();
                let head = match (opened, seed % 2) {
                    (true, _) => "I <think> so\n</think>\n",
                    (false, 0) => "<think> hm </think>",
                    (false, _) => "",
                };
                let mut bytes = head.as_bytes().to_vec();
                for byte in head.bytes() {
                    let allowed = allowed_in(vocabulary, constraint.as_mut());
                    assert!(!allowed.contains(&vocabulary.eos), "{}", show(&bytes));
                    let one = |id: &&u32| vocabulary.tokenizer.token_bytes(**id) == Some(&[byte]);
                    constraint
                        .accept(*allowed.iter().find(one).unwrap())
                        .unwrap();
                }
                let mut random = common::Random(seed);
                loop {
                    let allowed = allowed_in(vocabulary, constraint.as_mut());
                    let text = std::str::from_utf8(&bytes).unwrap_or("?");
                    let complete = whole.is_match(text) || (!opened && direct.is_match(text));
                    assert_eq!(allowed.contains(&vocabulary.eos), complete, "{text}");
                    let more: Vec<u32> = allowed
                        .into_iter()
                        .filter(|id| *id != vocabulary.eos)
                        .collect();
                    if complete && (more.is_empty() || random.below(3) == 0) {
                        break;
                    }
                    // Answers at once, where it may: `<` would begin a thought.
                    let bytes_of = |id: u32| vocabulary.tokenizer.token_bytes(id).unwrap();
                    let answers = more
                        .into_iter()
                        .filter(|id| !bytes_of(*id).starts_with(b"<"));
                    let more: Vec<u32> = answers.collect();
                    let token = more[random.below(more.len())];
                    constraint.accept(token).unwrap();
                    bytes.extend_from_slice(vocabulary.tokenizer.token_bytes(token).unwrap());
                    if constraint.is_finished() {
                        let text = std::str::from_utf8(&bytes).unwrap();
                        assert!(
                            whole.is_match(text) || (!opened && direct.is_match(text)),
                            "{text}"
                        );
                        break;
                    }
                }
            }
        }
    }
}

#[test]
fn reasoning_ends_with_the_tag_that_is_a_token_of_its_own() {
    let vocabulary = common::tiny_with(&[("<think>", true), ("</think>", true)]);
    let (open, close) = (300, 301);
    let id = |text: &str| vocabulary.tokenizer.id_of(text).unwrap();
    for opened in [true, false] {
        let spec = Spec::AfterReasoning {
            answer: Box::new(Spec::Regex("[0-9]".to_owned())),
            opened,
        };
        let mut constraint = vocabulary.compile(spec).unwrap().constraint();
        let first = allowed_in(&vocabulary, constraint.as_mut());
        assert_eq!(
            (first.contains(&open), first.contains(&close)),
            (!opened, opened)
        );
        assert!(first.contains(&id("7")));
        if !opened {
            constraint.accept(open).unwrap();
        }
        for token in [id("7"), id("<"), close, id("7")] {
            let allowed = allowed_in(&vocabulary, constraint.as_mut());
            assert!(
                allowed.contains(&token) && !allowed.contains(&vocabulary.eos),
                "{token}"
            );
            constraint.accept(token).unwrap();
        }
        assert!(constraint.is_finished());
    }
}
