//! Owns the compilation of the kernels by clang, which only the features `emulator` and `cuda` ask for.

// The translator is shared with the library; a build uses only a part of it.
#[allow(dead_code)]
#[path = "src/error.rs"]
mod error;
#[allow(dead_code)]
#[path = "src/lint.rs"]
mod lint;
#[allow(dead_code)]
#[path = "src/mutants.rs"]
mod mutants;
#[allow(dead_code)]
#[path = "src/params.rs"]
mod params;
#[allow(dead_code)]
#[path = "src/parse.rs"]
mod parse;
#[allow(dead_code)]
#[path = "src/signature.rs"]
mod signature;
#[allow(dead_code)]
#[path = "src/source.rs"]
mod source;
#[allow(dead_code)]
#[path = "src/token.rs"]
mod token;
#[allow(dead_code)]
#[path = "src/translate.rs"]
mod translate;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use translate::{Target, constant_setter, emulator_symbol};

const CLANG: &str = "clang++-19";
/// Apple's compiler does not contract or widen by itself; neither do we.
const COMMON_FLAGS: &[&str] = &[
    "-Ishim",
    "-Wall",
    "-Werror",
    "-Wno-unused-function",
    "-Wno-duplicate-decl-specifier",
    "-Wno-c++17-extensions",
    "-Xclang",
    "-cl-single-precision-constant",
];
const EMULATOR_FLAGS: &[&str] = &[
    "-std=c++17",
    "-O2",
    "-march=x86-64-v3",
    "-fPIC",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-Xclang",
    "-ffloat16-excess-precision=none",
];
const PTX_FLAGS: &[&str] = &[
    "-std=c++17",
    "-O3",
    "--target=nvptx64-nvidia-cuda",
    "-march=sm_80",
    "-Xclang",
    "-target-feature",
    "-Xclang",
    "+ptx78",
    "-nogpulib",
    "-ffreestanding",
    // A call would pass fragments and params through each thread's local memory.
    "-mllvm",
    "-inline-threshold=1000000",
    "-DMSL_PTX",
    "-S",
];
/// No kernel has larger threadgroups; said in the PTX so that a thread may have up to 255 registers.
const PTX_MAX_THREADS: u32 = 256;

fn main() {
    println!("cargo::rerun-if-changed=shim");
    println!("cargo::rerun-if-changed=metal");
    // Those of the library that are part of this program: a compilation takes a minute.
    for name in [
        "error",
        "lint",
        "params",
        "parse",
        "signature",
        "source",
        "token",
        "translate",
    ] {
        println!("cargo::rerun-if-changed=src/{name}.rs");
    }
    let emulator = std::env::var_os("CARGO_FEATURE_EMULATOR").is_some();
    let cuda = std::env::var_os("CARGO_FEATURE_CUDA").is_some();
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    if (emulator || cuda) && !clang_works() {
        println!(
            "cargo::error=the features `emulator` and `cuda` need {CLANG} (Debian: apt-get install clang-19 lld-19 libclang-rt-19-dev)"
        );
        return;
    }
    let built = (|| {
        if emulator {
            build_emulator(&out)?;
        }
        if cuda {
            build_ptx(&out)?;
        }
        Ok::<(), String>(())
    })();
    if let Err(message) = built {
        for line in message.lines() {
            println!("cargo::error={line}");
        }
    }
}

fn clang_works() -> bool {
    let version = Command::new(CLANG).arg("--version").output();
    version.is_ok_and(|out| out.status.success())
}

fn run(command: &mut Command) -> Result<(), String> {
    let out = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if out.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&out.stderr).into_owned())
}

/// Runs compilers at the same time, as many as there are processors.
fn run_all(commands: Vec<Command>) -> Result<(), String> {
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
    let waiting = Mutex::new(commands);
    let work = || loop {
        let next = waiting.lock().expect("no panic holds it").pop();
        match next {
            Some(mut command) => run(&mut command)?,
            None => return Ok(()),
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
        let results = workers.into_iter().map(|w| w.join().expect("no panic"));
        results.collect::<Result<Vec<()>, String>>().map(|_| ())
    })
}

/// Writes the translation of one source and gives its path and interface.
fn translated(
    source: &source::Source,
    target: Target,
    out: &Path,
) -> Result<(PathBuf, signature::Interface), String> {
    let both = || -> Result<_, error::KernelError> {
        let text = source.flattened()?;
        lint::lint(source.name, &text)?;
        let interface = parse::parse(source.name, &text)?;
        let text = translate::translate(source.name, &text, &interface, target)?;
        Ok((text, interface))
    };
    let (text, interface) = both().map_err(|error| error.to_string())?;
    let path = out.join(format!("{}.{target:?}.cpp", source.name));
    std::fs::write(&path, text).map_err(|error| error.to_string())?;
    Ok((path, interface))
}

fn build_emulator(out: &Path) -> Result<(), String> {
    let mut objects = Vec::new();
    let mut declarations = String::new();
    let mut kernels = String::new();
    let mut constants = String::new();
    let mut units = vec![PathBuf::from("shim/emulator.cpp")];
    let makes_mutants = std::env::var_os("CARGO_FEATURE_MUTANTS").is_some();
    let mut mutants = mutants::Mutants::default();
    for source in source::sources().iter().chain(source::self_tests()) {
        let (path, interface) = translated(source, Target::Emulator, out)?;
        if makes_mutants && source::sources().iter().any(|s| s.name == source.name) {
            let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
            std::fs::write(&path, mutants.instrument(&text)).map_err(|error| error.to_string())?;
        }
        units.push(path);
        for signature in &interface.signatures {
            let symbol = emulator_symbol(&signature.host_name);
            writeln!(declarations, "    fn {symbol}(thread: *mut Thread);").expect("a string");
            writeln!(kernels, "    ({:?}, {symbol}),", signature.host_name).expect("a string");
        }
        for constant in &interface.constants {
            let symbol = constant_setter(source.name, constant.index);
            writeln!(declarations, "    fn {symbol}(value: u32);").expect("a string");
            writeln!(
                constants,
                "    ({:?}, {}, {symbol}),",
                source.name, constant.index
            )
            .expect("a string");
        }
    }
    if makes_mutants {
        let path = out.join("mutants.cpp");
        let text = "extern \"C\" int mettle_mutant_chosen = -1;\n";
        std::fs::write(&path, text).map_err(|error| error.to_string())?;
        units.push(path);
    }
    let mut commands = Vec::new();
    for unit in &units {
        let name = unit.file_name().expect("a file").to_string_lossy();
        let object = out.join(format!("{name}.o"));
        let mut clang = Command::new(CLANG);
        clang.args(COMMON_FLAGS).args(EMULATOR_FLAGS).arg("-c");
        if makes_mutants {
            // A mutant's bound is an int beside whatever the kernel compares.
            clang.args(["-Wno-sign-compare", "-Wno-error"]);
        }
        clang.arg(unit).arg("-o").arg(&object);
        commands.push(clang);
        objects.push(object);
    }
    run_all(commands)?;
    let archive = out.join("libmettle_emulated_kernels.a");
    let _ = std::fs::remove_file(&archive);
    run(Command::new("ar").arg("crs").arg(&archive).args(&objects))?;
    println!("cargo::rustc-link-search=native={}", out.display());
    println!("cargo::rustc-link-lib=static=mettle_emulated_kernels");
    println!("cargo::rustc-link-lib=m");
    let mutants: String = (mutants.list.iter())
        .map(|m| format!("    ({:?}, {}, {:?}),\n", m.file, m.line, m.change))
        .collect();
    let mutants = match makes_mutants {
        true => format!("static MUTANTS: &[(&str, usize, &str)] = &[\n{mutants}];\n"),
        false => String::new(),
    };
    let table = format!(
        "{mutants}unsafe extern \"C\" {{\n{declarations}}}\n\nstatic ENTRIES: &[(&str, Entry)] = &[\n{kernels}];\n\nstatic CONSTANTS: &[(&str, u32, Setter)] = &[\n{constants}];\n"
    );
    std::fs::write(out.join("emulated.rs"), table).map_err(|error| error.to_string())
}

fn build_ptx(out: &Path) -> Result<(), String> {
    let mut table = String::from("static MODULES: &[(&str, &str)] = &[\n");
    let file_of = |source: &source::Source| out.join(format!("{}.ptx", source.name));
    let mut commands = Vec::new();
    for source in source::sources() {
        let (path, _) = translated(source, Target::Ptx, out)?;
        let mut clang = Command::new(CLANG);
        clang.args(COMMON_FLAGS).args(PTX_FLAGS);
        clang.arg(&path).arg("-o").arg(file_of(source));
        commands.push(clang);
    }
    run_all(commands)?;
    for source in source::sources() {
        let name = format!("{}.ptx", source.name);
        let file = file_of(source);
        let text = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
        std::fs::write(&file, cleaned(&text)).map_err(|error| error.to_string())?;
        writeln!(
            table,
            "    ({:?}, include_str!(concat!(env!(\"OUT_DIR\"), \"/{name}\"))),",
            source.name
        )
        .expect("a string");
    }
    table.push_str("];\n");
    std::fs::write(out.join("ptx.rs"), table).map_err(|error| error.to_string())
}

/// The module without comments and without the functions that are inlined into every entry, and with `.maxntid` behind
/// each entry's parameter list, where the body opens.
fn cleaned(text: &str) -> String {
    let mut out = String::new();
    let (mut in_function, mut in_header) = (false, false);
    for line in text.lines() {
        let code = line.split("//").next().unwrap_or("").trim_end();
        in_function |= code.contains(".func ");
        in_header |= code.contains(".entry ");
        if in_function {
            in_function = code != "}";
            continue;
        }
        if in_header && code.starts_with('{') {
            writeln!(out, ".maxntid {PTX_MAX_THREADS}, 1, 1").expect("a string");
            in_header = false;
        }
        if !code.is_empty() {
            writeln!(out, "{code}").expect("a string");
        }
    }
    out
}
