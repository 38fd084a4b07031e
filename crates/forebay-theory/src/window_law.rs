//! How windows of TCP answer signals, as linear theory has it: where one rests, and how it moves
//! there.
//!
//! A flow has W packets in a round trip R, of which each is signalled with p a round trip later, so
//! that it gets λ = W·p/R signals per second. As Hollot et al. (2002) do, what a flow sent a round
//! trip ago counts as what it sends now; p itself is late.

/// What a sender does to its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowLaw {
    /// W' = 1/R − W²p/(2R), as published (Misra, Gong and Towsley 2000): pW² = 2.
    Reno,
    /// The same growth under signals that come independently of each other: `E[W²]/E[W]²` is 7/6 (Ott,
    /// Kemperman and Mathis 1996: W = 1.31/√p).
    IndependentReno,
    /// RFC 9438: W(s) = C(s − K)³ + W_max, with fast convergence, s seconds after a signal.
    ///
    /// The equations of the mean s and W_max (Vardoyan, Hollot and Towsley 2018) have no linear part
    /// where they rest, at s = K: the curve is flat there. But flows stand at all ages. Of a
    /// population of them, hit independently at λ, the mean rests at 1.207·(R/p)^¾ packets;
    /// `test_sender_models.py` has that population. In the Reno-friendly region (section 4.3)
    /// it is pW² = 3/2, of a W_est that Linux counts in whole packets and follows a round trip later,
    /// with half a packet less in flight, 1½ packets in all: W' = α/R − (α/1.5)·W(W + 3)p/R. A flow
    /// takes whichever is larger at each moment, so that its mean is above both where they are near:
    /// (W_cubic⁶ + W_friendly⁶)^⅙.
    Cubic,
    /// RFC 8257 (Alizadeh et al. 2011): W' = 1/R − W·α/(2R), α' = (g/R)(p − α), with marks in all
    /// round trips: W = 2/p.
    Dctcp,
    /// draft-briscoe-iccrg-prague-congestion-control: α as of DCTCP. A reduction takes a virtual
    /// round trip R_v = max(R, 25 ms), and the next one waits for a mark, so with x marks in R_v they
    /// come every R_v(1 + 1/x); unmarked packets alone grow:
    /// W' = (1 − p)R/R_v² − W·α/(2R_v)·x/(1 + x).
    Prague,
}

/// `E[W²]/E[W]²` of Reno's sawteeth under independent signals.
const SPREAD: f64 = 7.0 / 6.0;

/// Numbers of CUBIC.
mod cubic {
    /// Growth of the Reno-friendly window in a round trip, 3(1 − β)/(1 + β), and pW² there (RFC 9438
    /// section 4.3).
    pub const ALPHA: f64 = 9.0 / 17.0;
    pub const FRIENDLY: f64 = 1.5;
    /// Twice the packets by which Linux's window is behind W_est on average.
    pub const BEHIND_PKTS: f64 = 3.0;
    /// W/(R/p)^¾ of the mean of flows on RFC 9438's curve, in packets and seconds; its equation (5)
    /// has 1.054 for one flow with even signals.
    pub const PLATEAU: f64 = 1.207;
    /// How the mean moves there: −δW/W per δp/p is (n2·x² + n1·x + n0)/(x³ + d2·x² + d1·x + d0) with
    /// x = s/λ. n2 = (1 − β)`E[W²]/E[W]²`: what a signal takes at once; n0/d0 = 3/4. The rest is the
    /// best fit to the population's answer to a step, to 0.3 % of it. From n0 and d0 up.
    pub const NUMERATOR: [f64; 3] = [2.6, 0.9103, 0.3819];
    pub const DENOMINATOR: [f64; 3] = [3.4667, 5.541, 4.340];
    /// Of the mean where both curves matter: within 3 % of packets between R = 25 and 490 ms.
    pub const BETWEEN: i32 = 6;
    /// A region with less of the window than this does not move: it would only leave slow modes
    /// that nothing moves.
    pub const SLIVER: f64 = 0.02;
}

/// Gain of the estimate of the share of marks (RFC 8257 section 4.2, and the draft of Prague).
const ESTIMATE_GAIN: f64 = 1.0 / 16.0;
/// Shorter round trips of Prague grow and fall as one of this length.
const REFERENCE_RTT_S: f64 = 0.025;

/// A window around its rest: x' = a·x + b·δp(t − R) + e·δR, δW = c·x.
#[derive(Clone, Debug, PartialEq)]
pub struct Motion {
    /// Whether packets leave as ACKs come: at W/R + W', and not at W/R.
    pub clocked: bool,
    /// A row for each state.
    pub a: Vec<Vec<f64>>,
    pub b: Vec<f64>,
    pub e: Vec<f64>,
    pub c: Vec<f64>,
}

impl WindowLaw {
    pub const ALL: [WindowLaw; 5] = [
        WindowLaw::Reno,
        WindowLaw::IndependentReno,
        WindowLaw::Cubic,
        WindowLaw::Dctcp,
        WindowLaw::Prague,
    ];

    /// As designs name it.
    pub const fn name(self) -> &'static str {
        match self {
            WindowLaw::Reno => "reno",
            WindowLaw::IndependentReno => "linux-reno",
            WindowLaw::Cubic => "cubic",
            WindowLaw::Dctcp => "dctcp",
            WindowLaw::Prague => "prague",
        }
    }

    /// The law of this name.
    pub fn named(name: &str) -> Option<WindowLaw> {
        WindowLaw::ALL.into_iter().find(|law| law.name() == name)
    }

    /// How the same sender answers drops: one that answers the share of marks halves its window for
    /// a loss (RFC 8257 section 3.5).
    #[must_use]
    pub const fn on_drops(self) -> WindowLaw {
        match self {
            WindowLaw::Dctcp | WindowLaw::Prague => WindowLaw::Reno,
            other => other,
        }
    }

    /// It keeps no smaller window. Prague's is a pace below two packets, down to 100 kbit/s.
    pub const fn least_pkts(self) -> f64 {
        match self {
            WindowLaw::Reno | WindowLaw::IndependentReno | WindowLaw::Prague => 0.0,
            WindowLaw::Cubic => 1.0,
            WindowLaw::Dctcp => 2.0,
        }
    }

    /// States of its motion.
    pub const fn order(self) -> usize {
        match self {
            WindowLaw::Reno | WindowLaw::IndependentReno => 1,
            WindowLaw::Dctcp | WindowLaw::Prague => 2,
            WindowLaw::Cubic => 4,
        }
    }

    /// W at rest.
    pub fn window_pkts(self, p: f64, rtt_s: f64) -> f64 {
        match self {
            WindowLaw::Reno => (2.0 / p).sqrt(),
            WindowLaw::IndependentReno => (2.0 / SPREAD / p).sqrt(),
            WindowLaw::Cubic => {
                let both = cubic_part(p, rtt_s).powi(cubic::BETWEEN)
                    + friendly_part(p).powi(cubic::BETWEEN);
                both.powf(1.0 / f64::from(cubic::BETWEEN))
            }
            WindowLaw::Dctcp => 2.0 / p,
            WindowLaw::Prague => {
                // x²/2 = (1 − p)(1 + x), with x = p·W·R_v/R.
                let u = (1.0 - p).max(1e-12);
                let x = u + (u * u + 2.0 * u).sqrt();
                x * rtt_s / virtual_s(rtt_s) / p
            }
        }
    }

    /// How the window moves around its rest.
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

/// W' = 1/R − W²p/(square·R): pW² = square.
fn reno_motion(square: f64, rtt_s: f64, w: f64) -> Motion {
    Motion {
        clocked: false,
        a: vec![vec![-2.0 / (w * rtt_s)]],
        b: vec![-1.0 / square * w.powi(2) / rtt_s],
        e: vec![0.0],
        c: vec![1.0],
    }
}

fn cubic_part(p: f64, rtt_s: f64) -> f64 {
    cubic::PLATEAU * (rtt_s / p).powf(0.75)
}

fn friendly_part(p: f64) -> f64 {
    let half = cubic::BEHIND_PKTS / 2.0;
    (cubic::FRIENDLY / p + half * half).sqrt() - half
}

/// How much of CUBIC's mean window is RFC 9438's cubic; the rest is the Reno-friendly region.
pub fn cubic_share(p: f64, rtt_s: f64) -> f64 {
    let ratio = cubic_part(p, rtt_s) / friendly_part(p);
    1.0 / (1.0 + ratio.powi(-cubic::BETWEEN))
}

/// Both regions beside each other, each with its share. A longer RTT acts as less p on the cubic,
/// whose clock is not the round trip.
fn cubic_motion(p: f64, rtt_s: f64, w: f64) -> Motion {
    let share = match cubic_share(p, rtt_s) {
        share if share < cubic::SLIVER => 0.0,
        share if share > 1.0 - cubic::SLIVER => 1.0,
        share => share,
    };
    let rate = w * p / rtt_s;
    let (f, slope) = (friendly_part(p), cubic::ALPHA / cubic::FRIENDLY / rtt_s);
    let [n0, n1, n2] = cubic::NUMERATOR.map(|n| -n * share * w);
    let [d0, d1, d2] = cubic::DENOMINATOR.map(|d| -d * rate);
    let friendly = -slope * (f + cubic::BEHIND_PKTS) * w * (1.0 - share);
    Motion {
        clocked: false,
        a: vec![
            vec![-slope * (2.0 * f + cubic::BEHIND_PKTS) * p, 0.0, 0.0, 0.0],
            vec![0.0, 0.0, rate, 0.0],
            vec![0.0, 0.0, 0.0, rate],
            vec![0.0, d0, d1, d2],
        ],
        b: vec![friendly, 0.0, 0.0, rate / p],
        e: vec![0.0, 0.0, 0.0, -rate / rtt_s],
        c: vec![1.0, n0, n1, n2],
    }
}

/// A window with these slopes, by the window, the estimate α of the share of marks, p and R; and α,
/// which follows the marks by rounds.
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

fn virtual_s(rtt_s: f64) -> f64 {
    rtt_s.max(REFERENCE_RTT_S)
}

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
    // In a short round trip W/R rests by p alone, so that nothing takes a queue back: it is an
    // integral, which a lag of R more would make swing. The clock of ACKs has no such lag.
    Motion {
        clocked: rtt_s < virtual_s,
        ..motion
    }
}
