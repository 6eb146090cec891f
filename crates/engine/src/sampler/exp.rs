//! Owns the exponential by which logits become weights.

/// Added to a number of moderate size, leaves the nearest whole number in the low bits.
const ROUNDER: f32 = 12_582_912.0;
/// ln 2 in two parts, the first with few enough bits that its multiples are exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// e^x for x <= 0, to 2 units in the last place; 0 below -87, where f32 loses precision.
///
/// Not the system's `exp`: that one differs from machine to machine, and with it the tokens of a seed. Additions and
/// multiplications alone give the same bits everywhere, and the compiler turns a loop of them into vector instructions.
#[inline]
pub(crate) fn exp_of_negative(x: f32) -> f32 {
    let clamped = if x > -87.0 { x } else { -87.0 };
    let shifted = clamped * std::f32::consts::LOG2_E + ROUNDER;
    let whole = shifted - ROUNDER;
    let rest = clamped - whole * LN_2_HIGH - whole * LN_2_LOW;
    let sum = 1.0 / 5040.0;
    let sum = sum * rest + 1.0 / 720.0;
    let sum = sum * rest + 1.0 / 120.0;
    let sum = sum * rest + 1.0 / 24.0;
    let sum = sum * rest + 1.0 / 6.0;
    let sum = sum * rest + 0.5;
    let sum = sum * rest + 1.0;
    let sum = sum * rest + 1.0;
    let exponent = (shifted.to_bits() as i32).wrapping_sub(ROUNDER.to_bits() as i32);
    let power = f32::from_bits((exponent.wrapping_add(127) << 23) as u32);
    if x > -87.0 { sum * power } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_exact_value() {
        let mut worst = 0.0f64;
        for step in 0..870_000 {
            let x = -(step as f32) / 10_000.0;
            let exact = f64::from(x).exp();
            worst = worst.max((f64::from(exp_of_negative(x)) - exact).abs() / exact);
        }
        assert!(worst < 2.4e-7, "{worst}");
        assert_eq!(exp_of_negative(0.0), 1.0);
        assert_eq!(exp_of_negative(-0.0), 1.0);
        for tiny in [-87.0, -1e30, f32::MIN, f32::NEG_INFINITY] {
            assert_eq!(exp_of_negative(tiny), 0.0);
        }
    }
}
