//! E-AVQ of Wang, Liao and Tian: AVQ whose virtual capacity is adapted by a single PID neuron with
//! learning weights.

use forebay_theory::search::{Conditions, Search};
use forebay_units::{params, Packets, ParamError, Rng, Site, Span, Time};

use crate::configured_law::ConfiguredLaw;
use crate::law::{FluidLaw, Law, PacketMeta, QueueView, Verdict};
use crate::law_spec::LawSpec;
use crate::virtual_queue::{link_bytes_per_s, listed, virtual_buffer_pkts, VirtualQueue, BURSTS};

/// The registry entry of E-AVQ.
pub const LAW: LawSpec = LawSpec::of::<EAvqParams>(
    "e-avq",
    "E-AVQ: AVQ whose virtual capacity is tuned by a PID neuron with learning weights",
    "Wang, Liao and Tian 2010; e-avq eq. (5)-(14)",
)
.with_equation(
    "signal what overflows a virtual queue of capacity C̃;  ΔC̃ = gain·(w_1·e + w_2·Δe + w_3·Δ²e);  e = gamma·C − λ",
)
.with_reality(BURSTS)
.with_search(EAvqParams::search);

params! {
    /// E-AVQ with the values of the paper. The neuron works with rates in bytes per second, because
    /// the paper's learning rates move the weights only at that scale.
    pub struct EAvqParams {
        /// Desired utilisation of the link.
        gamma: f64 = 0.98, 0.0 => 1.0;
        /// Initial weight of the error. The three weights are normalised before use.
        w_1: f64 = 0.8, 0.0 => 1e3;
        /// Initial weight of the change of the error.
        w_2: f64 = 0.1, 0.0 => 1e3;
        /// Initial weight of the second difference of the error.
        w_3: f64 = 0.1, 0.0 => 1e3;
        /// Initial gain of the neuron.
        gain: f64 = 2.0, 0.0 => 1e3;
        /// Learning rate of w_1.
        eta_1: f64 = 1e-18, 0.0 => 1.0;
        /// Learning rate of w_2.
        eta_2: f64 = 1e-18, 0.0 => 1.0;
        /// Learning rate of w_3.
        eta_3: f64 = 1e-18, 0.0 => 1.0;
        /// Learning rate of the gain.
        eta_4: f64 = 1e-18, 0.0 => 1.0;
        /// Time over which the arrival rate is measured; the neuron acts at the first arrival after
        /// it. Zero: it acts at every arrival, with the rate of one gap. The paper does not give
        /// this time. A step moves C̃ by about twice the error, so the time must be long compared
        /// with TCP's response.
        window: Span = Span::from_secs(1), 0.0 => 60.0;
        /// Initial virtual capacity, as a fraction of the link's.
        start_share: f64 = 0.8, 0.0 => 1.0;
        /// Size of the virtual buffer. Zero: as large as the real one.
        virtual_buffer: Packets = Packets(0.0), 0.0 => 1e9;
    }
}

impl EAvqParams {
    fn search(conditions: &Conditions) -> Search {
        listed(conditions)
    }
}

impl ConfiguredLaw for EAvqParams {
    fn check(&self, site: &Site) -> Result<(), ParamError> {
        if self.w_1 + self.w_2 + self.w_3 <= 0.0 {
            return Err(ParamError::new(
                "w_1",
                self.w_1,
                "at least one of w_1, w_2 and w_3 above zero",
            ));
        }
        virtual_buffer_pkts(self.virtual_buffer, site).map(|_| ())
    }

    fn build(&self, site: &Site, _seed: u64) -> Result<Box<dyn Law>, ParamError> {
        self.check(site)?;
        let queue = VirtualQueue::new(self.virtual_buffer, self.start_share, site);
        Ok(Box::new(EAvq {
            gamma: self.gamma,
            window: self.window,
            neuron: Neuron::new(self, queue.capacity_bytes_per_s()),
            queue,
            window_start: Time::ZERO,
            window_bytes: 0.0,
            arrival_bytes_per_s: 0.0,
        }))
    }
}

/// E-AVQ at a queue. Like AVQ, it does not implement `intensity`, the expected number of signals
/// per packet for the fluid model: equation (4) of the E-AVQ paper models the virtual queue only.
struct EAvq {
    gamma: f64,
    window: Span,
    queue: VirtualQueue,
    neuron: Neuron,
    window_start: Time,
    window_bytes: f64,
    /// The arrival rate λ over the last window.
    arrival_bytes_per_s: f64,
}

impl Law for EAvq {
    fn watches_departures(&self) -> bool {
        false
    }

    fn on_enqueue(&mut self, now: Time, q: &QueueView, p: &PacketMeta, _: &mut Rng) -> Verdict {
        let overflow = self.queue.overflows(now, p.bytes);
        self.window_bytes += f64::from(p.bytes);
        let elapsed = now.since(self.window_start);
        if elapsed > Span::ZERO && elapsed >= self.window {
            let link = link_bytes_per_s(q);
            self.arrival_bytes_per_s = self.window_bytes / elapsed.as_secs_f64();
            let error = self.gamma * link - self.arrival_bytes_per_s;
            let change = self.neuron.step(error, self.queue.capacity_bytes_per_s());
            self.queue.adjust(change, link);
            self.window_start = now;
            self.window_bytes = 0.0;
        }
        Verdict::signal_if(overflow)
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        self.queue.probe(out);
        out("arrival_bps", 8.0 * self.arrival_bytes_per_s);
        out("gain", self.neuron.gain);
        let [w_1, w_2, w_3] = self.neuron.normalised();
        out("w_1", w_1);
        out("w_2", w_2);
        out("w_3", w_3);
    }
}

impl FluidLaw for EAvq {}

/// The PID neuron after its last step: the values that the paper writes with index k while it
/// computes those at t.
struct Neuron {
    weights: [f64; 3],
    gain: f64,
    rates: [f64; 3],
    gain_rate: f64,
    /// e, Δe and Δ²e.
    inputs: [f64; 3],
    /// C̃(k−1).
    capacity: f64,
    /// ΔC̃(k−1).
    capacity_change: f64,
}

impl Neuron {
    fn new(params: &EAvqParams, capacity: f64) -> Neuron {
        Neuron {
            weights: [params.w_1, params.w_2, params.w_3],
            gain: params.gain,
            rates: [params.eta_1, params.eta_2, params.eta_3],
            gain_rate: params.eta_4,
            inputs: [0.0; 3],
            capacity,
            capacity_change: 0.0,
        }
    }

    /// Returns the normalised weights w̄ of e-avq eq. (7).
    fn normalised(&self) -> [f64; 3] {
        let sum: f64 = self.weights.iter().map(|w| w.abs()).sum();
        self.weights.map(|w| {
            if sum > 0.0 && sum.is_finite() {
                w / sum
            } else {
                0.0
            }
        })
    }

    /// Returns the change of the virtual capacity for this error. `capacity` is C̃(k), the result
    /// of the last step after limiting.
    fn step(&mut self, error: f64, capacity: f64) -> f64 {
        let dot = |w: [f64; 3], x: [f64; 3]| w[0] * x[0] + w[1] * x[1] + w[2] * x[2];
        let [error_1, change_1, _] = self.inputs;
        let change = error - error_1;

        // Eq. (14), which prints w where (13) has w̄. ΔC̃(t) depends on the gain that is being
        // computed, so the sign in (12) uses the two latest changes.
        let capacity_change = capacity - self.capacity;
        let slope = sign(change) * sign(capacity_change - self.capacity_change);
        self.gain -= self.gain_rate * error_1 * slope * dot(self.normalised(), self.inputs);

        // Eq. (7): supervised Hebbian learning from the inputs at k.
        for i in 0..3 {
            self.weights[i] += self.rates[i] * error_1 * capacity * self.inputs[i];
        }

        self.inputs = [error, change, change - change_1];
        self.capacity = capacity;
        self.capacity_change = capacity_change;
        let step = self.gain * dot(self.normalised(), self.inputs);
        // Learning rates far above the paper's can overflow; C̃ then stays unchanged.
        if step.is_finite() {
            step
        } else {
            0.0
        }
    }
}

/// Returns the sign of `x`, with sgn(0) = 0.
fn sign(x: f64) -> f64 {
    if x == 0.0 {
        0.0
    } else {
        x.signum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::testing::{packet, probed, site, view};
    use forebay_units::Params;

    fn assert_close(actual: f64, expected: f64) {
        assert!(
            (actual - expected).abs() < 1e-9 * expected.abs().max(1.0),
            "{actual} {expected}"
        );
    }

    #[test]
    fn the_neuron_learns_by_hand_computed_steps() {
        let mut params = EAvqParams::defaults();
        params.eta_1 = 0.1;
        params.eta_2 = 0.1;
        params.eta_3 = 0.1;
        params.eta_4 = 0.01;
        let mut n = Neuron::new(&params, 10.0);
        // e = 2: x = (2, 2, 2), nothing is learnt yet, g·Σ = 2·2.
        assert_close(n.step(2.0, 10.0), 4.0);
        // e = 1, C̃ = 14. Δe = −1 and ΔC̃ rose by 4: the slope is −1, so
        // g = 2 + 0.01·2·2 = 2.04. w += 0.1·2·14·2 = 5.6: (6.4, 5.7, 5.7), sum 17.8.
        // x = (1, −1, −3): Σ = −16.4/17.8.
        assert_close(n.step(1.0, 14.0), 2.04 * -16.4 / 17.8);
        // e = 1, C̃ = 12. Δe = 0: g stays. w += 0.1·1·12·(1, −1, −3): (7.6, 4.5, 2.1),
        // sum 14.2. x = (1, 0, 1): Σ = 9.7/14.2.
        assert_close(n.step(1.0, 12.0), 2.04 * 9.7 / 14.2);
    }

    #[test]
    fn the_papers_learning_rate_moves_weights_in_bytes_per_second() {
        // 10 Mbit/s: e = 125 000 and C̃ = 1e6 bytes/s change a weight by
        // 1e-18·1.25e5·1e6·1.25e5 = 0.0156 in one step.
        let mut n = Neuron::new(&EAvqParams::defaults(), 1e6);
        n.step(125_000.0, 1e6);
        n.step(0.0, 1e6);
        assert_close(n.weights[0], 0.8 + 0.015625);
    }

    #[test]
    fn weights_whose_sum_is_zero_or_infinite_leave_the_capacity() {
        let mut n = Neuron::new(&EAvqParams::defaults(), 1.0);
        n.weights = [0.0; 3];
        assert_eq!(n.step(5.0, 1.0), 0.0);
        n.weights = [f64::MAX; 3];
        assert_eq!(n.step(5.0, 1.0), 0.0);
    }

    #[test]
    fn the_rate_is_measured_over_the_window() {
        let mut params = EAvqParams::defaults();
        params.window = Span::from_millis(1);
        params.start_share = 0.2;
        let mut law = params.build(&site(), 0).unwrap();
        let mut rng = Rng::new(1, "test");
        for us in [0, 500, 1000] {
            let now = Time::ZERO + Span::from_micros(us);
            law.on_enqueue(now, &view(0), &packet(1000), &mut rng);
        }
        // λ = 3000 bytes in 1 ms; e = 3.675e6 − 3e6, and the first step is 2·e.
        assert_close(probed(&*law, "arrival_bps"), 24e6);
        let expected = 8.0 * (0.75e6 + 2.0 * 0.675e6);
        assert_close(probed(&*law, "virtual_capacity_bps"), expected);
    }

    #[test]
    fn with_a_window_of_zero_the_neuron_acts_at_every_arrival() {
        let mut params = EAvqParams::defaults();
        params.window = Span::ZERO;
        let mut law = params.build(&site(), 0).unwrap();
        let mut rng = Rng::new(1, "test");
        for (us, expected) in [(0, 0.0), (500, 4e6), (1500, 1e6)] {
            let now = Time::ZERO + Span::from_micros(us);
            law.on_enqueue(now, &view(0), &packet(1000), &mut rng);
            // The first arrival is at time zero, so two packets count for the first gap.
            assert_close(probed(&*law, "arrival_bps"), 8.0 * expected);
        }
    }

    #[test]
    fn all_weights_at_zero_are_refused() {
        let mut params = EAvqParams::defaults();
        (params.w_1, params.w_2, params.w_3) = (0.0, 0.0, 0.0);
        assert_eq!(params.check(&site()).unwrap_err().key, "w_1");
    }
}
