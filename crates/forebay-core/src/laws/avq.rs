//! AVQ of Kunniyur and Srikant: signal what would overflow a slower, virtual copy of the queue,
//! whose capacity is steered so that arrivals fill a wanted share of the link.

use crate::law::{Law, LawSpec, PacketMeta, QueueView, Recipe, Site, Verdict};
use crate::param::ParamError;
use crate::params;
use crate::rng::Rng;
use crate::units::{Packets, Time};
use crate::virtual_queue::{link_bytes_per_s, virtual_buffer_pkts, VirtualQueue};

pub const LAW: LawSpec = LawSpec::of::<AvqParams>(
    "avq",
    "AVQ: signal what overflows a virtual queue whose capacity adapts to the arrival rate",
    "Kunniyur and Srikant 2001; e-avq eq. (1), (2); pi-pd section 2.5",
);

params! {
    /// AVQ, with the defaults of ns-2.35.
    pub struct AvqParams {
        /// Wanted utilisation of the link.
        gamma: f64 = 0.98, 0.0 => 1.0;
        /// How fast the virtual capacity adapts, per second.
        alpha: f64 = 0.15, 0.0 => 1e3;
        /// Virtual capacity at the start, as a share of the link's.
        start_share: f64 = 0.8, 0.0 => 1.0;
        /// Size of the virtual buffer; zero: as large as the real one.
        virtual_buffer: Packets = Packets(0.0), 0.0 => 1e9;
    }
}

impl Recipe for AvqParams {
    fn check(&self, site: &Site) -> Result<(), ParamError> {
        virtual_buffer_pkts(self.virtual_buffer, site).map(|_| ())
    }

    fn build(&self, site: &Site) -> Box<dyn Law> {
        Box::new(Avq {
            params: self.clone(),
            queue: VirtualQueue::new(self.virtual_buffer, self.start_share, site),
            last: Time::ZERO,
        })
    }
}

/// There is no `intensity`: what overflows depends on how packets arrive, not on the queue.
struct Avq {
    params: AvqParams,
    queue: VirtualQueue,
    last: Time,
}

impl Law for Avq {
    fn on_enqueue(&mut self, now: Time, q: &QueueView, p: &PacketMeta, _: &mut Rng) -> Verdict {
        let overflow = self.queue.overflows(now, p.bytes);
        // e-avq eq. (1) from one arrival to the next, where λ·Δt is this packet. ns-2.35 leaves
        // C̃ alone when the packet is dropped rather than marked; the papers do not.
        let link = link_bytes_per_s(q);
        let elapsed_s = now.since(self.last).as_secs_f64();
        self.last = now;
        let change = self.params.gamma * link * elapsed_s - f64::from(p.bytes);
        self.queue.adjust(self.params.alpha * change, link);
        if overflow {
            Verdict::Mark
        } else {
            Verdict::Pass
        }
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        self.queue.probe(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::testing::{packet, probed, site, view};
    use crate::param::Params;
    use crate::units::Span;

    #[test]
    fn the_capacity_follows_equation_1() {
        let mut law = AvqParams::defaults().build(&site());
        let mut rng = Rng::new(1, "test");
        let mut arrive = |us, bytes| {
            let now = Time::ZERO + Span::from_micros(us);
            law.on_enqueue(now, &view(0), &packet(bytes), &mut rng);
            probed(&*law, "virtual_capacity_bps") / 8.0
        };
        // C = 3.75e6 bytes/s, so C̃ starts at 3e6. In 1 ms γC brings 3675 bytes.
        let mut want = 3e6 + 0.15 * (3675.0 - 1000.0);
        assert!((arrive(1000, 1000) - want).abs() < 1e-6);
        want += 0.15 * (3675.0 - 8000.0);
        assert!((arrive(2000, 8000) - want).abs() < 1e-6);
        // After a second's silence C̃ would pass C: α·γ·C·1 s = 551 250; it does after two.
        want += 0.15 * (3.675e6 - 1000.0);
        assert!((arrive(1_002_000, 1000) - want).abs() < 1e-6);
        assert_eq!(arrive(2_002_000, 1000), 3.75e6);
    }

    #[test]
    fn arrivals_at_gamma_leave_the_capacity_alone() {
        // A packet of 1000 bytes each 1000/(0.98·3.75e6) s = 272.109 us, for a million of them.
        let mut law = AvqParams::defaults().build(&site());
        let mut rng = Rng::new(1, "test");
        for k in 1..=1_000_000_u64 {
            let now = Time::from_nanos((k as f64 * 1e12 / 3.675e6) as u64);
            law.on_enqueue(now, &view(0), &packet(1000), &mut rng);
        }
        let capacity = probed(&*law, "virtual_capacity_bps") / 8.0;
        assert!((capacity - 3e6).abs() < 1.0, "{capacity}");
    }

    #[test]
    fn what_overflows_the_virtual_queue_is_marked() {
        // Nothing is served at one instant, so of 1000-byte packets just 800 fit.
        let mut law = AvqParams::defaults().build(&site());
        let mut rng = Rng::new(1, "test");
        let verdicts: Vec<_> = (0..802)
            .map(|_| law.on_enqueue(Time::ZERO, &view(0), &packet(1000), &mut rng))
            .collect();
        assert_eq!(verdicts[799], Verdict::Pass);
        assert_eq!(verdicts[800..], [Verdict::Mark, Verdict::Mark]);
    }
}
