//! Owns reading of grammars in GBNF (`root ::= ..`, as llama.cpp and xgrammar write them) and their translation.

use crate::{StructuredError, lark};
use std::collections::HashMap;
use std::fmt::Write;
use std::iter::Peekable;
use std::str::Chars;

const WHAT: &str = "the grammar";

/// Lark has rules that begin with `name:`, never this.
pub(crate) fn is_gbnf(grammar: &str) -> bool {
    grammar.lines().any(|line| {
        let name = line.split("::=").next().unwrap_or_default().trim();
        line.contains("::=") && !name.is_empty() && name.chars().all(is_name)
    })
}

/// Rules that do not refer to themselves become terminals, which are matched exactly. In the others, a terminal that
/// has begun has to be finished, so some texts of an ambiguous grammar cannot be written; none outside of it can.
pub(crate) fn to_lark(grammar: &str) -> Result<String, StructuredError> {
    let rules = Reader::new(grammar).rules()?;
    let mut index = HashMap::new();
    for (i, rule) in rules.iter().enumerate() {
        if index.insert(rule.name.as_str(), i).is_some() {
            return Err(invalid(format!("the rule `{}` is there twice", rule.name)));
        }
    }
    let mut references = Vec::with_capacity(rules.len());
    for rule in &rules {
        let mut of_rule = Vec::new();
        for part in &rule.parts {
            if let Part::Reference(name) = part {
                let target = index.get(name.as_str());
                of_rule.push(*target.ok_or_else(|| invalid(format!("there is no rule `{name}`")))?);
            }
        }
        references.push(of_rule);
    }
    let terminal = terminals(&references);
    let name = |i: usize| match terminal[i] {
        true => format!("T{i}"),
        false => format!("r{i}"),
    };
    let root = index
        .get("root")
        .ok_or_else(|| invalid("there is no rule `root`"))?;
    let mut lark = format!("start: {}\n", name(*root));
    for (i, rule) in rules.iter().enumerate() {
        write!(lark, "{}:", name(i)).expect("a String");
        let mut targets = references[i].iter();
        for part in &rule.parts {
            match part {
                Part::Lark(text) => write!(lark, " {text}").expect("a String"),
                Part::Operator(text) => lark.push_str(text),
                Part::Reference(_) => {
                    let target = targets.next().expect("one for each reference");
                    write!(lark, " {}", name(*target)).expect("a String");
                }
            }
        }
        lark.push('\n');
    }
    Ok(lark)
}

/// Which rules lead to terminals only, and never to themselves.
fn terminals(references: &[Vec<usize>]) -> Vec<bool> {
    let mut terminal = vec![false; references.len()];
    loop {
        let found: Vec<usize> = (0..references.len())
            .filter(|i| !terminal[*i] && references[*i].iter().all(|target| terminal[*target]))
            .collect();
        if found.is_empty() {
            return terminal;
        }
        found.into_iter().for_each(|i| terminal[i] = true);
    }
}

struct Rule {
    name: String,
    parts: Vec<Part>,
}

enum Part {
    Lark(String),
    /// Belongs to what stands before it.
    Operator(String),
    Reference(String),
}

struct Reader<'a> {
    left: Peekable<Chars<'a>>,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Reader<'a> {
        Reader {
            left: text.chars().peekable(),
        }
    }

    fn rules(mut self) -> Result<Vec<Rule>, StructuredError> {
        let mut rules: Vec<Rule> = Vec::new();
        loop {
            self.skip_space();
            let Some(c) = self.left.next() else {
                return Ok(rules);
            };
            if is_name(c) {
                let name = c.to_string() + &self.take_while(is_name);
                self.skip_space();
                match self.take_while(|c| c == ':' || c == '=').as_str() {
                    "" => self.push(&mut rules, Part::Reference(name))?,
                    "::=" => rules.push(Rule {
                        name,
                        parts: Vec::new(),
                    }),
                    other => return Err(invalid(format!("`{other}` behind `{name}`"))),
                }
                continue;
            }
            let part = match c {
                '"' => Part::Lark(lark::literal(&self.string()?)),
                '[' => Part::Lark(self.class()?),
                '.' => Part::Lark("/(?s:.)/".to_owned()),
                '|' | '(' | ')' => Part::Lark(c.to_string()),
                '*' | '+' | '?' => Part::Operator(c.to_string()),
                '{' => {
                    let count = self.take_while(|c| c != '}');
                    self.left.next();
                    if count.is_empty() || !count.chars().all(|c| c.is_ascii_digit() || c == ',') {
                        return Err(invalid(format!("`{{{count}}}` is no count")));
                    }
                    Part::Operator(format!("{{{count}}}"))
                }
                _ => return Err(invalid(format!("`{c}` cannot stand here"))),
            };
            self.push(&mut rules, part)?;
        }
    }

    fn push(&self, rules: &mut [Rule], part: Part) -> Result<(), StructuredError> {
        let rule = rules
            .last_mut()
            .ok_or_else(|| invalid("it does not begin with a rule"))?;
        rule.parts.push(part);
        Ok(())
    }

    fn skip_space(&mut self) {
        loop {
            self.take_while(char::is_whitespace);
            if self.left.next_if_eq(&'#').is_none() {
                return;
            }
            self.take_while(|c| c != '\n');
        }
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> String {
        std::iter::from_fn(|| self.left.next_if(|c| wanted(*c))).collect()
    }

    /// Behind the opening quote.
    fn string(&mut self) -> Result<String, StructuredError> {
        let mut text = String::new();
        loop {
            match self.left.next() {
                None => return Err(invalid("a string is not closed")),
                Some('"') => return Ok(text),
                Some('\\') => text.push(self.escape()?),
                Some(c) => text.push(c),
            }
        }
    }

    /// Behind the opening bracket.
    fn class(&mut self) -> Result<String, StructuredError> {
        let mut class = String::from("/[");
        if self.left.next_if_eq(&'^').is_some() {
            class.push('^');
        }
        loop {
            match self.left.next() {
                None => return Err(invalid("a character class is not closed")),
                Some(']') => return Ok(class + "]/"),
                Some('-') => class.push('-'),
                Some('\\') => {
                    let c = self.escape()?;
                    write!(class, "\\x{{{:x}}}", u32::from(c)).expect("a String");
                }
                Some(c) => write!(class, "\\x{{{:x}}}", u32::from(c)).expect("a String"),
            }
        }
    }

    /// Behind the backslash.
    fn escape(&mut self) -> Result<char, StructuredError> {
        let digits = match self.left.next() {
            Some('n') => return Ok('\n'),
            Some('r') => return Ok('\r'),
            Some('t') => return Ok('\t'),
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            Some(c) if c.is_ascii_punctuation() => return Ok(c),
            _ => return Err(invalid("an escape is unknown")),
        };
        let code: String = self.left.by_ref().take(digits).collect();
        let code = u32::from_str_radix(&code, 16).ok();
        code.and_then(char::from_u32)
            .ok_or_else(|| invalid("an escape names no character"))
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

fn invalid(reason: impl Into<String>) -> StructuredError {
    StructuredError::invalid(WHAT, reason)
}
