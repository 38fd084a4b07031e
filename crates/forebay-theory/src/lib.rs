//! Linear control theory of TCP, a queue and its AQM law: operating points, linear models,
//! equilibria, design rules, search spaces for tuning, and exact stability.
//!
//! The crate is about numbers only. The laws are in `forebay-aqm`, which states the linear model
//! and the design rule of each law in the types of this crate:
//!
//! - [`linear::OperatingPoint`] is the point around which TCP and a queue are linearised: N flows
//!   with round-trip time R on a link of capacity C. [`linear::LoopFilter`] is the linear model of
//!   a law there, from queue length to signal probability.
//! - [`design::LinearLaw`] is the trait of a law with a linear model or a design rule.
//! - [`equilibrium::settle`] finds the equilibrium of flows under a law. [`window_law::WindowLaw`]
//!   is how a sender's window responds to signals.
//! - [`search::Search`] is the space in which a law is tuned.
//! - `frequency_response`, `stability` and `time_response` analyse whole loops.
//!
//! # Example
//!
//! The plant of pi-pd's Example 1:
//!
//! ```
//! use forebay_theory::linear::OperatingPoint;
//!
//! // 60 flows with a round-trip time of 246.7 ms on a link of 3750 packets/s.
//! let point = OperatingPoint::of_flows(60.0, 0.2467, 3750.0);
//! assert!((point.tcp_pole() - 0.526).abs() < 1e-3);
//! assert!((point.queue_pole() - 4.054).abs() < 1e-3);
//! assert!((point.probability() - 8.41e-3).abs() < 1e-5);
//! ```
//!
//! # Where to start reading
//!
//! `linear.rs` has the models, `equilibrium.rs` the equilibrium; `laws/pi.rs` in `forebay-aqm` is a
//! short law with both.
//!
//! # Features
//! `loops` (default): frequency and time responses of whole loops, and their stability, with the
//! complex numbers of `num-complex`. Without it, the crate has no dependency outside Forebay.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod averaging;
pub mod design;
pub mod equilibrium;
#[cfg(feature = "loops")]
pub mod frequency_response;
pub mod linear;
#[cfg(feature = "loops")]
pub mod saturated;
pub mod search;
pub mod self_tuning;
#[cfg(feature = "loops")]
pub mod stability;
#[cfg(feature = "loops")]
pub mod time_response;
pub mod window_law;

#[cfg(feature = "loops")]
pub use num_complex::Complex64;

/// Assertions that the tests of this crate share.
#[cfg(test)]
mod assertions {
    /// Panics unless `actual` is within the fraction `tolerance` of `expected`; an expected zero
    /// must be met within `tolerance` itself.
    #[track_caller]
    pub fn close(actual: f64, expected: f64, tolerance: f64) {
        let scale = if expected == 0.0 { 1.0 } else { expected.abs() };
        assert!(
            (actual - expected).abs() <= tolerance * scale,
            "{actual} is not {expected} within {tolerance:e}"
        );
    }
}
