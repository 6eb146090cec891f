//! Owns mutations of the kernels, the test of their tests: any one barrier left out, any one comparison with its bound
//! shifted by one. All are compiled into one emulator, which is told at run time which one to be.

use std::fmt::Write;

/// A place in a kernel source that can be made wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    pub file: String,
    pub line: usize,
    /// What is done there.
    pub change: String,
}

/// Every mutant of all files, by number. One in a header is the same one in every file that includes it.
#[derive(Debug, Default)]
pub struct Mutants {
    pub list: Vec<Mutant>,
}

/// In front of an instrumented text. The number is chosen once, before anything runs.
const PRELUDE: &str = "extern \"C\" int mettle_mutant_chosen;\n\
static constexpr int mettle_mutant(int number) {\n\
  return __builtin_is_constant_evaluated() ? 0 : mettle_mutant_chosen == number;\n\
}\n";

/// Calls that order memory; each stands alone in its statement.
const BARRIERS: [&str; 3] = ["threadgroup_barrier(", "simdgroup_barrier(", "async_wait<"];
const COMPARISONS: [&str; 4] = [" < ", " <= ", " > ", " >= "];
/// What is decided while compiling has no run-time bound.
const COMPILE_TIME: [&str; 4] = ["constexpr", "template", "static_assert", "#"];

impl Mutants {
    /// Makes every place of a translated text choosable.
    pub fn instrument(&mut self, translated: &str) -> String {
        let mut out = String::from(PRELUDE);
        let (mut file, mut line) = (String::new(), 0);
        let (mut in_constant_function, mut is_unrolled) = (false, false);
        for text in translated.lines() {
            if let Some(rest) = text.strip_prefix("#line ") {
                let (number, name) = rest.split_once(' ').unwrap_or((rest, ""));
                line = number.parse::<usize>().unwrap_or(1);
                file = name.trim_matches('"').to_owned();
                writeln!(out, "{text}").expect("a string");
                continue;
            }
            let is_ours = !file.is_empty() && !file.starts_with("entry points");
            let code_end = text.find("//").unwrap_or(text.len());
            let (code, comment) = text.split_at(code_end);
            let is_fixed = COMPILE_TIME.iter().any(|word| code.contains(word));
            in_constant_function |= code.contains("constexpr ")
                && !code.contains("if constexpr")
                && code.trim_end().ends_with('{');
            in_constant_function &= !code.starts_with('}');
            if !is_ours || in_constant_function {
                out.push_str(code);
            } else {
                let code = self.barriers(code, &file, line);
                // An unrolled loop's bound is a constant, and what it walks are registers.
                match is_fixed || is_unrolled {
                    true => out.push_str(&code),
                    false => out.push_str(&self.comparisons(code, &file, line)),
                }
            }
            if !code.trim().is_empty() {
                is_unrolled = code.contains("#pragma unroll");
            }
            writeln!(out, "{comment}").expect("a string");
            line += 1;
        }
        out
    }

    fn number(&mut self, file: &str, line: usize, change: String) -> usize {
        let mutant = Mutant {
            file: file.to_owned(),
            line,
            change,
        };
        match self.list.iter().position(|known| *known == mutant) {
            Some(number) => number,
            None => {
                self.list.push(mutant);
                self.list.len() - 1
            }
        }
    }

    fn barriers(&mut self, code: &str, file: &str, line: usize) -> String {
        let mut out = code.to_owned();
        for barrier in BARRIERS {
            if let Some(at) = out.find(barrier) {
                let name = barrier.trim_end_matches(['(', '<']);
                let number = self.number(file, line, format!("no {name}"));
                out.insert_str(at, &format!("if (!mettle_mutant({number})) "));
            }
        }
        out
    }

    fn comparisons(&mut self, mut out: String, file: &str, line: usize) -> String {
        let original = out.clone();
        // What was put in so far: a place in `out` is that much behind the same place in `original`.
        let (mut from, mut added) = (0, 0);
        while let Some((at, operator)) = next_comparison(&out, from) {
            let place = at - added;
            let (left, right) = (&original[..place], &original[place + operator.len()..]);
            let change = format!(
                "{} {} {} shifted",
                last_words(left),
                operator.trim(),
                first_words(right)
            );
            let number = self.number(file, line, change);
            let shift = format!("mettle_mutant({number}) + ");
            out.insert_str(at + operator.len(), &shift);
            from = at + operator.len() + shift.len();
            added += shift.len();
        }
        out
    }
}

fn next_comparison(text: &str, from: usize) -> Option<(usize, &'static str)> {
    let found = COMPARISONS.iter().filter_map(|operator| {
        let at = text[from..].find(operator)?;
        Some((from + at, *operator))
    });
    found.min_by_key(|(at, _)| *at)
}

/// Enough of a text's end to find the place by eye.
fn last_words(text: &str) -> String {
    let skipped = text.chars().count().saturating_sub(24);
    text.chars()
        .skip(skipped)
        .collect::<String>()
        .trim_start()
        .to_owned()
}

/// Enough of a text's beginning.
fn first_words(text: &str) -> String {
    text.chars()
        .take(16)
        .collect::<String>()
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn barriers_and_comparisons_become_choices() {
        let text = "#line 7 \"k.metal\"\nfor (uint i = a; i < p.n; ++i) if (x >= y) f();  // a < b\n  threadgroup_barrier(mem);\n#line 1 \"entry points of k.metal\"\nif (a < b) g();\n";
        let mut mutants = Mutants::default();
        let out = mutants.instrument(text);
        assert!(out.contains("i < mettle_mutant(0) + p.n"), "{out}");
        assert!(out.contains("x >= mettle_mutant(1) + y"), "{out}");
        assert!(
            out.contains("if (!mettle_mutant(2)) threadgroup_barrier(mem);"),
            "{out}"
        );
        assert!(
            out.contains("// a < b") && out.contains("if (a < b) g();"),
            "{out}"
        );
        let lines: Vec<usize> = mutants.list.iter().map(|m| m.line).collect();
        assert_eq!(lines, [7, 7, 8]);
        mutants.instrument(text);
        assert_eq!(mutants.list.len(), 3, "a header's places are numbered once");
        let constant = "#line 1 \"k.h\"\ninline constexpr int f() {\n  return A < B ? 1 : 2;\n}\nif (a < b) g();\n";
        mutants.instrument(constant);
        assert_eq!(mutants.list.len(), 4, "what is constant is left alone");
        let staged = "#line 1 \"s.h\"\n#pragma unroll\nfor (int i = 0; i < N; ++i) f();\nif constexpr (S > 1) async_wait<0>();\n";
        mutants.instrument(staged);
        assert_eq!(mutants.list[4].change, "no async_wait");
        assert_eq!(mutants.list.len(), 5);
    }
}
