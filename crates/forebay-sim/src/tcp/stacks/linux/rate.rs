//! Delivery-rate samples as in the Linux kernel (net/ipv4/tcp_rate.c;
//! draft-cheng-iccrg-delivery-rate-estimation-02), for congestion controls that use them.

use forebay_units::{Span, Time};

use super::sequence_ring::SequenceRing;
use crate::number::count_u64;
use crate::tcp::congestion::DeliveryRate;

/// The state of the connection at the time when a packet was last sent.
#[derive(Clone, Copy, Debug)]
struct Stamp {
    sent_at: Time,
    /// The time at which the first packet of its flight was sent.
    first_sent_at: Time,
    delivered_pkts: u64,
    delivered_at: Time,
    lost_pkts: u64,
    in_flight_pkts: u32,
    app_limited: bool,
}

/// The sampler of delivery rates.
///
/// A sample counts the packets that were delivered since a packet was sent. Its interval is the
/// longer one of the time in which they were sent and the time in which they were acknowledged.
#[derive(Clone, Debug, Default)]
pub struct RateSampler {
    /// Number of packets delivered so far.
    delivered_pkts: u64,
    delivered_at: Time,
    first_sent_at: Time,
    /// Samples are limited by the application until more than this number of packets is delivered.
    app_limited_until: Option<u64>,
    /// The stamps of the packets from the first unacknowledged one on.
    stamps: SequenceRing<Stamp>,
    /// The last sent packet among those that the present ACK reports.
    newest: Option<u32>,
}

impl RateSampler {
    /// Returns true if the application limits the sender.
    pub fn is_app_limited(&self) -> bool {
        self.app_limited_until.is_some()
    }

    /// Returns the number of packets delivered so far, and the time of the last delivery.
    pub fn delivered(&self) -> (u64, Time) {
        (self.delivered_pkts, self.delivered_at)
    }

    /// Takes note that a packet is sent, for the first time or again. `idle` is true if no packet
    /// is unacknowledged, and `lost_pkts` packets were lost so far.
    #[inline(always)]
    pub fn on_sent(
        &mut self,
        seq: u32,
        now: Time,
        idle: bool,
        in_flight_pkts: u32,
        lost_pkts: u64,
    ) {
        if idle {
            self.first_sent_at = now;
            self.delivered_at = now;
        }
        let stamp = Stamp {
            sent_at: now,
            first_sent_at: self.first_sent_at,
            delivered_pkts: self.delivered_pkts,
            delivered_at: self.delivered_at,
            lost_pkts,
            in_flight_pkts: in_flight_pkts + 1,
            app_limited: self.app_limited_until.is_some(),
        };
        match self.stamps.get_mut(seq) {
            Some(again) => *again = stamp,
            None => self.stamps.push(stamp),
        }
    }

    /// Takes note that the application has no more data while this many packets are in flight.
    pub fn set_app_limited(&mut self, in_flight_pkts: u32) {
        self.app_limited_until = Some(self.delivered_pkts + u64::from(in_flight_pkts));
    }

    /// Takes note that an ACK reports a packet for the first time.
    pub fn on_delivered(&mut self, seq: u32) {
        self.delivered_pkts += 1;
        let sent = |seq: u32| self.stamps.get(seq).map(|stamp| (stamp.sent_at, seq));
        if self.newest.is_none_or(|newest| sent(seq) > sent(newest)) {
            self.newest = Some(seq);
        }
    }

    /// Takes note that an ACK reports this many packets, up to `last`, for the first time and
    /// nothing else; each was sent once.
    #[inline(always)]
    pub fn on_delivered_in_order(&mut self, pkts: u32, last: u32) {
        self.delivered_pkts += u64::from(pkts);
        self.newest = Some(last);
    }

    /// Returns the sample of an ACK whose packets have been reported; `None` if it reported none,
    /// or if the interval is shorter than any round trip.
    #[inline(always)]
    pub fn sample(
        &mut self,
        una: u32,
        now: Time,
        min_rtt: Span,
        lost_pkts: u64,
    ) -> Option<DeliveryRate> {
        let limited = self.app_limited_until;
        self.app_limited_until = limited.filter(|until| self.delivered_pkts <= *until);
        let newest = self
            .newest
            .take()
            .and_then(|seq| self.stamps.get(seq))
            .copied();
        self.stamps.advance(una);
        let newest = newest?;
        self.delivered_at = now;
        self.first_sent_at = newest.sent_at;
        let sending_time = newest.sent_at - newest.first_sent_at;
        let interval = sending_time.max(now - newest.delivered_at);
        (interval >= min_rtt).then_some(DeliveryRate {
            pkts: u32::try_from(self.delivered_pkts - newest.delivered_pkts).ok()?,
            interval,
            app_limited: newest.app_limited,
            prior_delivered_pkts: newest.delivered_pkts,
            in_flight_then_pkts: newest.in_flight_pkts,
            lost_since_pkts: count_u64(lost_pkts - newest.lost_pkts),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::tcp::testing::{at, MS};

    const RTT: Span = Span::from_millis(20);

    /// Sends packets 0 to 39, one per ms, and acknowledges all but `lost` a round trip later.
    fn samples(lost: Option<u32>) -> Vec<Option<DeliveryRate>> {
        let mut rates = RateSampler::default();
        let mut samples = Vec::new();
        for ms in 0..60u64 {
            let now = at(ms * MS);
            if let Some(seq) = ms.checked_sub(20).map(|seq| seq as u32) {
                if Some(seq) != lost {
                    rates.on_delivered(seq);
                }
                let una = lost.filter(|lost| seq >= *lost).unwrap_or(seq + 1);
                samples.push(rates.sample(una, now, RTT, 0));
            }
            if ms < 40 {
                rates.on_sent(ms as u32, now, ms == 0, 0, 0);
            }
        }
        samples
    }

    #[test]
    fn a_steady_flow_is_measured_at_its_rate() {
        // Packet 20 is the first one sent after a delivery.
        for sample in &samples(None)[21..] {
            let sample = sample.unwrap();
            assert_eq!(sample.interval, u64::from(sample.pkts) * MS, "{sample:?}");
            assert!(!sample.app_limited);
        }
    }

    #[test]
    fn a_lost_packet_is_not_delivered() {
        let samples = samples(Some(25));
        assert_eq!(samples[25], None);
        let after = samples[30].unwrap();
        assert_eq!(u64::from(after.pkts + 1) * MS, after.interval);
    }

    #[test]
    fn acks_in_one_lump_do_not_raise_the_rate() {
        let mut rates = RateSampler::default();
        for ms in 0..10 {
            rates.on_sent(ms as u32, at(ms * MS), ms == 0, 0, 0);
        }
        (0..10).for_each(|seq| rates.on_delivered(seq));
        let sample = rates.sample(10, at(9 * MS + RTT), RTT, 0).unwrap();
        assert_eq!((sample.pkts, sample.interval), (10, 9 * MS + RTT));
    }

    #[test]
    fn what_the_application_holds_back_is_said() {
        let mut rates = RateSampler::default();
        rates.on_sent(0, Time::ZERO, true, 0, 0);
        rates.set_app_limited(1);
        rates.on_delivered(0);
        let sample = rates.sample(1, at(RTT), RTT, 0).unwrap();
        assert!(!sample.app_limited);
        rates.on_sent(1, at(RTT), true, 0, 0);
        rates.on_delivered(1);
        assert!(rates.sample(2, at(2 * RTT), RTT, 0).unwrap().app_limited);
        rates.on_sent(2, at(2 * RTT), true, 0, 0);
        rates.on_delivered(2);
        assert!(!rates.sample(3, at(3 * RTT), RTT, 0).unwrap().app_limited);
    }
}
