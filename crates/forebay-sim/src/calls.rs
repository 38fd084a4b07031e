//! Quality of voice calls at their sinks: delays of packets, changes of the delay, and losses.

use std::collections::VecDeque;

use forebay_trace::Call;
use forebay_units::{Span, Time};

/// The state of one call. Its packets take one path and arrive in the order in which they were
/// sent.
#[derive(Clone, Debug, Default)]
struct CallState {
    /// Number of the next packet to be sent.
    next: u32,
    /// Number and sending time of each packet under way.
    under_way: VecDeque<(u32, Time)>,
    /// Delay of the last packet received.
    last_delay: Option<Span>,
    /// The counts within the window of measurement.
    seen: Call,
}

/// The calls of one traffic.
pub struct Calls(Vec<CallState>);

impl Calls {
    /// Creates the state of this many calls.
    pub fn new(calls: u32) -> Calls {
        Calls(vec![CallState::default(); calls as usize])
    }

    /// Records that a packet leaves its source at `now`, and returns its number.
    pub fn sent(&mut self, call: u32, now: Time) -> u32 {
        let line = &mut self.0[call as usize];
        let number = line.next;
        line.next = number.wrapping_add(1);
        line.under_way.push_back((number, now));
        number
    }

    /// Records that the packet with this number reaches its sink at `now`.
    ///
    /// Packets sent before it that have not arrived are lost. `counts` is true within the window of
    /// measurement; only then do the packet and the lost ones enter the counts.
    pub fn received(&mut self, call: u32, number: u32, now: Time, counts: bool) {
        let line = &mut self.0[call as usize];
        while let Some((first, at)) = line.under_way.pop_front() {
            if first != number {
                line.seen.lost += u64::from(counts);
                continue;
            }
            let delay = now - at;
            let before = line.last_delay.replace(delay);
            if counts {
                line.seen.received += 1;
                line.seen.delays += delay;
                if let Some(before) = before.filter(|_| line.seen.received > 1) {
                    let change = before.abs_diff(delay);
                    line.seen.changes += change;
                }
            }
            return;
        }
    }

    /// Returns the counts of each call.
    pub fn seen(&self) -> impl Iterator<Item = Call> + '_ {
        self.0.iter().map(|line| line.seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_changes_and_gaps_are_those_by_hand() {
        let mut calls = Calls::new(2);
        let numbers: Vec<u32> = (0..6)
            .map(|i| calls.sent(1, Time::from_nanos(100 * i)))
            .collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
        // One packet arrives before the window; then packets have delays of 50, 20 and 30 ns, and
        // one is missing.
        calls.received(1, 0, Time::from_nanos(70), false);
        calls.received(1, 1, Time::from_nanos(150), true);
        calls.received(1, 3, Time::from_nanos(320), true);
        calls.received(1, 4, Time::from_nanos(430), true);
        let seen: Vec<Call> = calls.seen().collect();
        assert_eq!(seen[0], Call::default());
        assert_eq!((seen[1].received, seen[1].lost), (3, 1));
        assert_eq!(
            (seen[1].delays, seen[1].changes),
            (Span::from_nanos(100), Span::from_nanos(40))
        );
    }
}
