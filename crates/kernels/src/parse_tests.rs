//! Owns the examples of what the parser accepts and refuses.

use super::*;
use expect_test::{Expect, expect};

const KERNEL: &str = r#"
constant bool has_bias [[function_constant(0)]];
struct CopyParams { uint rows, width; float scale; };
template <typename T, int D>
kernel void copy(device const T* x [[buffer(0)]],
                 device vec<T, D>* out [[buffer(1)]],
                 constant CopyParams& p [[buffer(2)]],
                 threadgroup float* scratch [[threadgroup(0)]],
                 uint3 at [[thread_position_in_grid]]) {}
template [[host_name("copy_f16")]] kernel decltype(copy<half, 4>) copy<half, 4>;
kernel void plain(device float* x [[buffer(0)]], uint i [[thread_index_in_simdgroup]]) {}
"#;

#[test]
fn signatures_are_read_with_template_arguments_filled_in() {
    let interface = parse("k.metal", KERNEL).unwrap();
    let names: Vec<_> = interface
        .signatures
        .iter()
        .map(|s| (s.host_name.as_str(), s.line))
        .collect();
    assert_eq!(names, [("plain", 11), ("copy_f16", 10)]);
    let copy = &interface.signatures[1];
    let mut seen = String::new();
    for p in &copy.parameters {
        seen += &format!(
            "{} {:?} const={} {} {:?}\n",
            p.name, p.space, p.is_const, p.element, p.source
        );
    }
    expect![[r#"
        x Device const=true half Buffer(0)
        out Device const=false vec<half,4> Buffer(1)
        p Constant const=true CopyParams Buffer(2)
        scratch Threadgroup const=false float Threadgroup(0)
        at None const=false uint3 Position("thread_position_in_grid")
    "#]]
    .assert_eq(&seen);
    let (index, params) = copy.params().unwrap();
    assert_eq!((index, params.bytes, params.fields.len()), (2, 12, 3));
    assert_eq!(interface.constants[0].name, "has_bias");
}

fn refused(text: &str, expect: Expect) {
    let error = parse("k.metal", text).unwrap_err();
    expect.assert_eq(&error.to_string());
}

#[test]
fn a_parameter_without_attribute_is_refused() {
    refused(
        "\nkernel void k(device float* x [[buffer(0)]],\n uint i) {}",
        expect!["k.metal:3: kernel parameter without attribute: uint i"],
    );
}

#[test]
fn a_pointer_without_address_space_is_refused() {
    refused(
        "kernel void k(const float* x [[buffer(0)]]) {}",
        expect!["k.metal:1: `x` is a pointer or reference without an address space"],
    );
    refused(
        "struct KParams { uint n; };\nkernel void k(KParams& p [[buffer(0)]]) {}",
        expect!["k.metal:2: `p` is a pointer or reference without an address space"],
    );
}

#[test]
fn holes_and_doubles_in_the_indices_are_refused() {
    refused(
        "kernel void k(device float* x [[buffer(0)]], device float* y [[buffer(2)]]) {}",
        expect!["k.metal:1: the buffers of k are [0, 2], not 0, 1, 2 ..."],
    );
    refused(
        "kernel void k(threadgroup float* x [[threadgroup(1)]]) {}",
        expect!["k.metal:1: a kernel has one [[threadgroup(0)]] at the most: carve it up"],
    );
}

#[test]
fn attributes_must_fit() {
    refused(
        "kernel void k(threadgroup float* x [[buffer(0)]]) {}",
        expect!["k.metal:1: `x` has an attribute that does not fit its address space"],
    );
    refused(
        "kernel void k(uint x [[amplification_id]]) {}",
        expect!["k.metal:1: the shims do not know [[amplification_id]]"],
    );
}

#[test]
fn instantiations_must_match_their_template() {
    refused(
        "template <typename T> kernel void k(device T* x [[buffer(0)]]) {}\ntemplate [[host_name(\"a\")]] kernel decltype(k<half, 2>) k<half, 2>;",
        expect!["k.metal:2: k has 1 template parameters, a gives 2"],
    );
    refused(
        "template [[host_name(\"a\")]] kernel decltype(k<half>) k<half>;",
        expect!["k.metal:1: there is no kernel template k"],
    );
}

#[test]
fn function_constants_and_params_have_one_form() {
    refused(
        "constant bool\n a [[function_constant(0)]];",
        expect![
            "k.metal:2: a function constant reads, on one line: constant bool name [[function_constant(0)]];"
        ],
    );
    refused(
        "struct KParams { bool b; };",
        expect!["k.metal:1: KParams may not hold a bool"],
    );
}

#[test]
fn two_kernels_of_one_name_are_refused() {
    refused(
        "kernel void k(device float* x [[buffer(0)]]) {}\nkernel void k(device half* x [[buffer(0)]]) {}",
        expect!["k.metal:2: two kernels have the host name k"],
    );
}

/// As Apple's compiler does; clang would take it.
#[test]
fn positions_of_several_widths_are_refused() {
    refused(
        "kernel void k(device float* x [[buffer(0)]], uint2 g [[threadgroup_position_in_grid]], uint n [[threads_per_threadgroup]]) {}",
        expect![
            "k.metal:1: the positions of k are of several widths: all scalar, or all vectors of one width"
        ],
    );
}
