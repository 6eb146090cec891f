//! What blocks add up to for one row of activations, beside a register's rows of weights.

use super::registers::Register;
use super::unpack::Unpack;

/// What a block of activations has beside its integers.
pub struct Factors {
    pub scale: f32,
    pub sum: f32,
}

#[derive(Clone, Copy)]
pub struct Sums<R: Register> {
    all: R::Floats,
    /// Of a group so far, without its scales.
    products: R::Floats,
    /// What the group's 16 offsets come to, without their units.
    offsets: R::Floats,
}

impl<R: Register> Sums<R> {
    /// # Safety
    /// The processor has the register's instructions (so for all).
    #[inline(always)]
    pub unsafe fn new() -> Sums<R> {
        // SAFETY: the caller's promise.
        let none = unsafe { R::zeros() };
        Sums {
            all: none,
            products: none,
            offsets: none,
        }
    }

    /// Starts a group whose 16 offsets came to `dots`.
    ///
    /// # Safety
    /// As for `new`.
    #[inline(always)]
    pub unsafe fn start_group(&mut self, dots: R::Integers) {
        // SAFETY: the caller's promise.
        self.offsets = unsafe { R::floats(dots) };
    }

    /// Adds a block, whose integers came to `dots`.
    ///
    /// # Safety
    /// `group` is a whole group in this type's layout and `block` one of its blocks.
    #[inline(always)]
    pub unsafe fn add<W: Unpack>(
        &mut self,
        dots: R::Integers,
        group: *const u8,
        block: *const u8,
        x: Factors,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let dots = R::floats(dots);
            if W::SCALES_GROUPS {
                self.products = R::mul_add(dots, R::of_floats(x.scale), self.products);
            } else {
                let scales = R::mul(W::scales::<R>(group, block), R::of_floats(x.scale));
                self.all = R::mul_add(dots, scales, self.all);
            }
            if W::OFFSETS == 1 {
                let offsets = W::offsets::<R>(group, block);
                self.all = R::mul_add(offsets, R::of_floats(x.sum), self.all);
            }
        }
    }

    /// Behind a group's last block. Products were so many `times` too high, a power of two: nothing is rounded. The sums of
    /// activations that its 16 offsets took have the scale `sums_scale`.
    ///
    /// # Safety
    /// As for `add`.
    #[inline(always)]
    pub unsafe fn end_group<W: Unpack>(&mut self, group: *const u8, times: u32, sums_scale: f32) {
        if !W::SCALES_GROUPS {
            return;
        }
        // SAFETY: the caller's promise; scales of this type are the group's alone.
        unsafe {
            let mut scales = W::scales::<R>(group, group);
            if times > 1 {
                scales = R::mul(scales, R::of_floats(1.0 / times as f32));
            }
            self.all = R::mul_add(self.products, scales, self.all);
            self.products = R::zeros();
            if W::OFFSETS == 16 {
                let units = R::mul(W::offset_units::<R>(group), R::of_floats(sums_scale));
                self.all = R::mul_add(self.offsets, units, self.all);
            }
        }
    }

    pub fn all(self) -> R::Floats {
        self.all
    }
}
