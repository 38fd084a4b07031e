//! Linear control theory of TCP, a queue and its law: operating points, linear models, equilibria,
//! search spaces for tuning, and exact stability.
//!
//! Numbers in, numbers out. The laws themselves are in `forebay-aqm`, which states the linear model
//! and the design rule of each in the types of this crate.
//!
//! # Features
//! `loops` (default): frequency and time responses of whole loops, and their stability, with the
//! complex numbers of `num-complex`. Without it the crate has no dependency outside Forebay.

#![forbid(unsafe_code)]

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
