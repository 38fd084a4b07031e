//! The fluid model of TCP and AQM, integrated around the real law object.
//!
//! The equations are those of Misra, Gong and Towsley (2000); equation (1) of the PI-PD paper (Ryu
//! et al.) and section II of the self-tuning paper (`forebay cite staqm`) linearise them. For a
//! class i of N_i flows with window W_i over bottlenecks v of queue q_v, capacity C_v,
//!
//! ```text
//! R_i(t)  = T_i + Σ_v q_v(t)/C_v                      x_i = W_i/R_i   (packets/s of one flow)
//! dW_i/dt = 1/R_i(t) − (W_i(t)/2)·x_i(t − R_i)·p_i(t − R_i)
//! dq_v/dt = Σ_i N_i·x_i − C_v                         within 0 ≤ q_v ≤ B_v
//! ```
//!
//! with p_i the probability that one of the queues on the way signals. The model does not include
//! timeouts and slow start. In addition to the paper: a signal that drops keeps its packets out of
//! the queue; the packets that leave a queue reach the next one; delayed ACKs halve the growth; and
//! [`Windows::Sawtooth`] describes windows more closely, on the clock of their ACKs. Senders other
//! than Reno have their own equations for W ([`Sender`]).
//!
//! The law is the object that the packet engine runs. It is called as a FIFO queue calls it, once
//! for each packet of the fluid and on its own clock (`port.rs`), and the model reads its
//! [`intensity`](forebay_aqm::Law::intensity); for a law without an intensity, the model counts
//! verdicts.
//!
//! [`from_scenario`] turns a scenario and a law into a [`Model`]; [`run`] integrates it to a
//! [`Trace`] of real numbers; and [`observed`] converts that into the
//! [`RunTrace`](forebay_trace::RunTrace) that every engine gives.
//!
//! ```
//! use forebay_fluid::{from_scenario, observed, run, Step, Windows};
//! use forebay_scenario::{parse, Options};
//! use forebay_trace::Metrics;
//!
//! let text = r#"
//! duration = "5s"
//! bottleneck = { rate = "10Mbit/s", delay = "5ms", buffer = "100p" }
//! traffic = [{ kind = "ftp", flows = 20, rtt = "40ms" }]
//! law = [{ kind = "pi", a = 1e-4, b = 9e-5, target = "40p" }]
//! "#;
//! let experiment = parse(text.as_bytes(), "example", &Options::default())?;
//! let (scenario, law) = (&experiment.points[0].scenario, &experiment.points[0].laws[0]);
//! let model = from_scenario(scenario, law, Windows::Smooth, Step::AUTO)?;
//! let trace = observed(scenario, &model, &run(&model)?);
//! println!("{} packets", Metrics::of(trace.link(0), Some(40.0)).queue_mean_pkts);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Start reading at `model.rs` for the input, then `system.rs` for the equations and `integrate.rs`
//! for the method.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
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
