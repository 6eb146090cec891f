//! Owns the rules of portable MSL that no compiler here would enforce: clang sees `thread` as nothing, Apple's does not.

use crate::error::KernelError;
use crate::token::{Token, TokenKind, tokenize};

const SPACES: [&str; 4] = ["device", "constant", "threadgroup", "thread"];

/// Checks flattened MSL text.
pub fn lint(name: &str, text: &str) -> Result<(), KernelError> {
    let tokens = tokenize(name, text);
    let types = type_names(&tokens);
    for (at, token) in tokens.iter().enumerate() {
        let declarator = token.is("*") || token.is("&");
        if declarator && at > 0 && is_type_end(&tokens, at - 1, &types) {
            check_space(&tokens, at)?;
        }
        if token.is("threadgroup") && starts_statement(&tokens, at) {
            check_statement(&tokens, at)?;
        }
        if token.is("static") {
            return Err(token.error("MSL has no mutable statics: use `constant` or `constexpr`"));
        }
        let names_space = token.kind == TokenKind::Word && SPACES.contains(&token.text);
        let next_is_end = tokens
            .get(at + 1)
            .is_some_and(|t| [";", "=", ",", ")"].contains(&t.text));
        if names_space && next_is_end {
            return Err(token.error(format!("`{}` is no name for a variable", token.text)));
        }
    }
    Ok(())
}

/// Built-in types, the file's structs and its template type parameters.
fn type_names<'a>(tokens: &[Token<'a>]) -> Vec<&'a str> {
    let scalars = [
        "half", "bfloat", "float", "int", "uint", "short", "ushort", "char", "uchar",
    ];
    let mut types: Vec<&str> = vec!["bool", "long", "ulong", "void", "auto"];
    types.extend(scalars);
    for pair in tokens.windows(2) {
        if ["struct", "typename", "class"]
            .iter()
            .any(|w| pair[0].is(w))
        {
            types.push(pair[1].text);
        }
    }
    types
}

fn is_type_end(tokens: &[Token], at: usize, types: &[&str]) -> bool {
    let token = &tokens[at];
    if token.is("const") {
        return true;
    }
    if token.is(">") {
        // `vec<T, 4>*` and `simdgroup_matrix<T, 8, 8>&`, but not `a > *b`.
        return tokens[..at]
            .iter()
            .rev()
            .take(8)
            .any(|t| t.is("vec") || t.is("simdgroup_matrix"));
    }
    // A vector type is its element's name and a digit: half4.
    token.kind == TokenKind::Word && types.contains(&token.text.trim_end_matches(['2', '3', '4']))
}

fn starts_statement(tokens: &[Token], at: usize) -> bool {
    at == 0 || [";", "{", "}"].iter().any(|s| tokens[at - 1].is(s))
}

/// From the start of the declaration to the `*`: an address space must be named.
fn check_space(tokens: &[Token], at: usize) -> Result<(), KernelError> {
    let mut depth = 0;
    for token in tokens[..at].iter().rev() {
        if SPACES.iter().any(|s| token.is(s)) {
            return Ok(());
        }
        match token.text {
            ">" => depth += 1,
            "<" if depth > 0 => depth -= 1,
            "(" | "," | ";" | "{" | "}" | "<" if depth == 0 => break,
            _ => {}
        }
    }
    Err(tokens[at].error("pointer or reference without an address space"))
}

/// Threadgroup memory declared in a function cannot be poisoned, nor sized by the host.
fn check_statement(tokens: &[Token], at: usize) -> Result<(), KernelError> {
    let end = tokens[at..]
        .iter()
        .position(|t| [";", "=", "(", "["].iter().any(|end| t.is(end)))
        .map_or(tokens.len(), |n| at + n);
    if tokens[at..end].iter().any(|t| t.is("*") || t.is("&")) {
        return Ok(());
    }
    Err(tokens[at].error("threadgroup memory comes through a [[threadgroup(0)]] pointer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        lint("k.metal", text).unwrap_err().to_string()
    }

    #[test]
    fn pointers_and_references_need_a_space_everywhere() {
        let message = "k.metal:2: pointer or reference without an address space";
        let body = |line: &str| format!("template <typename T> void f(device T* x) {{\n{line}\n}}");
        for line in [
            "float* p = 0;",
            "const T* p = x;",
            "g((half4*)x);",
            "const auto& e = m;",
            "vec<T, 4>* v;",
            "simdgroup_matrix<T, 8, 8>& m = n;",
        ] {
            assert_eq!(refused(&body(line)), message, "{line}");
        }
        for line in [
            "thread float* p = &y;",
            "const device T* p = x + a * b;",
            "g(*(const device half4*)x);",
            "uint n = rows * width & mask;",
            "thread simdgroup_matrix<T, 8, 8>& m = n;",
            "bool b = (a > c) && d < e * f;",
        ] {
            assert_eq!(lint("k.metal", &body(line)), Ok(()), "{line}");
        }
    }

    #[test]
    fn threadgroup_arrays_statics_and_reserved_names_are_refused() {
        assert_eq!(
            refused("void f() { threadgroup float s[32]; }"),
            "k.metal:1: threadgroup memory comes through a [[threadgroup(0)]] pointer"
        );
        assert_eq!(
            refused("void f() { static int n = 0; }"),
            "k.metal:1: MSL has no mutable statics: use `constant` or `constexpr`"
        );
        assert_eq!(
            refused("void f() { uint device = 0; }"),
            "k.metal:1: `device` is no name for a variable"
        );
    }
}
