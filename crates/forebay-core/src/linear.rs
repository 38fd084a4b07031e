//! What linear control theory works on: data only.

/// The point around which TCP and a queue are linearised: N flows of round-trip time R on a link
/// of capacity C.
#[derive(Clone, Copy, Debug)]
pub struct OperatingPoint {
    /// N/(RC): flows over the packets that they have under way. Unlike N it can be measured
    /// without knowing R.
    pub load: f64,
    /// C, in packets per second.
    pub capacity_pkts_per_s: f64,
    /// R, with queueing delay.
    pub rtt_s: f64,
}

impl OperatingPoint {
    pub fn of_flows(flows: f64, rtt_s: f64, capacity_pkts_per_s: f64) -> OperatingPoint {
        OperatingPoint {
            load: flows / (rtt_s * capacity_pkts_per_s),
            capacity_pkts_per_s,
            rtt_s,
        }
    }

    /// N.
    pub fn flows(&self) -> f64 {
        self.load * self.rtt_s * self.capacity_pkts_per_s
    }

    /// The pole of TCP's window, 2N/(R²C), in rad/s (pi-pd eq. 1).
    pub fn tcp_pole(&self) -> f64 {
        2.0 * self.load / self.rtt_s
    }

    /// The pole of the queue, 1/R, in rad/s (pi-pd eq. 1).
    pub fn queue_pole(&self) -> f64 {
        1.0 / self.rtt_s
    }

    /// C²/(2N): the plant is this over (s + tcp_pole)(s + queue_pole). pi-pd prints the numerators
    /// of (1) wrongly, but Example 1 has this.
    pub fn plant_gain(&self) -> f64 {
        self.capacity_pkts_per_s.powi(2) / (2.0 * self.flows())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example_1_of_pi_pd() {
        let point = OperatingPoint::of_flows(60.0, 0.2467, 3750.0);
        assert!((point.plant_gain() - 117_187.5).abs() < 1e-6);
        assert!((point.tcp_pole() - 0.53).abs() < 5e-3);
        assert!((point.queue_pole() - 4.05).abs() < 5e-3);
    }
}
