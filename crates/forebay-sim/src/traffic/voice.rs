//! Voice calls: packets at equal intervals, always or only during talk spurts. The lengths of talk
//! spurts and of the pauses between them are exponentially distributed (ITU-T P.59). The state of
//! the network has no influence.

use forebay_scenario as scenario;
use forebay_units::{Rng, Span, Time};

use super::{after, Act, Action, Application};

/// Voice calls in one direction.
pub struct Voice {
    interval: Span,
    /// The mean lengths of a talk spurt and of a pause.
    spurts: Option<(Span, Span)>,
    /// The end of the talk spurt, and the random stream, of each call.
    calls: Vec<(Time, Rng)>,
}

impl Voice {
    /// Creates this many calls.
    pub fn new(voice: &scenario::Voice, calls: u32, mut rng: Rng) -> Voice {
        let call = |_| (Time::ZERO, Rng::new(rng.next_u64(), "call"));
        Voice {
            interval: voice.interval.max(Span::from_nanos(1)),
            spurts: voice.spurts(),
            calls: (0..calls).map(call).collect(),
        }
    }

    /// Starts a talk spurt at `at` and draws its end.
    fn talk(&mut self, call: u32, at: Time) {
        let (end, rng) = &mut self.calls[call as usize];
        *end = match self.spurts {
            Some((talk, _)) => after(at, talk, rng),
            None => Time::NEVER,
        };
    }
}

impl Application for Voice {
    fn first(&mut self, call: u32, start: Time, _stop: Option<Time>) -> Option<Act> {
        self.talk(call, start);
        Some(Act {
            at: start,
            action: Action::Send,
        })
    }

    fn next(&mut self, call: u32, done: Act, stop: Option<Time>) -> Option<Act> {
        let mut at = done.at + self.interval;
        let (end, rng) = &mut self.calls[call as usize];
        if let Some((_, pause)) = self.spurts.filter(|_| at >= *end) {
            at = after(*end, pause, rng).max(at);
            self.talk(call, at);
        }
        stop.is_none_or(|stop| at < stop)
            .then_some(Act { at, ..done })
    }
}

#[cfg(test)]
mod tests {
    use super::super::statistics::follows;
    use super::*;
    use forebay_scenario::Maybe;
    use forebay_units::Params;

    /// Returns the times of the first `n` packets in s, with these mean lengths of talk spurts and
    /// of pauses.
    fn times(spurts: Option<(Span, Span)>, n: usize) -> Vec<f64> {
        let (talk, pause) = spurts.unzip();
        let model = scenario::Voice {
            talk: Maybe(talk),
            pause: Maybe(pause),
            ..scenario::Voice::defaults()
        };
        let mut voice = Voice::new(&model, 1, Rng::new(3, "voice"));
        let mut act = voice.first(0, Time::ZERO, None).unwrap();
        let mut times = Vec::new();
        for _ in 0..n {
            times.push(act.at.as_secs_f64());
            act = voice.next(0, act, None).unwrap();
        }
        times
    }

    #[test]
    fn without_pauses_packets_are_even() {
        let times = times(None, 100);
        assert!(times
            .windows(2)
            .all(|pair| (pair[1] - pair[0] - 0.02).abs() < 1e-9));
    }

    #[test]
    fn talk_spurts_and_pauses_are_exponential() {
        let (talk, pause) = (1.004, 1.587);
        let span = Span::from_secs_f64;
        let times = times(Some((span(talk), span(pause))), 200_000);
        let (mut spurts, mut pauses) = (Vec::new(), Vec::new());
        let mut begun = times[0];
        for pair in times.windows(2) {
            let gap = pair[1] - pair[0];
            if gap > 0.0201 {
                // The spurt ended somewhere in its last interval.
                spurts.push(pair[0] - begun + 0.01);
                pauses.push(gap);
                begun = pair[1];
            }
        }
        // A pause that is shorter than the rest of the interval is not visible; all longer ones
        // are.
        let long: Vec<f64> = pauses
            .iter()
            .map(|it| it - 0.1)
            .filter(|it| *it > 0.0)
            .collect();
        follows(&long, |t| 1.0 - (-t / pause).exp());
        let mean = spurts.iter().sum::<f64>() / spurts.len() as f64;
        assert!((mean / talk - 1.0).abs() < 0.04, "{mean}");
    }
}
