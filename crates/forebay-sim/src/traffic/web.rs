//! Web sessions: each requests objects at the times of a Poisson process, also while earlier
//! objects are under way. Each object is sent over a new connection. (bigdeli has 30 sessions with
//! 10 flows per second each, with sizes of a Pareto distribution of the second kind.)

use forebay_scenario::{self as scenario, Pareto2};
use forebay_units::{Bytes, Rng, Time};

use super::{next_poisson, packets, Act, Action, Application};

/// Web sessions with independent requests.
pub struct Web {
    params: scenario::Web,
    size: Pareto2,
    payload_bytes: u64,
    rng: Rng,
}

impl Web {
    /// Creates the sessions; `payload` is the payload of a packet.
    pub fn new(web: &scenario::Web, size: &Pareto2, payload: Bytes, rng: Rng) -> Web {
        Web {
            params: web.clone(),
            size: size.clone(),
            payload_bytes: payload.0,
            rng,
        }
    }

    /// Draws the next request after `now`; `None` if it would be after the stop.
    fn request(&mut self, now: Time, stop: Option<Time>) -> Option<Act> {
        let at = next_poisson(now, self.params.requests, &mut self.rng);
        let packets = packets(&self.size, self.payload_bytes, &mut self.rng);
        stop.is_none_or(|stop| at < stop).then_some(Act {
            at,
            action: Action::Transfer(packets),
        })
    }
}

impl Application for Web {
    fn first(&mut self, _flow: u32, start: Time, stop: Option<Time>) -> Option<Act> {
        self.request(start, stop)
    }

    fn next(&mut self, _flow: u32, done: Act, stop: Option<Time>) -> Option<Act> {
        self.request(done.at, stop)
    }
}

#[cfg(test)]
mod tests {
    use super::super::statistics::{counted, follows};
    use super::*;
    use forebay_units::{Params, Span};

    /// Returns bigdeli's sessions: 10 requests per second, with sizes of scale 1000 bytes.
    fn sessions() -> Web {
        let (web, size) = (scenario::Web::defaults(), Pareto2::defaults());
        Web::new(&web, &size, Bytes(1000), Rng::new(3, "web"))
    }

    /// Returns the gaps in s and the sizes in packets of requests of bigdeli's sessions.
    fn requests(n: usize) -> (Vec<f64>, Vec<u32>) {
        let mut web = sessions();
        let mut at = Time::ZERO;
        let mut act = web.first(0, Time::ZERO, None).unwrap();
        let (mut gaps, mut sizes) = (Vec::new(), Vec::new());
        for _ in 0..n {
            let Action::Transfer(packets) = act.action else {
                panic!("{act:?}")
            };
            gaps.push((act.at - at).as_secs_f64());
            sizes.push(packets);
            at = act.at;
            act = web.next(0, act, None).unwrap();
        }
        (gaps, sizes)
    }

    #[test]
    fn requests_are_poisson_and_sizes_pareto() {
        let n = 50_000;
        let (gaps, sizes) = requests(n);
        follows(&gaps, |t| 1.0 - (-t / 0.1).exp());
        // A size in whole packets: P(n packets) = F(n) − F(n − 1); the last cell is the tail.
        let below = |x: f64| 1.0 - (1.0 + x).powf(-1.2);
        let cells = 30;
        let mut counts = vec![0.0; cells];
        for size in sizes {
            counts[(size as usize - 1).min(cells - 1)] += 1.0;
        }
        let expected: Vec<f64> = (0..cells)
            .map(|i| match i {
                _ if i == cells - 1 => 1.0 - below(i as f64),
                _ => below(i as f64 + 1.0) - below(i as f64),
            })
            .map(|p| p * n as f64)
            .collect();
        counted(&counts, &expected);
    }

    #[test]
    fn a_stopped_session_requests_nothing() {
        let mut web = sessions();
        let [start, stop] = [1, 2].map(|s| Time::ZERO + Span::from_secs(s));
        let mut act = web.first(0, start, Some(stop));
        let mut count = 0;
        while let Some(done) = act {
            assert!((start..stop).contains(&done.at));
            count += 1;
            act = web.next(0, done, Some(stop));
        }
        assert!((1..30).contains(&count), "{count}");
    }
}
