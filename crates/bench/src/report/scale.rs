//! Owns the way from values to places on an axis: round ticks, and numbers short enough to stand beside them.

/// An axis of numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    low: f64,
    high: f64,
    is_log: bool,
    pub ticks: Vec<f64>,
}

impl Scale {
    /// From 0 to a round number that is at least `most`.
    pub fn from_zero(most: f64) -> Scale {
        let most = if most > 0.0 && most.is_finite() {
            most
        } else {
            1.0
        };
        let step = round_step(most / 5.0);
        let count = (most / step - 1e-9).ceil().max(1.0);
        Scale {
            low: 0.0,
            high: step * count,
            is_log: false,
            ticks: (0..=count as usize).map(|n| n as f64 * step).collect(),
        }
    }

    /// The same for things that have no halves.
    pub fn counting(most: f64) -> Scale {
        let mut scale = Scale::from_zero(most);
        scale.ticks.retain(|tick| tick.fract() == 0.0);
        scale
    }

    /// From 0 to `most` exactly: for time, which ends when it ends.
    pub fn until(most: f64) -> Scale {
        let most = if most > 0.0 && most.is_finite() {
            most
        } else {
            1.0
        };
        let step = round_step(most / 8.0);
        let count = (most / step + 1e-9).floor() as usize;
        Scale {
            low: 0.0,
            high: most,
            is_log: false,
            ticks: (0..=count).map(|n| n as f64 * step).collect(),
        }
    }

    /// Logarithmic, from the 1, 2 or 5 below `least` to the one above `most`.
    pub fn logarithmic(least: f64, most: f64) -> Scale {
        let most = if most > 0.0 && most.is_finite() {
            most
        } else {
            1.0
        };
        let least = if least > 0.0 { least.min(most) } else { most };
        let mut ticks = Vec::new();
        let first = least.log10().floor() as i32;
        let last = most.log10().ceil() as i32;
        for decade in first..=last {
            ticks.extend([1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(decade)));
        }
        let below = ticks
            .iter()
            .rposition(|tick| *tick <= least * (1.0 + 1e-9))
            .unwrap_or(0);
        let above = ticks.iter().position(|tick| *tick >= most * (1.0 - 1e-9));
        let above = above.unwrap_or(ticks.len() - 1).max(below + 1);
        let (low, high) = (ticks[below], ticks[above]);
        let mut ticks = ticks[below..=above].to_vec();
        // More than three decades leave no room for the digits between.
        if high / low > 1500.0 {
            ticks.retain(|tick| (tick.log10() - tick.log10().round()).abs() < 1e-9);
        }
        Scale {
            low,
            high,
            is_log: true,
            ticks,
        }
    }

    /// 0 at the beginning of the axis, 1 at its end; what lies outside is put at the edge.
    pub fn place(&self, value: f64) -> f64 {
        let place = match self.is_log {
            true => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        place.clamp(0.0, 1.0)
    }
}

/// The 1, 2 or 5 times a power of ten that is not below `least`.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let digits = [1.0, 2.0, 5.0, 10.0];
    let digit = digits
        .into_iter()
        .find(|digit| digit * power >= least * (1.0 - 1e-9));
    digit.unwrap_or(10.0) * power
}

/// A number in at most five characters or so: 0.25, 3.5, 120, 1.2k, 3M.
pub fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{scaled:.digits$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_values() {
        assert_eq!(Scale::from_zero(110.0).ticks, [0.0, 50.0, 100.0, 150.0]);
        assert_eq!(Scale::from_zero(73.0).ticks, [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!(Scale::from_zero(4.0).ticks, [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(Scale::counting(2.4).ticks, [0.0, 1.0, 2.0]);
        assert_eq!(Scale::from_zero(0.0).high, 1.0);
        assert_eq!(Scale::from_zero(f64::NAN).high, 1.0);
        assert_eq!(
            Scale::until(31.0).ticks,
            [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0]
        );
        assert_eq!(
            Scale::logarithmic(3.0, 30.0).ticks,
            [2.0, 5.0, 10.0, 20.0, 50.0]
        );
        assert_eq!(
            Scale::logarithmic(1.0, 9000.0).ticks,
            [1.0, 10.0, 100.0, 1000.0, 10000.0]
        );
        assert_eq!(Scale::logarithmic(5.0, 5.0).ticks, [5.0, 10.0]);
    }

    #[test]
    fn places_run_from_nought_to_one() {
        let scale = Scale::from_zero(100.0);
        assert_eq!(
            [0.0, 25.0, 100.0, 120.0].map(|v| scale.place(v)),
            [0.0, 0.25, 1.0, 1.0]
        );
        let scale = Scale::logarithmic(1.0, 100.0);
        assert!((scale.place(10.0) - 0.5).abs() < 1e-9);
        assert_eq!(scale.place(0.0), 0.0);
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (3.5, "3.5"),
            (12.34, "12.3"),
            (120.0, "120"),
            (1234.0, "1234"),
            (12_345.0, "12.3k"),
            (3e6, "3M"),
        ] {
            assert_eq!(short(value), text);
        }
    }
}
