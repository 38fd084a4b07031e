//! A constant bit rate: one packet after another at even distance, in any state of the network.

use forebay_units::{Bytes, Rate};

use super::{small, Act, Action, Application};

pub struct Cbr {
    gap_ns: u64,
}

impl Cbr {
    pub fn new(rate: Rate, packet: Bytes) -> Cbr {
        let (gap, _) = rate.transmission(u32::from(small(packet.0)), 0);
        Cbr {
            gap_ns: gap.as_nanos().max(1),
        }
    }
}

impl Application for Cbr {
    fn first(&mut self, _flow: u32, start: u64, _stop: Option<u64>) -> Option<Act> {
        Some(Act {
            at: start,
            action: Action::Send,
        })
    }

    fn next(&mut self, _flow: u32, done: Act, stop: Option<u64>) -> Option<Act> {
        let at = done.at + self.gap_ns;
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

    #[test]
    fn packets_are_evenly_spaced() {
        // 1000 bytes at 1 Mbit/s: one every 8 ms.
        let mut cbr = Cbr::new(Rate::from_bps(1_000_000), Bytes(1000));
        let mut act = cbr.first(0, 5, Some(40_000_000)).unwrap();
        let mut times = vec![act.at];
        while let Some(next) = cbr.next(0, act, Some(40_000_000)) {
            times.push(next.at);
            act = next;
        }
        assert_eq!(times, (0..5).map(|i| 5 + i * 8_000_000).collect::<Vec<_>>());
    }
}
