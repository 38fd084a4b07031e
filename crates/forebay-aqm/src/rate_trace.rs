//! The trace of a link with varying capacity: the times at which it could send.

use forebay_units::cast::whole_u64;
use forebay_units::{ParamError, Rate, Span, Time};

/// The number of characters of a wrong line that an error message quotes.
const QUOTED_CHARS: usize = 40;
const NANOS_PER_MILLI: u64 = 1_000_000;

/// The opportunities of a link to send, as recorded in cellular networks (the format of mahimahi):
/// 1500 bytes at each time. After the last time the trace is repeated.
#[derive(Clone, Debug, PartialEq)]
pub struct RateTrace {
    /// The times in ms, in ascending order. The last one is above 0 and is the length of the trace.
    pub times_ms: Vec<u32>,
}

impl RateTrace {
    /// The bytes that the link can send at each time.
    pub const BYTES: u32 = 1500;

    /// Reads a text with a time in ms on each line; a repeated time is a further opportunity in the
    /// same millisecond. `key` and `file` name the trace in errors.
    ///
    /// # Errors
    /// If a line is not a time or is less than the one before, or if the text has no time above 0.
    pub fn parse(text: &[u8], key: &str, file: &str) -> Result<RateTrace, ParamError> {
        let mut times_ms: Vec<u32> = Vec::new();
        // A file written on Windows may start with a byte order mark.
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        for (i, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            let digits = std::str::from_utf8(line).ok();
            let time = digits.and_then(|digits| digits.parse::<u32>().ok());
            let previous = times_ms.last().copied().unwrap_or(0);
            match time.filter(|time| *time >= previous) {
                Some(time) => times_ms.push(time),
                None => {
                    let text = format!("{} in line {} of {file:?}", quoted(line), i + 1);
                    let expected = "a whole number of ms that is not below that of the line before";
                    return Err(ParamError::new(key, text, expected));
                }
            }
        }
        match times_ms.last() {
            Some(last) if *last > 0 => Ok(RateTrace { times_ms }),
            _ => {
                let expected = "times in ms, one per line, such as \"5\"";
                let error = ParamError::new(key, format!("{file:?}"), expected);
                Err(error.because("has no time above 0"))
            }
        }
    }

    /// Returns the length of the trace, after which it is repeated, in ms.
    pub fn round_ms(&self) -> u32 {
        self.times_ms.last().copied().unwrap_or(1)
    }

    /// Returns the opportunity number `i`, as the time since the start of the trace.
    pub fn time(&self, i: usize) -> Span {
        Span::from_millis(u64::from(self.times_ms[i]))
    }

    /// Returns the mean rate over the trace.
    pub fn mean_rate(&self) -> Rate {
        let bits = 8.0 * f64::from(Self::BYTES) * self.times_ms.len() as f64;
        Rate::from_bps(whole_u64(1000.0 * bits / f64::from(self.round_ms())))
    }

    /// Returns the bits that the link can send from time zero until `end`, inclusive.
    pub fn bits_until(&self, end: Time) -> u64 {
        let end_ms = end.as_nanos() / NANOS_PER_MILLI;
        let round_ms = u64::from(self.round_ms());
        // The last opportunity of a round is at the time at which the next round starts.
        let (rounds, offset_ms) = (end_ms / round_ms, end_ms % round_ms);
        let passed = (self.times_ms).partition_point(|time| u64::from(*time) <= offset_ms);
        let times = rounds * self.times_ms.len() as u64 + passed as u64;
        8 * u64::from(Self::BYTES) * times
    }
}

/// Returns the start of a line in quotation marks for an error message, or "binary data".
fn quoted(line: &[u8]) -> String {
    let is_text = |c: char| !c.is_control() && c != char::REPLACEMENT_CHARACTER;
    let text = String::from_utf8_lossy(line);
    if !text.chars().take(QUOTED_CHARS).all(is_text) {
        return "binary data".into();
    }
    let short: String = text.chars().take(QUOTED_CHARS).collect();
    format!("{short:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_read_as_times_in_order() {
        let marked = RateTrace::parse(b"\xef\xbb\xbf1\r\n2\r\n", "trace", "a.down").unwrap();
        assert_eq!(marked.times_ms, [1, 2]);
        let trace = RateTrace::parse(b"0\n3\n\n3\r\n70\n100", "trace", "a.down").unwrap();
        assert_eq!(trace.times_ms, [0, 3, 3, 70, 100]);
        assert_eq!(trace.mean_rate().as_bps(), 600_000);
    }

    #[test]
    fn bits_add_up_over_repetitions_of_the_trace() {
        let trace = RateTrace::parse(b"0\n3\n3\n70\n100", "trace", "a.down").unwrap();
        let times = |tenths_ms: u64| {
            let end = Time::from_nanos(tenths_ms * NANOS_PER_MILLI / 10);
            trace.bits_until(end) / 12_000
        };
        assert_eq!(
            [0, 29, 30, 31, 699, 700, 999].map(times),
            [1, 1, 3, 3, 3, 4, 4]
        );
        // The end of a round is the start of the next one.
        assert_eq!([1000, 1029, 1030, 2000].map(times), [6, 6, 8, 11]);
    }

    #[test]
    fn an_error_names_the_wrong_line() {
        let order = "a whole number of ms that is not below that of the line before";
        let times = "times in ms, one per line, such as \"5\"";
        let invalid = |line: &str| format!("{line} of \"a.down\" is not valid");
        let empty = "\"a.down\" has no time above 0".to_owned();
        for (text, fault, expected) in [
            ("1\n2\nx\n", invalid("\"x\" in line 3"), order),
            ("5\n4\n", invalid("\"4\" in line 2"), order),
            ("1\n-1\n", invalid("\"-1\" in line 2"), order),
            ("\u{1b}[2J\0\n", invalid("binary data in line 1"), order),
            ("", empty.clone(), times),
            ("0\n0\n", empty, times),
        ] {
            let error = RateTrace::parse(text.as_bytes(), "trace", "a.down").unwrap_err();
            let message = format!("trace: {fault}; expected {expected}");
            assert_eq!(error.to_string(), message);
        }
    }
}
