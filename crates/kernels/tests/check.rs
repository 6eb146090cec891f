//! Owns the strict check: every source is MSL's dialect of C++14 with its address spaces right. Needs clang, like the
//! features do.
#![cfg(any(feature = "emulator", feature = "cuda"))]

use mettle_kernels::{Target, libraries, lint, parse, translate};
use std::process::Command;

const FLAGS: [&str; 12] = [
    "-fsyntax-only",
    "-std=c++14",
    "-DMSL_CHECK",
    "-Wall",
    "-Wextra",
    "-Werror",
    // Clang forgets inside templates that literals are floats.
    "-Wdouble-promotion",
    "-Wno-unused-function",
    "-Wno-duplicate-decl-specifier",
    // `if constexpr`, which MSL has, is the only thing taken from later standards.
    "-Wno-c++17-extensions",
    "-Xclang",
    "-cl-single-precision-constant",
];

fn check(name: &str, text: &str) -> Result<(), String> {
    lint(name, text).map_err(|e| e.to_string())?;
    let interface = parse(name, text).map_err(|e| e.to_string())?;
    let text = translate(name, text, &interface, Target::Check).map_err(|e| e.to_string())?;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("checked.cpp");
    std::fs::write(&file, text).unwrap();
    let shim = concat!(env!("CARGO_MANIFEST_DIR"), "/shim");
    let out = Command::new("clang++-19")
        .args(FLAGS)
        .args(["-I", shim])
        .arg(&file)
        .output()
        .expect("clang++-19 runs: apt-get install clang-19");
    match out.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&out.stderr).into_owned()),
    }
}

#[test]
fn every_source_passes() {
    for library in libraries() {
        if let Err(message) = check(library.source.name, &library.text) {
            panic!("{message}");
        }
    }
}

const FRAME: &str = "#line 1 \"t.metal\"
#include <metal_stdlib>
using namespace metal;
struct KParams { uint n; float e; };
inline float first(device const float* s) { return s[0]; }
kernel void k(device const float* a [[buffer(0)]], device float* o [[buffer(1)]],
              constant KParams& p [[buffer(2)]], threadgroup float* s [[threadgroup(0)]],
              uint i [[thread_position_in_grid]]) {
  s[i] = a[i] + p.e;
  BODY
}
";

#[test]
fn mistakes_that_another_compiler_would_let_through_are_found() {
    let wrong = [
        (
            "threadgroup float* q = o; q[0] = 1.0f;",
            "cannot initialize",
        ),
        ("o[i] = first(s);", "no matching function"),
        ("a[i] = 1.0f;", "const"),
        ("p.n = 3;", "const"),
        ("device float* q = &p.e; q[0] = 1.0f;", "cannot initialize"),
        (
            "simdgroup_half8x8 m; simdgroup_load(m, s, 8);",
            "no matching function",
        ),
        ("o[i] = simd_summ(a[i]);", "undeclared"),
        ("float2 v = float2(1.0f, 2.0f); o[i] = v.z;", "exceeds type"),
        ("o[i] = max(0, a[i]);", "no matching function"),
        ("double d = 1.0; o[i] = d;", "poisoned"),
        (
            "half4 h = half4(1.0h); float4 f = h; o[i] = f.x;",
            "cannot initialize",
        ),
        (
            "const float* q = a; o[i] = q[0];",
            "without an address space",
        ),
        (
            "float x[2] = {0.0f, 1.0f}; float* q = x; o[i] = q[0];",
            "without an address space",
        ),
        (
            "auto f = [](auto x) requires true { return x; }; o[i] = f(a[i]);",
            "error",
        ),
    ];
    for (body, message) in wrong {
        let error = check("t.metal", &FRAME.replace("BODY", body)).expect_err(body);
        assert!(error.contains(message), "{body}\n{error}");
        assert!(
            error.contains("t.metal:9"),
            "the message names the line: {error}"
        );
    }
}

#[test]
fn idiomatic_msl_passes() {
    let right = [
        "half h = 1.0h; o[i] = float(h);",
        "constexpr float t[2] = {1.0f, 2.0f}; o[i] = t[i & 1];",
        "o[i] = as_type<float>(as_type<uint>(a[i]));",
        "float4 v = *(device const float4*)(a + 4 * i); o[i] = v.yx.x + float(half4(v).w);",
        "thread float* q = 0; if constexpr (sizeof(float) == 4) o[i] = q[0];",
        "simdgroup_float8x8 m; simdgroup_load(m, s, 8); simdgroup_store(m, o, 8);",
    ];
    for body in right {
        check("t.metal", &FRAME.replace("BODY", body)).unwrap_or_else(|e| panic!("{body}\n{e}"));
    }
}
