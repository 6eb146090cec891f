//! Owns the turning of MSL text into C++ that clang compiles for the emulator, for PTX or for the strict check. The text
//! is kept line for line; entry points are appended.

use crate::error::KernelError;
use crate::parse::starts;
use crate::signature::{AddressSpace, Interface, Parameter, Signature, Source};
use crate::token::{Token, closing, tokenize};
use std::fmt::Write;
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Emulator,
    Ptx,
    Check,
}

/// Translates flattened MSL text whose interface was parsed before.
pub fn translate(
    name: &str,
    text: &str,
    interface: &Interface,
    target: Target,
) -> Result<String, KernelError> {
    let tokens = tokenize(name, text);
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    for at in starts(&tokens, &["[", "["]) {
        let end = closing(&tokens, at, ("[", "]"))?;
        let span = tokens[at].span.start..tokens[end].span.end;
        if tokens[at + 2].is("function_constant") {
            let declared = tokens[at - 3].span.start..tokens[end + 1].span.end;
            let text = constant_text(&tokens[at - 2], &tokens[at - 1], target);
            edits.push((declared, text));
        } else {
            edits.push((span, String::new()));
        }
    }
    // Files are linked together and share names of headers, whose function constants are each file's own.
    let opening = starts(&tokens, &["using", "namespace", "metal", ";"]);
    let encloses = target == Target::Emulator && !opening.is_empty();
    if encloses {
        let after = tokens[opening[0] + 3].span.end;
        edits.push((after..after, " namespace {".to_string()));
    }
    let mut out = edited(text, edits);
    if target == Target::Check {
        return Ok(out);
    }
    if encloses {
        out.push_str("}\n");
    }
    writeln!(out, "#line 1 \"entry points of {name}\"").expect("writing to a string");
    for signature in &interface.signatures {
        out.push_str(&match target {
            Target::Ptx => ptx_entry(signature),
            _ => emulator_entry(signature),
        });
    }
    if target == Target::Emulator {
        for constant in &interface.constants {
            writeln!(
                out,
                "extern \"C\" void {}(uint value) {{ {} = ({})value; }}",
                constant_setter(name, constant.index),
                constant.name,
                constant.type_name
            )
            .expect("writing to a string");
        }
    }
    Ok(out)
}

/// The C name of an emulated kernel.
pub fn emulator_symbol(host_name: &str) -> String {
    format!("mettle_emulated_{host_name}")
}

/// The C name of the function that sets a function constant in the calling thread.
pub fn constant_setter(file: &str, index: u32) -> String {
    let stem = file.trim_end_matches(".metal").replace(['/', '.'], "_");
    format!("mettle_constant_{stem}_{index}")
}

fn constant_text(type_token: &Token, name: &Token, target: Target) -> String {
    let (type_text, name) = (type_token.text, name.text);
    match target {
        // One a thread, since dispatches with different values may run at the same time.
        Target::Emulator => format!("static thread_local {type_text} {name};"),
        // Not const: its value is replaced in the PTX text when a pipeline is made.
        Target::Ptx => format!("__attribute__((address_space(4))) {type_text} {name} = 1;"),
        Target::Check => format!("extern constant {type_text} {name};"),
    }
}

fn edited(text: &str, mut edits: Vec<(Range<usize>, String)>) -> String {
    edits.sort_by_key(|(span, _)| span.start);
    let mut out = String::new();
    let mut at = 0;
    for (span, replacement) in edits {
        out.push_str(&text[at..span.start]);
        out.push_str(&replacement);
        at = span.end;
    }
    out.push_str(&text[at..]);
    out
}

fn call(signature: &Signature, argument: impl Fn(&Parameter) -> String) -> String {
    let arguments: Vec<String> = signature.parameters.iter().map(argument).collect();
    let template = match signature.template_arguments.as_str() {
        "" => String::new(),
        arguments => format!("<{arguments}>"),
    };
    format!(
        "{}{template}({});",
        signature.function,
        arguments.join(", ")
    )
}

fn space(parameter: &Parameter) -> &'static str {
    match parameter.space {
        AddressSpace::Device if parameter.is_const => "device const",
        AddressSpace::Device => "device",
        AddressSpace::Constant => "constant",
        AddressSpace::Threadgroup => "threadgroup",
        AddressSpace::None => "",
    }
}

fn emulator_entry(signature: &Signature) -> String {
    let body = call(signature, |p| {
        let from = match &p.source {
            Source::Buffer(index) => format!("emu::buffer(t, {index})"),
            Source::Threadgroup(_) => "emu::threadgroup_memory(t)".to_string(),
            Source::Position(position) => return format!("emu::{position}(t)"),
        };
        let dereference = if p.is_reference { "*" } else { "" };
        format!("{dereference}({} {}*){from}", space(p), p.element)
    });
    let symbol = emulator_symbol(&signature.host_name);
    format!("extern \"C\" void {symbol}(emu::Thread& t) {{ {body} }}\n")
}

fn ptx_entry(signature: &Signature) -> String {
    let body = call(signature, |p| match &p.source {
        Source::Buffer(index) if p.params.is_some() => format!("b{index}"),
        Source::Buffer(index) => {
            let dereference = if p.is_reference { "*" } else { "" };
            format!("{dereference}({} {}*)b{index}", space(p), p.element)
        }
        Source::Threadgroup(_) => format!("(threadgroup {}*)ptx::shared", p.element),
        Source::Position(position) => format!("ptx::{position}()"),
    });
    // The params struct goes by value: it lies in the launch's parameter bank and needs no upload of its own. A call that
    // is not inlined would copy it to each thread's local memory.
    let buffers = signature.buffers();
    let parameters: Vec<String> = buffers
        .into_iter()
        .map(|(index, p)| match &p.params {
            Some(layout) => format!("{} b{index}", layout.name),
            None => format!("void* b{index}"),
        })
        .collect();
    format!(
        "extern \"C\" __attribute__((nvptx_kernel)) void {}({}) {{ [[clang::always_inline]] {body} }}\n",
        signature.host_name,
        parameters.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;
    use expect_test::expect;

    const KERNEL: &str = r#"constant bool fast_path [[function_constant(3)]];
struct AddParams { uint n; };
template <typename T>
kernel void add(device const T* x [[buffer(0)]],
                device T* y [[buffer(1)]], constant AddParams& p [[buffer(2)]],
                threadgroup float* s [[threadgroup(0)]], uint i [[thread_position_in_grid]]) { y[i] += x[i]; }
template [[host_name("add_f16")]] kernel decltype(add<half>) add<half>;
"#;

    fn translated(target: Target) -> String {
        let interface = parse("a.metal", KERNEL).unwrap();
        translate("a.metal", KERNEL, &interface, target).unwrap()
    }

    #[test]
    fn the_source_keeps_its_lines() {
        for target in [Target::Emulator, Target::Ptx, Target::Check] {
            let out = translated(target);
            let line = out.lines().nth(5).unwrap();
            assert_eq!(
                line.trim(),
                "threadgroup float* s , uint i ) { y[i] += x[i]; }"
            );
        }
    }

    #[test]
    fn emulated_files_keep_their_names_to_themselves() {
        let text = "using namespace metal;\nkernel void k(device float* x [[buffer(0)]]) {}\n";
        let interface = parse("k.metal", text).unwrap();
        let out = translate("k.metal", text, &interface, Target::Emulator).unwrap();
        let start =
            "using namespace metal; namespace {\nkernel void k(device float* x ) {}\n}\n#line 1";
        assert!(out.starts_with(start), "{out}");
    }

    #[test]
    fn entry_points_follow() {
        let out = translated(Target::Emulator);
        let out: Vec<_> = out.lines().skip(7).collect();
        expect![[r#"
            #line 1 "entry points of a.metal"
            extern "C" void mettle_emulated_add_f16(emu::Thread& t) { add<half>((device const half*)emu::buffer(t, 0), (device half*)emu::buffer(t, 1), *(constant AddParams*)emu::buffer(t, 2), (threadgroup float*)emu::threadgroup_memory(t), emu::thread_position_in_grid(t)); }
            extern "C" void mettle_constant_a_3(uint value) { fast_path = (bool)value; }"#]]
        .assert_eq(&out.join("\n"));
        let out = translated(Target::Ptx);
        let out: Vec<_> = out.lines().skip(8).collect();
        expect![[r#"
            extern "C" __attribute__((nvptx_kernel)) void add_f16(void* b0, void* b1, AddParams b2) { [[clang::always_inline]] add<half>((device const half*)b0, (device half*)b1, b2, (threadgroup float*)ptx::shared, ptx::thread_position_in_grid()); }"#]]
        .assert_eq(&out.join("\n"));
        assert_eq!(translated(Target::Check).lines().count(), 7);
    }
}
