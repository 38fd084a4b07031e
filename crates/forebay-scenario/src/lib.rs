//! An experiment as types, read from TOML text. Opens no file and runs nothing.

pub mod model;

pub use model::*;
