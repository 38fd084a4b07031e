//! The fluid model of TCP and AQM, integrated around the real law object.
//!
//! Misra, Gong and Towsley (2000), as linearised in pi-pd eq. (1) and staqm section II: for a
//! class i of N_i flows with window W_i over bottlenecks v of queue q_v, capacity C_v,
//!
//! ```text
//! R_i(t)  = T_i + Σ_v q_v(t)/C_v                      x_i = W_i/R_i   (packets/s of one flow)
//! dW_i/dt = 1/R_i(t) − (W_i(t)/2)·x_i(t − R_i)·p_i(t − R_i)
//! dq_v/dt = Σ_i N_i·x_i − C_v                         within 0 ≤ q_v ≤ B_v
//! ```
//!
//! with p_i the probability that one of the queues on the way signals. The model leaves timeouts
//! and slow start out. Beyond the paper: a signal that drops keeps its packets out of the queue;
//! the packets that leave a queue reach the next one; delayed ACKs halve the growth; and
//! [`Windows::Sawtooth`] describes windows more closely, on the clock of their ACKs. Other senders
//! than Reno have equations of their own for W ([`Sender`]).
//!
//! The law is the object that the packet simulator runs. It gets the calls a FIFO queue would
//! make, one for each packet of the fluid ([`port`]), on its own clock, and the model reads its
//! [`intensity`](forebay_aqm::FluidLaw::intensity); for a law that has none it counts verdicts.

#![forbid(unsafe_code)]
#![deny(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]

mod history;
mod integrate;
mod model;
mod observed;
mod port;
mod scenario;
mod senders;
mod step;
mod system;
mod trace;

pub use integrate::{run, run_while};
pub use model::{Bottleneck, Change, Class, Model, What};
pub use observed::observed;
pub use scenario::from_scenario;
pub use senders::{Reduction, Sender, WindowControl, Windows, SPREAD};
pub use step::Step;
pub use trace::{halving, Halving, Passage, Trace};
