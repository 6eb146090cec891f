//! `mettle perplexity`: the figure of llama.cpp, and what it says to texts it cannot use.

use crate::mettle::{Mettle, fixture};
use expect_test::expect;

fn text(mettle: &Mettle) -> String {
    let line = |n: u32| {
        let (square, rest) = (n * n, n % 7);
        format!("Line {n}: {square} sheep and {rest} dogs went over the hill.\n")
    };
    let path = mettle.home.path().join("text.txt");
    std::fs::write(&path, (0..60).map(line).collect::<String>()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn the_figure_is_that_of_llama_cpp() {
    let mettle = Mettle::new();
    let text = text(&mettle);
    for model in ["llama", "llama/model.gguf"] {
        let model = fixture(model);
        let args = ["perplexity", "-m", &model, &text, "-c", "128", "--windows"];
        let json = mettle.succeed(&[&args[..], &["5", "--json"]].concat());
        let record: serde_json::Value = serde_json::from_str(&json).unwrap();
        let found = record["perplexity"].as_f64().unwrap();
        // By bench/peers/perplexity.py, the same file and windows in llama.cpp 0.3.36.
        let wanted = 483.5496;
        assert!((found / wanted - 1.0).abs() < 5e-4, "{model}: {found}");
        assert_eq!(record["scored_tokens"], 5 * 63);
        assert_eq!(record["text_tokens"], 2524);
    }
    let whole = mettle.succeed(&["perplexity", "-m", &fixture("llama"), &text, "-c", "300"]);
    assert!(
        whole.contains("(1192 tokens in 8 windows of 300, "),
        "{whole}"
    );
}

#[test]
fn texts_that_cannot_be_scored_are_named() {
    let mettle = Mettle::new();
    let text = text(&mettle);
    let llama = fixture("llama");
    let path = mettle.home.path().join("bad.txt");
    std::fs::write(&path, b"ab\xff").unwrap();
    let check = |file: &str, context: &str, expected: expect_test::Expect| {
        let error = mettle.fail(1, &["perplexity", "-m", &llama, file, "-c", context]);
        expected.assert_eq(&error);
    };
    check(
        path.to_str().unwrap(),
        "8",
        expect![[r#"
        error: HOME/bad.txt is not UTF-8: invalid utf-8 sequence of 1 bytes from index 2
    "#]],
    );
    std::fs::write(&path, "short").unwrap();
    check(
        path.to_str().unwrap(),
        "8",
        expect![[r#"
        error: HOME/bad.txt has 5 tokens and a window takes 8; give a longer text or a smaller --context
    "#]],
    );
    check(
        "nowhere.txt",
        "8",
        expect![[r#"
        error: cannot read nowhere.txt: No such file or directory (os error 2)
    "#]],
    );
    check(
        &text,
        "513",
        expect![[r#"
        error: windows of 513 tokens were asked for; the model's context is 512
    "#]],
    );
    let usage = mettle.fail(2, &["perplexity", "-m", &llama, &text, "-c", "7"]);
    assert!(
        usage.contains("it must be a whole number from 8 on"),
        "{usage}"
    );
}
