//! Reno: the window grows by a packet per round trip, and is halved by a signal.

use super::Flow;

/// `E[W²]/E[W]²` over the flows of a class. Windows that grow by a packet per round trip and are
/// halved with probability p per packet have d`E[W]`/dt = 0 at `E[W²]` = 2/p, and d`E[W²]`/dt = 0 at
/// `E[W³]` = 8·`E[W]`/(3p); a gamma distribution that meets both has the variance `E[W]²`/6.
pub const SPREAD: f64 = 7.0 / 6.0;

/// Misra, Gong and Towsley (2000), eq. (3).
pub fn published(flow: &Flow) -> f64 {
    let growth = flow.growth_pkts_per_rtt * flow.per_rtt;
    growth - flow.window / 2.0 * flow.sent * flow.probability
}

/// A flow is signalled λ times in a round trip, and then spends one in recovery, λ/(1 + λ) of its
/// time, with half of the window that was hit. So windows out of recovery are
/// W(1 + λ)/(1 + κλ). Each of their ACKs brings 1/W; a signal takes half of a window, more likely
/// of a large one.
pub fn sawtooth(flow: &Flow) -> f64 {
    let (sent, probability) = (flow.sent, flow.probability);
    let kappa = SPREAD / 2.0;
    let signals = sent * (probability * flow.rtt_s);
    let (a, b) = (1.0 + signals, 1.0 + kappa * signals);
    let (tall, bb) = (flow.window * a, b * b);
    let grown = flow.growth_pkts_per_rtt * (1.0 - probability) * bb;
    let taken = kappa * probability * (tall * tall);
    sent / (tall * bb) * (grown - taken)
}
