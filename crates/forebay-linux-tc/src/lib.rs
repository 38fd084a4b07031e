//! AQM laws in Linux's terms: the syntax and the limits of tc(8), and arithmetic in fixed point for
//! laws that run in the kernel as BPF.

#![forbid(unsafe_code)]

pub mod fixed_point;
mod tc;

pub use tc::{LinuxQdisc, Rounded, Tc, TcSite};
