//! CUBIC (RFC 9438): the window follows a cubic of the time since the last reduction, and grows as
//! fast as Reno at least.

use super::Flow;

/// Share of the window kept (RFC 9438 section 4.6).
pub const BETA: f64 = 0.7;
/// Packets per cubed second (section 5.1).
const C: f64 = 0.4;
/// Growth of the Reno-friendly window in a round trip (section 4.3); Linux has 8/15.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Growth of the Reno-friendly window in Linux.
pub const LINUX_ALPHA: f64 = 8.0 / 15.0;

/// K: from a reduction to the plateau (figure 2 of section 4.2).
fn plateau_s(w_max: f64) -> f64 {
    (w_max * ((1.0 - BETA) / C)).cbrt()
}

/// W_max, s and the Reno-friendly window of a flow that was just reduced to `window`.
pub fn start(window: f64) -> Vec<f64> {
    vec![window / BETA, 0.0, window]
}

/// Returns the larger one of the cubic and the Reno-friendly window (section 4.3).
pub fn window(states: &[f64]) -> f64 {
    let [w_max, s, friendly] = [states[0], states[1], states[2]];
    (w_max + C * (s - plateau_s(w_max)).powi(3)).max(friendly)
}

/// The equations of Vardoyan, Hollot and Towsley (INFOCOM 2018), with λ signals per second: ds/dt =
/// 1 − sλ, dW_max/dt = −(W_max − W)λ, W = C(s − K)³ + W_max. In parallel there is the Reno-friendly
/// window, an AIMD(α, β) window under the same signals; the larger of both windows counts.
pub fn published(flow: &Flow, out: &mut [f64]) -> f64 {
    let [w_max, s, friendly] = [flow.states[0], flow.states[1], flow.states[2]];
    let signals = flow.sent * flow.probability;
    out[0] = (flow.window - w_max) * signals;
    out[1] = 1.0 - s * signals;
    let growth = flow.growth_pkts_per_rtt * ALPHA * flow.per_rtt;
    out[2] = growth - (1.0 - BETA) * friendly * signals;
    let k_s = plateau_s(w_max);
    let past = s - k_s;
    if w_max + C * past.powi(3) < friendly {
        return out[2];
    }
    // dK/dt = K/(3 W_max)·dW_max/dt
    out[0] + 3.0 * C * past * past * (out[1] - k_s * out[0] / (3.0 * w_max))
}

/// The mean window of CUBIC flows that are signalled at random.
///
/// This is the mean of dW/dt over flows that are signalled with probability p per packet. The
/// published equations assume `E[W²]` = `E[W]²` and `E[(s − K)²]` = (`E[s]` − `E[K]`)², with which
/// the window does not respond at equilibrium. With S = `E[s]`, V = `E[s²]` and K of the mean
/// window,
///
/// ```text
/// dW/dt = G − (1 − β)·κ·λ·W        dS/dt = 1 − c_S·λ·S        dV/dt = 2S − c_V·λ·V
/// G = (G_c³ + G_r³)^(1/3)          G_r = α/R
/// G_c = 3C·`E[(s − K)²]` = 3C·a·(V − 2b·S·K + d·K²)
/// ```
///
/// The constants are those of the stationary kinetic equation of such flows, with fast convergence
/// (section 4.7): such flows were simulated one by one, and `bench/cubic_kinetic.py` computes the
/// numbers again. Far from the Reno-friendly region they are universal, since W, s and λ scale with
/// (R/p)^(3/4): λ·S = 0.874, λ²·V = 1.303, λ·K = 0.997, and W = 1.197·(R/p)^(3/4). b is fitted to
/// the response of the flows to a step of p, and the exponent 3 to their mean window between both
/// regions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Response {
    /// α of the Reno-friendly window, mean over its course.
    alpha: f64,
    /// Packets by which a reduction exceeds (1 − β)·W, because windows are whole packets.
    rounding_pkts: f64,
    /// Time between two evaluations of the curve while the window does not change.
    refresh_s: f64,
}

/// λ·`E[s]`, λ²·`E[s²]`, λ·`E[K]` and `E[K²]/E[K]²` at rest.
const AGE: f64 = 0.874;
const AGE_SQUARED: f64 = 1.303;
const PLATEAU: f64 = 0.997;
const PLATEAU_SPREAD: f64 = 1.039;
/// b, which describes how s and K are correlated.
const TOGETHER: f64 = 0.906;
/// `E[W²]/E[W]²` in the cubic region, and where the windows are AIMD(α, 0.7).
const SPREAD: f64 = 1.274;
const SPREAD_FRIENDLY: f64 = 1.087;
/// W·(p/R)^(3/4) at rest.
const WINDOW: f64 = 1.197;

impl Response {
    /// Returns the response with the growth `above` (α) for a Reno-friendly window that is larger
    /// than the one before the last reduction.
    pub fn new(above: f64) -> Response {
        if above > LINUX_ALPHA {
            Response {
                alpha: RFC_ALPHA,
                rounding_pkts: 0.0,
                refresh_s: 0.0,
            }
        } else {
            Response {
                alpha: LINUX_ALPHA,
                rounding_pkts: LINUX_ROUNDING_PKTS,
                refresh_s: LINUX_REFRESH_S,
            }
        }
    }

    /// Recovery is as in Reno's sawtooth: there are λR signals in a round trip, and each is
    /// followed by a round trip without growth, at β times the window that was hit.
    pub fn slopes(&self, flow: &Flow, out: &mut [f64]) -> f64 {
        let [s, v] = [flow.states[0], flow.states[1]];
        // λ³·W at rest.
        let rest = WINDOW.powi(4);
        // K of the mean window; the constants include the effect of fast convergence on W_max.
        let k_per_window = PLATEAU.powi(3) / rest;
        let signals_per_rtt = flow.sent * flow.probability * flow.rtt_s;
        let a = 1.0 + signals_per_rtt;
        // Where recovery counts, windows are small.
        let b = 1.0 + BETA * SPREAD_FRIENDLY * signals_per_rtt;
        let window = flow.window * a / b;
        let signals = flow.sent * flow.probability * a / b;
        out[0] = 1.0 - s * signals / AGE;
        out[1] = 2.0 * (s - v * signals * AGE / AGE_SQUARED);
        let k_s = (k_per_window * window).cbrt();
        let scale = (1.0 - BETA) * SPREAD * rest
            / (AGE_SQUARED - 2.0 * TOGETHER * AGE * PLATEAU + PLATEAU_SPREAD * PLATEAU * PLATEAU);
        let apart = v - 2.0 * TOGETHER * s * k_s + PLATEAU_SPREAD * k_s * k_s;
        let cubic = scale * apart.max(0.0);
        let unmarked = 1.0 - flow.probability;
        // On the clock of ACKs.
        let friendly = flow.growth_pkts_per_rtt * self.alpha * flow.sent / flow.window * unmarked;
        let (cubed, friendly_cubed) = (cubic.powi(3), friendly.powi(3));
        let both = (cubed + friendly_cubed).max(f64::MIN_POSITIVE);
        let spread = (SPREAD * cubed + SPREAD_FRIENDLY * friendly_cubed) / both;
        // On average, the Reno-friendly window has grown for half the time between two evaluations
        // when a reduction resets it.
        let unseen = self.alpha * self.refresh_s / 2.0 * flow.per_rtt * friendly_cubed / both;
        let taken = (1.0 - BETA) * spread * window + self.rounding_pkts + unseen;
        (both.cbrt() - signals * taken) / a
    }
}

/// Mean α of RFC 9438's Reno-friendly window, 0.53 up to the last maximum and 1 above, of flows
/// that are signalled at random.
const RFC_ALPHA: f64 = 0.665;
/// Linux takes ⌈0.3·⌊W⌋⌉ packets: 0.3·(W − 1/2), and 0.45 on average over the last digits.
const LINUX_ROUNDING_PKTS: f64 = 0.3;
/// While its window does not change, Linux evaluates the curve and the Reno-friendly window 32
/// times a second (bictcp_update in net/ipv4/tcp_cubic.c), however short the round trip is.
const LINUX_REFRESH_S: f64 = 1.0 / 32.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(window: f64, probability: f64, rtt_s: f64, states: &[f64]) -> Flow<'_> {
        Flow {
            window,
            rtt_s,
            per_rtt: 1.0 / rtt_s,
            growth_pkts_per_rtt: 1.0,
            sent: window / rtt_s,
            probability,
            states,
        }
    }

    #[test]
    fn published_windows_rest_where_the_plateau_is_a_signal_away() {
        // s = 1/λ = K and W = W_max: W⁴ = C/(1 − β)·(R/p)³.
        let (rtt_s, p): (f64, f64) = (0.2, 4e-4);
        let window = (C / (1.0 - BETA) * (rtt_s / p).powi(3)).sqrt().sqrt();
        let states = [window, rtt_s / (p * window), 1.0];
        let mut out = [1.0; 3];
        let slope = published(&flow(window, p, rtt_s, &states), &mut out);
        for slope in [slope, out[0], out[1]] {
            assert!(slope.abs() < 1e-9, "{slope}");
        }
        assert!((super::window(&states) - window).abs() < 1e-9);
    }

    #[test]
    fn a_published_window_moves_along_its_cubic() {
        let (states, h) = ([100.0, 2.0, 1.0], 1e-6_f64);
        let mut out = [0.0; 3];
        let now = super::window(&states);
        let slope = published(&flow(now, 1e-3, 0.1, &states), &mut out);
        let later: Vec<f64> = (states.iter().zip(out))
            .map(|(state, slope)| state + h * slope)
            .collect();
        let moved = (super::window(&later) - now) / h;
        assert!((slope / moved - 1.0).abs() < 1e-4, "{slope} {moved}");
    }

    #[test]
    fn the_kinetic_equation_s_rest_is_one() {
        // Windows so large that neither recovery nor rounding counts.
        let (rtt_s, p): (f64, f64) = (0.1, 1e-9);
        let window = WINDOW * (rtt_s / p).powf(0.75);
        let signals = p * window / rtt_s;
        let states = [AGE / signals, AGE_SQUARED / (signals * signals)];
        let mut out = [1.0; 2];
        let slope = Response::new(1.0).slopes(&flow(window, p, rtt_s, &states), &mut out);
        assert!(slope.abs() < 1e-3 * window * signals, "{slope}");
        assert!(
            out[0].abs() < 1e-2 && out[1].abs() < 1e-2 / signals,
            "{out:?}"
        );
    }
}
