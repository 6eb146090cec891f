//! Owns which charts a record has: what is along each axis, and which lines are drawn.

use super::chart::{COLOURS, Chart, Horizontal, Line};
use super::scale::Scale;
use crate::load::{Goal, LoadRecord, Point, Quantiles, Rate, Summary};

/// Points of a distribution's line; more cannot be seen.
const STEPS: usize = 200;

/// All charts of a record, in their order.
pub fn charts(record: &LoadRecord) -> Vec<Chart> {
    let points: Vec<&Point> = record
        .points
        .iter()
        .filter(|p| p.summary.completed > 0)
        .collect();
    if points.is_empty() {
        return Vec::new();
    }
    let mut charts = Vec::new();
    if points.len() > 1 {
        let sweep = Sweep::new(points.clone());
        let about = "milliseconds from sending a request to its first token";
        charts.extend(sweep.latency("Time to first token", about, |s| s.ttft));
        let about = "milliseconds for each token after the first, by request";
        charts.extend(sweep.latency("Time per output token", about, |s| s.tpot));
        charts.push(sweep.throughput());
        charts.extend(sweep.latency_by_throughput());
        if !record.goals.is_empty() {
            charts.push(sweep.goodput(&record.goals));
        }
    }
    let itl = |p: &Point| successful(p, |o| o.gaps.clone());
    charts.extend(distribution(
        "Inter-token latency",
        "share of gaps between events that were at most this long",
        &points,
        itl,
    ));
    if points.len() == 1 {
        charts.extend(distribution(
            "Time to first token",
            "share of requests whose first token came at most this late",
            &points,
            |p| successful(p, |o| o.ttft.into_iter().collect()),
        ));
    }
    charts.extend(timeline(record));
    // One that would stand alone in its row takes the whole row.
    let narrow = charts.iter().filter(|chart| !chart.is_wide).count();
    if narrow % 2 == 1
        && let Some(last) = charts.iter_mut().rfind(|chart| !chart.is_wide)
    {
        last.is_wide = true;
    }
    charts
}

/// A sweep's horizontal axis and its points.
struct Sweep<'a> {
    points: Vec<&'a Point>,
    names: Vec<String>,
    title: &'static str,
}

impl Sweep<'_> {
    fn new(points: Vec<&Point>) -> Sweep<'_> {
        let is_by_rate = points.iter().any(|point| point.rate != points[0].rate);
        let name = |point: &&Point| match (is_by_rate, point.rate, point.concurrency) {
            (true, Rate::Unlimited, _) => "∞".to_owned(),
            (true, rate, _) => rate.to_string(),
            (false, _, Some(concurrency)) => concurrency.to_string(),
            (false, _, None) => "∞".to_owned(),
        };
        Sweep {
            names: points.iter().map(name).collect(),
            title: match is_by_rate {
                true => "requests per second offered",
                false => "concurrent requests",
            },
            points,
        }
    }

    fn line(&self, name: &str, colour: usize, value: impl Fn(&Summary) -> Option<f64>) -> Line {
        let points = self.points.iter().enumerate();
        let points = points.filter_map(|(x, p)| Some((x as f64, value(&p.summary)?)));
        Line {
            name: name.to_owned(),
            points: points.collect(),
            colour,
            ..Line::default()
        }
    }

    fn chart(&self, title: &str, about: &str, vertical_title: &str, lines: Vec<Line>) -> Chart {
        Chart {
            title: title.to_owned(),
            about: about.to_owned(),
            horizontal: Horizontal::Names(self.names.clone()),
            horizontal_title: self.title.to_owned(),
            vertical: Scale::from_zero(largest(&lines)),
            vertical_title: vertical_title.to_owned(),
            lines,
            is_stepped: false,
            has_markers: true,
            sections: Vec::new(),
            is_wide: false,
        }
    }

    fn latency(
        &self,
        title: &str,
        about: &str,
        quantiles: fn(&Summary) -> Option<Quantiles>,
    ) -> Option<Chart> {
        let lines = vec![
            self.line("median", 0, |s| Some(quantiles(s)?.median)),
            self.line("P90", 1, |s| Some(quantiles(s)?.p90)),
            self.line("P99", 2, |s| Some(quantiles(s)?.p99)),
        ];
        let is_there = !lines[0].points.is_empty();
        is_there.then(|| self.chart(title, about, "ms", lines))
    }

    fn throughput(&self) -> Chart {
        let lines = vec![
            self.line("output", 0, |s| Some(s.output_throughput)),
            self.line("prompt and output", 3, |s| Some(s.total_token_throughput)),
        ];
        let about = "tokens per second over all requests";
        self.chart("Throughput", about, "tokens/s", lines)
    }

    fn goodput(&self, goals: &[Goal]) -> Chart {
        let lines = vec![
            self.line("within the goals", 4, |s| s.request_goodput),
            self.line("all that succeeded", 5, |s| Some(s.request_throughput)),
        ];
        let goals: Vec<String> = goals.iter().map(Goal::to_string).collect();
        let about = format!("requests per second with {}", goals.join(" and "));
        self.chart("Goodput", &about, "requests/s", lines)
    }

    fn latency_by_throughput(&self) -> Option<Chart> {
        let line = |name: &str, colour: usize, pick: fn(&Quantiles) -> f64| {
            let place = |p: &&Point| {
                let latency = p.summary.e2el.as_ref().map(pick)?;
                Some((p.summary.output_throughput, latency / 1e3))
            };
            Line {
                name: name.to_owned(),
                points: self.points.iter().filter_map(place).collect(),
                colour,
                ..Line::default()
            }
        };
        let mut lines = vec![line("median", 0, |q| q.median), line("P99", 2, |q| q.p99)];
        lines[0].labels = self.names.clone();
        let most = lines[0].points.iter().map(|p| p.0).fold(0.0, f64::max);
        let about = format!("seconds of a whole request; numbers are {}", self.title);
        (!lines[0].points.is_empty()).then(|| Chart {
            horizontal: Horizontal::Numbers(Scale::from_zero(most)),
            horizontal_title: "output tokens/s".to_owned(),
            ..self.chart("Latency against throughput", &about, "seconds", lines)
        })
    }
}

fn successful(point: &Point, times: fn(&crate::load::Outcome) -> Vec<f64>) -> Vec<f64> {
    let good = point.run.outcomes.iter().filter(|o| o.is_success());
    good.flat_map(times).collect()
}

/// Cumulative: for each point, which share of its times is at most how long.
fn distribution(
    title: &str,
    about: &str,
    points: &[&Point],
    times: impl Fn(&Point) -> Vec<f64>,
) -> Option<Chart> {
    let mut lines = Vec::new();
    let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
    for (number, point) in points.iter().enumerate() {
        let mut values: Vec<f64> = times(point).iter().map(|s| s * 1e3).collect();
        if values.is_empty() {
            continue;
        }
        values.sort_by(f64::total_cmp);
        let last = values.len() - 1;
        // A handful of outliers would squeeze everything else into a corner.
        least = least.min(values[(last as f64 * 0.03).ceil() as usize]);
        most = most.max(values[(last as f64 * 0.995).ceil() as usize]);
        let step = (values.len() / STEPS).max(1);
        let mut places: Vec<usize> = (0..values.len()).step_by(step).collect();
        places.push(last);
        let share = |place: usize| (place + 1) as f64 / values.len() as f64 * 100.0;
        let places = places
            .into_iter()
            .map(|place| (values[place], share(place)));
        let places = [(values[0], 0.0)].into_iter().chain(places);
        lines.push(Line {
            name: point.name(),
            points: places.collect(),
            colour: number % COLOURS,
            is_dashed: number >= COLOURS,
            ..Line::default()
        });
    }
    (!lines.is_empty()).then(|| Chart {
        title: title.to_owned(),
        about: about.to_owned(),
        horizontal: Horizontal::Numbers(Scale::logarithmic(least, most)),
        horizontal_title: "ms".to_owned(),
        vertical: Scale::from_zero(100.0),
        vertical_title: "% of all".to_owned(),
        lines,
        is_stepped: true,
        has_markers: false,
        sections: Vec::new(),
        is_wide: false,
    })
}

/// The server's own numbers, all points after one another.
fn timeline(record: &LoadRecord) -> Vec<Chart> {
    let samples = || {
        let points = record.points.iter();
        points.flat_map(|p| p.run.samples.iter().map(|s| (p.began + s.at, *s)))
    };
    let end = record
        .points
        .last()
        .map_or(0.0, |p| p.began + p.run.duration);
    if samples().count() < 2 {
        return Vec::new();
    }
    let sweep = Sweep::new(record.points.iter().collect());
    let begins = record.points.iter().map(|point| point.began);
    let mut sections: Vec<(f64, String)> = begins.zip(sweep.names).collect();
    let mut about = "as the server says, four times a second".to_owned();
    match sections.len() {
        1 => sections.clear(),
        _ => about.push_str(&format!("; numbers are {}", sweep.title)),
    }
    let line = |name: &str, colour: usize, points: Vec<(f64, f64)>| Line {
        name: name.to_owned(),
        points,
        colour,
        ..Line::default()
    };
    let chart =
        |title: &str, about: &str, unit: &str, scale: fn(f64) -> Scale, lines: Vec<Line>| Chart {
            title: title.to_owned(),
            about: about.to_owned(),
            horizontal: Horizontal::Numbers(Scale::until(end)),
            horizontal_title: "seconds since the start".to_owned(),
            // Room for the names of the sections above the lines.
            vertical: scale(largest(&lines) * 1.15),
            vertical_title: unit.to_owned(),
            lines,
            is_stepped: true,
            has_markers: false,
            sections: sections.clone(),
            is_wide: true,
        };
    let running = line(
        "running",
        0,
        samples().map(|(t, s)| (t, s.running)).collect(),
    );
    let waiting = line(
        "waiting",
        1,
        samples().map(|(t, s)| (t, s.waiting)).collect(),
    );
    let mut charts = vec![chart(
        "Requests over time",
        &about,
        "requests",
        Scale::counting,
        vec![running, waiting],
    )];
    let used = samples().filter_map(|(t, s)| Some((t, s.kv_usage? * 100.0)));
    let used = line("in use", 4, used.collect());
    if !used.points.is_empty() {
        let about = format!("share of pages that requests hold, {about}");
        charts.push(chart(
            "KV cache over time",
            &about,
            "%",
            Scale::from_zero,
            vec![used],
        ));
    }
    charts
}

fn largest(lines: &[Line]) -> f64 {
    let values = lines
        .iter()
        .flat_map(|line| line.points.iter().map(|p| p.1));
    values.filter(|value| value.is_finite()).fold(0.0, f64::max)
}
