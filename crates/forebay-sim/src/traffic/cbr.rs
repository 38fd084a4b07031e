//! Constant bit rate: packets at equal intervals, whatever the state of the network.

use forebay_scenario as scenario;
use forebay_units::{Bytes, Span, Time};

use super::{small, Act, Action, Application};

/// Sources that send at a constant bit rate.
pub struct Cbr {
    gap: Span,
}

impl Cbr {
    /// Creates sources that each send packets of this size.
    pub fn new(cbr: &scenario::Cbr, packet: Bytes) -> Cbr {
        let (gap, _) = cbr.rate.transmission(u32::from(small(packet.0)), 0);
        Cbr {
            gap: gap.max(Span::from_nanos(1)),
        }
    }
}

impl Application for Cbr {
    fn first(&mut self, _flow: u32, start: Time, _stop: Option<Time>) -> Option<Act> {
        Some(Act {
            at: start,
            action: Action::Send,
        })
    }

    fn next(&mut self, _flow: u32, done: Act, stop: Option<Time>) -> Option<Act> {
        let at = done.at + self.gap;
        match stop {
            Some(stop) if at >= stop => None,
            _ => Some(Act {
                at,
                action: Action::Send,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_units::Params;

    #[test]
    fn packets_are_evenly_spaced() {
        // Packets of 1000 bytes at 1 Mbit/s leave every 8 ms.
        let mut cbr = Cbr::new(&scenario::Cbr::defaults(), Bytes(1000));
        let (start, stop) = (Time::from_nanos(5), Time::ZERO + Span::from_millis(40));
        let mut act = cbr.first(0, start, Some(stop)).unwrap();
        let mut times = vec![act.at];
        while let Some(next) = cbr.next(0, act, Some(stop)) {
            times.push(next.at);
            act = next;
        }
        let even = (0..5).map(|i| start + i * Span::from_millis(8));
        assert_eq!(times, even.collect::<Vec<_>>());
    }
}
