//! Owns the search for the scale, or the scale and the offset, with which some elements lose least. The loss is a sum of
//! squares; sums run in eight lanes that are added in order, so that results are the same bits everywhere.

use super::levels::Levels;

const LANES: usize = 8;

/// Elements that share a scale, and how much an error in each of them counts. A multiple of eight.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    pub values: &'a [f32],
    pub weights: &'a [f32],
}

/// What a level is multiplied with, and what is added.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    pub scale: f32,
    pub offset: f32,
}

/// Sums over a group with the level `q` of each element `x`, each weighted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    pub one: f32,
    pub x: f32,
    pub q: f32,
    pub xq: f32,
    pub qq: f32,
}

impl<'a> Group<'a> {
    /// The element that is farthest from zero.
    pub fn peak(&self) -> f32 {
        let farther = |a: f32, b: &f32| if b.abs() > a.abs() { *b } else { a };
        self.values.iter().fold(0.0, farther)
    }

    /// What is lost if every element takes the nearest level on `line`.
    pub fn loss(&self, levels: &impl Levels, line: Line) -> f32 {
        let inverse = inverse(line.scale);
        self.sum(|x, w| {
            let level = levels.nearest((x - line.offset) * inverse);
            let error = x - (line.scale * level + line.offset);
            [w * error * error]
        })[0]
    }

    /// The levels that elements take on `line`, in sums.
    pub fn sums(&self, levels: &impl Levels, line: Line) -> Sums {
        let inverse = inverse(line.scale);
        let [one, x, q, xq, qq] = self.sum(|x, w| {
            let q = levels.nearest((x - line.offset) * inverse);
            [w, w * x, w * q, w * x * q, w * q * q]
        });
        Sums { one, x, q, xq, qq }
    }

    /// The codes of the levels that elements take on `line`.
    pub fn codes(&self, levels: &impl Levels, line: Line, out: &mut [u8]) {
        let inverse = inverse(line.scale);
        for (x, code) in self.values.iter().zip(out) {
            *code = levels.code(levels.nearest((x - line.offset) * inverse));
        }
    }

    #[inline(always)]
    fn sum<const N: usize>(&self, terms: impl Fn(f32, f32) -> [f32; N]) -> [f32; N] {
        let mut lanes = [[0.0; LANES]; N];
        let (values, rest) = self.values.as_chunks::<LANES>();
        debug_assert!(rest.is_empty());
        for (x, w) in values.iter().zip(self.weights.as_chunks::<LANES>().0) {
            for lane in 0..LANES {
                let terms = terms(x[lane], w[lane]);
                for (sum, term) in lanes.iter_mut().zip(terms) {
                    sum[lane] += term;
                }
            }
        }
        lanes.map(|sums| sums.iter().sum())
    }
}

/// Zero for a scale of zero: all elements then take the level nearest to zero.
fn inverse(scale: f32) -> f32 {
    match scale == 0.0 {
        true => 0.0,
        false => 1.0 / scale,
    }
}

impl Sums {
    /// The scale that loses least with these levels and no offset.
    pub fn scale(&self) -> Option<f32> {
        (self.qq > 0.0).then(|| self.xq / self.qq)
    }

    /// The line that loses least with these levels.
    pub fn line(&self) -> Option<Line> {
        let determinant = self.one * self.qq - self.q * self.q;
        (determinant > 0.0).then(|| Line {
            scale: (self.one * self.xq - self.x * self.q) / determinant,
            offset: (self.qq * self.x - self.q * self.xq) / determinant,
        })
    }
}

/// Candidates put the peak at so many times the outermost level: below one leaves room, above one cuts the peak off for the
/// sake of the others.
const STRETCHES: std::ops::RangeInclusive<i32> = -3..=9;
const STRETCH: f32 = 0.035;

/// A scale for levels without offset.
pub fn scale(group: &Group, levels: &impl Levels) -> f32 {
    let peak = group.peak();
    if peak.abs() < SMALLEST {
        return 0.0;
    }
    let mut best = (0.0, 0.0);
    let (end, other) = (levels.farthest(), levels.opposite());
    // Where the ends are alike, so are the losses.
    let ends = if end == -other {
        &[end][..]
    } else {
        &[end, other]
    };
    for end in ends {
        for stretch in STRETCHES {
            let candidate = peak / (end * (1.0 + STRETCH * stretch as f32));
            let sums = group.sums(levels, line(candidate));
            // What the best scale for these levels gains over losing everything.
            let gain = sums.xq * sums.xq / sums.qq.max(f32::MIN_POSITIVE);
            if gain > best.0 {
                best = (gain, sums.xq / sums.qq);
            }
        }
    }
    settle(group, levels, line(best.1), |sums| {
        sums.scale().map(self::line)
    })
    .scale
}

/// A line for the levels 0 to `top`, and the obvious one. `below`: the offset must not be above zero.
pub fn affine(group: &Group, levels: &impl Levels, top: f32, below: bool) -> (Line, Line) {
    let least = group.values.iter().copied().fold(f32::INFINITY, f32::min);
    let low = if below { least.min(0.0) } else { least };
    let high = group.values.iter().copied().fold(low, f32::max);
    if high - low < SMALLEST {
        let flat = Line {
            scale: 0.0,
            offset: low,
        };
        return (flat, flat);
    }
    let refit = |sums: Sums| {
        let line = sums.line().filter(|line| line.scale > 0.0);
        match line {
            Some(line) if below && line.offset > 0.0 => sums.scale().map(self::line),
            line => line,
        }
    };
    let obvious = Line {
        scale: (high - low) / top,
        offset: low,
    };
    let mut best = (group.loss(levels, obvious), obvious);
    for stretch in STRETCHES {
        let factor = 1.0 + STRETCH * stretch as f32;
        let candidate = Line {
            scale: (high - low) / (top * factor),
            offset: low,
        };
        if let Some(line) = refit(group.sums(levels, candidate)) {
            let loss = group.loss(levels, line);
            if loss < best.0 {
                best = (loss, line);
            }
        }
    }
    (settle(group, levels, best.1, refit), obvious)
}

/// Below this, no scale that a half can hold gives anything but zeros.
pub const SMALLEST: f32 = 1e-20;

/// Levels by the line, then the line by the levels, as long as that helps.
fn settle(
    group: &Group,
    levels: &impl Levels,
    start: Line,
    refit: impl Fn(Sums) -> Option<Line>,
) -> Line {
    let mut best = (group.loss(levels, start), start);
    for _ in 0..4 {
        let Some(line) = refit(group.sums(levels, best.1)) else {
            break;
        };
        let loss = group.loss(levels, line);
        if loss >= best.0 {
            break;
        }
        best = (loss, line);
    }
    best.1
}

pub fn line(scale: f32) -> Line {
    Line { scale, offset: 0.0 }
}
