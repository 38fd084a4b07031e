//! The trace of a run, and the error of its step size.

use forebay_core::{ParamError, Span};

use crate::{run, Model};

/// Columns with one row per sample, the first at time zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    pub time_s: Vec<f64>,
    /// By bottleneck.
    pub queue_pkts: Vec<Vec<f64>>,
    /// By bottleneck: signals per packet that the law asks for, its mean since the last row.
    pub probability: Vec<Vec<f64>>,
    /// By class: window of one flow; NaN while there is none.
    pub window_pkts: Vec<Vec<f64>>,
    /// Packets in flight of one flow, the mean over those that pass the first bottleneck; NaN while
    /// there is none. With sawtooth windows half a packet less than the window.
    pub in_flight_pkts: Vec<f64>,
    /// By class: round-trip time with queueing.
    pub rtt_s: Vec<Vec<f64>>,
}

/// Greatest difference anywhere between a run and one with half its step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Halving {
    pub queue_pkts: f64,
    pub window_pkts: f64,
    pub probability: f64,
}

/// Runs the model at its step and at half of it: the difference is the error of the step size. An
/// unstable loop amplifies any difference, so there the check says little.
///
/// # Errors
/// As [`run`].
pub fn halving(model: &Model) -> Result<Halving, ParamError> {
    let half = Model {
        step: Span::from_nanos(model.step.as_nanos() / 2),
        ..model.clone()
    };
    let (whole, half) = (run(model)?, run(&half)?);
    Ok(Halving {
        queue_pkts: greatest(&whole.queue_pkts, &half.queue_pkts),
        window_pkts: greatest(&whole.window_pkts, &half.window_pkts),
        probability: greatest(&whole.probability, &half.probability),
    })
}

fn greatest(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}
