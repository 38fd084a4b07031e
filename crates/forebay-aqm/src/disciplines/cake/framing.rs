//! The size of a packet on a link layer that sends cells or code words (`cake_calc_overhead`).

use forebay_units::words;

words! {
    /// The link layer's framing.
    pub enum Framing {
        None = "none",
        Atm = "atm",
        Ptm = "ptm",
    }
}

impl Framing {
    /// Returns the bytes on the wire for a packet of `bytes`: cells of 53 bytes that carry 48 (ATM), or
    /// one more byte for each 64 begun (PTM).
    pub fn bytes(self, bytes: u32) -> u32 {
        match self {
            Framing::None => bytes,
            Framing::Atm => bytes.div_ceil(48).saturating_mul(53),
            Framing::Ptm => bytes.saturating_add(bytes.div_ceil(64)),
        }
    }
}
