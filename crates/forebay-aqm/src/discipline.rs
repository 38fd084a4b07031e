//! Queue disciplines: they hold packets, act on a law's verdicts and report what they did.

use std::sync::Arc;

pub use forebay_units::{Buffer, QueueSite};

use forebay_linux_tc::{Tc, TcSite};
use forebay_units::{
    ParamError, ParamSpec, ParamValues, Params, Rate, Rng, SetPoint, Site, Span, Time, Value,
};

use crate::law::{Ecn, Law};

/// A mix of all bits, to deal flows over queues (the finalizer of MurmurHash3, Appleby 2011).
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

/// What a discipline needs of a packet, simulated or real: a small plain value. The bytes of a real
/// packet lie elsewhere.
pub trait Packet: Copy {
    /// Returns the size of the packet.
    fn bytes(&self) -> u32;
    /// Tells flows apart: packets of one flow have the same number, and no two flows that meet
    /// at a queue share one, but for the chance of a hash of 64 bits.
    fn flow(&self) -> u64;
    /// Returns the ECN field.
    fn ecn(&self) -> Ecn;
    /// The differentiated services code point, 0 to 63 (RFC 2474 section 3).
    fn dscp(&self) -> u8;
    /// Tells apart the hosts that a packet comes from and goes to. Where they are not known, each
    /// flow has two of its own.
    fn hosts(&self) -> (u64, u64) {
        (self.flow(), self.flow())
    }
    /// The number of its traffic in the record of a bottleneck; none if it is not told apart.
    fn traffic(&self) -> Option<u8> {
        None
    }
    /// Whether TCP carries it.
    fn tcp(&self) -> bool {
        true
    }
    /// What it acknowledges over TCP, where that is known.
    fn ack(&self) -> Option<Ack> {
        None
    }
    /// Clears the differentiated services code point, where it can be written to.
    fn clear_dscp(&mut self) {}
    /// Sets the CE codepoint; called only on an ECN-capable packet.
    fn set_ce(&mut self);
}

/// What the TCP header of a packet with ACK, and without SYN, says (RFC 9293 section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The number expected next.
    pub number: u32,
    /// It says nothing else: no data, no flags but those of ECN, no options.
    pub bare: bool,
    /// It has SACK blocks.
    pub sacks: bool,
    /// ECE and CWR, in any coding that tells values apart.
    pub ecn: u8,
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The law signalled congestion on a packet that cannot carry a mark.
    Early,
    /// The law dropped it outright, or the discipline did, for want of use.
    Forced,
    /// The buffer was full.
    Overflow,
}

/// Takes what a discipline gives up. `class` is that of [`Departure::class`].
pub trait Sink<P> {
    /// A packet was dropped, for this reason.
    fn dropped(&mut self, now: Time, packet: P, why: DropReason, class: u8);
    /// CE was set on a packet, which stays in the queue or leaves.
    fn marked(&mut self, now: Time, packet: &P, class: u8);
}

/// A packet that leaves for the link.
#[derive(Debug)]
pub struct Departure<P> {
    /// The packet, with CE where the discipline marked it.
    pub packet: P,
    /// Time in the queue.
    pub sojourn: Span,
    /// Which of the discipline's classes it was in, from 0; a discipline without classes has
    /// one.
    pub class: u8,
}

/// What a discipline answers to a link that is free.
#[derive(Debug)]
pub enum Dequeued<P> {
    /// The next packet for the link.
    Packet(Departure<P>),
    /// There is no packet: the link goes idle until one arrives.
    Idle,
    /// There are packets, and none may go before this time, which lies ahead; the link asks
    /// again then, or when a packet arrives.
    Wait(Time),
}

impl<P> Dequeued<P> {
    /// The departure, if a packet leaves.
    pub fn packet(self) -> Option<Departure<P>> {
        match self {
            Dequeued::Packet(departure) => Some(departure),
            Dequeued::Idle | Dequeued::Wait(_) => None,
        }
    }
}

/// A queue under an AQM law. Every packet given to it comes back exactly once: by `dequeue`,
/// by `drain` or through the sink.
pub trait Discipline<P: Packet>: Send {
    /// Takes an arrival; what it costs goes to the sink.
    fn enqueue(&mut self, now: Time, packet: P, sink: &mut dyn Sink<P>);
    /// The next packet for the link.
    fn dequeue(&mut self, now: Time, sink: &mut dyn Sink<P>) -> Dequeued<P>;

    /// Whether it is the shaper of its link, where that saves tokens: what it lets go is out at once,
    /// as from Linux's CAKE.
    fn shapes(&self) -> bool {
        false
    }

    /// Gives up every packet unjudged, in the order in which they would leave: another discipline
    /// takes over.
    fn drain(&mut self, give: &mut dyn FnMut(P));

    /// When the law wants `handle_timeout`, if it keeps a clock.
    fn poll_timeout(&self) -> Option<Time>;
    /// Runs the clocks of the laws that are due.
    fn handle_timeout(&mut self, now: Time);

    /// Returns the backlog in packets, without the packet being sent.
    fn len_packets(&self) -> u32;
    /// Returns the backlog in bytes, without the packet being sent.
    fn len_bytes(&self) -> u64;

    /// Tells the discipline the rate of the link it feeds.
    fn set_rate(&mut self, rate: Rate);
    /// Changes how much the queue can hold.
    fn set_buffer(&mut self, buffer: Buffer);

    /// As [`crate::Law::set_point`], for every law in it; whether all of them can.
    fn set_point(&mut self, set_point: SetPoint) -> bool;

    /// Named inner values of the law.
    fn probe(&self, out: &mut dyn FnMut(&'static str, f64));

    /// Names of its classes, by [`Departure::class`]; empty where it tells no classes apart.
    fn classes(&self) -> &'static [&'static str] {
        &[]
    }
}

/// Builds one law for a site, with its seed.
pub type MakeLaw = dyn Fn(&Site, u64) -> Result<Box<dyn Law>, ParamError> + Send + Sync;

/// Makes the laws of one queue: one, a few, or one for each flow as flows come. Each has a
/// random stream of its own, which depends on the seed and the order of the laws alone.
#[derive(Clone)]
pub struct LawFactory {
    make: Arc<MakeLaw>,
    seed: u64,
    stream: String,
    made: u32,
    site: Option<Site>,
}

impl LawFactory {
    /// The first law draws from the stream named `stream`, and law n + 1 from `stream/n`.
    pub fn new(make: Arc<MakeLaw>, seed: u64, stream: &str) -> LawFactory {
        LawFactory {
            make,
            seed,
            stream: stream.to_owned(),
            made: 0,
            site: None,
        }
    }

    /// A random number of the queue's own, the same for the same seed, such as for a hash.
    pub fn salt(&self) -> u64 {
        Rng::new(self.seed, &format!("{}/salt", self.stream)).next_u64()
    }

    /// The next law and its stream. All laws are built for the site of the first, where the
    /// parameters were checked; the view of the queue tells a rate that has moved since.
    ///
    /// # Errors
    /// A parameter that does not fit the others or the site.
    pub fn build(&mut self, site: &Site) -> Result<(Box<dyn Law>, Rng), ParamError> {
        let rng = match self.made {
            0 => Rng::new(self.seed, &self.stream),
            n => Rng::new(self.seed, &format!("{}/{n}", self.stream)),
        };
        // The seed is a number of its stream, which stays where it is.
        let seed = rng.clone().next_u64();
        let law = (self.make)(self.site.get_or_insert(*site), seed)?;
        self.made += 1;
        Ok((law, rng))
    }
}

/// Parameters that a discipline is built from.
pub trait DisciplineParams: Params + 'static {
    /// Name in scenarios and on the command line.
    const KIND: &'static str;
    const TITLE: &'static str;
    const SOURCE: &'static str;

    /// Whether flows, or hosts, have queues of their own, each under a law of its own: a set-point
    /// is then of such a queue, and the law closes a loop for each. Queues by class are none.
    fn per_flow(&self) -> bool {
        false
    }

    /// The most packets that its own parameters let it hold; `None` for those of the link's buffer.
    fn own_limit(&self) -> Option<u32> {
        None
    }

    /// An empty queue, idle since the start.
    ///
    /// # Errors
    /// A parameter of a law that does not fit the others or the queue.
    fn build<P: Packet + Send + 'static>(
        &self,
        site: &QueueSite,
        laws: LawFactory,
    ) -> Result<Box<dyn Discipline<P>>, ParamError>;

    /// Adds the queue's words to those of a law that is a qdisc of Linux in it.
    ///
    /// # Errors
    /// A parameter that the qdisc does not have.
    fn tc(&self, _tc: &mut Tc, _site: &TcSite) -> Result<(), ParamError> {
        Ok(())
    }
}

/// A discipline's entry in the registry.
#[derive(Clone, Copy)]
pub struct DisciplineSpec {
    /// Name in scenarios and on the command line.
    pub kind: &'static str,
    /// The discipline in a sentence.
    pub title: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// Its declared parameters.
    pub params: &'static [ParamSpec],
}

impl DisciplineSpec {
    /// Returns the entry of a discipline with parameters of type `D`.
    pub(crate) const fn of<D: DisciplineParams>() -> DisciplineSpec {
        DisciplineSpec {
            kind: D::KIND,
            title: D::TITLE,
            source: D::SOURCE,
            params: D::SPECS,
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::law::FluidLaw;
    use forebay_units::{Bytes, Rate};

    #[derive(Clone, Copy, Debug)]
    pub struct Packet {
        pub id: u32,
        pub came: Time,
        bytes: u32,
        dscp: u8,
    }

    /// A packet of 1000 bytes.
    pub fn packet(id: u32, dscp: u8) -> Packet {
        Packet {
            dscp,
            ..sized(id, 1000, Time::ZERO)
        }
    }

    pub fn sized(id: u32, bytes: u32, came: Time) -> Packet {
        Packet {
            id,
            came,
            bytes,
            dscp: 0,
        }
    }

    impl super::Packet for Packet {
        fn bytes(&self) -> u32 {
            self.bytes
        }
        fn flow(&self) -> u64 {
            u64::from(self.dscp)
        }
        fn ecn(&self) -> Ecn {
            Ecn::NotEct
        }
        fn dscp(&self) -> u8 {
            self.dscp
        }
        fn set_ce(&mut self) {
            unreachable!("not ECN-capable")
        }
    }

    /// What was dropped, by number.
    #[derive(Default)]
    pub struct Gone {
        pub dropped: Vec<u32>,
    }

    impl Sink<Packet> for Gone {
        fn dropped(&mut self, _: Time, packet: Packet, _: DropReason, _: u8) {
            self.dropped.push(packet.id);
        }
        fn marked(&mut self, _: Time, _: &Packet, _: u8) {}
    }

    struct Silent;

    impl Law for Silent {}

    impl FluidLaw for Silent {}

    /// A queue of this many packets, under laws that never signal.
    pub fn buffer_of(packets: u32) -> (QueueSite, LawFactory) {
        let site = QueueSite {
            rate: Rate::from_bps(30_000_000),
            buffer: Buffer::Packets(packets),
            packet: Bytes(1000),
            ecn: true,
        };
        let make = |_: &Site, _: u64| Ok(Box::new(Silent) as Box<dyn Law>);
        (site, LawFactory::new(Arc::new(make), 1, "law"))
    }
}
