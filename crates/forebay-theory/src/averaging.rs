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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assertions::close;

    /// The network of staqm's appendix D: 1000 flows on 622 Mbit/s with packets of 500 bytes.
    fn network() -> OperatingPoint {
        OperatingPoint::of_flows(1000.0, 0.15, 155_500.0)
    }

    #[test]
    fn the_design_of_staqms_appendix_d_is_reproduced() {
        let design = design(85.0, 0.1, &network());
        // The appendix prints w_q = 3.5e-8, max_p = 0.0074 and a delay of 7.2 ms, which is q_d/C. Its
        // steps (i) to (iv), by hand, give the further digits.
        close(design.k_red, 5.495e-3, 1e-3);
        close(design.w_q, 3.534e-8, 1e-3);
        close(design.l_red, 3.294e-6, 1e-3);
        close(design.q_d_pkts, 1116.0, 1e-3);
        let (min_th, max_th) = thresholds(design.q_d_pkts, 1.0);
        assert_eq!(min_th, 0.0);
        let gains = design.gains(max_th);
        let gain = |name: &str| gains.iter().find(|(key, _)| *key == name).unwrap().1;
        close(gain("max_p"), 7.35e-3, 1e-3);
        close(gain("k_red"), 5.495e-3, 1e-3);
        close(gain("l_red"), 3.294e-6, 1e-3);
        close(gain("w_q"), 3.534e-8, 1e-3);
        close(gain("q_d"), 1116.0, 1e-3);
        // A tenth of the pole of TCP's window, 2·1000/(0.15²·155500).
        close(gain("omega_g"), 0.057_163, 1e-4);
        assert_eq!(gains.len(), 6);
        // A probability has no slope beyond one.
        assert!(design.gains(1e9).contains(&("max_p", 1.0)));
    }

    /// The slope makes the gain one at the crossover, with the plant's gain at low frequencies
    /// (staqm appendix D, step iii), and average and dead time together lag by the chosen angle.
    #[test]
    fn the_loop_has_its_crossover_and_its_phase_where_they_were_chosen() {
        for (phase, crossover) in [(85.0, 0.1), (60.0, 0.3), (30.0, 0.05)] {
            for (flows, rtt_s, capacity) in [(1000.0, 0.15, 155_500.0), (80.0, 0.05, 300.0)] {
                let point = OperatingPoint::of_flows(flows, rtt_s, capacity);
                let law = design(phase, crossover, &point);
                let slower_pole = (2.0 * flows / (rtt_s * rtt_s * capacity)).min(1.0 / rtt_s);
                close(law.omega_g, crossover * slower_pole, 1e-12);
                let plant = (rtt_s * capacity).powi(3) / (2.0 * flows).powi(2);
                // 1/(1 + jω/K_red) has the size of cos(lag).
                let lag = law.omega_g.atan2(law.k_red);
                close(law.l_red * plant * lag.cos(), 1.0, 1e-12);
                close((lag + law.omega_g * rtt_s).to_degrees(), phase, 1e-12);
            }
        }
    }

    /// At equilibrium, L_red·q_d is the probability 2N²/(RC)² that the flows need, and the average
    /// decays by e^{−K_red} during the C arrivals of a second.
    #[test]
    fn the_equilibrium_and_the_weight_follow_from_the_slope_and_the_bandwidth() {
        let law = design(85.0, 0.1, &network());
        close(law.l_red * law.q_d_pkts, 2e6 / 23_325_f64.powi(2), 1e-12);
        close(155_500.0 * (1.0 - law.w_q).ln(), -law.k_red, 1e-8);
    }

    #[test]
    fn the_thresholds_are_around_the_target_or_start_at_zero() {
        assert_eq!(thresholds(20.0, 50.004), (30.0, 70.0));
        assert_eq!(thresholds(20.123, 50.0), (29.88, 70.12));
        assert_eq!(thresholds(60.126, 50.0), (0.0, 120.25));
        assert_eq!(thresholds(50.0, 50.0), (0.0, 100.0));
    }
}
