//! Every law and every queue of the registries, for programs in C: `include/forebay.h` says what the
//! functions do, and docs/reference/capi.md how to build with them.
//!
//! [`queue`] is the interface in safe Rust; [`ffi`] puts it behind pointers, and lets no panic out.
//! [`network`] does the same for the network of `forebay-net`.

pub mod ffi;
pub mod network;
pub mod queue;
