//! DCTCP and Prague: the window falls by half of α, the estimate of the share of marked packets.

use super::Flow;

/// Gain g of the estimate (RFC 8257 section 4.2, and the draft of Prague).
const GAIN: f64 = 1.0 / 16.0;
/// Round trip in s: in shorter ones, Prague grows and falls as in one of this length (section
/// 2.4.4).
const REFERENCE_RTT_S: f64 = 0.025;

/// α' = g·(p − α) per round trip (Alizadeh et al., SIGMETRICS 2011, eq. (2)).
fn estimate(flow: &Flow, per_rtt: f64) -> f64 {
    GAIN * per_rtt * (flow.probability - flow.states[0])
}

/// Signals in a round trip, and the probability that there is one.
fn signals(flow: &Flow, rtt_s: f64) -> (f64, f64) {
    let signals = flow.sent * flow.probability * rtt_s;
    (signals, -(-signals).exp_m1())
}

/// Alizadeh et al., eq. (1), with the probability of a marked window in place of p: their marks
/// come from a threshold, and mark all of a window or none of it.
pub fn dctcp(flow: &Flow, out: &mut [f64]) -> f64 {
    out[0] = estimate(flow, flow.per_rtt);
    let (_, marked) = signals(flow, flow.rtt_s);
    let growth = flow.growth_pkts_per_rtt * flow.per_rtt;
    growth - flow.window * flow.states[0] / 2.0 * marked * flow.per_rtt
}

/// Linux reduces over a round trip, in which it neither grows nor answers marks: after λ marks a
/// round trip a flow grows 1/(1 + λ) of its time, and falls λ/(1 + λ) times in a round trip. A fall
/// is rounded down to whole packets, which is half a packet less.
pub fn dctcp_sawtooth(flow: &Flow, out: &mut [f64]) -> f64 {
    out[0] = estimate(flow, flow.per_rtt);
    let (signals, _) = signals(flow, flow.rtt_s);
    let growth = flow.growth_pkts_per_rtt * flow.sent / flow.window * (1.0 - flow.probability);
    let taken = signals * (flow.window * flow.states[0] / 2.0 - 0.5).max(0.0);
    (growth - taken * flow.per_rtt) / (1.0 + signals)
}

/// Returns one over Prague's virtual round trip, and its growth in a real one: in a round trip
/// shorter than 25 ms, growth is multiplied by the square of R/25 ms.
fn virtual_rtt(flow: &Flow) -> (f64, f64) {
    let rtt_s = flow.rtt_s.max(REFERENCE_RTT_S);
    let share = flow.rtt_s / rtt_s;
    (1.0 / rtt_s, flow.growth_pkts_per_rtt * share * share)
}

/// Computes the growth of Prague's window, which is DCTCP's by virtual round trips.
pub fn prague(flow: &Flow, out: &mut [f64]) -> f64 {
    let (per_rtt, growth) = virtual_rtt(flow);
    out[0] = estimate(flow, per_rtt);
    let (_, marked) = signals(flow, 1.0 / per_rtt);
    growth * flow.per_rtt - flow.window * flow.states[0] / 2.0 * marked * per_rtt
}

/// A reduction is made at once, the window goes on to grow, and marks of the next virtual round
/// trip are part of it: λ/(1 + λ) reductions in one, of λ marks.
pub fn prague_sawtooth(flow: &Flow, out: &mut [f64]) -> f64 {
    let (per_rtt, growth) = virtual_rtt(flow);
    out[0] = estimate(flow, per_rtt);
    let (signals, _) = signals(flow, 1.0 / per_rtt);
    let taken = signals / (1.0 + signals) * flow.window * flow.states[0] / 2.0;
    growth * flow.sent / flow.window * (1.0 - flow.probability) - taken * per_rtt
}
