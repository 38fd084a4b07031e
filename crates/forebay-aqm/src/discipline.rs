//! Queue disciplines: they hold packets, carry out a law's verdicts and report marks and drops.

use std::sync::Arc;

pub use forebay_units::{Buffer, QueueSite};

use forebay_linux_tc::{Tc, TcSite};
use forebay_units::{ParamError, ParamSpec, Params, Rate, Rng, SetPoint, Site, Span, Time};

use crate::law::{Ecn, Law};

/// Returns a hash that depends on every bit of `x`, for distributing flows over queues (the
/// finalizer of MurmurHash3, Appleby 2011).
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

/// The properties of a packet that a discipline needs. An implementation is a small plain value;
/// the bytes of a real packet are kept elsewhere.
pub trait Packet: Copy {
    /// Returns the size of the packet in bytes.
    fn bytes(&self) -> u32;
    /// Returns the identifier of the flow. All packets of a flow have the same one. Two flows at
    /// the same queue have different ones, apart from collisions of a 64-bit hash.
    fn flow(&self) -> u64;
    /// Returns the ECN field.
    fn ecn(&self) -> Ecn;
    /// Returns the differentiated services code point, 0 to 63 (RFC 2474 section 3).
    fn dscp(&self) -> u8;
    /// Returns identifiers of the source and the destination host. By default every flow counts as
    /// a pair of hosts of its own.
    fn hosts(&self) -> (u64, u64) {
        (self.flow(), self.flow())
    }
    /// Returns the traffic class under which the packet is recorded at a bottleneck; `None` if it
    /// is not recorded per class.
    fn traffic(&self) -> Option<u8> {
        None
    }
    /// Returns true if the packet belongs to TCP.
    fn tcp(&self) -> bool {
        true
    }
    /// Returns the packet's TCP acknowledgement; `None` if it has none, or if it is not known.
    fn ack(&self) -> Option<Ack> {
        None
    }
    /// Sets the differentiated services code point to zero, if the packet can be changed.
    fn clear_dscp(&mut self) {}
    /// Sets the CE codepoint. Called only for an ECN-capable packet.
    fn set_ce(&mut self);
}

/// The acknowledgement in the header of a TCP segment with ACK and without SYN (RFC 9293 section
/// 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The acknowledgement number: the next sequence number that the receiver expects.
    pub number: u32,
    /// True for a pure ACK: no data, no flags except those of ECN, no options.
    pub bare: bool,
    /// True if the segment has SACK blocks.
    pub sacks: bool,
    /// The flags ECE and CWR, in any encoding in which different flags have different values.
    pub ecn: u8,
}

/// The reason for which a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The law signalled congestion, and the packet could not be marked.
    Early,
    /// The law dropped the packet whatever its ECN field, or the discipline dropped it as useless.
    Forced,
    /// The buffer was full.
    Overflow,
}

/// Receives the drops and marks of a discipline. `class` is numbered as in [`Departure::class`].
pub trait Sink<P> {
    /// Receives a packet that was dropped for this reason.
    fn dropped(&mut self, now: Time, packet: P, reason: DropReason, class: u8);
    /// Is informed that CE was set on a packet, which stays in the queue or leaves it.
    fn marked(&mut self, now: Time, packet: &P, class: u8);
}

/// A packet that leaves the queue for the link.
#[derive(Debug)]
pub struct Departure<P> {
    /// The packet, with CE set if the discipline marked it.
    pub packet: P,
    /// The time that the packet spent in the queue.
    pub sojourn: Span,
    /// The packet's class among [`Discipline::classes`], from 0; 0 in a discipline without classes.
    pub class: u8,
}

/// The answer of a discipline to a link that is free to send.
#[derive(Debug)]
pub enum Dequeued<P> {
    /// The next packet for the link.
    Packet(Departure<P>),
    /// The queue is empty: the link is idle until a packet arrives.
    Idle,
    /// The queue holds packets, and none may leave before this time, which lies in the future. The
    /// link asks again at that time, or when a packet arrives.
    Wait(Time),
}

impl<P> Dequeued<P> {
    /// Returns the departure; `None` if no packet leaves.
    pub fn packet(self) -> Option<Departure<P>> {
        match self {
            Dequeued::Packet(departure) => Some(departure),
            Dequeued::Idle | Dequeued::Wait(_) => None,
        }
    }
}

/// A queue under an AQM law. Every packet that is enqueued comes back exactly once: from `dequeue`,
/// from `drain`, or as a drop through the sink.
pub trait Discipline<P: Packet>: Send {
    /// Enqueues an arrival. Packets that are dropped or marked for it are reported to the sink.
    fn enqueue(&mut self, now: Time, packet: P, sink: &mut dyn Sink<P>);
    /// Returns the next packet for the link. Packets dropped or marked on the way are reported to
    /// the sink.
    fn dequeue(&mut self, now: Time, sink: &mut dyn Sink<P>) -> Dequeued<P>;

    /// Returns true if the discipline can shape in place of a link with a token bucket, as Linux's
    /// CAKE does: a packet that it releases is on the wire at once.
    fn shapes(&self) -> bool {
        false
    }

    /// Hands every packet to `give` without asking a law, in the order in which they would leave,
    /// so that another discipline can take over.
    fn drain(&mut self, give: &mut dyn FnMut(P));

    /// Returns when `handle_timeout` must be called next; `None` if no law keeps a clock.
    fn poll_timeout(&self) -> Option<Time>;
    /// Runs the clocks of the laws that are due.
    fn handle_timeout(&mut self, now: Time);

    /// Returns the backlog in packets, not counting the packet in transmission.
    fn len_packets(&self) -> u32;
    /// Returns the backlog in bytes, not counting the packet in transmission.
    fn len_bytes(&self) -> u64;

    /// Sets the rate of the link that the queue feeds.
    fn set_rate(&mut self, rate: Rate);
    /// Sets the size of the buffer. A smaller buffer drops nothing that is queued already.
    fn set_buffer(&mut self, buffer: Buffer);

    /// Moves the set-point of every law in the queue. Returns false if one of them cannot.
    fn set_point(&mut self, set_point: SetPoint) -> bool;

    /// Reports state variables of the discipline and its law by name.
    fn probe(&self, out: &mut dyn FnMut(&'static str, f64));

    /// Returns the names of the classes that [`Departure::class`] numbers; empty if there is only
    /// one class.
    fn classes(&self) -> &'static [&'static str] {
        &[]
    }
}

/// A function that builds one law for a site, with a seed.
pub type MakeLaw = dyn Fn(&Site, u64) -> Result<Box<dyn Law>, ParamError> + Send + Sync;

/// Builds the laws of one queue: one, a few, or one for each flow when it arrives. Each law has a
/// random stream that depends only on the seed and on the order in which the laws are built.
#[derive(Clone)]
pub struct LawFactory {
    make: Arc<MakeLaw>,
    seed: u64,
    stream: String,
    /// The number of laws built so far.
    built: u32,
    /// The site of the first law.
    site: Option<Site>,
}

impl LawFactory {
    /// Creates a factory. The first law draws from the stream named `stream`, and law n + 1 from
    /// `stream/n`.
    pub fn new(make: Arc<MakeLaw>, seed: u64, stream: &str) -> LawFactory {
        LawFactory {
            make,
            seed,
            stream: stream.to_owned(),
            built: 0,
            site: None,
        }
    }

    /// Returns a random number for the queue itself, for example to perturb a hash. It depends only
    /// on the seed.
    pub fn salt(&self) -> u64 {
        Rng::new(self.seed, &format!("{}/salt", self.stream)).next_u64()
    }

    /// Builds the next law and its random stream. All laws are built for the site of the first, for
    /// which the parameters were checked; a rate that has changed since is in the law's view.
    ///
    /// # Errors
    /// If a parameter is inconsistent with the others or with the site.
    pub fn build(&mut self, site: &Site) -> Result<(Box<dyn Law>, Rng), ParamError> {
        let rng = match self.built {
            0 => Rng::new(self.seed, &self.stream),
            n => Rng::new(self.seed, &format!("{}/{n}", self.stream)),
        };
        // The law's seed is drawn from a copy of the stream, which itself does not advance.
        let seed = rng.clone().next_u64();
        let law = (self.make)(self.site.get_or_insert(*site), seed)?;
        self.built += 1;
        Ok((law, rng))
    }
}

/// The parameters from which a discipline is built.
pub trait DisciplineParams: Params + 'static {
    /// Name in scenarios and on the command line.
    const KIND: &'static str;
    /// The discipline in a sentence.
    const TITLE: &'static str;
    /// The publication that describes the discipline.
    const SOURCE: &'static str;

    /// Returns true if every flow (or host) has a queue and a law of its own. A set-point then
    /// refers to one of these queues, and every law closes a loop of its own. Queues per class do
    /// not count.
    fn per_flow(&self) -> bool {
        false
    }

    /// Returns the buffer limit in packets that the parameters set; `None` if the link's buffer
    /// applies.
    fn own_limit(&self) -> Option<u32> {
        None
    }

    /// Builds an empty queue, idle since time zero.
    ///
    /// # Errors
    /// If a parameter of a law is inconsistent with the others or with the queue.
    fn build<P: Packet + Send + 'static>(
        &self,
        site: &QueueSite,
        laws: LawFactory,
    ) -> Result<Box<dyn Discipline<P>>, ParamError>;

    /// Adds the discipline's arguments to the tc(8) line of a law that is a Linux qdisc in it.
    ///
    /// # Errors
    /// If the qdisc does not have a parameter.
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
    /// The publication that describes the discipline.
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

    /// A packet that is not ECN-capable. Its flow is its DSCP.
    #[derive(Clone, Copy, Debug)]
    pub struct Packet {
        pub id: u32,
        pub arrived: Time,
        bytes: u32,
        dscp: u8,
    }

    /// Returns a packet of 1000 bytes.
    pub fn packet(id: u32, dscp: u8) -> Packet {
        Packet {
            dscp,
            ..sized(id, 1000, Time::ZERO)
        }
    }

    pub fn sized(id: u32, bytes: u32, arrived: Time) -> Packet {
        Packet {
            id,
            arrived,
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

    /// Records the numbers of dropped packets.
    #[derive(Default)]
    pub struct Drops {
        pub dropped: Vec<u32>,
    }

    impl Sink<Packet> for Drops {
        fn dropped(&mut self, _: Time, packet: Packet, _: DropReason, _: u8) {
            self.dropped.push(packet.id);
        }
        fn marked(&mut self, _: Time, _: &Packet, _: u8) {}
    }

    struct Silent;

    impl Law for Silent {}

    impl FluidLaw for Silent {}

    /// Returns a queue for this many packets, and laws that never signal.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// MurmurHash3's fmix64, computed with Python's integers.
    #[test]
    fn the_hash_is_the_finalizer_of_murmur_hash_3() {
        for (x, hash) in [
            (0, 0),
            (1, 0xb456_bcfc_34c2_cb2c),
            (0x0123_4567_89ab_cdef, 0x87cb_fbfe_8902_2cea),
            (u64::MAX, 0x64b5_720b_4b82_5f21),
        ] {
            assert_eq!(mix(x), hash, "{x:x}");
        }
    }
}
