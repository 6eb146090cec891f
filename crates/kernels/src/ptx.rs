//! Owns the kernels as PTX text, one module a `.metal` file, and the filling in of function constants.

use crate::Library;
use crate::signature::FunctionConstant;

include!(concat!(env!("OUT_DIR"), "/ptx.rs"));

/// Every module with its file's name.
pub fn modules() -> &'static [(&'static str, &'static str)] {
    MODULES
}

/// The module of a file with function constants given values, by name; constants not named stay 1. The driver's
/// compiler treats them as memory, so a branch on one costs a load from the constant bank.
pub fn specialized(library: &Library, constants: &[(&str, u32)]) -> Option<String> {
    let &(_, text) = MODULES
        .iter()
        .find(|(name, _)| *name == library.source.name)?;
    let declared = |line: &str, c: &FunctionConstant| {
        line.starts_with(".visible .const") && line.contains(&format!(" {} = ", c.name))
    };
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let constant = library
            .interface
            .constants
            .iter()
            .find(|c| declared(line, c));
        let value = constant.and_then(|c| constants.iter().find(|(name, _)| *name == c.name));
        match value {
            Some((_, value)) => {
                let head = line.split(" = ").next().unwrap_or(line);
                out.push_str(&format!("{head} = {value};"));
            }
            None => out.push_str(line),
        }
        out.push('\n');
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libraries;

    #[test]
    fn every_kernel_is_an_entry_of_its_module() {
        for library in libraries() {
            let text = specialized(library, &[]).unwrap();
            for signature in &library.interface.signatures {
                let entry = format!(".visible .entry {}(", signature.host_name);
                assert_eq!(text.matches(&entry).count(), 1, "{entry}");
            }
            let limited = text.matches(".maxntid 256, 1, 1").count();
            assert_eq!(limited, library.interface.signatures.len());
        }
    }

    #[test]
    fn constants_are_filled_in_by_name() {
        let (library, _) = crate::signature("linear_f16_f16_64x32x32").unwrap();
        let text = specialized(library, &[("has_bias", 0), ("aligned", 1)]).unwrap();
        let value = |name: &str| {
            let is_it = |line: &&str| {
                line.starts_with(".visible .const") && line.contains(&format!(" {name} = "))
            };
            let line = text.lines().find(is_it).expect("declared");
            line.split(" = ").nth(1).unwrap().to_string()
        };
        assert_eq!(value("has_bias"), "0;");
        assert_eq!(value("aligned"), "1;");
        assert_eq!(value("has_rows"), "1;");
    }

    #[test]
    fn nothing_spills_arrays_to_local_memory() {
        for (file, text) in modules() {
            let kernels = text.split(".entry ").skip(1);
            let spilled: Vec<_> = kernels
                .filter(|kernel| kernel.contains("__local_depot"))
                .map(|kernel| kernel.split('(').next().unwrap_or_default())
                .collect();
            assert!(spilled.is_empty(), "{file}: {spilled:?}");
        }
    }
}
