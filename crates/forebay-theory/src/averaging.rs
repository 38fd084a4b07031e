//! The design rule of laws whose probability is proportional to an averaged queue, such as RED.

use std::f64::consts::PI;

use crate::linear::OperatingPoint;

/// A law with an average in continuous time: p = L_red·x with x' = −K_red·x + K_red·(q − min_th)
/// (staqm eq. 2).
#[derive(Clone, Copy, Debug)]
pub struct AveragingDesign {
    /// The crossover frequency, in rad/s.
    pub omega_g: f64,
    /// The bandwidth of the average, K_red, in 1/s.
    pub k_red: f64,
    /// The slope of the probability, L_red, per packet.
    pub l_red: f64,
    /// The weight of an arrival in the average.
    pub w_q: f64,
    /// The equilibrium of the average above min_th, in packets.
    pub q_d_pkts: f64,
}

/// Designs the law for a network (staqm appendix D). `phase_margin` is in degrees, and `crossover`
/// is a fraction of min(2N/(R²C), 1/R).
pub fn design(phase_margin: f64, crossover: f64, point: &OperatingPoint) -> AveragingDesign {
    let OperatingPoint {
        load,
        capacity_pkts_per_s,
        rtt_s,
    } = *point;
    let omega_g = crossover * point.tcp_pole().min(point.queue_pole());
    let tan = (phase_margin * PI / 180.0 - omega_g * rtt_s).tan();
    let k_red = omega_g / tan;
    // staqm eq. (6), where √((ω_g/K_red)² + 1) = √(tan² + 1).
    let l_red = 4.0 * load.powi(2) * tan.hypot(1.0) / (rtt_s * capacity_pkts_per_s);
    AveragingDesign {
        omega_g,
        k_red,
        l_red,
        // From K_red = −C·ln(1 − w_q).
        w_q: -(-k_red / capacity_pkts_per_s).exp_m1(),
        q_d_pkts: rtt_s * capacity_pkts_per_s / (2.0 * tan.hypot(1.0)),
    }
}

/// Returns min_th and max_th in packets, with the target midway between them (staqm appendix D). If
/// q_d exceeds the target, the phase margin does not allow that: min_th is 0 and the equilibrium is
/// at q_d.
pub fn thresholds(q_d_pkts: f64, target_pkts: f64) -> (f64, f64) {
    // Rounded to a hundredth of a packet, for readable files.
    let hundredths = |pkts: f64| (100.0 * pkts).round() / 100.0;
    if q_d_pkts >= target_pkts {
        (0.0, hundredths(2.0 * q_d_pkts))
    } else {
        (
            hundredths(target_pkts - q_d_pkts),
            hundredths(target_pkts + q_d_pkts),
        )
    }
}

impl AveragingDesign {
    /// Returns the design with the names of the paper, and max_p for thresholds `range_pkts` apart.
    pub fn gains(&self, range_pkts: f64) -> Vec<(&'static str, f64)> {
        vec![
            ("k_red", self.k_red),
            ("l_red", self.l_red),
            ("w_q", self.w_q),
            ("q_d", self.q_d_pkts),
            ("max_p", (self.l_red * range_pkts).min(1.0)),
            ("omega_g", self.omega_g),
        ]
    }
}
