//! Applications: when a flow's connection opens and closes, when a transfer
//! begins, and when a source without congestion control sends. One kind a file.

mod arrivals;
mod cbr;
mod external;
mod frames;
mod ftp;
mod mice;
mod onoff;
mod pages;
mod video;
mod voice;
mod web;

use crate::number::{count, small};
use forebay_aqm::TrafficClass;
use forebay_scenario::{Change, Instant, Pareto2, Setting, Traffic, TrafficKind};
use forebay_trace::Viewer;
use forebay_units::cast::{whole_u32, whole_u64};
use forebay_units::{Rng, Span, Time};

/// An act of an application on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Offer endless data on the connection as it is.
    Open,
    /// Begin a new connection with endless data.
    Fresh,
    /// Offer nothing new.
    Close,
    /// Begin a new connection beside those under way, with this many packets of data.
    Transfer(u32),
    /// Send one packet (a source without congestion control).
    Send,
}

/// An application's next act.
#[derive(Clone, Copy, Debug)]
pub struct Act {
    pub at: Time,
    pub action: Action,
}

/// A packet that comes to the first queue of its path by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coming {
    pub at: Time,
    pub flow: u32,
    pub bytes: u16,
    pub class: TrafficClass,
    pub tcp: bool,
    /// Numbers of the hosts that it comes from and goes to, where they are known.
    pub hosts: Option<(u16, u16)>,
}

/// A look at flows that arrive.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The flow that begins, and its first act.
    pub begins: Option<(u32, Act)>,
    /// When to look again, if more flows may arrive.
    pub next: Option<Time>,
}

/// The applications of one traffic's flows, which count from 0.
pub trait Application: Send {
    /// The first act of a flow that starts at `start` and stops at `stop`.
    fn first(&mut self, flow: u32, start: Time, stop: Option<Time>) -> Option<Act>;

    /// The act that follows, if there is one.
    fn next(&mut self, flow: u32, done: Act, stop: Option<Time>) -> Option<Act>;

    /// A transfer of this flow is done, its last packet acknowledged: what follows, if it
    /// waited for that.
    fn transferred(&mut self, _flow: u32, _now: Time, _stop: Option<Time>) -> Option<Act> {
        None
    }

    /// When to look for arrivals first, where flows arrive by themselves.
    fn first_arrival(&mut self) -> Option<Time> {
        None
    }

    /// Looks for arrivals at `now`.
    fn arrive(&mut self, _now: Time) -> Arrival {
        Arrival {
            begins: None,
            next: None,
        }
    }

    /// When to ask for coming packets first, where packets come by themselves.
    fn first_coming(&mut self) -> Option<Time> {
        None
    }

    /// Gives the next coming packets, in order of time, and when to ask again: no later than the
    /// packet after these.
    fn coming(&mut self, _give: &mut dyn FnMut(Coming)) -> Option<Time> {
        None
    }

    /// What viewers saw over `window`, up to its end or up to now.
    fn viewers(&self, _window: (Time, Time)) -> Vec<Viewer> {
        Vec::new()
    }

    /// The first `flows` flows are in use, the others are not.
    fn set_active(&mut self, _flows: u32) {}
}

/// The application of a traffic with `flows` flows, with a random stream of its own.
pub fn application(traffic: &Traffic, flows: u32, rng: Rng) -> Box<dyn Application> {
    match &traffic.kind {
        TrafficKind::Ftp(_) => Box::new(ftp::Ftp),
        TrafficKind::Mice { on, off, .. } => Box::new(mice::Mice::new(*on, *off, rng)),
        TrafficKind::Cbr { rate, .. } => Box::new(cbr::Cbr::new(*rate, traffic.packet)),
        TrafficKind::Web(web) => Box::new(web::Web::new(web, traffic.payload(), rng)),
        TrafficKind::Pages(pages) => {
            Box::new(pages::Pages::new(pages, traffic.payload(), flows, rng))
        }
        TrafficKind::Arrivals(recorded) => {
            Box::new(arrivals::RecordedArrivals::new(recorded, traffic, rng))
        }
        TrafficKind::Voice(voice) => Box::new(voice::Voice::new(voice, flows, rng)),
        TrafficKind::Frames(frames) => Box::new(frames::Frames::new(frames, flows)),
        TrafficKind::Video(video) => Box::new(video::Video::new(video, traffic.payload(), flows)),
        // What it does is the caller's, or a program's; a guest drives the latter.
        TrafficKind::External(_) | TrafficKind::Program(_) => Box::new(external::ExternalSource),
        TrafficKind::OnOff(onoff) => Box::new(onoff::OnOff::new(onoff, traffic, flows, rng)),
    }
}

/// How many flows of a traffic are ever active.
pub fn most_flows(index: usize, traffic: &Traffic, changes: &[Change]) -> u32 {
    changes
        .iter()
        .filter_map(|change| match change.what {
            Setting::Flows { traffic, flows } if traffic == index => Some(flows),
            _ => None,
        })
        .fold(traffic.flows, u32::max)
}

/// The random stream from which flows draw their starts.
const START: &str = "start";

/// The random numbers of a traffic for one purpose.
pub fn stream(seed: u64, index: usize, what: &str) -> Rng {
    Rng::new(seed, &format!("traffic {index} {what}"))
}

/// Returns the times at which the declared flows of a traffic start, as a run with this seed draws
/// them.
pub fn starts(seed: u64, index: usize, traffic: &Traffic) -> Vec<Time> {
    let mut rng = stream(seed, index, START);
    (0..traffic.flows)
        .map(|_| draw(traffic.start, &mut rng))
        .collect()
}

/// When a flow is there, and what it does first.
pub struct Beginning {
    pub start: Time,
    pub stop: Option<Time>,
    /// Flows beyond the declared number wait for a change to start them.
    pub declared: bool,
    pub act: Option<Act>,
}

/// Draws how the flows of a traffic begin, in their order.
pub struct Beginnings {
    starts: Rng,
    stops: Rng,
}

impl Beginnings {
    pub fn new(seed: u64, index: usize) -> Beginnings {
        Beginnings {
            starts: stream(seed, index, START),
            stops: stream(seed, index, "stop"),
        }
    }

    pub fn draw(
        &mut self,
        flow: u32,
        traffic: &Traffic,
        application: &mut dyn Application,
    ) -> Beginning {
        let start = draw(traffic.start, &mut self.starts);
        let stop = traffic.stop.map(|stop| draw(stop, &mut self.stops));
        let declared = flow < traffic.flows;
        let act = declared
            .then(|| application.first(flow, start, stop))
            .flatten();
        Beginning {
            start,
            stop,
            declared,
            act,
        }
    }
}

/// Draws a flow's time.
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

/// Returns `now` plus an exponential time with this mean.
fn after(now: Time, mean: Span, rng: &mut Rng) -> Time {
    now + Span::from_nanos(whole_u64(rng.exponential(mean.as_nanos_f64())))
}

/// Returns the first time after `now` of a Poisson process with so many events a second.
fn next_poisson(now: Time, per_s: f64, rng: &mut Rng) -> Time {
    now + Span::from_nanos(whole_u64(rng.exponential(1e9 / per_s)))
}

/// Draws the number of packets that hold an object, one at least.
fn packets(size: Pareto2, payload_bytes: u64, rng: &mut Rng) -> u32 {
    // P(X > x) = (1 + x/scale)^−shape, inverted at 1 − u.
    let bytes = size.scale.0 as f64 * ((1.0 - rng.uniform()).powf(-1.0 / size.shape) - 1.0);
    // Far above any window's worth of time; keeps sequence numbers from wrapping.
    whole_u32((bytes / payload_bytes as f64).ceil().clamp(1.0, 2e9))
}

#[cfg(test)]
pub mod statistics {
    //! Tests of samples against distributions, at the 0.1 % level.

    /// Kolmogorov–Smirnov: panics where `sample` does not follow `cdf`.
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

    /// Chi-square: panics where `counts` differ from what `expected` says. The limit is
    /// Wilson and Hilferty's approximation of the 99.9 % point.
    pub fn counted(counts: &[f64], expected: &[f64]) {
        let cell = |(n, e): (&f64, &f64)| (n - e).powi(2) / e;
        let chi2: f64 = counts.iter().zip(expected).map(cell).sum();
        let freedom = counts.len() as f64 - 1.0;
        let limit = 2.0 / (9.0 * freedom);
        let limit = freedom * (1.0 - limit + 3.0902 * limit.sqrt()).powi(3);
        assert!(chi2 < limit, "chi-square {chi2} of {freedom}");
    }
}
