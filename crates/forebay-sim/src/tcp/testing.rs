//! Helpers of the senders' tests: a configuration, and functions that build ACKs and indications of
//! congestion.

use forebay_aqm::Ecn;
use forebay_units::{Span, Time};

use super::congestion::{AckSample, CongestionControl, CongestionEvent, Growth, Indication};
use super::connection::{Ack, Config};
use super::receiver::AckPolicy;

/// A millisecond.
pub const MS: Span = Span::from_millis(1);

/// Returns the time `span` after the start.
pub fn at(span: Span) -> Time {
    Time::ZERO + span
}

/// Returns the configuration of a Linux sender with packets of 1500 bytes.
pub fn config() -> Config {
    Config {
        payload_bytes: 1448,
        window_pkts: 1000,
        initial_window_pkts: 10,
        min_rto: 200 * MS,
        ect: Ecn::Ect0,
        counts_marks: false,
        pacing: false,
        gso: true,
        limited_transmit: true,
        acks: AckPolicy {
            delayed: true,
            delay: 40 * MS,
            quick: 0,
            counts_marks: false,
            echoes_changes: false,
        },
        sack: true,
        ns2_reset: false,
    }
}

/// Returns an ACK without marks.
pub fn ack(next: u32, blocks: &[(u32, u32)]) -> Ack<'_> {
    Ack {
        next,
        ece: false,
        ce_pkts: 0,
        blocks,
    }
}

/// Returns an ACK that reports packets, with a round-trip time that equals the smoothed one.
pub fn ack_sample(now: Time, rtt: Span, delivered_pkts: u32, ce_pkts: u32) -> AckSample {
    AckSample {
        now,
        una: 0,
        next: 0,
        rtt: Some(rtt),
        srtt: rtt,
        delivered_pkts,
        ce_pkts,
    }
}

/// Lets the window grow for delivered packets.
pub fn grow(congestion: &mut impl CongestionControl, now: Time, acked_pkts: u32, srtt: Span) {
    congestion.grow(&Growth {
        now,
        acked_pkts,
        srtt,
    });
}

/// Returns the window in packets to which an indication of congestion reduces the present one.
pub fn reduced(congestion: &mut impl CongestionControl, indication: Indication) -> f64 {
    let in_use_pkts = congestion.cwnd();
    congestion.on_congestion_event(&CongestionEvent {
        indication,
        in_use_pkts,
    })
}
