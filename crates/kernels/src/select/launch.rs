//! Owns one dispatch as it was chosen: plain numbers that are copied, so that choosing never allocates.

use crate::signature::Signature;
use std::fmt;
use std::ops::Deref;

/// One dispatch, all but its buffers and params.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    pub kernel: &'static Signature,
    pub threadgroups: [u32; 3],
    pub threads: u32,
    pub threadgroup_bytes: usize,
    pub constants: Constants,
}

/// Values of function constants by name. With the kernel's name the key of a compiled pipeline.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Constants {
    /// Those not used are empty, so that equality is that of the used ones.
    pairs: [(&'static str, u32); Constants::MOST],
    used: u8,
}

impl Constants {
    /// More than any kernel has.
    pub const MOST: usize = 8;

    /// Panics beyond `MOST`: the names are this crate's own.
    pub fn new(pairs: &[(&'static str, u32)]) -> Constants {
        let mut constants = Constants::default();
        constants.pairs[..pairs.len()].copy_from_slice(pairs);
        constants.used = pairs.len() as u8;
        constants
    }
}

impl Deref for Constants {
    type Target = [(&'static str, u32)];

    fn deref(&self) -> &Self::Target {
        &self.pairs[..self.used as usize]
    }
}

impl fmt::Debug for Constants {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_map().entries(self.iter().copied()).finish()
    }
}

/// A kernel's name while it is put together, on the stack.
struct Name {
    bytes: [u8; 64],
    used: usize,
}

impl fmt::Write for Name {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.used + text.len();
        let room = self.bytes.get_mut(self.used..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.used = end;
        Ok(())
    }
}

/// A name that was put together here and is in no source is a bug, which the tests look for.
pub(super) fn kernel(name: fmt::Arguments) -> &'static Signature {
    let mut on_stack = Name {
        bytes: [0; 64],
        used: 0,
    };
    let found = fmt::write(&mut on_stack, name)
        .ok()
        .and_then(|()| std::str::from_utf8(&on_stack.bytes[..on_stack.used]).ok())
        .and_then(crate::signature);
    found
        .unwrap_or_else(|| panic!("there is no kernel {name}"))
        .1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_equal_by_what_is_used() {
        let two = Constants::new(&[("a", 1), ("b", 2)]);
        assert_eq!(two, Constants::new(&[("a", 1), ("b", 2)]));
        assert_ne!(two, Constants::new(&[("a", 1)]));
        assert_eq!(two[1], ("b", 2));
        assert!(Constants::default().is_empty());
        assert_eq!(format!("{two:?}"), r#"{"a": 1, "b": 2}"#);
    }

    #[test]
    #[should_panic(expected = "there is no kernel linear_made_up")]
    fn a_kernel_that_is_not_there_is_named() {
        kernel(format_args!("linear_{}", "made_up"));
    }
}
