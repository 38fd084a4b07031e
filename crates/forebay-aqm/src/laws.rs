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

use std::any::Any;

use forebay_units::{Rng, Time};

use crate::law::{Law, PacketMeta, QueueView, Verdict};
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

/// A law in a queue: one whose code for an arrival is compiled into the queue's, or any other.
///
/// RED reads one property of an arriving packet or none, so a dynamic call and a copy of the
/// properties would cost more than the law itself.
pub(crate) enum QueuedLaw {
    Red(Box<red::Red>),
    Other(Box<dyn Law>),
}

impl QueuedLaw {
    /// Returns `law`, recognised by its type.
    pub fn new(law: Box<dyn Law>) -> QueuedLaw {
        if !(&*law as &dyn Any).is::<red::Red>() {
            return QueuedLaw::Other(law);
        }
        let red = (law as Box<dyn Any>).downcast();
        QueuedLaw::Red(red.expect("the law is RED"))
    }

    /// Returns the law.
    pub fn get(&self) -> &(dyn Law + 'static) {
        match self {
            QueuedLaw::Red(red) => &**red,
            QueuedLaw::Other(law) => &**law,
        }
    }

    /// Returns the law, for a change.
    pub fn get_mut(&mut self) -> &mut (dyn Law + 'static) {
        match self {
            QueuedLaw::Red(red) => &mut **red,
            QueuedLaw::Other(law) => &mut **law,
        }
    }

    /// Returns [`Law::on_enqueue`] for the packet that `packet` makes.
    #[inline(always)]
    pub fn on_enqueue(
        &mut self,
        now: Time,
        queue: &QueueView,
        packet: impl FnOnce() -> PacketMeta,
        rng: &mut Rng,
    ) -> Verdict {
        match self {
            QueuedLaw::Red(red) => red.on_enqueue(now, queue, &packet(), rng),
            QueuedLaw::Other(law) => law.on_enqueue(now, queue, &packet(), rng),
        }
    }

    /// Returns [`Law::on_dequeue`] for a packet.
    #[inline(always)]
    pub fn on_dequeue(
        &mut self,
        now: Time,
        queue: &QueueView,
        packet: &PacketMeta,
        rng: &mut Rng,
    ) -> Verdict {
        match self {
            QueuedLaw::Red(red) => red.on_dequeue(now, queue, packet, rng),
            QueuedLaw::Other(law) => law.on_dequeue(now, queue, packet, rng),
        }
    }
}

#[cfg(test)]
pub(crate) mod recorded;

#[cfg(test)]
pub(crate) mod testing {
    use crate::law::{Ecn, Law, PacketMeta, QueueView, Signal};
    use crate::periodic::{Controller, Sample};
    use forebay_units::{Bytes, Rate, Site, Span, Time};

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
}
