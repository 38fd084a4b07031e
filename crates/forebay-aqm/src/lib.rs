//! AQM laws and queue disciplines.
//!
//! The crate has no clock, no I/O and no dependency: time, randomness and the state of the
//! queue are arguments, so the same law object runs in virtual time, in real time and inside
//! a fluid model.
//!
//! A [`Law`] judges a packet; a [`Discipline`] holds the packets and acts on the verdict.

#![forbid(unsafe_code)]

mod band;
mod bands;
pub mod clock;
mod difference;
mod discipline;
pub mod disciplines;
mod estimator;
mod held_packet;
mod law;
mod law_params;
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

pub use discipline::{
    Ack, Departure, Dequeued, Discipline, DisciplineSpec, Drop, LawFactory, MakeLaw, Packet, Sink,
};
pub use held_packet::HeldPacket;
pub use law::{
    Ecn, FluidLaw, FluidStep, Law, Others, PacketMeta, QueueView, Signal, TrafficClass, Verdict,
};
pub use law_params::{Design, DesignRequest, DesignResult, RateControl};
pub use law_spec::{ConfiguredLaw, LawDefinition, LawSpec};
pub use queue::Queue;
pub use queue_choice::{Aqm, QueueChoice};
pub use rate_trace::RateTrace;
pub use steered::Helm;
pub use transmitter::{Capacity, RateStep, Sent, Transmitter};
