//! Owns one chart: axes, lines, a legend, as a figure of HTML with SVG inside. Colours come from the page's style.

use super::scale::{Scale, short};
use std::fmt::Write;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 48.0;
/// Different colours of lines; more lines begin again.
pub const COLOURS: usize = 8;

/// A line of a chart.
#[derive(Clone, Debug, Default)]
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    /// Written beside the points, one each; or empty.
    pub labels: Vec<String>,
    /// One of the page's, below [`COLOURS`].
    pub colour: usize,
    pub is_dashed: bool,
}

/// What lies along the horizontal axis.
#[derive(Clone, Debug)]
pub enum Horizontal {
    /// Named places at equal distances; points are at 0, 1, 2.
    Names(Vec<String>),
    Numbers(Scale),
}

#[derive(Clone, Debug)]
pub struct Chart {
    pub title: String,
    /// What one should know to read it.
    pub about: String,
    pub horizontal: Horizontal,
    pub horizontal_title: String,
    pub vertical: Scale,
    pub vertical_title: String,
    pub lines: Vec<Line>,
    /// Values hold until the next point.
    pub is_stepped: bool,
    pub has_markers: bool,
    /// Places where something new begins, with its name.
    pub sections: Vec<(f64, String)>,
    pub is_wide: bool,
}

impl Chart {
    fn width(&self) -> f64 {
        if self.is_wide {
            WIDTH * 2.0 + 24.0
        } else {
            WIDTH
        }
    }

    fn x(&self, value: f64) -> f64 {
        let place = match &self.horizontal {
            Horizontal::Names(names) => (value + 0.5) / names.len() as f64,
            Horizontal::Numbers(scale) => scale.place(value),
        };
        LEFT + place * (self.width() - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.vertical.place(value) * (HEIGHT - TOP - BOTTOM)
    }

    /// The whole figure.
    pub fn figure(&self) -> String {
        let class = if self.is_wide { " class=\"wide\"" } else { "" };
        let mut html = format!(
            "<figure{class}><figcaption>{}<small>{}</small></figcaption>\n",
            escape(&self.title),
            escape(&self.about)
        );
        html.push_str("<p class=\"legend\">");
        for line in &self.lines {
            let dashed = if line.is_dashed { " dashed" } else { "" };
            let (colour, name) = (line.colour, escape(&line.name));
            let _ = write!(html, "<span class=\"key k{colour}{dashed}\">{name}</span>");
        }
        html.push_str("</p>\n");
        html.push_str(&self.svg());
        html.push_str("</figure>\n");
        html
    }

    pub fn svg(&self) -> String {
        let width = self.width();
        let mut svg = format!(
            "<svg viewBox=\"0 0 {width} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
            escape(&self.title)
        );
        self.draw_axes(&mut svg);
        for line in &self.lines {
            self.draw_line(&mut svg, line);
        }
        // Above all lines, so that none crosses a number.
        self.draw_sections(&mut svg);
        for line in &self.lines {
            self.draw_labels(&mut svg, line);
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn draw_axes(&self, svg: &mut String) {
        let (left, right) = (LEFT, self.width() - RIGHT);
        let bottom = HEIGHT - BOTTOM;
        for tick in &self.vertical.ticks {
            let y = self.y(*tick);
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{left} {y:.1}H{right}\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 8.0,
                y + 4.0,
                short(*tick)
            );
        }
        let ticks: Vec<(f64, String)> = match &self.horizontal {
            Horizontal::Names(names) => {
                let places = names.iter().enumerate();
                places.map(|(n, name)| (n as f64, escape(name))).collect()
            }
            Horizontal::Numbers(scale) => scale
                .ticks
                .iter()
                .map(|tick| (*tick, short(*tick)))
                .collect(),
        };
        for (value, text) in ticks {
            let x = self.x(value);
            let _ = writeln!(
                svg,
                "<path class=\"axis\" d=\"M{x:.1} {bottom}v5\"/><text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
                bottom + 19.0
            );
        }
        let _ = writeln!(
            svg,
            "<path class=\"axis\" d=\"M{left} {bottom}H{right}\"/>\n<text class=\"name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n<text class=\"name\" transform=\"translate(13 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            (left + right) / 2.0,
            HEIGHT - 8.0,
            escape(&self.horizontal_title),
            (TOP + bottom) / 2.0,
            escape(&self.vertical_title)
        );
    }

    fn draw_sections(&self, svg: &mut String) {
        for (number, (value, name)) in self.sections.iter().enumerate() {
            let x = self.x(*value);
            let next = self.sections.get(number + 1);
            let room = next.map_or(self.width() - RIGHT, |(next, _)| self.x(*next)) - x;
            let bottom = HEIGHT - BOTTOM;
            let _ = writeln!(
                svg,
                "<path class=\"section\" d=\"M{x:.1} {TOP}V{bottom}\"/>"
            );
            // A name that would run into the next one is left out: the table has it.
            if room > 6.5 * name.chars().count() as f64 + 6.0 {
                let (x, name) = (x + 5.0, escape(name));
                let _ = writeln!(
                    svg,
                    "<text class=\"label soft\" x=\"{x:.1}\" y=\"{:.1}\">{name}</text>",
                    TOP + 10.0
                );
            }
        }
    }

    fn draw_line(&self, svg: &mut String, line: &Line) {
        let mut path = String::new();
        let mut last_y = 0.0;
        for (number, (x, y)) in line.points.iter().enumerate() {
            let (x, y) = (self.x(*x), self.y(*y));
            match number {
                0 => write!(path, "M{x:.1} {y:.1}"),
                // Equal values are one stroke.
                _ if self.is_stepped && y == last_y => write!(path, "H{x:.1}"),
                _ if self.is_stepped => write!(path, "H{x:.1}V{y:.1}"),
                _ => write!(path, "L{x:.1} {y:.1}"),
            }
            .expect("a string takes all");
            last_y = y;
        }
        if path.is_empty() {
            return;
        }
        let dashed = if line.is_dashed { " dashed" } else { "" };
        let colour = line.colour;
        let _ = writeln!(svg, "<path class=\"line l{colour}{dashed}\" d=\"{path}\"/>");
        if self.has_markers {
            for (x, y) in &line.points {
                let name = escape(&line.name);
                let _ = writeln!(
                    svg,
                    "<circle class=\"dot d{colour}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\"><title>{name}: {}</title></circle>",
                    self.x(*x),
                    self.y(*y),
                    short(*y)
                );
            }
        }
    }

    fn draw_labels(&self, svg: &mut String, line: &Line) {
        for ((x, y), label) in line.points.iter().zip(&line.labels) {
            let x = self.x(*x);
            let is_at_edge = x > self.width() - RIGHT - 40.0;
            let (dx, anchor) = if is_at_edge {
                (-8.0, "end")
            } else {
                (8.0, "start")
            };
            let _ = writeln!(
                svg,
                "<text class=\"label\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
                x + dx,
                // Lines of higher quantiles are above it.
                (self.y(*y) + 16.0).min(HEIGHT - BOTTOM - 4.0),
                escape(label)
            );
        }
    }
}

/// Text as it may stand in HTML and its attributes.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // Not allowed in XML, however it is written.
            c if c.is_control() && !matches!(c, '\n' | '\t') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
