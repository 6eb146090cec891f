//! Owns the kernels as PTX text, one module a `.metal` file, and the filling in of function constants.

use crate::Library;
use crate::signature::FunctionConstant;

include!(concat!(env!("OUT_DIR"), "/ptx.rs"));

/// A module with that one entry point, its function constants filled in by name; those not named are 1. The driver
/// compiles whole modules, of which one has dozens of entry points, so a pipeline is given no more than its own.
/// None: the file has no such kernel.
pub fn specialized(
    library: &Library,
    host_name: &str,
    constants: &[(&str, u32)],
) -> Option<String> {
    let &(_, text) = MODULES
        .iter()
        .find(|(name, _)| *name == library.source.name)?;
    let first_entry = text.find(ENTRY)?;
    let start = text.find(&format!("{ENTRY}{host_name}("))?;
    let end = start + text[start..].find(ENTRY_END)? + ENTRY_END.len();
    let mut out = String::new();
    for line in text[..first_entry].lines().chain(text[start..end].lines()) {
        // As immediates they fold away, and what hangs on them with them; from memory they would be loaded.
        let filled = (library.interface.constants.iter()).find_map(|c| fill(line, c, constants));
        let declares = line.starts_with(".visible .const");
        if !declares {
            out.push_str(filled.as_deref().unwrap_or(line));
            out.push('\n');
        }
    }
    Some(out)
}

/// How an entry point starts and ends in the text that the compiler writes.
const ENTRY: &str = ".visible .entry ";
const ENTRY_END: &str = "\n}\n";

/// A load of a function constant as the move of its value.
fn fill(line: &str, constant: &FunctionConstant, values: &[(&str, u32)]) -> Option<String> {
    let load = line.trim_start().strip_prefix("ld.const.")?;
    let load = load.strip_suffix(&format!(", [{}];", constant.name))?;
    let (kind, register) = load.split_once(|c: char| c.is_whitespace())?;
    let given = values.iter().find(|(name, _)| *name == constant.name);
    let value = given.map_or(1, |(_, value)| *value);
    // A byte is loaded into a register of 16 bits.
    let kind = if kind == "u8" { "u16" } else { kind };
    Some(format!("\tmov.{kind} {}, {value};", register.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libraries;

    #[test]
    fn a_pipeline_is_one_entry_and_nothing_else() {
        for library in libraries() {
            let whole = MODULES.iter().find(|(n, _)| *n == library.source.name);
            let whole = whole.unwrap().1.len();
            for signature in &library.interface.signatures {
                let text = specialized(library, &signature.host_name, &[]).unwrap();
                let entry = format!(".visible .entry {}(", signature.host_name);
                assert_eq!(text.matches(&entry).count(), 1, "{entry}");
                assert_eq!(text.matches(".entry").count(), 1, "{entry}");
                assert_eq!(text.matches(".maxntid 256, 1, 1").count(), 1);
                assert_eq!(text.matches(".const").count(), 0, "{entry}");
                assert!(!text.contains(".func") && !text.contains("call"), "{entry}");
                assert!(text.starts_with(".version") && text.contains(".address_size 64\n"));
                let shared = text.contains(".extern .shared");
                assert!(shared || !signature.uses_threadgroup_memory());
                assert!(text.len() < 100_000 && text.len() <= whole, "{entry}");
            }
        }
        let (library, _) = crate::signature("rms_norm_f16").unwrap();
        assert_eq!(specialized(library, "rms_norm_f17", &[]), None);
    }

    #[test]
    fn constants_are_filled_in_by_name() {
        let name = "linear_f16_f16_64x32x32";
        let (library, _) = crate::signature(name).unwrap();
        let text = |has_bias, aligned| {
            let values = [("has_bias", has_bias), ("aligned", aligned)];
            specialized(library, name, &values).unwrap()
        };
        let moves = |text: &str, value: u32| {
            let end = format!(", {value};");
            (text.lines())
                .filter(|l| l.starts_with("\tmov.u16 %rs") && l.ends_with(&end))
                .count()
        };
        // bias, residual, rows and aligned are each loaded at least once; those not named are 1.
        let (both, none) = (text(1, 1), text(0, 0));
        assert_eq!(moves(&both, 0), 0);
        assert!(moves(&none, 0) >= 2 && moves(&none, 1) >= 2);
        assert_eq!(moves(&both, 1), moves(&none, 0) + moves(&none, 1));
    }

    #[test]
    fn nothing_spills_arrays_to_local_memory() {
        for (file, text) in MODULES {
            let kernels = text.split(ENTRY).skip(1);
            let spilled: Vec<_> = kernels
                .filter(|kernel| kernel.contains("__local_depot"))
                .map(|kernel| kernel.split('(').next().unwrap_or_default())
                .collect();
            assert!(spilled.is_empty(), "{file}: {spilled:?}");
        }
    }
}
