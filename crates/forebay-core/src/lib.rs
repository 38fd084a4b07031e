//! AQM laws and queue disciplines.
//!
//! The crate has no clock, no I/O and no dependency: time, randomness and the state of the
//! queue are arguments, so the same law object runs in virtual time, in real time and inside
//! a fluid model.
//!
//! A [`Law`](law::Law) judges a packet; a [`Discipline`](discipline::Discipline) holds the
//! packets and acts on the verdict.

pub mod difference;
pub mod discipline;
pub mod estimator;
pub mod law;
pub mod laws;
pub mod linear;
pub mod param;
pub mod periodic;
pub mod rng;
pub mod self_tuning;
pub mod tuner;
pub mod units;
pub mod virtual_queue;

pub use discipline::{Discipline, Drop, Packet, Sink};
pub use law::{Ecn, Law, LawSpec, PacketMeta, QueueView, Site, Verdict};
pub use param::{ParamError, ParamSpec, Params, Value};
pub use rng::Rng;
pub use units::{Bytes, Packets, Rate, Span, Time};
