//! E-AVQ of Wang, Liao and Tian: AVQ whose virtual capacity a single PID neuron tunes, with
//! weights that learn.

use forebay_theory::search::{Conditions, Search};
use forebay_units::{params, Packets, ParamError, Rng, Site, Span, Time};

use crate::configured_law::ConfiguredLaw;
use crate::law::{FluidLaw, Law, PacketMeta, QueueView, Verdict};
use crate::law_spec::LawSpec;
use crate::virtual_queue::{link_bytes_per_s, listed, virtual_buffer_pkts, VirtualQueue, BURSTS};

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
    /// E-AVQ at the paper's values. Rates inside are in bytes per second: only at that scale do
    /// the paper's learning rates move the weights.
    pub struct EAvqParams {
        /// Wanted utilisation of the link.
        gamma: f64 = 0.98, 0.0 => 1.0;
        /// First weight of the error; the three weights are normalised before use.
        w_1: f64 = 0.8, 0.0 => 1e3;
        /// First weight of the error's change.
        w_2: f64 = 0.1, 0.0 => 1e3;
        /// First weight of the change's change.
        w_3: f64 = 0.1, 0.0 => 1e3;
        /// First gain of the neuron.
        gain: f64 = 2.0, 0.0 => 1e3;
        /// Learning rate of w_1.
        eta_1: f64 = 1e-18, 0.0 => 1.0;
        /// Learning rate of w_2.
        eta_2: f64 = 1e-18, 0.0 => 1.0;
        /// Learning rate of w_3.
        eta_3: f64 = 1e-18, 0.0 => 1.0;
        /// Learning rate of the gain.
        eta_4: f64 = 1e-18, 0.0 => 1.0;
        /// Time over which the arrival rate is measured: the neuron acts at the first arrival
        /// after it. Zero: at every arrival, from one gap. The paper does not print it. A step
        /// moves C̃ by about twice the error, so it must be long compared with TCP's response.
        window: Span = Span::from_secs(1), 0.0 => 60.0;
        /// Virtual capacity at the start, as a share of the link's.
        start_share: f64 = 0.8, 0.0 => 1.0;
        /// Size of the virtual buffer; zero: as large as the real one.
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
            return Err(ParamError::new("w_1", self.w_1, "a weight above zero"));
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

/// There is no `intensity`, as for AVQ; (4) is a model of the virtual queue.
struct EAvq {
    gamma: f64,
    window: Span,
    queue: VirtualQueue,
    neuron: Neuron,
    window_start: Time,
    window_bytes: f64,
    /// λ over the last window.
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

/// The PID neuron, as the last step left it: what the paper writes at k while it computes t.
struct Neuron {
    weights: [f64; 3],
    gain: f64,
    rates: [f64; 3],
    gain_rate: f64,
    /// e, Δe, Δ²e.
    inputs: [f64; 3],
    /// C̃(k−1) and ΔC̃(k−1).
    capacity: f64,
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

    /// w̄ (7).
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

    /// The change of the virtual capacity for this error; `capacity` is C̃(k), after the last
    /// step and its limits.
    fn step(&mut self, error: f64, capacity: f64) -> f64 {
        let dot = |w: [f64; 3], x: [f64; 3]| w[0] * x[0] + w[1] * x[1] + w[2] * x[2];
        let [error_1, change_1, _] = self.inputs;
        let change = error - error_1;

        // (14), with w̄ as in (13) where it prints w. ΔC̃(t) depends on the gain that is being
        // computed, so the sign in (12) takes the two latest changes that have been made.
        let capacity_change = capacity - self.capacity;
        let slope = sign(change) * sign(capacity_change - self.capacity_change);
        self.gain -= self.gain_rate * error_1 * slope * dot(self.normalised(), self.inputs);

        // (7): supervised Hebbian learning on what was seen at k.
        for i in 0..3 {
            self.weights[i] += self.rates[i] * error_1 * capacity * self.inputs[i];
        }

        self.inputs = [error, change, change - change_1];
        self.capacity = capacity;
        self.capacity_change = capacity_change;
        let step = self.gain * dot(self.normalised(), self.inputs);
        // Learning rates far above the paper's can overflow: then C̃ holds.
        if step.is_finite() {
            step
        } else {
            0.0
        }
    }
}

/// sgn, with sgn(0) = 0.
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

    fn assert_close(got: f64, want: f64) {
        assert!(
            (got - want).abs() < 1e-9 * want.abs().max(1.0),
            "{got} {want}"
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
        // e = 2: x = (2, 2, 2), nothing learnt yet, g·Σ = 2·2.
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
    fn weights_that_sum_to_nothing_hold_the_capacity() {
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
        let want = 8.0 * (0.75e6 + 2.0 * 0.675e6);
        assert_close(probed(&*law, "virtual_capacity_bps"), want);
    }

    #[test]
    fn a_window_of_zero_acts_on_every_gap() {
        let mut params = EAvqParams::defaults();
        params.window = Span::ZERO;
        let mut law = params.build(&site(), 0).unwrap();
        let mut rng = Rng::new(1, "test");
        for (us, want) in [(0, 0.0), (500, 4e6), (1500, 1e6)] {
            let now = Time::ZERO + Span::from_micros(us);
            law.on_enqueue(now, &view(0), &packet(1000), &mut rng);
            // Two packets share the first gap, as none had passed before the second.
            assert_close(probed(&*law, "arrival_bps"), 8.0 * want);
        }
    }

    #[test]
    fn all_weights_at_zero_are_refused() {
        let mut params = EAvqParams::defaults();
        (params.w_1, params.w_2, params.w_3) = (0.0, 0.0, 0.0);
        assert_eq!(params.check(&site()).unwrap_err().key, "w_1");
    }
}
