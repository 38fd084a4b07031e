//! A recorded link: the times at which it could send.

use forebay_units::cast::whole_u64;
use forebay_units::{ParamError, Rate, Span, Time};

/// Most characters of a line that a message has.
const SHOWN: usize = 40;
const NANOS_PER_MILLI: u64 = 1_000_000;

/// Times at which a link can send, as recorded in cellular networks: 1500 bytes at each time,
/// and from the beginning again after the last.
#[derive(Clone, Debug, PartialEq)]
pub struct RateTrace {
    /// In order; the last is above 0, and the length of a round.
    pub times_ms: Vec<u32>,
}

impl RateTrace {
    /// What may leave at each time.
    pub const BYTES: u32 = 1500;

    /// Reads a file with a time in ms on each line; a repeated time is a further opportunity in
    /// that millisecond. `key` and `file` only name it in errors.
    ///
    /// # Errors
    /// The first line that is no time or is less than the one before; a file without capacity.
    pub fn parse(text: &[u8], key: &str, file: &str) -> Result<RateTrace, ParamError> {
        let mut times_ms: Vec<u32> = Vec::new();
        // A text of Windows may begin with the mark of UTF-8.
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        for (i, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            let digits = std::str::from_utf8(line).ok();
            let time = digits.and_then(|digits| digits.parse::<u32>().ok());
            let least = times_ms.last().copied().unwrap_or(0);
            match time.filter(|time| *time >= least) {
                Some(time) => times_ms.push(time),
                None => {
                    return Err(ParamError::new(
                        key,
                        format!("{} in line {} of {file:?}", shown(line), i + 1),
                        "a whole number of ms a line, none less than the one before",
                    ));
                }
            }
        }
        match times_ms.last() {
            Some(last) if *last > 0 => Ok(RateTrace { times_ms }),
            _ => Err(ParamError::new(
                key,
                format!("{file:?} without a time above 0"),
                "times in ms, one a line",
            )),
        }
    }

    /// Length of a round.
    pub fn round_ms(&self) -> u32 {
        self.times_ms.last().copied().unwrap_or(1)
    }

    /// Time number `i` of a round, since its start.
    pub fn time(&self, i: usize) -> Span {
        Span::from_millis(u64::from(self.times_ms[i]))
    }

    /// Over a round.
    pub fn mean_rate(&self) -> Rate {
        let bits = 8.0 * f64::from(Self::BYTES) * self.times_ms.len() as f64;
        Rate::from_bps(whole_u64(1000.0 * bits / f64::from(self.round_ms())))
    }

    /// What can be sent from the start up to and at `end`, in bits.
    pub fn bits_until(&self, end: Time) -> u64 {
        let end_ms = end.as_nanos() / NANOS_PER_MILLI;
        let round_ms = u64::from(self.round_ms());
        // A time that equals the round lies at the start of the next one as well.
        let (rounds, rest_ms) = (end_ms / round_ms, end_ms % round_ms);
        let rest = (self.times_ms).partition_point(|time| u64::from(*time) <= rest_ms);
        let times = rounds * self.times_ms.len() as u64 + rest as u64;
        8 * u64::from(Self::BYTES) * times
    }
}

/// Returns the start of a line for a message; a line of binary data is not shown.
fn shown(line: &[u8]) -> String {
    let is_text = |c: char| !c.is_control() && c != char::REPLACEMENT_CHARACTER;
    let text = String::from_utf8_lossy(line);
    if !text.chars().take(SHOWN).all(is_text) {
        return "binary data".into();
    }
    let short: String = text.chars().take(SHOWN).collect();
    format!("{short:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_times_in_order() {
        let marked = RateTrace::parse(b"\xef\xbb\xbf1\r\n2\r\n", "trace", "a.down").unwrap();
        assert_eq!(marked.times_ms, [1, 2]);
        let read = RateTrace::parse(b"0\n3\n\n3\r\n70\n100", "trace", "a.down").unwrap();
        assert_eq!(read.times_ms, [0, 3, 3, 70, 100]);
        assert_eq!(read.mean_rate().as_bps(), 600_000);
    }

    #[test]
    fn bits_add_up_over_rounds() {
        let trace = RateTrace::parse(b"0\n3\n3\n70\n100", "trace", "a.down").unwrap();
        let times = |tenths_ms: u64| {
            let end = Time::from_nanos(tenths_ms * NANOS_PER_MILLI / 10);
            trace.bits_until(end) / 12_000
        };
        assert_eq!(
            [0, 29, 30, 31, 699, 700, 999].map(times),
            [1, 1, 3, 3, 3, 4, 4]
        );
        // The end of a round is the start of the next.
        assert_eq!([1000, 1029, 1030, 2000].map(times), [6, 6, 8, 11]);
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, found) in [
            ("1\n2\nx\n", "\"x\" in line 3 of \"a.down\""),
            ("5\n4\n", "\"4\" in line 2 of \"a.down\""),
            ("1\n-1\n", "\"-1\" in line 2 of \"a.down\""),
            ("\u{1b}[2J\0\n", "binary data in line 1 of \"a.down\""),
            ("", "\"a.down\" without a time above 0"),
            ("0\n0\n", "\"a.down\" without a time above 0"),
        ] {
            let error = RateTrace::parse(text.as_bytes(), "trace", "a.down").unwrap_err();
            assert_eq!((error.key.as_str(), error.found.as_str()), ("trace", found));
        }
    }
}
