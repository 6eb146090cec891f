//! Owns the reading of kernel signatures, params structs, instantiations and function constants from MSL text.

use crate::error::KernelError;
use crate::params::ParamsLayout;
use crate::signature::{AddressSpace, FunctionConstant, Interface, Parameter, Signature, Source};
use crate::token::{Token, TokenKind, closing, split_commas, tokenize};

/// Built-in inputs that the shims know.
const POSITIONS: [&str; 11] = [
    "thread_position_in_grid",
    "thread_position_in_threadgroup",
    "thread_index_in_threadgroup",
    "thread_index_in_simdgroup",
    "threadgroup_position_in_grid",
    "threadgroups_per_grid",
    "threads_per_grid",
    "threads_per_threadgroup",
    "threads_per_simdgroup",
    "simdgroup_index_in_threadgroup",
    "simdgroups_per_threadgroup",
];

/// Those that Apple's compiler wants all scalar, or all vectors of one width, in one kernel.
const OF_ONE_WIDTH: [&str; 6] = [
    "thread_position_in_grid",
    "thread_position_in_threadgroup",
    "threadgroup_position_in_grid",
    "threadgroups_per_grid",
    "threads_per_grid",
    "threads_per_threadgroup",
];

/// A kernel as written, before instantiation.
struct Definition {
    name: String,
    template_parameters: Vec<String>,
    parameters: Vec<Parameter>,
    file: String,
    line: usize,
}

/// Reads flattened MSL text. `name` is the file that errors before the first `#line` point to.
pub fn parse(name: &str, text: &str) -> Result<Interface, KernelError> {
    let tokens = tokenize(name, text);
    let structs = structs(&tokens)?;
    let definitions = definitions(&tokens, &structs)?;
    let mut signatures: Vec<Signature> = definitions
        .iter()
        .filter(|d| d.template_parameters.is_empty())
        .map(|d| d.instantiate(&d.name, &[]))
        .collect();
    for index in starts(&tokens, &["template", "[", "[", "host_name", "("]) {
        signatures.push(instantiation(&tokens, index, &definitions)?);
    }
    for (index, signature) in signatures.iter().enumerate() {
        let earlier = &signatures[..index];
        if earlier.iter().any(|s| s.host_name == signature.host_name) {
            return Err(KernelError::Source {
                file: signature.file.clone(),
                line: signature.line,
                message: format!("two kernels have the host name {}", signature.host_name),
            });
        }
    }
    let constants = function_constants(&tokens)?;
    Ok(Interface {
        signatures,
        constants,
    })
}

/// Where this run of tokens starts.
pub(crate) fn starts(tokens: &[Token], run: &[&str]) -> Vec<usize> {
    let is_run = |w: &[Token]| w.iter().zip(run).all(|(token, text)| token.is(text));
    (0..tokens.len().saturating_sub(run.len() - 1))
        .filter(|&at| is_run(&tokens[at..at + run.len()]))
        .collect()
}

fn instantiation(
    tokens: &[Token],
    at: usize,
    definitions: &[Definition],
) -> Result<Signature, KernelError> {
    let bad = || {
        tokens[at].error(
            "an instantiation reads: template [[host_name(\"n\")]] kernel decltype(f<A>) f<A>;",
        )
    };
    let end = (at..tokens.len())
        .find(|&i| tokens[i].is(";"))
        .ok_or_else(bad)?;
    let host_name = tokens[at + 5].text.trim_matches('"');
    if !tokens[end - 1].is(">") {
        return Err(bad());
    }
    let mut open = end - 1;
    let mut depth = 0;
    loop {
        depth += i32::from(tokens[open].is(">")) - i32::from(tokens[open].is("<"));
        if depth == 0 {
            break;
        }
        open -= 1;
    }
    let function = tokens[open - 1].text;
    let definition = definitions
        .iter()
        .find(|d| d.name == function)
        .ok_or_else(|| tokens[at].error(format!("there is no kernel template {function}")))?;
    let arguments: Vec<String> = split_commas(&tokens[open + 1..end - 1])
        .into_iter()
        .map(joined)
        .collect();
    if arguments.len() != definition.template_parameters.len() {
        return Err(tokens[at].error(format!(
            "{function} has {} template parameters, {host_name} gives {}",
            definition.template_parameters.len(),
            arguments.len()
        )));
    }
    let mut signature = definition.instantiate(host_name, &arguments);
    signature.file = tokens[at].file.to_string();
    signature.line = tokens[at].line;
    Ok(signature)
}

impl Definition {
    fn instantiate(&self, host_name: &str, arguments: &[String]) -> Signature {
        let substitute = |element: &str| {
            let mut out = String::new();
            for token in tokenize("", element) {
                let parameter = self
                    .template_parameters
                    .iter()
                    .position(|p| p == token.text);
                let text = parameter.map_or(token.text, |i| arguments[i].as_str());
                push_spaced(&mut out, text);
            }
            out
        };
        let parameters = self
            .parameters
            .iter()
            .map(|p| Parameter {
                element: substitute(&p.element),
                ..p.clone()
            })
            .collect();
        Signature {
            host_name: host_name.to_string(),
            function: self.name.clone(),
            template_arguments: arguments.join(", "),
            file: self.file.clone(),
            line: self.line,
            parameters,
        }
    }
}

fn definitions(tokens: &[Token], structs: &[ParamsLayout]) -> Result<Vec<Definition>, KernelError> {
    let mut definitions = Vec::new();
    for at in starts(tokens, &["kernel", "void"]) {
        let name = &tokens[at + 2];
        if !tokens.get(at + 3).is_some_and(|t| t.is("(")) {
            continue;
        }
        let end = closing(tokens, at + 3, ("(", ")"))?;
        let parameters = split_commas(&tokens[at + 4..end])
            .into_iter()
            .map(|p| parameter(p, structs))
            .collect::<Result<Vec<_>, _>>()?;
        check_indices(name, &parameters)?;
        definitions.push(Definition {
            name: name.text.to_string(),
            template_parameters: template_parameters(tokens, at),
            parameters,
            file: name.file.to_string(),
            line: name.line,
        });
    }
    Ok(definitions)
}

/// The names in the `template <...>` that ends right before `at`.
fn template_parameters(tokens: &[Token], at: usize) -> Vec<String> {
    if at == 0 || !tokens[at - 1].is(">") {
        return Vec::new();
    }
    let Some(start) = (0..at).rev().find(|&i| tokens[i].is("template")) else {
        return Vec::new();
    };
    split_commas(&tokens[start + 2..at - 1])
        .into_iter()
        .filter_map(|p| p.last().map(|t| t.text.to_string()))
        .collect()
}

fn parameter(tokens: &[Token], structs: &[ParamsLayout]) -> Result<Parameter, KernelError> {
    let attribute = tokens
        .windows(2)
        .position(|w| w[0].is("[") && w[1].is("["))
        .ok_or_else(|| {
            let text = joined(tokens);
            tokens[0].error(format!("kernel parameter without attribute: {text}"))
        })?;
    let (declared, attribute) = tokens.split_at(attribute);
    let attribute = &attribute[2..];
    let (name, declared) = declared
        .split_last()
        .filter(|(name, rest)| name.kind == TokenKind::Word && !rest.is_empty())
        .ok_or_else(|| tokens[0].error("a kernel parameter needs a type and a name"))?;
    let has = |text: &str| declared.iter().any(|t| t.is(text));
    let space = match (has("device"), has("constant"), has("threadgroup")) {
        (true, false, false) => AddressSpace::Device,
        (false, true, false) => AddressSpace::Constant,
        (false, false, true) => AddressSpace::Threadgroup,
        (false, false, false) => AddressSpace::None,
        _ => return Err(name.error(format!("`{}` has two address spaces", name.text))),
    };
    let is_pointer = has("*") || has("&");
    if is_pointer && space == AddressSpace::None {
        return Err(name.error(format!(
            "`{}` is a pointer or reference without an address space",
            name.text
        )));
    }
    let qualifiers = ["device", "constant", "threadgroup", "const", "*", "&"];
    let element: Vec<Token> = declared
        .iter()
        .filter(|t| !qualifiers.iter().any(|q| t.is(q)))
        .cloned()
        .collect();
    let element = joined(&element);
    let source = source(attribute, name)?;
    let right_space = match source {
        Source::Buffer(_) => matches!(space, AddressSpace::Device | AddressSpace::Constant),
        Source::Threadgroup(_) => space == AddressSpace::Threadgroup,
        Source::Position(_) => space == AddressSpace::None,
    };
    if !right_space {
        return Err(name.error(format!(
            "`{}` has an attribute that does not fit its address space",
            name.text
        )));
    }
    let params = structs.iter().find(|s| s.name == element).cloned();
    Ok(Parameter {
        name: name.text.to_string(),
        is_const: has("const") || space == AddressSpace::Constant,
        is_reference: has("&"),
        params: params.filter(|_| space == AddressSpace::Constant && has("&")),
        space,
        element,
        source,
    })
}

fn source(attribute: &[Token], name: &Token) -> Result<Source, KernelError> {
    let index = || -> Result<u32, KernelError> {
        let number = attribute.get(2).and_then(|t| t.text.parse().ok());
        number.ok_or_else(|| attribute[0].error("the attribute needs a number"))
    };
    match attribute[0].text {
        "buffer" => Ok(Source::Buffer(index()?)),
        "threadgroup" => Ok(Source::Threadgroup(index()?)),
        position if POSITIONS.contains(&position) => Ok(Source::Position(position.to_string())),
        other => Err(name.error(format!("the shims do not know [[{other}]]"))),
    }
}

/// Indices are 0, 1, 2 ... so that a host's list of buffers has no holes; one threadgroup pointer is carved up.
fn check_indices(name: &Token, parameters: &[Parameter]) -> Result<(), KernelError> {
    let mut buffers = Vec::new();
    let mut threadgroups = Vec::new();
    for parameter in parameters {
        match parameter.source {
            Source::Buffer(index) => buffers.push(index),
            Source::Threadgroup(index) => threadgroups.push(index),
            Source::Position(_) => {}
        }
    }
    buffers.sort_unstable();
    if !buffers.iter().copied().eq(0..buffers.len() as u32) {
        return Err(name.error(format!(
            "the buffers of {} are {buffers:?}, not 0, 1, 2 ...",
            name.text
        )));
    }
    let mut widths = parameters
        .iter()
        .filter_map(|parameter| match &parameter.source {
            Source::Position(position) if OF_ONE_WIDTH.contains(&position.as_str()) => Some(
                parameter
                    .element
                    .trim_start_matches(|c: char| !c.is_ascii_digit()),
            ),
            _ => None,
        });
    let first = widths.next();
    if widths.any(|width| Some(width) != first) {
        return Err(name.error(format!(
            "the positions of {} are of several widths: all scalar, or all vectors of one width",
            name.text
        )));
    }
    if !matches!(threadgroups.as_slice(), [] | [0]) {
        return Err(name.error("a kernel has one [[threadgroup(0)]] at the most: carve it up"));
    }
    Ok(())
}

/// Structs called `...Params`, the ones that hosts fill.
fn structs(tokens: &[Token]) -> Result<Vec<ParamsLayout>, KernelError> {
    let mut layouts = Vec::new();
    for at in starts(tokens, &["struct"]) {
        let name = &tokens[at + 1];
        if !name.text.ends_with("Params") || !tokens[at + 2].is("{") {
            continue;
        }
        let end = closing(tokens, at + 2, ("{", "}"))?;
        let mut fields = Vec::new();
        for line in tokens[at + 3..end].split(|t| t.is(";")) {
            let Some((type_token, names)) = line.split_first() else {
                continue;
            };
            for field in split_commas(names) {
                fields.push((type_token.text.to_string(), joined(field)));
            }
        }
        let layout = ParamsLayout::new(name.text, &fields)
            .map_err(|type_text| name.error(format!("{} may not hold a {type_text}", name.text)))?;
        layouts.push(layout);
    }
    Ok(layouts)
}

fn function_constants(tokens: &[Token]) -> Result<Vec<FunctionConstant>, KernelError> {
    let mut constants = Vec::new();
    for at in starts(tokens, &["[", "[", "function_constant", "("]) {
        let shape = at >= 3 && tokens[at - 3].is("constant");
        let index = tokens.get(at + 4).and_then(|t| t.text.parse().ok());
        let one_line = tokens
            .get(at + 8)
            .is_some_and(|end| end.is(";") && end.line == tokens[at - 3].line);
        match index {
            Some(index) if shape && one_line => constants.push(FunctionConstant {
                name: tokens[at - 1].text.to_string(),
                type_name: tokens[at - 2].text.to_string(),
                index,
            }),
            _ => {
                return Err(tokens[at].error(
                    "a function constant reads, on one line: constant bool name [[function_constant(0)]];",
                ));
            }
        }
    }
    Ok(constants)
}

fn joined(tokens: &[Token]) -> String {
    let mut out = String::new();
    for token in tokens {
        push_spaced(&mut out, token.text);
    }
    out
}

/// A space only between two words.
fn push_spaced(out: &mut String, text: &str) {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    if out.ends_with(is_word) && text.starts_with(is_word) {
        out.push(' ');
    }
    out.push_str(text);
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
