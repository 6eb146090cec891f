//! Owns the values that an element can take before it is scaled: evenly spaced ones, or those of a table.

use crate::blocks::iq4_nl::VALUES;

pub trait Levels {
    /// The level nearest to `x`, which is finite.
    fn nearest(&self, x: f32) -> f32;

    /// The number that a block stores for a level.
    fn code(&self, level: f32) -> u8;

    /// The level that is farthest from zero, with its sign.
    fn farthest(&self) -> f32;

    /// The level at the other end.
    fn opposite(&self) -> f32;
}

/// All whole numbers from `low` to `high`.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    pub low: f32,
    pub high: f32,
}

/// Adding and subtracting it rounds to the nearest whole number, as all sizes below 2^22 leave no room for a fraction.
const ROUNDING: f32 = 12_582_912.0;

/// The nearest whole number; the even one of two that are as near. Exact below 2^22.
pub fn round(x: f32) -> f32 {
    (x + ROUNDING) - ROUNDING
}

impl Levels for Steps {
    #[inline(always)]
    fn nearest(&self, x: f32) -> f32 {
        round(x.max(self.low).min(self.high))
    }

    fn code(&self, level: f32) -> u8 {
        (level - self.low) as u8
    }

    fn farthest(&self) -> f32 {
        match -self.low > self.high {
            true => self.low,
            false => self.high,
        }
    }

    fn opposite(&self) -> f32 {
        match -self.low > self.high {
            true => self.high,
            false => self.low,
        }
    }
}

/// The sixteen values of IQ4_NL and IQ4_XS.
#[derive(Clone, Copy, Debug)]
pub struct Table;

/// Half-way between neighbouring values.
const BORDERS: [f32; 15] = {
    let mut borders = [0.0; 15];
    let mut i = 0;
    while i < 15 {
        borders[i] = (VALUES[i] as f32 + VALUES[i + 1] as f32) / 2.0;
        i += 1;
    }
    borders
};

impl Levels for Table {
    #[inline(always)]
    fn nearest(&self, x: f32) -> f32 {
        // A sum of what each border adds has no branch to predict wrongly.
        let mut level = VALUES[0] as f32;
        for (i, border) in BORDERS.iter().enumerate() {
            let step = (VALUES[i + 1] as i16 - VALUES[i] as i16) as f32;
            level += if x > *border { step } else { 0.0 };
        }
        level
    }

    fn code(&self, level: f32) -> u8 {
        BORDERS.iter().filter(|border| level > **border).count() as u8
    }

    fn farthest(&self) -> f32 {
        VALUES[0] as f32
    }

    fn opposite(&self) -> f32 {
        VALUES[15] as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_is_its_own_nearest() {
        for (code, value) in VALUES.iter().enumerate() {
            let value = *value as f32;
            assert_eq!(Table.nearest(value), value);
            assert_eq!(Table.nearest(value + 0.4), value);
            assert_eq!(Table.code(value), code as u8);
        }
        let steps = Steps {
            low: -8.0,
            high: 7.0,
        };
        for code in 0..16 {
            let value = code as f32 - 8.0;
            assert_eq!(steps.nearest(value - 0.4), value);
            assert_eq!(steps.code(value), code);
        }
        assert_eq!((steps.nearest(1e30), steps.nearest(-1e30)), (7.0, -8.0));
    }
}
