//! Owns how fast tokens come: the difference between what is counted now and what was counted a moment ago.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A rate is taken over this long, or since somebody last looked.
const WINDOW: Duration = Duration::from_secs(3);
/// Looks that are closer together than this count as one.
const SPACING: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    prompt: u64,
    generated: u64,
}

/// What the counters said when somebody looked.
#[derive(Debug, Default)]
pub struct Rates(Mutex<VecDeque<Look>>);

impl Rates {
    /// Prompt and generated tokens a second; 0 at the first look.
    pub fn look(&self, at: Instant, prompt: u64, generated: u64) -> (f64, f64) {
        let mut looks = self.0.lock().expect("no holder panics");
        // The newest look that is old enough stays: it is where the window begins.
        while looks.len() > 1 && at.duration_since(looks[1].at) >= WINDOW {
            looks.pop_front();
        }
        let rates = match looks.front() {
            Some(first) if at > first.at => {
                let seconds = at.duration_since(first.at).as_secs_f64();
                (
                    prompt.saturating_sub(first.prompt) as f64 / seconds,
                    generated.saturating_sub(first.generated) as f64 / seconds,
                )
            }
            _ => (0.0, 0.0),
        };
        let is_new = looks
            .back()
            .is_none_or(|last| at.duration_since(last.at) >= SPACING);
        if is_new {
            looks.push_back(Look {
                at,
                prompt,
                generated,
            });
        }
        rates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_last_seconds() {
        let (rates, start) = (Rates::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!(rates.look(at(0), 0, 0), (0.0, 0.0));
        assert_eq!(rates.look(at(1), 100, 10), (100.0, 10.0));
        assert_eq!(rates.look(at(2), 100, 30), (50.0, 15.0));
        // What was before the window no longer counts.
        assert_eq!(rates.look(at(5), 100, 60), (0.0, 10.0));
        assert_eq!(rates.look(at(100), 100, 60), (0.0, 0.0));
        for look in 0..10_000 {
            rates.look(at(100) + Duration::from_millis(look), 100, 60);
        }
        assert!(rates.0.lock().unwrap().len() <= 32);
    }
}
