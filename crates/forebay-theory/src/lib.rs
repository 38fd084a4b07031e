//! Linear loops of TCP, queue and law, once `forebay-core` has said where flows settle and what the law
//! is there.
//!
//! Numbers in, numbers out: which loop they are of is said in `python/forebay/control`.

#![forbid(unsafe_code)]

pub mod frequency_response;
pub mod saturated;
pub mod stability;
pub mod time_response;

pub use num_complex::Complex64;
