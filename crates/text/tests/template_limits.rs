//! Owns the proof that a broken or hostile template ends in an error, not in the end of the process.

use mettle_text::{ChatTemplate, Message, RenderOptions, TemplateSpecials, TextError};

fn render(source: &str) -> Result<String, TextError> {
    let template = ChatTemplate::new(source, TemplateSpecials::default())?;
    template.render(&[Message::new("user", "Hi")], &RenderOptions::default())
}

/// The engine compiles and frees each operator of a chain inside the next.
#[test]
fn long_chains_compile_and_are_freed() {
    for (before, unit, count, after) in [
        ("{% if a %}x", "{% elif a %}y", 19_000, "{% endif %}"),
        ("{{ a", ".b", 100_000, " }}"),
        ("{{ a", "|trim", 50_000, " }}"),
        ("{{ a", "()", 100_000, " }}"),
        ("{{ a", "~a", 20_000, " }}"),
        ("{{ a", " and a", 20_000, " }}"),
        ("{{ ", "a if a else ", 20_000, "a }}"),
    ] {
        let source = format!("{before}{}{after}", unit.repeat(count));
        let compiled = ChatTemplate::new(&source, TemplateSpecials::default());
        // Some chains take quadratic time.
        let bounded = matches!(compiled, Ok(_) | Err(TextError::TemplateTime { .. }));
        assert!(bounded, "{unit}: {compiled:?}");
        let small = std::thread::Builder::new().stack_size(64 << 10);
        let freeing = small.spawn(move || drop(compiled)).unwrap();
        freeing.join().unwrap();
    }
}

#[test]
fn values_nested_in_each_other_can_be_used() {
    for (step, result) in [
        ("[_.x]", "n.x == m.x"),
        ("[_.x]", "n.x|string|length > 100000"),
        ("(_.x,)", "{n.x: 1}|length == 1"),
        ("{'a': _.x}", "[n.x, m.x]|sort|length == 2"),
        ("_.x[::-1]", "n.x|list == [1]"),
        ("_.x|map('int')", "n.x|list == [1]"),
    ] {
        let grow = |name: &str| {
            let set = "{% set _ = namespace(x=[1]) %}{% for a in range(80) %}{% for b in range(1000) %}\
                       {% set _.x = STEP %}{% endfor %}{% endfor %}";
            set.replace("STEP", step).replace('_', name)
        };
        let source = format!("{}{}{{{{ {result} }}}}", grow("n"), grow("m"));
        let rendered = render(&source).unwrap();
        assert_eq!(rendered.to_lowercase(), "true", "{step}, {result}");
    }
}

#[test]
fn a_source_that_is_no_template_is_refused() {
    let error = render(&"x".repeat((256 << 10) + 1)).unwrap_err();
    assert!(error.to_string().contains("262145 bytes"), "{error}");
}

#[test]
fn numbers_do_not_become_huge_texts() {
    for expression in [
        "'a'|indent(100000000000000)",
        "'a'|indent(first=true, width=100000000000000)",
        "('\\n' * 100000)|indent(1000, true, true)",
        "'%99999999999d'|format(1)",
        "'%.99999999999f'|format(1.5)",
        "'%(a)99999999999s'|format(a='b')",
        "'%99999999999999999999999d'|format(1)",
        "('%s' * 100000)|format('a' * 1000)",
        "'{:99999999999}'.format(1)",
        "'{0:>99999999999}'.format('x')",
        "('a' * 100000)|replace('a', 'b' * 1000)",
        "('a' * 100000).replace('a', 'b' * 1000)",
        "('a' * 100000).replace('', 'b' * 1000)",
        "[1]|slice(100000000000)|list",
        "[1]|batch(100000000000, 0)|list",
        "'a' * 100000000000",
        "range(100000000000)|list",
        "[1]|tojson(indent='  ' * 1000)",
    ] {
        let result = render(&format!("{{% set x = {expression} %}}{{{{ x|length }}}}"));
        assert!(
            matches!(result, Err(TextError::TemplateRender(_))),
            "{expression}: {result:?}"
        );
    }
}

#[test]
fn ordinary_uses_of_the_same_functions_stay_as_they_were() {
    for (expression, text) in [
        ("'a\\nb'|indent", "a\n    b"),
        ("'a\\nb'|indent(2, true)", "  a\n  b"),
        ("'a\\nb'|indent(width=1, first=true)", " a\n b"),
        (
            "'%3d%% %s 99999999999'|format(5, 'x')",
            "  5% x 99999999999",
        ),
        ("'%s (b) 99999999999'|format('a')", "a (b) 99999999999"),
        ("'%(a)s 99999999999'|format(a='b')", "b 99999999999"),
        (
            "'{{\"a\": 99999999999}} {:>3}'.format(1)",
            "{\"a\": 99999999999}   1",
        ),
        ("'{} 99999999999'.format('x')", "x 99999999999"),
        ("'aXa'|replace('a', 'bc')", "bcXbc"),
        ("'aXa'.replace('a', 'b', 1)", "bXa"),
        ("[1, 2, 3]|batch(2, 0)|list", "[[1, 2], [3, 0]]"),
        ("[1, 2, 3]|slice(2)|list", "[[1, 2], [3]]"),
        ("{'a': 1}.get('a')", "1"),
    ] {
        assert_eq!(render(&format!("{{{{ {expression} }}}}")).unwrap(), text);
    }
}

/// Sixty lists, each holding the one before it twice.
#[test]
fn a_small_value_that_is_an_endless_text_is_refused() {
    let doubled = "{% set n = namespace(x='y' * 100000) %}{% for i in range(60) %}\
                   {% set n.x = [n.x, n.x] %}{% endfor %}";
    let error = render(&format!("{doubled}{{% set x = n.x|tojson %}}")).unwrap_err();
    assert!(
        error.to_string().contains("more than 67108864 bytes"),
        "{error}"
    );
    assert!(matches!(
        render(&format!("{doubled}{{{{ n.x }}}}")),
        Err(TextError::TemplateOutput { .. })
    ));
}
