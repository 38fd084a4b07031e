//! What a packet takes of a link that sends cells.

use forebay_units::words;

words! {
    /// What a link layer makes of a packet.
    pub enum Framing {
        None = "none",
        Atm = "atm",
        Ptm = "ptm",
    }
}

impl Framing {
    pub fn bytes(self, bytes: u32) -> u32 {
        match self {
            Framing::None => bytes,
            Framing::Atm => bytes.div_ceil(48).saturating_mul(53),
            Framing::Ptm => bytes.saturating_add(bytes.div_ceil(64)),
        }
    }
}
