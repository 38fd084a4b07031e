//! The ACK filter (`cake_ack_filter`): on a slow reverse path it drops ACKs that a later ACK makes
//! redundant.

use forebay_units::words;

use crate::band::Band;
use crate::discipline::{Ack, Packet};

words! {
    /// The choice of ACKs that are dropped.
    pub enum AckFilter {
        Off = "off",
        Filter = "filter",
        Aggressive = "aggressive",
    }
}

impl AckFilter {
    /// Returns the position of an ACK that the newest packet of `band` makes redundant.
    ///
    /// The filter drops the older of two redundant pure ACKs of a flow, so that one remains to clock
    /// the sender. The aggressive filter also drops a single redundant ACK directly in front of the
    /// newest packet. An ACK that reports a change of the ECN flags is kept.
    pub fn redundant<P: Packet>(self, band: &Band<P>) -> Option<usize> {
        if self == AckFilter::Off {
            return None;
        }
        let last = band.len_packets().checked_sub(1)? as usize;
        let newest = band.packet(last)?;
        let trigger = newest.ack()?;
        // The position and the ECN flags of the oldest redundant ACK so far.
        let mut oldest: Option<(usize, u8)> = None;
        for position in 0..last {
            let packet = band.packet(position)?;
            let Some(ack) = packet.ack().filter(|_| packet.flow() == newest.flow()) else {
                continue;
            };
            if oldest.is_some_and(|(_, ecn)| ecn != ack.ecn) {
                oldest = None;
            }
            if !is_covered(ack, trigger) {
                continue;
            }
            match oldest {
                Some((first, _)) => return Some(first),
                None => oldest = Some((position, ack.ecn)),
            }
        }
        let (position, ecn) = oldest?;
        let adjacent = position + 1 == last && ecn == trigger.ecn;
        (self == AckFilter::Aggressive && adjacent).then_some(position)
    }
}

/// Returns true if `later` carries all information of `ack`, and more. The contents of SACK blocks
/// are not visible, so an ACK with SACK blocks is never covered.
fn is_covered(ack: Ack, later: Ack) -> bool {
    // Sequence numbers are compared modulo 2^32 (RFC 9293 section 3.4).
    let ahead = later.number.wrapping_sub(ack.number);
    ack.bare && ahead < 1 << 31 && (ahead > 0 || later.sacks)
}
