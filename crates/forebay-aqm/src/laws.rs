//! The registry of laws.
//!
//! A new law needs a file in `laws/`, a `mod` line, and a line in [`LAWS`].

pub(crate) mod ared;
pub(crate) mod avq;
pub(crate) mod blue;
pub(crate) mod cobalt;
pub(crate) mod codel;
pub(crate) mod droptail;
pub(crate) mod e_avq;
pub(crate) mod pd_red;
pub(crate) mod pi;
pub(crate) mod pi2;
pub(crate) mod pi_pd;
pub(crate) mod pid;
pub(crate) mod pid_avg;
pub(crate) mod pie;
pub(crate) mod red;
pub(crate) mod rem;
pub(crate) mod stpi;
pub(crate) mod stred;

use crate::law_spec::LawSpec;

/// Every law, in the order in which tables show them.
pub const LAWS: &[LawSpec] = &[
    droptail::LAW,
    red::LAW,
    pi::LAW,
    pid::LAW,
    pi_pd::LAW,
    pid_avg::P,
    pid_avg::PI,
    pid_avg::PD,
    pid_avg::PID,
    ared::LAW,
    pd_red::LAW,
    stpi::LAW,
    stred::LAW,
    blue::LAW,
    rem::LAW,
    avq::LAW,
    e_avq::LAW,
    codel::LAW,
    codel::FQ,
    pie::LAW,
    pie::FQ,
    pi2::LAW,
    pi2::DUAL,
    cobalt::LAW,
    cobalt::CAKE,
];

/// Returns the law named `kind`; `None` if there is none.
pub fn find(kind: &str) -> Option<&'static LawSpec> {
    LAWS.iter().find(|law| law.kind == kind)
}

/// Returns the queue without a law, DropTail, with which the laws are compared.
pub fn baseline() -> &'static LawSpec {
    LAWS.iter().find(|law| law.baseline).unwrap_or(&LAWS[0])
}

#[cfg(test)]
pub(crate) mod testing {
    use crate::law::{Ecn, Law, PacketMeta, QueueView, Signal};
    use crate::periodic::{Controller, Sample};
    use forebay_units::{Bytes, Rate, Rng, Site, Span, Time};

    /// Returns pi-pd's bottleneck: 30 Mbit/s, and a buffer of 800 packets of 1000 bytes.
    pub fn site() -> Site {
        Site {
            rate: Rate::from_bps(30_000_000),
            buffer_pkts: 800.0,
            packet: Bytes(1000),
        }
    }

    /// Returns the view of a queue of this many packets at pi-pd's bottleneck.
    pub fn view(packets: u32) -> QueueView {
        QueueView::busy(packets, 1000, 800, site().rate)
    }

    /// Returns an arriving TCP packet that is not ECN-capable.
    pub const fn packet(bytes: u32) -> PacketMeta {
        PacketMeta {
            flow: 0,
            bytes,
            ecn: Ecn::NotEct,
            signal: Signal::Drop,
            tcp: true,
            sojourn: Span::ZERO,
        }
    }

    /// Returns the output of a controller for a sample of this queue.
    pub fn sampled(controller: &mut impl Controller, q: &QueueView) -> f64 {
        controller.sample(&Sample { now: Time::ZERO, q })
    }

    /// Returns the state variable `name` of a law.
    pub fn probed(law: &dyn Law, name: &str) -> f64 {
        let mut probe = None;
        law.probe(&mut |key, value| {
            if key == name {
                probe = Some(value);
            }
        });
        probe.unwrap_or_else(|| panic!("no probe {name}"))
    }

    /// A period of Poisson arrivals.
    #[derive(Clone, Debug)]
    pub struct Phase {
        /// The arrival rate over the rate at which the link can send.
        pub load: f64,
        /// The length of the period in milliseconds.
        pub ms: u64,
        /// The fraction of packets that are ECN-capable.
        pub ect: f64,
    }

    /// Generates up to seven periods of arrivals.
    pub fn phases() -> impl proptest::strategy::Strategy<Value = Vec<Phase>> {
        use proptest::prelude::*;
        let ect = prop_oneof![Just(0.0), Just(1.0), 0.0..1.0f64];
        let phase = (0.0..2.5f64, 1u64..3000, ect);
        proptest::collection::vec(
            phase.prop_map(|(load, ms, ect)| Phase { load, ms, ect }),
            1..8,
        )
    }

    /// An event at a queue.
    #[derive(Clone, Copy, Debug)]
    pub enum Event {
        /// A packet arrives.
        Arrival { bytes: u32, ect: bool },
        /// The link asks for a packet.
        Service,
    }

    /// Returns the events, with times in nanoseconds, at a link that asks for a packet every 800 us.
    /// Nine of ten arrivals have the full packet size.
    pub fn load(seed: u64, phases: &[Phase]) -> Vec<(u64, Event)> {
        let mut rng = Rng::new(seed, "load");
        let mut events = Vec::new();
        let mut start = 0;
        for phase in phases {
            let end = start + phase.ms * 1_000_000;
            let mut at = start as f64;
            loop {
                at += rng.exponential(800_000.0 / phase.load.max(1e-6));
                if at >= end as f64 {
                    break;
                }
                let bytes = if rng.chance(0.9) { 1500 } else { 90 };
                let ect = rng.chance(phase.ect);
                events.push((at as u64, Event::Arrival { bytes, ect }));
            }
            start = end;
        }
        let services = (1..start / 800_000).map(|k| (800_000 * k, Event::Service));
        events.extend(services);
        events.sort_by_key(|(at, _)| *at);
        events
    }
}
