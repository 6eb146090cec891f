//! Owns the AddressSanitizer build of the kernels, which finds what guard pages do not: reads between a buffer's end and
//! its page's, and overruns of arrays inside a thread.

use mettle_kernels::select::{DeviceProfile, Launch};
use mettle_kernels::suite::{self, SuiteArgument, SuiteDevice};
use mettle_kernels::{
    Library, Target, constant_setter, emulator_symbol, parse, self_tests, sources, translate,
};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One dispatch, all but its buffers.
pub struct Job<'a> {
    pub kernel: &'a str,
    pub file: &'a str,
    pub groups: [u32; 3],
    pub threads: [u32; 3],
    pub threadgroup_bytes: u32,
    /// Function constants by index.
    pub constants: &'a [(u32, u32)],
}

const FLAGS: [&str; 15] = [
    "-std=c++17",
    "-O1",
    "-g1",
    "-march=x86-64-v3",
    "-DMSL_FLAT",
    "-fsanitize=address",
    "-fsanitize-address-use-after-return=never",
    "-fno-exceptions",
    "-ffp-contract=off",
    "-Wno-duplicate-decl-specifier",
    "-Wno-c++17-extensions",
    "-Xclang",
    "-ffloat16-excess-precision=none",
    "-Xclang",
    "-cl-single-precision-constant",
];

/// Runs a job and gives its buffers back; what the sanitizer says is the error.
pub fn replay(job: &Job, buffers: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
    static PROGRAM: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, program) = PROGRAM.get_or_init(build);
    let mut input = Vec::new();
    let number = |value: u32, input: &mut Vec<u8>| input.extend(value.to_le_bytes());
    for text in [job.kernel, job.file] {
        number(text.len() as u32, &mut input);
        input.extend(text.as_bytes());
    }
    let sizes = job.groups.iter().chain(&job.threads);
    sizes.for_each(|&size| number(size, &mut input));
    number(job.threadgroup_bytes, &mut input);
    number(1, &mut input); // a seed that hunts races
    number(job.constants.len() as u32, &mut input);
    for &(index, value) in job.constants {
        number(index, &mut input);
        number(value, &mut input);
    }
    number(buffers.len() as u32, &mut input);
    for buffer in buffers {
        number(buffer.len() as u32, &mut input);
        input.extend(buffer);
    }
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the sanitized program starts");
    let written = child.stdin.take().expect("a pipe").write_all(&input);
    let out = child
        .wait_with_output()
        .expect("the sanitized program ends");
    if !out.status.success() {
        return Err(format!(
            "{}: {}",
            job.kernel,
            String::from_utf8_lossy(&out.stderr)
        ));
    }
    written.expect("the program reads all");
    let mut rest = out.stdout.as_slice();
    let take = |buffer: &Vec<u8>| {
        let (bytes, after) = rest.split_at(buffer.len());
        rest = after;
        bytes.to_vec()
    };
    Ok(buffers.iter().map(take).collect())
}

fn build() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let shim = Path::new(env!("CARGO_MANIFEST_DIR")).join("shim");
    let mut units = vec![shim.join("emulator.cpp"), shim.join("replay.cpp")];
    let mut declared = String::from("#include \"emulator.h\"\nextern \"C\" {\n");
    let mut entries = String::new();
    let mut setters = String::new();
    for source in sources().iter().chain(self_tests()) {
        // Memory is the same in bf16 as in f16.
        let twice = |line: &&str| line.starts_with("template [[host_name") && line.contains("bf16");
        let text = source.flattened().unwrap();
        let text: Vec<&str> = text.lines().filter(|line| !twice(line)).collect();
        let text = text.join("\n");
        let interface = parse(source.name, &text).unwrap();
        let text = translate(source.name, &text, &interface, Target::Emulator).unwrap();
        let library = Library {
            source,
            text,
            interface,
        };
        for signature in &library.interface.signatures {
            let (name, symbol) = (&signature.host_name, emulator_symbol(&signature.host_name));
            declared += &format!("void {symbol}(emu::Thread&);\n");
            entries += &format!("{{\"{name}\", {symbol}}},\n");
        }
        for constant in &library.interface.constants {
            let symbol = constant_setter(source.name, constant.index);
            declared += &format!("void {symbol}(uint32_t);\n");
            setters += &format!("{{\"{}\", {}, {symbol}}},\n", source.name, constant.index);
        }
        let path = folder.path().join(format!("{}.cpp", source.name));
        std::fs::write(&path, library.text).unwrap();
        units.push(path);
    }
    let table = format!(
        "{declared}}}\nstruct Entry {{ const char* name; void (*run)(emu::Thread&); }};\nstruct Setter {{ const char* file; uint32_t index; void (*set)(uint32_t); }};\nextern \"C\" {{\nextern const Entry mettle_replay_entries[];\nextern const Setter mettle_replay_setters[];\nconst Entry mettle_replay_entries[] = {{\n{entries}{{nullptr, nullptr}}}};\nconst Setter mettle_replay_setters[] = {{\n{setters}{{nullptr, 0, nullptr}}}};\n}}\n"
    );
    let path = folder.path().join("table.cpp");
    std::fs::write(&path, table).unwrap();
    units.push(path);
    let compiler = || {
        let mut clang = Command::new("clang++-19");
        clang.args(FLAGS).arg("-I").arg(&shim);
        clang
    };
    let finish = |command: &mut Command| {
        let out = command
            .output()
            .expect("clang++-19 runs: apt-get install clang-19 lld-19 libclang-rt-19-dev");
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
    };
    let object = |unit: &PathBuf| {
        let name = unit.file_name().expect("a file").to_string_lossy();
        folder.path().join(format!("{name}.o"))
    };
    let program = folder.path().join("replay");
    let next = AtomicUsize::new(0);
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                while let Some(unit) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
                    finish(compiler().arg("-c").arg(unit).arg("-o").arg(object(unit)));
                }
            });
        }
    });
    let objects = units.iter().map(object);
    finish(compiler().args(objects).arg("-o").arg(&program));
    (folder, program)
}

/// Each dispatch in a process of its own, under AddressSanitizer.
struct Sanitizer;

impl SuiteDevice for Sanitizer {
    fn profile(&self) -> DeviceProfile {
        DeviceProfile::nvidia(132)
    }

    fn run(&mut self, launch: &Launch, arguments: &mut [SuiteArgument]) -> Result<(), String> {
        let kernel = &launch.kernel.host_name;
        let (library, _) = mettle_kernels::signature(kernel).ok_or("no such kernel")?;
        let constants: Vec<(u32, u32)> = (library.interface.constants.iter())
            .map(|constant| {
                let given = launch.constants.iter().find(|(n, _)| *n == constant.name);
                (constant.index, given.expect("a value for each constant").1)
            })
            .collect();
        let before: Vec<Vec<u8>> = arguments
            .iter()
            .map(|argument| match argument {
                SuiteArgument::In(bytes) | SuiteArgument::Params(bytes) => bytes.to_vec(),
                SuiteArgument::Out(bytes) | SuiteArgument::InOut(bytes) => bytes.to_vec(),
            })
            .collect();
        let job = Job {
            kernel,
            file: library.source.name,
            groups: launch.threadgroups,
            threads: [launch.threads, 1, 1],
            threadgroup_bytes: launch.threadgroup_bytes as u32,
            constants: &constants,
        };
        let after = replay(&job, &before)?;
        for (argument, after) in arguments.iter_mut().zip(after) {
            if let SuiteArgument::Out(bytes) | SuiteArgument::InOut(bytes) = argument {
                bytes.copy_from_slice(&after);
            }
        }
        Ok(())
    }
}

#[test]
fn every_kernel_stays_inside_its_memory() {
    let cases = suite::cases().into_iter();
    let cases = cases.filter(|c| c.name.starts_with("once/") && !c.name.contains("bf16"));
    let mut count = 0;
    for case in cases {
        let result = case.run(&mut Sanitizer, 1);
        assert_eq!(result, Ok(()), "{}", case.name);
        count += 1;
    }
    assert!(count > 50, "{count} cases");
}

#[test]
fn the_sanitizer_sees_overruns() {
    // With n = 1 the last of 64 threads goes one element too far.
    for (kernel, n, message) in [
        ("fault_none", 64_u32, ""),
        ("fault_bounds", 1, "heap-buffer-overflow"),
        ("fault_threadgroup_bounds", 1, "heap-buffer-overflow"),
    ] {
        let job = Job {
            kernel,
            file: "selftest.metal",
            groups: [1, 1, 1],
            threads: [64, 1, 1],
            threadgroup_bytes: 256,
            constants: &[],
        };
        let buffers = [vec![0; 256], n.to_le_bytes().to_vec()];
        match replay(&job, &buffers) {
            Ok(_) => assert_eq!(message, "", "{kernel}"),
            Err(error) => assert!(!message.is_empty() && error.contains(message), "{error}"),
        }
    }
}
