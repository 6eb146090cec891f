//! Owns the walk over rows eight values at a time, or as many as a wider register holds, any length.

use crate::lanes::{Floats, Lanes};

/// What is done with a register of values of `N` rows. A type and not a closure: closures are compiled without the instructions.
pub trait Eight<F: Floats, const N: usize> {
    fn apply(&self, values: [F; N]) -> F;
}

/// `out[i] = op(inputs[..][i])`. The last values go through the same operations, with zeros beside them.
#[inline(always)]
pub fn for_eights<F: Floats, const N: usize>(
    inputs: [&[f32]; N],
    out: &mut [f32],
    op: impl Eight<F, N>,
) {
    let len = out.len();
    for input in inputs {
        assert_eq!(input.len(), len, "all rows are equally long");
    }
    let mut at = 0;
    let mut values = [F::splat(0.0); N];
    while at + F::WIDTH <= len {
        for n in 0..N {
            // SAFETY: so many values from `at` on are inside every row.
            values[n] = unsafe { F::load(inputs[n].as_ptr().add(at)) };
        }
        // SAFETY: as above.
        unsafe { op.apply(values).store(out.as_mut_ptr().add(at)) };
        at += F::WIDTH;
    }
    if at < len {
        const { assert!(F::WIDTH <= 16) };
        let mut last = [0.0; 16];
        for n in 0..N {
            last[..len - at].copy_from_slice(&inputs[n][at..]);
            // SAFETY: as many values.
            values[n] = unsafe { F::load(last.as_ptr()) };
        }
        // SAFETY: room for as many.
        unsafe { op.apply(values).store(last.as_mut_ptr()) };
        out[at..].copy_from_slice(&last[..len - at]);
    }
}

/// `x[i] = op(x[i], y[i])`; without `y`, `op(x[i], 0)`. The last values as above.
#[inline(always)]
pub fn for_eights_in_place<L: Lanes>(x: &mut [f32], y: Option<&[f32]>, op: impl Eight<L, 2>) {
    let len = x.len();
    assert!(
        y.is_none_or(|y| y.len() == len),
        "both rows are equally long"
    );
    let mut at = 0;
    let mut other = L::splat(0.0);
    while at + 8 <= len {
        // SAFETY: eight values from `at` on are inside both rows.
        unsafe {
            if let Some(y) = y {
                other = L::load(y.as_ptr().add(at));
            }
            let place = x.as_mut_ptr().add(at);
            op.apply([L::load(place), other]).store(place);
        }
        at += 8;
    }
    if at < len {
        let mut eight = [[0.0; 8]; 2];
        eight[0][..len - at].copy_from_slice(&x[at..]);
        if let Some(y) = y {
            eight[1][..len - at].copy_from_slice(&y[at..]);
        }
        // SAFETY: eight values each.
        let values = unsafe { [L::load(eight[0].as_ptr()), L::load(eight[1].as_ptr())] };
        x[at..].copy_from_slice(&op.apply(values).to_array()[..len - at]);
    }
}
