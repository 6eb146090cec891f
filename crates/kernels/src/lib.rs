//! Owns the GPU kernels: `.metal` sources, their parsed interfaces, the choice among them, and their translation for
//! machines without Metal. Knows no device and no plan.

mod binding;
#[cfg(feature = "emulator")]
pub mod emulator;
mod error;
mod lint;
mod params;
mod parse;
#[cfg(feature = "cuda")]
pub mod ptx;
pub mod repack;
pub mod select;
mod signature;
mod source;
pub mod suite;
mod token;
mod translate;

pub use binding::{Binding, Bound, check_bindings};
pub use error::{BindingError, KernelError};
pub use lint::lint;
pub use params::{Field, ParamsLayout, Scalar};
pub use parse::parse;
pub use signature::{AddressSpace, FunctionConstant, Interface, Parameter, Signature};
pub use source::{Source, self_tests, sources};
pub use translate::{Target, constant_setter, emulator_symbol, translate};

use std::collections::HashMap;
use std::sync::OnceLock;

/// One `.metal` file with all that it offers.
#[derive(Debug)]
pub struct Library {
    pub source: &'static Source,
    /// What a compiler is given.
    pub text: String,
    pub interface: Interface,
}

/// Every file, parsed once. Sources that do not parse are a bug, which the tests of this crate find.
pub fn libraries() -> &'static [Library] {
    static LIBRARIES: OnceLock<Vec<Library>> = OnceLock::new();
    LIBRARIES.get_or_init(|| parsed(sources()))
}

fn parsed(sources: &'static [Source]) -> Vec<Library> {
    let library = |source: &'static Source| {
        let text = source.flattened()?;
        let interface = parse(source.name, &text)?;
        Ok::<_, KernelError>(Library {
            source,
            text,
            interface,
        })
    };
    let libraries: Result<Vec<_>, _> = sources.iter().map(library).collect();
    libraries.unwrap_or_else(|error| panic!("an embedded kernel source is broken: {error}"))
}

/// Every entry point.
pub fn signatures() -> impl Iterator<Item = &'static Signature> {
    libraries()
        .iter()
        .flat_map(|library| &library.interface.signatures)
}

/// The entry point that hosts call `host_name`, and the file it is in.
pub fn signature(host_name: &str) -> Option<(&'static Library, &'static Signature)> {
    type ByName = HashMap<&'static str, (&'static Library, &'static Signature)>;
    static BY_NAME: OnceLock<ByName> = OnceLock::new();
    let by_name = BY_NAME.get_or_init(|| {
        let all = libraries().iter().flat_map(|library| {
            let signatures = library.interface.signatures.iter();
            signatures.map(move |s| (s.host_name.as_str(), (library, s)))
        });
        all.collect()
    });
    by_name.get(host_name).copied()
}
