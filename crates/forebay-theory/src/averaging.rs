//! The design rule of a law whose probability rises with an averaged queue, such as RED.

use std::f64::consts::PI;

use crate::linear::OperatingPoint;

/// An averaging law as a fluid: p = L_red·x with x' = −K_red·x + K_red·(q − min_th) (staqm eq. 2).
#[derive(Clone, Copy, Debug)]
pub struct AveragingDesign {
    /// Crossover frequency, rad/s.
    pub omega_g: f64,
    /// Bandwidth of the average, 1/s.
    pub k_red: f64,
    /// Slope of the probability, per packet.
    pub l_red: f64,
    /// Weight of an arrival in the average.
    pub w_q: f64,
    /// Steady average above min_th, in packets.
    pub q_d_pkts: f64,
}

/// Designs the law for a network (staqm appendix D): `phase_margin` in degrees, `crossover` as a
/// share of min(2N/(R²C), 1/R).
pub fn design(phase_margin: f64, crossover: f64, point: &OperatingPoint) -> AveragingDesign {
    let OperatingPoint {
        load,
        capacity_pkts_per_s,
        rtt_s,
    } = *point;
    let omega_g = crossover * point.tcp_pole().min(point.queue_pole());
    let tan = (phase_margin * PI / 180.0 - omega_g * rtt_s).tan();
    let k_red = omega_g / tan;
    // (6); √((ω_g/K_red)² + 1) = √(tan² + 1).
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

/// Thresholds with the wanted queue midway, where a stable RED allows it: min_th and max_th in
/// packets (staqm appendix D). Where q_d exceeds the target, the queue will settle at q_d.
pub fn thresholds(q_d_pkts: f64, target_pkts: f64) -> (f64, f64) {
    // To a hundredth of a packet, so that files stay readable.
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
    /// Under the paper's names, with max_p for thresholds this far apart.
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
