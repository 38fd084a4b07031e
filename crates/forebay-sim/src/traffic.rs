//! Applications: they decide when a flow's connection opens and closes, when a transfer begins, and
//! when a source without congestion control sends. Each kind has its own file.

mod arrivals;
mod cbr;
mod external;
mod frames;
mod ftp;
mod mice;
mod onoff;
mod pages;
mod script;
mod video;
mod voice;
mod web;

use crate::number::{count, small};
use forebay_aqm::TrafficClass;
use forebay_scenario::{Instant, Pareto2, Traffic, TrafficKind};
use forebay_trace::Viewer;
use forebay_units::cast::{whole_u32, whole_u64};
use forebay_units::{Rng, Span, Time};

pub use script::{starts, stream, Script, Switch};

/// An action of an application on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Offer endless data on the present connection.
    Open,
    /// Open a new connection with endless data.
    Fresh,
    /// Offer no new data.
    Close,
    /// Send this many packets of data on a new connection, in parallel with transfers under way.
    Transfer(u32),
    /// Send one packet, from a source without congestion control.
    Send,
}

/// An action of an application with its time.
#[derive(Clone, Copy, Debug)]
pub struct Act {
    /// The time of the action.
    pub at: Time,
    /// The action.
    pub action: Action,
}

/// A recorded packet, which arrives at the first queue of its path at its recorded time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coming {
    /// The time of its arrival at the first queue.
    pub at: Time,
    /// Number of its flow in the traffic, from 0.
    pub flow: u32,
    /// Size on the wire.
    pub bytes: u16,
    /// DSCP and ECN field.
    pub class: TrafficClass,
    /// True if it is a TCP packet.
    pub tcp: bool,
    /// Numbers of the source and destination hosts, if they are known.
    pub hosts: Option<(u16, u16)>,
}

/// The result of a check for arriving flows.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The flow that begins, and its first act, if one arrives.
    pub begins: Option<(u32, Act)>,
    /// The time of the next check, if more flows may arrive.
    pub next: Option<Time>,
}

/// The applications of one traffic's flows, which are numbered from 0.
pub trait Application: Send {
    /// Returns the first act of a flow that starts at `start` and stops at `stop`.
    fn first(&mut self, flow: u32, start: Time, stop: Option<Time>) -> Option<Act>;

    /// Returns the act that follows `done`, if there is one.
    fn next(&mut self, flow: u32, done: Act, stop: Option<Time>) -> Option<Act>;

    /// Takes note that a transfer of this flow is complete, its last packet acknowledged. Returns
    /// the act for which the flow waited, if any.
    fn transferred(&mut self, _flow: u32, _now: Time, _stop: Option<Time>) -> Option<Act> {
        None
    }

    /// Returns the time of the first check for arriving flows, if flows arrive by themselves.
    fn first_arrival(&mut self) -> Option<Time> {
        None
    }

    /// Checks for a flow that arrives at `now`.
    fn arrive(&mut self, _now: Time) -> Arrival {
        Arrival {
            begins: None,
            next: None,
        }
    }

    /// Returns the time at which recorded packets are first to be requested, if there are any.
    fn first_coming(&mut self) -> Option<Time> {
        None
    }

    /// Passes the next recorded packets to `give`, in order of time. Returns the time of the next
    /// request, which is not after the packet that follows them.
    fn coming(&mut self, _give: &mut dyn FnMut(Coming)) -> Option<Time> {
        None
    }

    /// Returns the quality that each viewer of video had within `window`.
    fn viewers(&self, _window: (Time, Time)) -> Vec<Viewer> {
        Vec::new()
    }

    /// Sets the number of flows in use, which are the first ones.
    fn set_active(&mut self, _flows: u32) {}
}

/// Creates the application of a traffic with `flows` flows, which draws from `rng`.
fn application(traffic: &Traffic, flows: u32, rng: Rng) -> Box<dyn Application> {
    match &traffic.kind {
        TrafficKind::Ftp(_) => Box::new(ftp::Ftp),
        TrafficKind::Mice(mice, _) => Box::new(mice::Mice::new(mice, rng)),
        TrafficKind::Cbr(cbr) => Box::new(cbr::Cbr::new(cbr, traffic.packet)),
        TrafficKind::Web(web, _, size) => {
            Box::new(web::Web::new(web, size, traffic.payload(), rng))
        }
        TrafficKind::Pages(pages, _, size) => {
            let payload = traffic.payload();
            Box::new(pages::Pages::new(pages, size, payload, flows, rng))
        }
        TrafficKind::Arrivals(recorded) => {
            Box::new(arrivals::RecordedArrivals::new(recorded, traffic, rng))
        }
        TrafficKind::Voice(voice) => Box::new(voice::Voice::new(voice, flows, rng)),
        TrafficKind::Frames(frames) => Box::new(frames::Frames::new(frames, flows)),
        TrafficKind::Video(video, _) => {
            Box::new(video::Video::new(video, traffic.payload(), flows))
        }
        // The caller sends the packets, or a program in a guest does.
        TrafficKind::External(_) | TrafficKind::Program(_) => Box::new(external::ExternalSource),
        TrafficKind::OnOff(onoff) => Box::new(onoff::OnOff::new(onoff, traffic, flows, rng)),
    }
}

/// Returns an instant, drawn if the scenario gives a range.
fn draw(instant: Instant, rng: &mut Rng) -> Time {
    match instant {
        Instant::At(time) => time,
        Instant::Uniform(low, high) => {
            let (low, high) = (low.since_start(), high.since_start());
            let drawn = rng.uniform_in(low.as_nanos_f64(), high.as_nanos_f64());
            Time::from_nanos(whole_u64(drawn))
        }
    }
}

/// Returns `now` plus an exponentially distributed time with this mean.
fn after(now: Time, mean: Span, rng: &mut Rng) -> Time {
    now + Span::from_nanos(whole_u64(rng.exponential(mean.as_nanos_f64())))
}

/// Returns the first event after `now` of a Poisson process with `per_s` events per second.
fn next_poisson(now: Time, per_s: f64, rng: &mut Rng) -> Time {
    now + Span::from_nanos(whole_u64(rng.exponential(1e9 / per_s)))
}

/// Draws the size of an object in packets, at least 1.
fn packets(size: &Pareto2, payload_bytes: u64, rng: &mut Rng) -> u32 {
    // P(X > x) = (1 + x/scale)^−shape, inverted at 1 − u.
    let bytes = size.scale.0 as f64 * ((1.0 - rng.uniform()).powf(-1.0 / size.shape) - 1.0);
    // The limit is far above what any run can send; it keeps sequence numbers from wrapping.
    whole_u32((bytes / payload_bytes as f64).ceil().clamp(1.0, 2e9))
}

#[cfg(test)]
pub mod statistics {
    //! Tests of samples against distributions, at the 0.1 % level.

    /// Panics if `sample` does not follow `cdf`, by the Kolmogorov–Smirnov test.
    pub fn follows(sample: &[f64], cdf: impl Fn(f64) -> f64) {
        let mut sorted = sample.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len() as f64;
        let distance = |(i, x): (usize, &f64)| {
            let p = cdf(*x);
            (p - i as f64 / n).max((i as f64 + 1.0) / n - p)
        };
        let distance = sorted.iter().enumerate().map(distance).fold(0.0, f64::max);
        assert!(distance < 1.949 / n.sqrt(), "distance {distance} of {n}");
    }

    /// Panics if `counts` differ from `expected`, by the chi-square test. The limit is Wilson and
    /// Hilferty's approximation of the 99.9 % point.
    pub fn counted(counts: &[f64], expected: &[f64]) {
        let cell = |(n, e): (&f64, &f64)| (n - e).powi(2) / e;
        let chi2: f64 = counts.iter().zip(expected).map(cell).sum();
        let freedom = counts.len() as f64 - 1.0;
        let limit = 2.0 / (9.0 * freedom);
        let limit = freedom * (1.0 - limit + 3.0902 * limit.sqrt()).powi(3);
        assert!(chi2 < limit, "chi-square {chi2} of {freedom}");
    }
}
