//! Owns the choice of a mutant: a kernel made wrong in one place, to see whether a test notices.

use super::MUTANTS;

unsafe extern "C" {
    static mut mettle_mutant_chosen: i32;
}

/// File, line and change of each.
pub fn mutants() -> &'static [(&'static str, usize, &'static str)] {
    MUTANTS
}

/// Makes all dispatches from now on those of this mutant. To be called before the first.
pub fn choose_mutant(number: usize) {
    // SAFETY: nothing runs yet that would read it.
    unsafe { mettle_mutant_chosen = number as i32 };
}
