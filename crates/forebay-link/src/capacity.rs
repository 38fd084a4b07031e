//! When a link has sent a packet: at a constant rate, or as a recorded trace allows.

use std::sync::Arc;

use forebay_core::{Rate, Span, Time};

/// Bytes that may leave at one opportunity of a trace.
const OPPORTUNITY_BYTES: u32 = 1500;
const NANOS_PER_MILLI: u64 = 1_000_000;

/// What a link can carry.
#[derive(Clone, Debug, PartialEq)]
pub enum Capacity {
    Constant(Rate),
    Recorded(Arc<Recording>),
}

/// The capacity of a cellular link as it was recorded: one line per opportunity, its time in ms;
/// a repeated line is a second opportunity in that millisecond. At the end it starts again.
#[derive(Debug, PartialEq)]
pub struct Recording {
    /// In ascending order.
    times_ms: Vec<u64>,
}

impl Recording {
    /// Reads the lines of a trace.
    ///
    /// # Errors
    /// The number of the line at fault, what was found and what is allowed.
    pub fn parse(text: &str) -> Result<Recording, String> {
        let mut times_ms: Vec<u64> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let earlier = times_ms.last().copied().unwrap_or(0);
            // Sums with a lap's start must not wrap.
            let time = line.parse().ok().filter(|&it| it < 1 << 40);
            match time {
                Some(time) if time >= earlier => times_ms.push(time),
                _ => {
                    return Err(format!(
                        "line {}: found {line:?}, allowed: a time in ms, at least {earlier}",
                        number + 1
                    ))
                }
            }
        }
        match times_ms.last() {
            Some(&period) if period > 0 => Ok(Recording { times_ms }),
            _ => Err("found no capacity, allowed: a time in ms per line, the last above 0".into()),
        }
    }

    fn period_ms(&self) -> u64 {
        self.times_ms[self.times_ms.len() - 1]
    }

    pub fn mean_rate(&self) -> Rate {
        let bits = 8.0 * f64::from(OPPORTUNITY_BYTES) * self.times_ms.len() as f64;
        Rate::from_bps((bits / (self.period_ms() as f64 / 1e3)).round().max(1.0) as u64)
    }

    /// Opportunities in [0, `end`).
    fn count_before(&self, end: Time) -> u64 {
        let end_ms = end.as_nanos().div_ceil(NANOS_PER_MILLI);
        if end_ms == 0 {
            return 0;
        }
        // A time that equals the period lies at the start of the next lap as well.
        let laps = (end_ms - 1) / self.period_ms();
        let rest = end_ms - laps * self.period_ms();
        laps * self.times_ms.len() as u64
            + self.times_ms.partition_point(|&time| time < rest) as u64
    }

    /// What could be sent from `start` to just before `end`, in bits.
    pub fn bits_between(&self, start: Time, end: Time) -> u64 {
        let opportunities = self.count_before(end) - self.count_before(start);
        8 * u64::from(OPPORTUNITY_BYTES) * opportunities
    }
}

impl Capacity {
    /// Over all of it; what a law is told.
    pub fn mean_rate(&self) -> Rate {
        match self {
            Capacity::Constant(rate) => *rate,
            Capacity::Recorded(recording) => recording.mean_rate(),
        }
    }
}

/// A link's transmitter, in exact time: it does not matter how late it is asked.
pub enum Transmitter {
    Constant {
        rate: Rate,
        /// What rounding to ns left over, so that the long-run rate is exact.
        remainder: u64,
    },
    Recorded(Replay),
}

impl Transmitter {
    pub fn new(capacity: &Capacity) -> Transmitter {
        match capacity {
            Capacity::Constant(rate) => Transmitter::Constant {
                rate: *rate,
                remainder: 0,
            },
            Capacity::Recorded(recording) => Transmitter::Recorded(Replay {
                recording: Arc::clone(recording),
                lap: 0,
                next: 0,
                at: Time::ZERO,
                left_bytes: 0,
            }),
        }
    }

    /// When a packet is out that the link takes at `start`.
    pub fn send(&mut self, start: Time, bytes: u32) -> Time {
        match self {
            Transmitter::Constant { rate, remainder } => {
                let (span, rest) = rate.transmission(bytes, *remainder);
                *remainder = rest;
                start + span
            }
            Transmitter::Recorded(replay) => replay.send(start, bytes),
        }
    }

    /// The link has gone idle.
    pub fn idle(&mut self) {
        if let Transmitter::Constant { remainder, .. } = self {
            *remainder = 0;
        }
    }
}

/// Where a recording has got to.
pub struct Replay {
    recording: Arc<Recording>,
    /// The next opportunity.
    lap: u64,
    next: usize,
    /// The opportunity in use, and what it can still carry.
    at: Time,
    left_bytes: u32,
}

impl Replay {
    fn next_time(&self) -> Time {
        let start_ms = self.lap * self.recording.period_ms();
        Time::from_nanos((start_ms + self.recording.times_ms[self.next]) * NANOS_PER_MILLI)
    }

    /// Opportunities before `start` were not used, and are lost.
    fn skip_to(&mut self, start: Time) {
        if start > self.at {
            self.left_bytes = 0;
        }
        if self.next_time() >= start {
            return;
        }
        let start_ms = start.as_nanos().div_ceil(NANOS_PER_MILLI);
        let period_ms = self.recording.period_ms();
        self.lap = (start_ms - 1) / period_ms;
        let rest = start_ms - self.lap * period_ms;
        self.next = self.recording.times_ms.partition_point(|&time| time < rest);
    }

    fn send(&mut self, start: Time, bytes: u32) -> Time {
        self.skip_to(start);
        let mut left = bytes;
        while left > self.left_bytes {
            left -= self.left_bytes;
            self.at = self.next_time();
            self.left_bytes = OPPORTUNITY_BYTES;
            self.next += 1;
            if self.next == self.recording.times_ms.len() {
                (self.lap, self.next) = (self.lap + 1, 0);
            }
        }
        self.left_bytes -= left;
        self.at.max(start)
    }
}

/// A constant rate whose bits in `span` are `bits`, for what accounts with rates.
pub fn rate_of(bits: u64, span: Span) -> Rate {
    Rate::from_bps((bits as f64 / span.as_secs_f64()).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at_ms(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    fn replay(text: &str) -> Transmitter {
        let recording = Recording::parse(text).unwrap();
        Transmitter::new(&Capacity::Recorded(Arc::new(recording)))
    }

    #[test]
    fn a_recording_is_replayed_and_repeated() {
        let mut link = replay("2\n2\n5\n10\n");
        let mut free = Time::ZERO;
        let mut out = Vec::new();
        for _ in 0..8 {
            free = link.send(free, 1500);
            out.push(free.as_nanos() / NANOS_PER_MILLI);
        }
        assert_eq!(out, [2, 2, 5, 10, 12, 12, 15, 20]);
    }

    #[test]
    fn small_packets_share_an_opportunity_and_large_ones_take_several() {
        let mut link = replay("2\n5\n10\n");
        assert_eq!(link.send(Time::ZERO, 1000), at_ms(2));
        assert_eq!(link.send(at_ms(2), 500), at_ms(2));
        assert_eq!(link.send(at_ms(2), 1600), at_ms(10));
    }

    #[test]
    fn what_is_not_used_is_lost() {
        let mut link = replay("2\n5\n10\n");
        assert_eq!(link.send(Time::ZERO, 700), at_ms(2));
        // 800 bytes were left at 2 ms; at 3 ms they are gone.
        assert_eq!(link.send(at_ms(3), 700), at_ms(5));
        assert_eq!(link.send(at_ms(1001), 1500), at_ms(1002));
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, line) in [("1\n2\nx\n", 3), ("5\n4\n", 2), ("1\n-1\n", 2)] {
            let error = Recording::parse(text).unwrap_err();
            assert!(error.starts_with(&format!("line {line}:")), "{error}");
        }
        assert!(Recording::parse("").is_err());
        assert!(Recording::parse("0\n0\n").is_err());
    }

    proptest! {
        #[test]
        fn a_busy_link_delivers_all_of_a_recording(gaps in proptest::collection::vec(0u64..20, 1..50), sizes in proptest::collection::vec(40u32..3000, 1..200)) {
            let mut time = 1;
            let lines: Vec<String> = gaps.iter().map(|gap| { time += gap; time.to_string() }).collect();
            let recording = Arc::new(Recording::parse(&lines.join("\n")).unwrap());
            let mut link = Transmitter::new(&Capacity::Recorded(Arc::clone(&recording)));
            let mut free = Time::ZERO;
            let mut sent_bits = 0;
            for size in sizes {
                free = link.send(free, size);
                sent_bits += 8 * u64::from(size);
            }
            // All opportunities before the last one are used up, and none after it.
            prop_assert!(sent_bits > recording.bits_between(Time::ZERO, free));
            prop_assert!(sent_bits <= recording.bits_between(Time::ZERO, free + Span::from_nanos(1)));
        }

        #[test]
        fn bits_add_up(start in 0u64..5000, middle in 0u64..5000, end in 0u64..5000) {
            let mut times = [start, middle, end];
            times.sort_unstable();
            let [start, middle, end] = times.map(|tenths| Time::from_nanos(tenths * NANOS_PER_MILLI / 10));
            let recording = Recording::parse("0\n3\n3\n70\n100\n").unwrap();
            prop_assert_eq!(
                recording.bits_between(start, middle) + recording.bits_between(middle, end),
                recording.bits_between(start, end)
            );
        }
    }
}
