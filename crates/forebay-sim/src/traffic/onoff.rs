//! On-off sources: bursts of packets without congestion control. Flows exist from their start, or
//! arrive in a Poisson process whose rate oscillates and end after a geometrically distributed
//! number of bursts (staqm, simulation 1).

use std::f64::consts::TAU;

use forebay_scenario::{self as scenario, Traffic};
use forebay_units::cast::whole_u64;
use forebay_units::{Rng, Span, Time};

use super::{after, count, draw, next_poisson, small, Act, Action, Application, Arrival};

/// Sources that alternate between bursts of packets and pauses.
pub struct OnOff {
    /// Time between two packets of a burst.
    gap: Span,
    params: scenario::OnOff,
    /// The times at which arrivals begin and end.
    window: (Time, Time),
    flows: Vec<Burst>,
    /// Number of flows, from the first, that arrivals may use.
    active: u32,
    rng: Rng,
}

/// The present or next burst of a flow.
#[derive(Clone, Copy, Default)]
struct Burst {
    end: Time,
    /// Number of bursts after this one; `None` for no limit.
    left: Option<u64>,
    /// True while an arrived flow uses this place.
    taken: bool,
}

impl OnOff {
    /// Creates sources of `flows` flows.
    pub fn new(onoff: &scenario::OnOff, traffic: &Traffic, flows: u32, mut rng: Rng) -> OnOff {
        let (gap, _) = onoff
            .rate
            .transmission(u32::from(small(traffic.packet.0)), 0);
        let start = draw(traffic.start, &mut rng);
        let stop = traffic.stop.map(|stop| draw(stop, &mut rng));
        OnOff {
            gap: gap.max(Span::from_nanos(1)),
            params: onoff.clone(),
            window: (start, stop.unwrap_or(Time::NEVER)),
            flows: vec![Burst::default(); flows as usize],
            active: flows,
            rng,
        }
    }

    /// Draws the length of a burst, from a Pareto distribution if it has a shape, else from an
    /// exponential one.
    fn burst_length(&mut self) -> Span {
        let on = self.params.on.as_nanos_f64();
        let length = match self.params.on_shape.0 {
            // x = scale·u^(−1/shape) has the mean scale·shape/(shape − 1).
            Some(shape) => {
                let scale = on * (shape - 1.0) / shape;
                scale * (1.0 - self.rng.uniform()).powf(-1.0 / shape)
            }
            None => self.rng.exponential(on),
        };
        Span::from_nanos(whole_u64(length))
    }

    /// Draws the number of bursts of a flow, from the geometric distribution on 1, 2, … with the
    /// mean of the scenario; `None` for no limit.
    fn burst_count(&mut self) -> Option<u64> {
        let mean = self.params.bursts.0?;
        let u = 1.0 - self.rng.uniform();
        // P(N > n) = (1 − 1/mean)^n; a mean of 1 gives ln 0, and so 1.
        Some(1 + whole_u64((u.ln() / (1.0 - 1.0 / mean).ln()).floor()))
    }

    /// Starts a flow at `at` and returns its first act.
    fn begin(&mut self, flow: u32, at: Time) -> Act {
        let left = self.burst_count().map(|count| count - 1);
        let end = at + self.burst_length();
        let taken = true;
        self.flows[flow as usize] = Burst { end, left, taken };
        Act {
            at,
            action: Action::Send,
        }
    }

    /// Draws the next arrival after `now`, if flows arrive, by thinning a Poisson process of the highest rate (Lewis
    /// and Shedler 1979).
    fn next_arrival(&mut self, now: Time) -> Option<Time> {
        let per_s = self.params.arrivals.0?;
        let scenario::OnOff {
            swing,
            period,
            peak,
            ..
        } = self.params;
        let most = per_s * (1.0 + swing);
        let mut at = now;
        loop {
            at = next_poisson(at, most, &mut self.rng);
            if at >= self.window.1 {
                return None;
            }
            let since_peak_s = (at.since_start().as_nanos_f64() - peak.as_nanos_f64()) / 1e9;
            let phase = TAU * since_peak_s / period.as_secs_f64();
            let rate = per_s * (1.0 + swing * phase.cos());
            if self.rng.chance(rate / most) {
                return Some(at);
            }
        }
    }
}

impl Application for OnOff {
    fn first(&mut self, flow: u32, start: Time, _stop: Option<Time>) -> Option<Act> {
        match self.params.arrivals.0 {
            None => Some(self.begin(flow, start)),
            Some(_) => {
                self.flows[flow as usize].taken = false;
                None
            }
        }
    }

    fn next(&mut self, flow: u32, done: Act, stop: Option<Time>) -> Option<Act> {
        let burst = self.flows[flow as usize];
        let mut at = done.at + self.gap;
        if at >= burst.end {
            if burst.left == Some(0) {
                self.flows[flow as usize].taken = false;
                return None;
            }
            // The gap after the last packet belongs to the burst, even if the burst lasts longer
            // for it.
            let off_from = burst.end.max(done.at);
            at = after(off_from, self.params.off, &mut self.rng);
            let end = at + self.burst_length();
            let burst = &mut self.flows[flow as usize];
            burst.end = end;
            burst.left = burst.left.map(|left| left - 1);
        }
        if stop.is_some_and(|stop| at >= stop) {
            self.flows[flow as usize].taken = false;
            return None;
        }
        Some(Act {
            at,
            action: Action::Send,
        })
    }

    fn first_arrival(&mut self) -> Option<Time> {
        self.next_arrival(self.window.0)
    }

    fn arrive(&mut self, now: Time) -> Arrival {
        let free = self.flows[..self.active as usize]
            .iter()
            .position(|flow| !flow.taken);
        let begins = free.map(|flow| (count(flow), self.begin(count(flow), now)));
        Arrival {
            begins,
            next: self.next_arrival(now),
        }
    }

    fn set_active(&mut self, flows: u32) {
        self.active = flows.min(count(self.flows.len()));
        for flow in &mut self.flows[self.active as usize..] {
            flow.taken = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::statistics::{counted, follows};
    use super::*;
    use forebay_scenario::{Instant, Maybe, TrafficKind};
    use forebay_units::{Bytes, Params, Rate, Span, Time};

    /// Returns the sources of staqm's simulation 1, with packets that take 100 us. Flows arrive at
    /// the mean rate `arrivals` per second, which varies by the share `swing`.
    fn staqm(arrivals: Option<f64>, swing: f64, flows: u32) -> OnOff {
        let onoff = scenario::OnOff {
            rate: Rate::from_bps(40_000_000),
            on_shape: Maybe(Some(1.5)),
            bursts: Maybe(Some(50.0)),
            arrivals: Maybe(arrivals),
            swing,
            peak: Span::from_secs(100),
            ..scenario::OnOff::defaults()
        };
        let traffic = Traffic {
            label: "onoff".into(),
            flows,
            dscp: 0,
            packet: Bytes(500),
            header: Bytes(0),
            path: vec![0],
            rtts: vec![Span::from_millis(100)],
            access: Rate::from_bps(1_000_000_000),
            pairs: None,
            group: None,
            host: None,
            start: Instant::At(Time::ZERO + Span::from_secs(100)),
            stop: None,
            kind: TrafficKind::OnOff(onoff.clone()),
        };
        OnOff::new(&onoff, &traffic, flows, Rng::new(6, "onoff"))
    }

    #[test]
    fn bursts_are_pareto_pauses_exponential_and_their_number_geometric() {
        let mut app = staqm(None, 0.0, 1);
        let (mut ons, mut offs, mut bursts) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..2_000 {
            let mut act = app.first(0, Time::ZERO, None).unwrap();
            let mut count = 1;
            ons.push((app.flows[0].end - act.at).as_secs_f64());
            loop {
                let end = app.flows[0].end;
                let Some(next) = app.next(0, act, None) else {
                    break;
                };
                if app.flows[0].end != end {
                    count += 1;
                    offs.push((next.at - end).as_secs_f64());
                    ons.push((app.flows[0].end - next.at).as_secs_f64());
                    // Packets are evenly spaced to the end of the burst.
                    assert!(act.at < end && act.at + Span::from_micros(100) >= end);
                } else {
                    assert_eq!(next.at - act.at, Span::from_micros(100));
                }
                act = next;
            }
            bursts.push(count);
        }
        let scale = 0.2 / 3.0;
        follows(&ons, |t| 1.0 - (scale / t).min(1.0).powf(1.5));
        follows(&offs, |t| 1.0 - (-t / 0.2).exp());
        // Each cell has ten numbers of bursts; the last cell is the tail.
        let beyond = |n: f64| (1.0f64 - 1.0 / 50.0).powf(n);
        let cells = 15;
        let mut counts = vec![0.0; cells];
        for n in &bursts {
            counts[((n - 1) / 10).min(cells - 1)] += 1.0;
        }
        let expected: Vec<f64> = (0..cells)
            .map(|i| match i {
                _ if i == cells - 1 => beyond(10.0 * i as f64),
                _ => beyond(10.0 * i as f64) - beyond(10.0 * (i as f64 + 1.0)),
            })
            .map(|p| p * bursts.len() as f64)
            .collect();
        counted(&counts, &expected);
    }

    #[test]
    fn arrivals_are_poisson_with_a_rate_that_swings() {
        let (per_s, swing, period_s) = (5.0, 0.8, 400.0);
        let mut app = staqm(Some(per_s), swing, 1);
        // If time is measured by the expected number of arrivals so far, arrivals are a Poisson
        // process of rate 1.
        let expected = |t: f64| {
            let turn = TAU / period_s;
            per_s * (t + swing * (turn * (t - 100.0)).sin() / turn)
        };
        let mut before = expected(100.0);
        let mut gaps = Vec::new();
        let mut at = app.first_arrival().unwrap();
        while gaps.len() < 20_000 {
            let now = expected(at.as_secs_f64());
            gaps.push(now - before);
            before = now;
            at = app.arrive(at).next.unwrap();
        }
        follows(&gaps, |t| 1.0 - (-t).exp());
    }

    #[test]
    fn flows_that_find_no_room_are_lost_and_those_that_end_leave_room() {
        let mut app = staqm(Some(1.0), 0.0, 2);
        assert!(
            app.first(0, Time::ZERO, None).is_none() && app.first(1, Time::ZERO, None).is_none()
        );
        let (first, act) = app.arrive(Time::from_nanos(1_000)).begins.unwrap();
        let (second, _) = app.arrive(Time::from_nanos(2_000)).begins.unwrap();
        assert_eq!((first, second), (0, 1));
        assert!(app.arrive(Time::from_nanos(3_000)).begins.is_none());
        let mut act = act;
        while let Some(next) = app.next(0, act, None) {
            act = next;
        }
        assert_eq!(app.arrive(act.at).begins.map(|(flow, _)| flow), Some(0));
        app.set_active(1);
        assert!(app.arrive(act.at).begins.is_none());
    }
}
