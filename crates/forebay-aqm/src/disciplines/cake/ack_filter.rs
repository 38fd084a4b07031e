//! ACKs that a later one makes useless (`cake_ack_filter`): on a slow way back they take room that
//! nothing is gained by.

use forebay_units::words;

use crate::band::Band;
use crate::discipline::{Ack, Packet};

words! {
    /// Which ACKs are dropped.
    pub enum AckFilter {
        Off = "off",
        Filter = "filter",
        Aggressive = "aggressive",
    }
}

impl AckFilter {
    /// The place of the ACK that the newest packet of `band` makes useless.
    ///
    /// Of a flow's bare ACKs the second oldest stays, so that its sender's clock goes on; the
    /// aggressive filter also drops the only one, where the newest stands right behind it. A change
    /// of ECN's flags is news, and no ACK that tells of it goes.
    pub fn useless<P: Packet>(self, band: &Band<P>) -> Option<usize> {
        if self == AckFilter::Off {
            return None;
        }
        let last = band.len_packets().checked_sub(1)? as usize;
        let newest = band.packet(last)?;
        let trigger = newest.ack()?;
        let mut found: Option<(usize, u8)> = None;
        for place in 0..last {
            let packet = band.packet(place)?;
            let Some(ack) = packet.ack().filter(|_| packet.flow() == newest.flow()) else {
                continue;
            };
            if found.is_some_and(|(_, ecn)| ecn != ack.ecn) {
                found = None;
            }
            if !is_covered(ack, trigger) {
                continue;
            }
            match found {
                Some((first, _)) => return Some(first),
                None => found = Some((place, ack.ecn)),
            }
        }
        let (only, ecn) = found?;
        let next = only + 1 == last && ecn == trigger.ecn;
        (self == AckFilter::Aggressive && next).then_some(only)
    }
}

/// Whether `later` says all that `ack` does, and more. SACK blocks themselves are not seen, so an
/// ACK that has some stays.
fn is_covered(ack: Ack, later: Ack) -> bool {
    // In the arithmetic of sequence numbers (RFC 9293 section 3.4).
    let ahead = later.number.wrapping_sub(ack.number);
    ack.bare && ahead < 1 << 31 && (ahead > 0 || later.sacks)
}
