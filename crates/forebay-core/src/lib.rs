//! AQM laws and queue disciplines.
//!
//! The crate has no clock, no I/O and no dependency: time, randomness and the state of the
//! queue are arguments, so the same law object runs in virtual time, in real time and inside
//! a fluid model.
//!
//! A [`Law`](law::Law) judges a packet; a [`Discipline`](discipline::Discipline) holds the
//! packets and acts on the verdict.

#![forbid(unsafe_code)]

pub mod averaging;
pub mod band;
pub mod bands;
pub mod cast;
pub mod clock;
pub mod difference;
pub mod discipline;
pub mod disciplines;
pub mod equilibrium;
pub mod estimator;
pub mod fixed_point;
pub mod fnv;
pub mod held_packet;
pub mod law;
pub mod law_params;
pub mod law_spec;
pub mod laws;
pub mod linear;
pub mod param;
pub mod periodic;
pub mod queue;
pub mod queue_site;
pub mod rate_trace;
pub mod ring;
pub mod rng;
pub mod search;
pub mod self_tuning;
pub mod steered;
pub mod stop;
pub mod tc;
pub mod transmitter;
pub mod tuner;
pub mod units;
pub mod virtual_queue;
pub mod window_law;

pub use discipline::{
    Buffer, Dequeued, Discipline, DisciplineSpec, Drop, LawFactory, Packet, QueueSite, Sink,
};
pub use disciplines::{Aqm, QueueChoice};
pub use held_packet::HeldPacket;
pub use law::{
    Ecn, FluidLaw, FluidStep, Law, Others, PacketMeta, QueueView, Signal, Site, TrafficClass,
    Verdict,
};
pub use law_spec::{ConfiguredLaw, LawDefinition, LawSpec};
pub use param::{ParamError, ParamSpec, Params, Value};
pub use queue::Queue;
pub use rate_trace::RateTrace;
pub use rng::Rng;
pub use stop::Stop;
pub use tc::{Tc, TcSite};
pub use transmitter::{Capacity, RateStep, Transmitter};
pub use units::{Bytes, Packets, Rate, SetPoint, Span, Time};
pub use window_law::WindowLaw;
