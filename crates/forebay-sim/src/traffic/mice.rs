//! Mice: a connection with endless data for an exponentially distributed time, then an
//! exponentially distributed pause, then a new connection. The mean of `on` is pi-pd's "1 second of
//! average lifetime".

use forebay_scenario as scenario;
use forebay_units::{Rng, Time};

use super::{after, Act, Action, Application};

/// Flows that alternate between connections and pauses.
pub struct Mice {
    params: scenario::Mice,
    rng: Rng,
}

impl Mice {
    /// Creates flows with these mean lengths of connections and pauses.
    pub fn new(mice: &scenario::Mice, rng: Rng) -> Mice {
        Mice {
            params: mice.clone(),
            rng,
        }
    }
}

impl Application for Mice {
    fn first(&mut self, _flow: u32, start: Time, _stop: Option<Time>) -> Option<Act> {
        Some(Act {
            at: after(start, self.params.off, &mut self.rng),
            action: Action::Fresh,
        })
    }

    fn next(&mut self, _flow: u32, done: Act, stop: Option<Time>) -> Option<Act> {
        let (mean, action) = match done.action {
            Action::Fresh => (self.params.on, Action::Close),
            _ => (self.params.off, Action::Fresh),
        };
        let at = after(done.at, mean, &mut self.rng);
        match stop {
            // After its stop a mouse begins no new connection.
            Some(stop) if at >= stop && action == Action::Fresh => None,
            Some(stop) => Some(Act {
                at: at.min(stop.max(done.at)),
                action,
            }),
            None => Some(Act { at, action }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::statistics::follows;
    use super::*;
    use forebay_units::{Params, Span};

    fn mice(on: Span, off: Span) -> Mice {
        let model = scenario::Mice {
            on,
            off,
            ..scenario::Mice::defaults()
        };
        Mice::new(&model, Rng::new(5, "mice"))
    }

    /// Returns the lengths in s of the on and off periods of one mouse.
    fn periods(on: Span, off: Span, n: usize) -> (Vec<f64>, Vec<f64>) {
        let mut mice = mice(on, off);
        let mut act = mice.first(0, Time::ZERO, None).unwrap();
        let (mut ons, mut offs) = (Vec::new(), Vec::new());
        for _ in 0..n {
            let next = mice.next(0, act, None).unwrap();
            let length_s = (next.at - act.at).as_secs_f64();
            match act.action {
                Action::Fresh => ons.push(length_s),
                _ => offs.push(length_s),
            }
            act = next;
        }
        (ons, offs)
    }

    #[test]
    fn periods_are_exponential() {
        let (ons, offs) = periods(Span::from_secs(1), Span::from_millis(500), 40_000);
        for (lengths, mean) in [(ons, 1.0), (offs, 0.5)] {
            let n = lengths.len() as f64;
            let got = lengths.iter().sum::<f64>() / n;
            assert!((got - mean).abs() < 4.0 * mean / n.sqrt(), "{got}");
            follows(&lengths, |t| 1.0 - (-t / mean).exp());
        }
    }

    #[test]
    fn a_stopped_mouse_stays_silent() {
        let mut mice = mice(Span::from_secs(1), Span::from_secs(1));
        let stop = Some(Time::ZERO + Span::from_secs(3));
        let mut act = mice.first(0, Time::ZERO, stop);
        let mut last = None;
        while let Some(done) = act {
            assert!(Some(done.at) <= stop || done.action == Action::Close);
            last = Some(done.action);
            act = mice.next(0, done, stop);
        }
        assert_eq!(last, Some(Action::Close));
    }
}
