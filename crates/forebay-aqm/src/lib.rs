//! Active queue management: control laws, queue disciplines and link services.
//!
//! The crate holds what a bottleneck consists of, in three layers:
//!
//! - A [`Law`] decides about packets and holds none. Its verdict on a packet is [`Verdict::Pass`],
//!   [`Verdict::Signal`] or [`Verdict::Drop`].
//! - A [`Discipline`] holds the packets. It asks its laws for verdicts, sets CE on packets or drops
//!   them accordingly, and reports both to a [`Sink`]. A [`Queue`] is a discipline of the registry.
//! - A [`Transmitter`] computes when the link takes the next packet from a queue, and when the last
//!   bit of each packet has left, for a link of the given [`Capacity`].
//!
//! [`laws::LAWS`] and [`disciplines::DISCIPLINES`] are the registries. A [`LawSpec`] reads
//! parameters into a [`ConfiguredLaw`]; an [`Aqm`] joins it with a discipline and builds queues.
//!
//! The crate has no clock, no I/O and no dependency outside Forebay: time, random numbers and the
//! state of the queue are arguments. The same object therefore runs in virtual time, in real time
//! and inside a fluid model, and a run with the same seed repeats bit by bit.
//!
//! # Example
//!
//! CoDel on a link that is offered twice its capacity:
//!
//! ```
//! use forebay_aqm::units::{Buffer, Bytes, ParamError, QueueSite, Rate, Span, Time, Value};
//! use forebay_aqm::{laws, Aqm, DropReason, Ecn, HeldPacket, QueueChoice, Sink};
//!
//! #[derive(Default)]
//! struct Signals { marks: u32, drops: u32 }
//!
//! impl<P> Sink<P> for Signals {
//!     fn marked(&mut self, _: Time, _: &P, _class: u8) { self.marks += 1; }
//!     fn dropped(&mut self, _: Time, _: P, _why: DropReason, _class: u8) { self.drops += 1; }
//! }
//!
//! # fn main() -> Result<(), ParamError> {
//! let codel = laws::find("codel").expect("a law of the registry");
//! let law = codel.read(&[("target".into(), Value::Text("5ms".into()))])?;
//! let (rate, buffer) = (Rate::from_bps(10_000_000), Buffer::Packets(2000));
//! let site = QueueSite { rate, buffer, packet: Bytes(1500), ecn: true };
//! let mut queue = Aqm::new(law, QueueChoice::default()).build(&site, 1, "law")?;
//!
//! let (mut signals, mut sent) = (Signals::default(), Vec::new());
//! for number in 0..2000 {
//!     let now = Time::ZERO + Span::from_micros(600 * number);
//!     queue.enqueue(now, HeldPacket::new(number, 7, 1500, Ecn::Ect0), &mut signals);
//!     if number % 2 == 1 { // a packet takes the link for 1.2 ms
//!         sent.extend(queue.dequeue(now, &mut signals).packet());
//!     }
//! }
//! assert!(signals.marks > 10 && signals.drops == 0 && sent.len() == 1000);
//! # Ok(())
//! # }
//! ```
//!
//! CoDel keeps no clock. A law that does, such as PIE, changes its probability only when it is
//! called: [`poll_timeout`](Discipline::poll_timeout) returns the time at which the queue needs its
//! next call of [`handle_timeout`](Discipline::handle_timeout). A late call makes up for the missed
//! ticks, so that it is enough to compare this time with the present before each packet:
//!
//! ```
//! # use forebay_aqm::units::{Buffer, Bytes, ParamError, QueueSite, Rate, Time};
//! # use forebay_aqm::{laws, Aqm, HeldPacket, Queue, QueueChoice};
//! fn run_clocks(queue: &mut Queue<HeldPacket<u32>>, now: Time) {
//!     if queue.poll_timeout().is_some_and(|due| due <= now) {
//!         queue.handle_timeout(now);
//!     }
//! }
//! # fn main() -> Result<(), ParamError> {
//! # let pie = laws::find("pie").expect("a law of the registry").read(&[])?;
//! # let (rate, buffer) = (Rate::from_bps(10_000_000), Buffer::Packets(2000));
//! # let site = QueueSite { rate, buffer, packet: Bytes(1500), ecn: true };
//! # let mut queue = Aqm::new(pie, QueueChoice::default()).build(&site, 1, "law")?;
//! # let due = queue.poll_timeout().expect("PIE keeps a clock");
//! # run_clocks(&mut queue, due);
//! # assert!(queue.poll_timeout() > Some(due));
//! # Ok(())
//! # }
//! ```
//!
//! # Where to start reading
//!
//! `law.rs` defines what a law is; `laws/pi.rs` is a short law with a linear model, a design rule
//! and a fixed-point twin. `discipline.rs` defines what a discipline is; `band.rs` is the FIFO that
//! all disciplines are built from, and `disciplines/fq.rs` is one of them.
//!
//! # Units
//!
//! [`units`] is the crate `forebay-units`: quantities with their unit in the type, declared
//! parameters and random streams.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod band;
mod bands;
pub mod clock;
mod configured_law;
mod difference;
mod discipline;
pub mod disciplines;
mod estimator;
mod held_packet;
mod law;
mod law_driver;
mod law_spec;
pub mod laws;
mod periodic;
mod queue;
mod queue_choice;
mod rate_trace;
mod self_tuning;
mod steered;
mod transmitter;
mod tuner;
mod virtual_queue;

pub use forebay_units as units;

pub use configured_law::ConfiguredLaw;
pub use discipline::{
    Ack, Departure, Dequeued, Discipline, DisciplineSpec, DropReason, LawFactory, MakeLaw, Packet,
    Sink,
};
pub use held_packet::HeldPacket;
pub use law::{
    Ecn, FluidLaw, FluidStep, Law, OtherQueues, PacketMeta, QueueView, Signal, TrafficClass,
    Verdict,
};
pub use law_driver::LawDriver;
pub use law_spec::{LawSpec, ReadLaw};
pub use queue::Queue;
pub use queue_choice::{Aqm, QueueChoice};
pub use rate_trace::RateTrace;
pub use steered::Helm;
pub use transmitter::{Capacity, RateStep, Transmission, Transmitter};
