//! What blocks add up to for one row of activations, beside a register's rows of weights.

use super::registers::Register;
use super::unpack::Unpack;

/// What a block of activations has beside its integers.
pub struct Factors {
    pub scale: f32,
    pub sum: f32,
    pub first_sum: f32,
    pub last_sum: f32,
}

#[derive(Clone, Copy)]
pub struct Sums<R: Register> {
    all: R::Floats,
    /// Of a group so far, without its scales: for types with two offsets.
    products: R::Floats,
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
            if W::OFFSETS == 2 {
                self.products = R::mul_add(dots, R::of_floats(x.scale), self.products);
                let (first, last) = (
                    W::offsets::<R>(group, block, 0),
                    W::offsets::<R>(group, block, 1),
                );
                self.offsets = R::mul_add(first, R::of_floats(x.first_sum), self.offsets);
                self.offsets = R::mul_add(last, R::of_floats(x.last_sum), self.offsets);
                return;
            }
            let scales = R::mul(W::scales::<R>(group, block), R::of_floats(x.scale));
            self.all = R::mul_add(dots, scales, self.all);
            if W::OFFSETS == 1 {
                let offsets = W::offsets::<R>(group, block, 1);
                self.all = R::mul_add(offsets, R::of_floats(x.sum), self.all);
            }
        }
    }

    /// Behind a group's last block. Products were so many `times` too high, a power of two: nothing is rounded.
    ///
    /// # Safety
    /// As for `add`.
    #[inline(always)]
    pub unsafe fn end_group<W: Unpack>(&mut self, group: *const u8, times: u32) {
        if W::OFFSETS < 2 {
            return;
        }
        // SAFETY: the caller's promise; scales of this type are the group's alone.
        unsafe {
            let mut scales = W::scales::<R>(group, group);
            if times > 1 {
                scales = R::mul(scales, R::of_floats(1.0 / times as f32));
            }
            self.all = R::mul_add(self.products, scales, self.all);
            self.all = R::mul_add(self.offsets, W::offset_units::<R>(group), self.all);
            (self.products, self.offsets) = (R::zeros(), R::zeros());
        }
    }

    pub fn all(self) -> R::Floats {
        self.all
    }
}
