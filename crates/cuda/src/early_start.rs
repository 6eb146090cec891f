//! Owns programmatic dependent launch: on Hopper and later a kernel is set up while the one before it still runs, and waits
//! inside for that one's end. Decode is hundreds of kernels of a few microseconds each, so the gaps between them count.

use std::fmt::Write;

/// The first compute capability that has it.
pub const OLDEST_CAPABILITY: (i32, i32) = (9, 0);

/// The module with two instructions at the start of its kernel: the next one in the stream may be set up, and nothing
/// here is touched before all of the one before is done and visible. Since every kernel waits so, order stays what it was.
pub fn with_early_start(ptx: &str) -> String {
    let mut out = String::with_capacity(ptx.len() + 128);
    let (mut in_header, mut in_declarations) = (false, false);
    for line in ptx.lines() {
        let text = line.trim_start();
        if let Some(rest) = text.strip_prefix(".target sm_80") {
            let _ = writeln!(out, ".target sm_90{rest}");
            continue;
        }
        let declares = text.is_empty() || text.starts_with('.') || text.starts_with("//");
        if in_declarations && !declares {
            out.push_str("\tgriddepcontrol.launch_dependents;\n\tgriddepcontrol.wait;\n");
            in_declarations = false;
        }
        in_header |= text.contains(".entry ");
        if in_header && text.starts_with('{') {
            (in_header, in_declarations) = (false, true);
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use mettle_kernels::ptx;

    #[test]
    fn every_kernel_waits_before_its_first_instruction() {
        for library in mettle_kernels::libraries() {
            for kernel in &library.interface.signatures {
                let text = ptx::specialized(library, &kernel.host_name, &[]).unwrap();
                let text = with_early_start(&text);
                assert!(text.contains(".target sm_90"), "{}", kernel.host_name);
                let body = text.split(".entry").nth(1).unwrap();
                let mut instructions = body.lines().skip_while(|line| !line.starts_with('{'));
                instructions.next();
                let first: Vec<&str> = instructions
                    .map(str::trim)
                    .filter(|l| !l.is_empty() && !l.starts_with('.') && !l.starts_with("//"))
                    .take(2)
                    .collect();
                let expected = ["griddepcontrol.launch_dependents;", "griddepcontrol.wait;"];
                assert_eq!(first, expected, "{}", kernel.host_name);
                assert_eq!(text.matches("griddepcontrol.wait;").count(), 1);
            }
        }
    }
}
