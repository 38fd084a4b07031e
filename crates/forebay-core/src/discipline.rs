//! Queue disciplines: they hold packets, act on a law's verdicts and report what they did.

mod fifo;

pub use fifo::{Buffer, Fifo};

use crate::law::Ecn;
use crate::units::{Rate, Span, Time};

/// What a discipline needs of a packet, simulated or real.
pub trait Packet {
    fn bytes(&self) -> u32;
    fn ecn(&self) -> Ecn;
    /// Whether TCP carries it.
    fn tcp(&self) -> bool {
        true
    }
    /// Sets the CE codepoint; called only on an ECN-capable packet.
    fn set_ce(&mut self);
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drop {
    /// The law signalled congestion on a packet that cannot carry a mark.
    Early,
    /// The law dropped it outright.
    Forced,
    /// The buffer was full.
    Overflow,
}

/// Takes what a discipline gives up.
pub trait Sink<P> {
    fn dropped(&mut self, now: Time, packet: P, why: Drop);
    fn marked(&mut self, now: Time, packet: &P);
}

/// A packet that leaves for the link.
#[derive(Debug)]
pub struct Departure<P> {
    pub packet: P,
    /// Time in the queue.
    pub sojourn: Span,
}

/// A queue under an AQM law. Every packet given to it comes back exactly once: by `dequeue`
/// or through the sink.
pub trait Discipline<P: Packet>: Send {
    fn enqueue(&mut self, now: Time, packet: P, sink: &mut dyn Sink<P>);
    /// The next packet for the link; `None` also says that the link goes idle.
    fn dequeue(&mut self, now: Time, sink: &mut dyn Sink<P>) -> Option<Departure<P>>;

    /// When the law wants `handle_timeout`, if it keeps a clock.
    fn poll_timeout(&self) -> Option<Time>;
    fn handle_timeout(&mut self, now: Time);

    /// Backlog without the packet being sent.
    fn len_packets(&self) -> u32;
    fn len_bytes(&self) -> u64;

    /// Tells the discipline the rate of the link it feeds.
    fn set_rate(&mut self, rate: Rate);
    fn set_buffer(&mut self, buffer: Buffer);

    /// As [`crate::Law::set_target`].
    fn set_target(&mut self, target_pkts: f64) -> bool;

    /// Named inner values of the law.
    fn probe(&self, out: &mut dyn FnMut(&'static str, f64));
}
