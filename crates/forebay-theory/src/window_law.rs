//! The response of TCP's window to signals in linear theory: its equilibrium, and its dynamics
//! around the equilibrium.
//!
//! A flow sends W packets per round-trip time R, and each is signalled with probability p, so that
//! the flow receives λ = W·p/R signals per second. As in Hollot et al. (2002), the delay R applies
//! to p only: the rate at which packets were sent a round trip ago counts as the current rate.

/// The window dynamics of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowLaw {
    /// The published model of Reno, W' = 1/R − W²p/(2R) (Misra, Gong and Towsley 2000): pW² = 2.
    Reno,
    /// Reno under independent signals, for which `E[W²]/E[W]²` is 7/6 (Ott, Kemperman and Mathis
    /// 1996: W = 1.31/√p).
    IndependentReno,
    /// CUBIC (RFC 9438): W(s) = C(s − K)³ + W_max, with fast convergence, s seconds after a signal.
    ///
    /// The equations of the mean s and W_max (Vardoyan, Hollot and Towsley 2018) have no linear
    /// term at their equilibrium, s = K, because the curve is flat there. But different flows are
    /// at different times s. For a population of flows with independent signals at rate λ, the
    /// equilibrium mean is 1.207·(R/p)^¾ packets; `test_sender_models.py` simulates this
    /// population. In the Reno-friendly region (section 4.3) pW² = 3/2. Linux counts W_est in whole
    /// packets, follows it a round trip later, and has half a packet less in flight: together 1½
    /// packets, so that W' = α/R − (α/1.5)·W(W + 3)p/R. A flow uses the larger window of both at
    /// each moment, so its mean is above both where they are similar: (W_cubic⁶ + W_friendly⁶)^⅙.
    Cubic,
    /// DCTCP (RFC 8257; Alizadeh et al. 2011): W' = 1/R − W·α/(2R) and α' = (g/R)(p − α), with
    /// marks in every round trip: W = 2/p.
    Dctcp,
    /// TCP Prague (draft-briscoe-iccrg-prague-congestion-control), with α as in DCTCP. A reduction
    /// lasts for a virtual round-trip time R_v = max(R, 25 ms), and the next one waits for a mark:
    /// with x marks per R_v, reductions follow every R_v(1 + 1/x). Only unmarked packets increase
    /// the window: W' = (1 − p)R/R_v² − W·α/(2R_v)·x/(1 + x).
    Prague,
}

/// `E[W²]/E[W]²` of Reno's sawtooth under independent signals.
const SPREAD: f64 = 7.0 / 6.0;

/// Constants of CUBIC.
mod cubic {
    /// The growth of the Reno-friendly window per round trip, 3(1 − β)/(1 + β) (RFC 9438 section
    /// 4.3).
    pub const ALPHA: f64 = 9.0 / 17.0;
    /// pW² in the Reno-friendly region (RFC 9438 section 4.3).
    pub const FRIENDLY: f64 = 1.5;
    /// Twice the number of packets by which Linux's window lags behind W_est on average.
    pub const LAG_PKTS: f64 = 3.0;
    /// W/(R/p)^¾ of the mean of flows on the cubic curve, in packets and seconds. RFC 9438 eq. (5)
    /// has 1.054 for one flow with evenly spaced signals.
    pub const PLATEAU: f64 = 1.207;
    /// The numerator of the dynamics of the mean, from n0 up: −δW/W per δp/p is (n2·x² + n1·x +
    /// n0)/(x³ + d2·x² + d1·x + d0) with x = s/λ. n2 = (1 − β)`E[W²]/E[W]²` is the immediate effect
    /// of a signal, and n0/d0 = 3/4. The rest is fitted to the step response of the population,
    /// with an error of 0.3 %.
    pub const NUMERATOR: [f64; 3] = [2.6, 0.9103, 0.3819];
    /// The denominator of the dynamics of the mean, from d0 up.
    pub const DENOMINATOR: [f64; 3] = [3.4667, 5.541, 4.340];
    /// The exponent of the mean of both regions. It is within 3 % of simulations between R = 25 and
    /// 490 ms.
    pub const MEAN_EXPONENT: i32 = 6;
    /// A region with less than this fraction of the window is constant, to avoid slow modes without
    /// effect.
    pub const NEGLIGIBLE: f64 = 0.02;
}

/// The gain g of the estimate of the fraction of marks (RFC 8257 section 4.2, and the draft of
/// Prague).
const ESTIMATE_GAIN: f64 = 1.0 / 16.0;
/// The round-trip time of Prague to which shorter ones are extended virtually.
const REFERENCE_RTT_S: f64 = 0.025;

/// The linear dynamics of a window around its equilibrium: x' = a·x + b·δp(t − R) + e·δR, δW = c·x.
#[derive(Clone, Debug, PartialEq)]
pub struct Motion {
    /// True if packets are clocked by ACKs: they leave at the rate W/R + W' and not W/R.
    pub clocked: bool,
    /// The system matrix, a row for each state.
    pub a: Vec<Vec<f64>>,
    /// The input vector of the probability.
    pub b: Vec<f64>,
    /// The input vector of the round-trip time.
    pub e: Vec<f64>,
    /// The output vector.
    pub c: Vec<f64>,
}

impl WindowLaw {
    /// All window laws.
    pub const ALL: [WindowLaw; 5] = [
        WindowLaw::Reno,
        WindowLaw::IndependentReno,
        WindowLaw::Cubic,
        WindowLaw::Dctcp,
        WindowLaw::Prague,
    ];

    /// Returns the name of the law in designs.
    pub const fn name(self) -> &'static str {
        match self {
            WindowLaw::Reno => "reno",
            WindowLaw::IndependentReno => "linux-reno",
            WindowLaw::Cubic => "cubic",
            WindowLaw::Dctcp => "dctcp",
            WindowLaw::Prague => "prague",
        }
    }

    /// Returns the law with this name; `None` if there is none.
    pub fn named(name: &str) -> Option<WindowLaw> {
        WindowLaw::ALL.into_iter().find(|law| law.name() == name)
    }

    /// Returns the response of the same sender to drops. Senders that respond to the fraction of
    /// marks halve their window after a loss (RFC 8257 section 3.5).
    #[must_use]
    pub const fn on_drops(self) -> WindowLaw {
        match self {
            WindowLaw::Dctcp | WindowLaw::Prague => WindowLaw::Reno,
            law => law,
        }
    }

    /// Returns the sender's smallest window in packets. Prague paces windows below two packets,
    /// down to 100 kbit/s.
    pub const fn least_pkts(self) -> f64 {
        match self {
            WindowLaw::Reno | WindowLaw::IndependentReno | WindowLaw::Prague => 0.0,
            WindowLaw::Cubic => 1.0,
            WindowLaw::Dctcp => 2.0,
        }
    }

    /// Returns the number of states of the linear dynamics.
    pub const fn order(self) -> usize {
        match self {
            WindowLaw::Reno | WindowLaw::IndependentReno => 1,
            WindowLaw::Dctcp | WindowLaw::Prague => 2,
            WindowLaw::Cubic => 4,
        }
    }

    /// Returns the equilibrium window W.
    pub fn window_pkts(self, p: f64, rtt_s: f64) -> f64 {
        match self {
            WindowLaw::Reno => (2.0 / p).sqrt(),
            WindowLaw::IndependentReno => (2.0 / SPREAD / p).sqrt(),
            WindowLaw::Cubic => {
                let sum = cubic_part(p, rtt_s).powi(cubic::MEAN_EXPONENT)
                    + friendly_part(p).powi(cubic::MEAN_EXPONENT);
                sum.powf(1.0 / f64::from(cubic::MEAN_EXPONENT))
            }
            WindowLaw::Dctcp => 2.0 / p,
            WindowLaw::Prague => {
                // At equilibrium x²/2 = (1 − p)(1 + x), with x = p·W·R_v/R.
                let u = (1.0 - p).max(1e-12);
                let x = u + (u * u + 2.0 * u).sqrt();
                x * rtt_s / virtual_s(rtt_s) / p
            }
        }
    }

    /// Returns the linear dynamics around the equilibrium.
    pub fn motion(self, p: f64, rtt_s: f64) -> Motion {
        let w = self.window_pkts(p, rtt_s);
        match self {
            WindowLaw::Reno => reno_motion(2.0, rtt_s, w),
            WindowLaw::IndependentReno => reno_motion(2.0 / SPREAD, rtt_s, w),
            WindowLaw::Cubic => cubic_motion(p, rtt_s, w),
            WindowLaw::Dctcp => {
                let per_rtt = 0.5 / rtt_s;
                estimated_motion(-p * per_rtt, -w * per_rtt, 0.0, 0.0, rtt_s)
            }
            WindowLaw::Prague => prague_motion(p, rtt_s, w),
        }
    }
}

/// Returns the dynamics of W' = 1/R − W²p/(square·R), for which pW² = square.
fn reno_motion(square: f64, rtt_s: f64, w: f64) -> Motion {
    Motion {
        clocked: false,
        a: vec![vec![-2.0 / (w * rtt_s)]],
        b: vec![-1.0 / square * w.powi(2) / rtt_s],
        e: vec![0.0],
        c: vec![1.0],
    }
}

/// Returns the equilibrium window on the cubic curve.
fn cubic_part(p: f64, rtt_s: f64) -> f64 {
    cubic::PLATEAU * (rtt_s / p).powf(0.75)
}

/// Returns the equilibrium window in the Reno-friendly region.
fn friendly_part(p: f64) -> f64 {
    let half = cubic::LAG_PKTS / 2.0;
    (cubic::FRIENDLY / p + half * half).sqrt() - half
}

/// Returns the fraction of CUBIC's mean window that is due to the cubic curve; the rest is due to
/// the Reno-friendly region.
pub fn cubic_share(p: f64, rtt_s: f64) -> f64 {
    let ratio = cubic_part(p, rtt_s) / friendly_part(p);
    1.0 / (1.0 + ratio.powi(-cubic::MEAN_EXPONENT))
}

/// Returns the dynamics of both regions in parallel, weighted by their fractions. On the cubic
/// curve, which does not depend on the round-trip time, a longer RTT acts like a lower p.
fn cubic_motion(p: f64, rtt_s: f64, w: f64) -> Motion {
    let share = match cubic_share(p, rtt_s) {
        share if share < cubic::NEGLIGIBLE => 0.0,
        share if share > 1.0 - cubic::NEGLIGIBLE => 1.0,
        share => share,
    };
    let rate = w * p / rtt_s;
    let (f, slope) = (friendly_part(p), cubic::ALPHA / cubic::FRIENDLY / rtt_s);
    let [n0, n1, n2] = cubic::NUMERATOR.map(|n| -n * share * w);
    let [d0, d1, d2] = cubic::DENOMINATOR.map(|d| -d * rate);
    let friendly = -slope * (f + cubic::LAG_PKTS) * w * (1.0 - share);
    Motion {
        clocked: false,
        a: vec![
            vec![-slope * (2.0 * f + cubic::LAG_PKTS) * p, 0.0, 0.0, 0.0],
            vec![0.0, 0.0, rate, 0.0],
            vec![0.0, 0.0, 0.0, rate],
            vec![0.0, d0, d1, d2],
        ],
        b: vec![friendly, 0.0, 0.0, rate / p],
        e: vec![0.0, 0.0, 0.0, -rate / rtt_s],
        c: vec![1.0, n0, n1, n2],
    }
}

/// Returns the dynamics of a window whose W' has these derivatives by W, α, p and R, with an
/// estimate α of the fraction of marks that is updated every `round_s`.
fn estimated_motion(by_w: f64, by_alpha: f64, by_p: f64, by_rtt: f64, round_s: f64) -> Motion {
    let g = ESTIMATE_GAIN / round_s;
    Motion {
        clocked: false,
        a: vec![vec![by_w, by_alpha], vec![0.0, -g]],
        b: vec![by_p, g],
        e: vec![by_rtt, 0.0],
        c: vec![1.0, 0.0],
    }
}

/// Returns R_v, the virtual round-trip time of Prague.
fn virtual_s(rtt_s: f64) -> f64 {
    rtt_s.max(REFERENCE_RTT_S)
}

/// Returns the dynamics of Prague.
fn prague_motion(p: f64, rtt_s: f64, w: f64) -> Motion {
    let virtual_s = virtual_s(rtt_s);
    let x = p * w * virtual_s / rtt_s;
    let (share, slope) = (x / (1.0 + x), x / (1.0 + x).powi(2));
    let fall = w * p / (2.0 * virtual_s);
    let by_rtt = if rtt_s < virtual_s {
        (1.0 - p) / virtual_s.powi(2) + fall * slope / rtt_s
    } else {
        0.0
    };
    let motion = estimated_motion(
        -p / (2.0 * virtual_s) * (share + slope),
        -w * share / (2.0 * virtual_s),
        -rtt_s / virtual_s.powi(2) - fall * slope / p,
        by_rtt,
        virtual_s,
    );
    // With a short round-trip time, the equilibrium of W/R depends on p only, so the queue is a
    // pure integrator. A further lag of R would make the loop oscillate, and ACK clocking has no
    // such lag.
    Motion {
        clocked: rtt_s < virtual_s,
        ..motion
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assertions::close;

    const PROBABILITIES: [f64; 4] = [1e-4, 3e-3, 0.05, 0.3];
    const RTTS_S: [f64; 3] = [0.004, 0.03, 0.2];

    /// Returns the derivative of a function by central differences.
    fn slope(f: impl Fn(f64) -> f64, at: f64) -> f64 {
        let step = 1e-5 * at;
        (f(at + step) - f(at - step)) / (2.0 * step)
    }

    fn for_all_points(check: impl Fn(f64, f64)) {
        for p in PROBABILITIES {
            for rtt_s in RTTS_S {
                check(p, rtt_s);
            }
        }
    }

    #[test]
    fn laws_are_found_by_their_names() {
        for (name, law, drops, least_pkts, order) in [
            ("reno", WindowLaw::Reno, "reno", 0.0, 1),
            (
                "linux-reno",
                WindowLaw::IndependentReno,
                "linux-reno",
                0.0,
                1,
            ),
            ("cubic", WindowLaw::Cubic, "cubic", 1.0, 4),
            ("dctcp", WindowLaw::Dctcp, "reno", 2.0, 2),
            ("prague", WindowLaw::Prague, "reno", 0.0, 2),
        ] {
            assert_eq!(WindowLaw::named(name), Some(law));
            assert_eq!(law.name(), name);
            assert_eq!(law.on_drops().name(), drops);
            assert_eq!(law.least_pkts(), least_pkts);
            assert_eq!(law.order(), order);
            let motion = law.motion(0.01, 0.1);
            assert_eq!(motion.a.len(), order);
            assert!(motion.a.iter().all(|row| row.len() == order));
            assert_eq!([motion.b.len(), motion.c.len(), motion.e.len()], [order; 3]);
            assert!(WindowLaw::ALL.contains(&law));
        }
        assert_eq!(WindowLaw::named("vegas"), None);
        assert_eq!(WindowLaw::ALL.len(), 5);
    }

    /// W' = 1/R − W²p/(2R) of Reno: zero at W = √(2/p), and its derivatives there. Signals that are
    /// independent cost 7/6 as much, so that W = 1.31/√p (Ott, Kemperman and Mathis 1996).
    #[test]
    fn renos_window_and_its_dynamics_are_those_of_its_equation() {
        for (law, square) in [
            (WindowLaw::Reno, 2.0),
            (WindowLaw::IndependentReno, 12.0 / 7.0),
        ] {
            for_all_points(|p, rtt_s| {
                let growth = |w: f64, p: f64| (1.0 - w * w * p / square) / rtt_s;
                let w = law.window_pkts(p, rtt_s);
                close(growth(w, p) * rtt_s, 0.0, 1e-12);
                let motion = law.motion(p, rtt_s);
                close(motion.a[0][0], slope(|w| growth(w, p), w), 1e-6);
                close(motion.b[0], slope(|p| growth(w, p), p), 1e-6);
                assert_eq!(
                    (motion.e, motion.c, motion.clocked),
                    (vec![0.0], vec![1.0], false)
                );
            });
        }
        close(
            WindowLaw::IndependentReno.window_pkts(0.01, 0.1),
            13.1,
            1e-3,
        );
    }

    /// W' = 1/R − W·α/(2R) and α' = (p − α)/(16R).
    #[test]
    fn dctcps_window_and_its_dynamics_are_those_of_its_equations() {
        for_all_points(|p, rtt_s| {
            let growth = |w: f64, alpha: f64| (1.0 - 0.5 * w * alpha) / rtt_s;
            let w = WindowLaw::Dctcp.window_pkts(p, rtt_s);
            close(growth(w, p) * rtt_s, 0.0, 1e-12);
            let motion = WindowLaw::Dctcp.motion(p, rtt_s);
            close(motion.a[0][0], slope(|w| growth(w, p), w), 1e-6);
            close(motion.a[0][1], slope(|alpha| growth(w, alpha), p), 1e-6);
            assert_eq!(motion.a[1][0], 0.0);
            close(motion.a[1][1], -1.0 / (16.0 * rtt_s), 1e-12);
            assert_eq!(motion.b[0], 0.0);
            close(motion.b[1], 1.0 / (16.0 * rtt_s), 1e-12);
            assert_eq!((motion.e, motion.c), (vec![0.0, 0.0], vec![1.0, 0.0]));
            assert!(!motion.clocked);
        });
    }

    /// W' = (1 − p)R/R_v² − W·α/(2R_v)·x/(1 + x) with x = p·W·R_v/R marks per R_v = max(R, 25 ms),
    /// and α' = (p − α)/(16R_v). From 25 ms on, the time between reductions is the round-trip time,
    /// whose changes have no effect at equilibrium.
    #[test]
    fn pragues_window_and_its_dynamics_are_those_of_its_equations() {
        for p in PROBABILITIES {
            for rtt_s in [0.004_f64, 0.02, 0.03, 0.2] {
                let virtual_s = rtt_s.max(0.025);
                let growth = |w: f64, alpha: f64, p: f64, rtt_s: f64| {
                    let x = p * w * virtual_s / rtt_s;
                    (1.0 - p) * rtt_s / virtual_s.powi(2)
                        - w * alpha / (2.0 * virtual_s) * x / (1.0 + x)
                };
                let law = WindowLaw::Prague;
                let w = law.window_pkts(p, rtt_s);
                close(growth(w, p, p, rtt_s) * virtual_s, 0.0, 1e-12);
                let motion = law.motion(p, rtt_s);
                close(motion.a[0][0], slope(|w| growth(w, p, p, rtt_s), w), 1e-6);
                close(
                    motion.a[0][1],
                    slope(|alpha| growth(w, alpha, p, rtt_s), p),
                    1e-6,
                );
                close(motion.a[1][1], -1.0 / (16.0 * virtual_s), 1e-12);
                close(
                    motion.b[0],
                    slope(|marked| growth(w, p, marked, rtt_s), p),
                    1e-6,
                );
                close(motion.b[1], 1.0 / (16.0 * virtual_s), 1e-12);
                let by_rtt = if rtt_s < 0.025 {
                    slope(|rtt_s| growth(w, p, p, rtt_s), rtt_s)
                } else {
                    0.0
                };
                close(motion.e[0], by_rtt, 1e-6);
                assert_eq!(motion.e[1], 0.0);
                assert_eq!(motion.c, [1.0, 0.0]);
                assert_eq!(motion.clocked, rtt_s < 0.025);
            }
        }
        // With x = 1 mark per round trip: ½ = (1 − p)·2, so that p = ¾ and W = 4/3.
        close(WindowLaw::Prague.window_pkts(0.75, 0.1), 4.0 / 3.0, 1e-12);
        // Every packet is marked: there is no growth.
        assert!(WindowLaw::Prague.window_pkts(1.5, 0.1) < 1e-5);
    }

    /// With rare signals or a long round-trip time CUBIC is on its curve, W = 1.207·(R/p)^¾.
    #[test]
    fn cubics_window_far_from_the_reno_friendly_region_is_that_of_its_curve() {
        let w = WindowLaw::Cubic.window_pkts(1e-6, 0.5);
        close(w, 1.207 * 500_000.0_f64.powf(0.75), 1e-4);
        close(cubic_share(1e-6, 0.5), 1.0, 1e-4);
    }

    /// With frequent signals W' = α/R − (α/1.5)·W(W + 3)p/R is zero.
    #[test]
    fn cubics_window_in_the_reno_friendly_region_is_that_of_its_equation() {
        for p in [1e-3, 0.05, 0.3] {
            let w = WindowLaw::Cubic.window_pkts(p, 1e-3);
            close(w * (w + 3.0) * p, 1.5, 1e-2);
            assert!(cubic_share(p, 1e-3) < 0.02);
        }
        // 1.5/0.0375 = 40 = 5·8.
        close(friendly_part(0.0375), 5.0, 1e-12);
    }

    /// Where both regions have the same window, the mean is 2^⅙ of it, half of which is due to each.
    #[test]
    fn both_regions_of_cubic_have_equal_shares_where_their_windows_are_equal() {
        // A friendly window of 5 at p = 0.0375, and 1.207·(R/p)^¾ = 5.
        let rtt_s = 0.0375 * (5.0_f64 / 1.207).powf(4.0 / 3.0);
        close(cubic_share(0.0375, rtt_s), 0.5, 1e-12);
        let w = WindowLaw::Cubic.window_pkts(0.0375, rtt_s);
        close(w, 5.0 * 2.0_f64.powf(1.0 / 6.0), 1e-12);
        // Twice the window on the curve is 64 times the share.
        close(
            cubic_share(0.0375, rtt_s * 2.0_f64.powf(4.0 / 3.0)),
            64.0 / 65.0,
            1e-12,
        );
    }

    /// A region with less than 2 % of the window is constant, and adds no slow modes.
    #[test]
    fn a_region_of_cubic_with_a_negligible_share_does_not_move() {
        let (mut curve, mut friendly) = (0, 0);
        for k in 0..200 {
            let rtt_s = 0.002 * 1.03_f64.powi(k);
            let share = cubic_share(0.02, rtt_s);
            let motion = WindowLaw::Cubic.motion(0.02, rtt_s);
            let (on_curve, in_friendly) = (motion.c[3] != 0.0, motion.b[0] != 0.0);
            assert_eq!(
                (on_curve, in_friendly),
                (share >= 0.02, share <= 0.98),
                "{share}"
            );
            (curve, friendly) = (
                curve + i32::from(!on_curve),
                friendly + i32::from(!in_friendly),
            );
        }
        assert!(curve > 10 && friendly > 10, "{curve} {friendly}");
    }

    #[cfg(feature = "loops")]
    mod responses {
        use super::*;
        use crate::Complex64;

        /// Returns c·(s − A)⁻¹·input of linear dynamics, by Gaussian elimination.
        fn transfer(motion: &Motion, input: &[f64], s: Complex64) -> Complex64 {
            let n = motion.a.len();
            let mut rows: Vec<Vec<Complex64>> = (0..n)
                .map(|i| {
                    let entry =
                        |j: usize| if i == j { s } else { Complex64::ZERO } - motion.a[i][j];
                    (0..n).map(entry).chain([input[i].into()]).collect()
                })
                .collect();
            for k in 0..n {
                let pivot = (k..n).max_by(|i, j| rows[*i][k].norm().total_cmp(&rows[*j][k].norm()));
                rows.swap(k, pivot.unwrap());
                let pivot_row = rows[k].clone();
                for (_, row) in rows.iter_mut().enumerate().filter(|(i, _)| *i != k) {
                    let factor = row[k] / pivot_row[k];
                    for (x, pivot) in row.iter_mut().zip(&pivot_row) {
                        *x -= factor * pivot;
                    }
                }
            }
            (0..n).map(|i| motion.c[i] * rows[i][n] / rows[i][i]).sum()
        }

        /// At rest a window follows its equilibrium, for a change of p and of R. The constants of
        /// CUBIC's curve have five digits, and a region whose share is neglected has 2 % of the window.
        #[test]
        fn the_gain_at_rest_is_the_slope_of_the_equilibrium_window() {
            for law in WindowLaw::ALL {
                for_all_points(|p, rtt_s| {
                    let motion = law.motion(p, rtt_s);
                    let w = law.window_pkts(p, rtt_s);
                    let gain = |input: &[f64]| transfer(&motion, input, Complex64::ZERO).re;
                    let slopes = [
                        (
                            p * gain(&motion.b),
                            p * slope(|p| law.window_pkts(p, rtt_s), p),
                        ),
                        (
                            rtt_s * gain(&motion.e),
                            rtt_s * slope(|rtt_s| law.window_pkts(p, rtt_s), rtt_s),
                        ),
                    ];
                    let mixed = (0.02..=0.98).contains(&cubic_share(p, rtt_s));
                    let tolerance = if law == WindowLaw::Cubic && !mixed {
                        0.02
                    } else {
                        1e-5
                    };
                    for (actual, expected) in slopes {
                        assert!(
                            (actual - expected).abs() < tolerance * w,
                            "{} p={p} R={rtt_s}: {actual} {expected}",
                            law.name()
                        );
                    }
                });
            }
            let mixed = for_mixed_points();
            assert!(mixed > 2, "{mixed} points with both regions of CUBIC");
        }

        fn for_mixed_points() -> usize {
            let points = PROBABILITIES
                .iter()
                .flat_map(|p| RTTS_S.map(|rtt_s| (*p, rtt_s)));
            points
                .filter(|(p, rtt_s)| (0.02..=0.98).contains(&cubic_share(*p, *rtt_s)))
                .count()
        }

        /// On the curve, −δW/W per δp/p is that of the population in the constants' comment, with
        /// x = s·R/(W·p), and a longer round-trip time acts like a lower probability.
        #[test]
        fn cubics_dynamics_on_its_curve_are_those_of_a_population() {
            let (p, rtt_s) = (1e-5, 0.2);
            assert!(cubic_share(p, rtt_s) > 0.98);
            let motion = WindowLaw::Cubic.motion(p, rtt_s);
            let w = WindowLaw::Cubic.window_pkts(p, rtt_s);
            for x in [0.01, 0.3, 1.0, 5.0] {
                let x = Complex64::new(0.0, x);
                let s = x * w * p / rtt_s;
                let population = (0.3819 * x * x + 0.9103 * x + 2.6)
                    / (x * x * x + 4.340 * x * x + 5.541 * x + 3.4667);
                let relative = transfer(&motion, &motion.b, s) * p / w;
                assert!(
                    (relative + population).norm() < 1e-9,
                    "{relative} {population}"
                );
                let by_rtt = transfer(&motion, &motion.e, s) * rtt_s / w;
                assert!((by_rtt + relative).norm() < 1e-9, "{by_rtt} {relative}");
            }
        }

        /// In the Reno-friendly region they are the derivatives of α/R − (α/1.5)·W(W + 3)p/R with
        /// α = 9/17.
        #[test]
        fn cubics_dynamics_in_the_reno_friendly_region_are_those_of_its_equation() {
            let (p, rtt_s) = (0.05, 1e-3);
            assert!(cubic_share(p, rtt_s) < 0.02);
            let motion = WindowLaw::Cubic.motion(p, rtt_s);
            let w = WindowLaw::Cubic.window_pkts(p, rtt_s);
            let growth = |w: f64, p: f64| 9.0 / 17.0 / rtt_s * (1.0 - w * (w + 3.0) * p / 1.5);
            let (by_w, by_p) = (slope(|w| growth(w, p), w), slope(|p| growth(w, p), p));
            for omega in [1.0, 100.0, 3000.0] {
                let s = Complex64::new(0.0, omega);
                let expected = by_p / (s - by_w);
                let actual = transfer(&motion, &motion.b, s);
                assert!(
                    (actual / expected - 1.0).norm() < 1e-2,
                    "{actual} {expected}"
                );
            }
        }
    }
}
