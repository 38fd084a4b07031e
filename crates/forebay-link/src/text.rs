//! Settings as people write them.

use std::sync::Arc;

use forebay_core::discipline::Buffer;
use forebay_core::laws::{find, LAWS};
use forebay_core::param::{nearest, Value};
use forebay_core::{Bytes, Packets, ParamError, Rate, Span, Time};

use crate::capacity::{Capacity, Recording};
use crate::direction::{Delays, Path};
use crate::namespace::DeviceKind;
use crate::settings::{LawChoice, Way};

/// One direction. Keys of errors are the field's name and `suffix`.
#[derive(Clone, Debug, Default)]
pub struct WayText {
    /// "" or "-up".
    pub suffix: String,
    /// `"15Mbit/s"`.
    pub rate: Option<String>,
    /// Instead of a rate: a trace's name, and its lines.
    pub trace: Option<(String, String)>,
    /// `"30ms"`, or `"20..200ms"` to give each flow one between.
    pub delay: String,
    /// `"150p"` or `"64kB"`.
    pub buffer: String,
    /// `"1%"` or `"0.01"`.
    pub loss: String,
    pub ecn: bool,
    /// Kind of the law, and its parameters.
    pub aqm: String,
    pub set: Vec<(String, Value)>,
}

impl WayText {
    /// # Errors
    /// The first field that is wrong.
    pub fn read(self) -> Result<Way, ParamError> {
        let fault = |field: &str, found: &str, allowed: String| {
            ParamError::new(
                format!("{field}{}", self.suffix),
                format!("{found:?}"),
                allowed,
            )
        };
        let capacity = match (&self.rate, &self.trace) {
            (Some(rate), None) => Capacity::Constant(
                rate_of_link(rate).map_err(|allowed| fault("rate", rate, allowed))?,
            ),
            (None, Some((name, lines))) => {
                let recording = Recording::parse(lines).map_err(|error| {
                    let (place, found) = error.split_once("found ").unwrap_or(("", &error));
                    let (found, allowed) = found.split_once(", allowed: ").unwrap_or((found, ""));
                    ParamError::new(
                        format!("trace{}: {name}: {}", self.suffix, place.trim_end())
                            .trim_end_matches([':', ' ']),
                        found,
                        allowed,
                    )
                })?;
                Capacity::Recorded(Arc::new(recording))
            }
            (rate, _) => {
                let found = rate.as_ref().map_or("nothing", |_| "a trace as well");
                return Err(ParamError::new(
                    format!("rate{}", self.suffix),
                    found,
                    format!("{}, or a trace, one of both", Rate::ALLOWED),
                ));
            }
        };
        let delays = delays(&self.delay).map_err(|allowed| fault("delay", &self.delay, allowed))?;
        let buffer =
            buffer(&self.buffer).map_err(|allowed| fault("buffer", &self.buffer, allowed))?;
        let loss = share(&self.loss).map_err(|allowed| fault("loss", &self.loss, allowed))?;
        let Some(spec) = find(&self.aqm) else {
            let kinds: Vec<&str> = LAWS.iter().map(|law| law.kind).collect();
            let hint = nearest(&self.aqm, &kinds)
                .map(|near| format!(" (did you mean {near:?}?)"))
                .unwrap_or_default();
            return Err(fault(
                "aqm",
                &self.aqm,
                format!("{}{hint}", kinds.join(", ")),
            ));
        };
        Ok(Way {
            capacity,
            path: Path { delays, loss },
            buffer,
            ecn: self.ecn,
            law: LawChoice {
                spec,
                given: self.set,
            },
        })
    }
}

/// # Errors
/// What is allowed.
pub fn rate_of_link(text: &str) -> Result<Rate, String> {
    let allowed = || format!("{}, 1kbit/s to 100Gbit/s", Rate::ALLOWED);
    let within = 1_000..=100_000_000_000;
    Rate::parse(text)
        .ok()
        .filter(|rate| within.contains(&rate.as_bps()))
        .ok_or_else(allowed)
}

fn delays(text: &str) -> Result<Delays, String> {
    const MOST: Span = Span::from_secs(60);
    let allowed = || {
        format!(
            "{}, up to {MOST}, or a range such as \"20..200ms\"",
            Span::ALLOWED
        )
    };
    let read = |text: &str| Span::parse(text).ok().filter(|it| *it <= MOST);
    let Some((least, most)) = text.split_once("..") else {
        let delay = read(text).ok_or_else(allowed)?;
        return Ok(Delays {
            least: delay,
            most: delay,
        });
    };
    let unit = most.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let least = read(least).or_else(|| read(&format!("{least}{unit}")));
    match (least, read(most)) {
        (Some(least), Some(most)) if least <= most => Ok(Delays { least, most }),
        _ => Err(allowed()),
    }
}

fn buffer(text: &str) -> Result<Buffer, String> {
    let packets = Packets::parse(text).ok().map(|it| it.0);
    let whole = packets.filter(|it| it.fract() == 0.0 && (1.0..=1e6).contains(it));
    let bytes = Bytes::parse(text).ok().map(|it| it.0);
    match (whole, bytes) {
        (Some(packets), _) => Ok(Buffer::Packets(packets as u32)),
        (None, Some(bytes)) if (64..=1 << 30).contains(&bytes) => Ok(Buffer::Bytes(bytes)),
        _ => Err("a size such as \"150p\" (up to 1000000p) or \"64kB\" (up to 1GiB)".into()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(number) => (number, 0.01),
        None => (text, 1.0),
    };
    let share = number.trim().parse::<f64>().map(|it| it * scale);
    share
        .ok()
        .filter(|it| (0.0..=1.0).contains(it))
        .ok_or_else(|| "a share such as \"1%\" or \"0.01\"".into())
}

/// The bound on how far the rate may be off.
///
/// # Errors
/// What is allowed.
pub fn rate_bound(text: &str) -> Result<f64, ParamError> {
    share(text).map_err(|allowed| ParamError::new("void-rate", format!("{text:?}"), allowed))
}

/// A span within bounds.
///
/// # Errors
/// The key, what was found and what is allowed.
pub fn span(key: &str, text: &str, least: Span, most: Span) -> Result<Span, ParamError> {
    Span::parse(text)
        .ok()
        .filter(|it| (least..=most).contains(it))
        .ok_or_else(|| {
            let allowed = format!("{}, {least} to {most}", Span::ALLOWED);
            ParamError::new(key, format!("{text:?}"), allowed)
        })
}

/// When metrics are taken: `"5s.."` or `"5s..25s"`.
///
/// # Errors
/// What is allowed.
pub fn measure(text: &str) -> Result<(Time, Option<Time>), ParamError> {
    let fault = || {
        let allowed = "when metrics are taken, such as \"5s..\" or \"5s..25s\"";
        ParamError::new("measure", format!("{text:?}"), allowed)
    };
    let (start, end) = text.split_once("..").ok_or_else(fault)?;
    let time = |text: &str| {
        Span::parse(text)
            .map(|it| Time::ZERO + it)
            .map_err(|_| fault())
    };
    let start = time(start)?;
    let end = (!end.is_empty()).then(|| time(end)).transpose()?;
    match end {
        Some(end) if end <= start => Err(fault()),
        _ => Ok((start, end)),
    }
}

/// # Errors
/// What is allowed.
pub fn device(text: &str) -> Result<DeviceKind, ParamError> {
    match text {
        "any" => Ok(DeviceKind::Any),
        "tun" => Ok(DeviceKind::Tun),
        "packets" => Ok(DeviceKind::Packets),
        _ => Err(ParamError::new(
            "device",
            format!("{text:?}"),
            "any, tun, packets",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way() -> WayText {
        WayText {
            suffix: "-up".into(),
            rate: Some("15Mbit/s".into()),
            delay: "30ms".into(),
            buffer: "150p".into(),
            loss: "0".into(),
            aqm: "pi".into(),
            ..WayText::default()
        }
    }

    #[test]
    fn a_direction_is_read() {
        let read = WayText {
            delay: "20..200ms".into(),
            buffer: "64kB".into(),
            loss: "1%".into(),
            ..way()
        }
        .read()
        .unwrap();
        assert_eq!(read.path.delays.least, Span::from_millis(20));
        assert_eq!(read.path.delays.most, Span::from_millis(200));
        assert_eq!(read.buffer, Buffer::Bytes(64_000));
        assert!((read.path.loss - 0.01).abs() < 1e-12);
        assert_eq!(delays("20us..1ms").unwrap().least, Span::from_micros(20));
    }

    #[test]
    fn what_is_wrong_is_named() {
        type Spoil = fn(&mut WayText);
        let cases: [(Spoil, &str); 9] = [
            (|it| it.rate = None, "rate-up: found nothing"),
            (|it| it.rate = Some("15".into()), "rate-up: found \"15\""),
            (
                |it| it.trace = Some(("a.down".into(), "1".into())),
                "rate-up: found a trace as well",
            ),
            (
                |it| {
                    it.rate = None;
                    it.trace = Some(("a.down".into(), "1\nx\n".into()));
                },
                "trace-up: a.down: line 2: found \"x\", allowed: a time",
            ),
            (|it| it.delay = "200..20ms".into(), "delay-up: found"),
            (|it| it.buffer = "0p".into(), "buffer-up: found \"0p\""),
            (|it| it.buffer = "1.5p".into(), "buffer-up: found"),
            (|it| it.loss = "101%".into(), "loss-up: found \"101%\""),
            (|it| it.aqm = "pie".into(), "aqm-up: found \"pie\""),
        ];
        for (spoil, expected) in cases {
            let mut text = way();
            spoil(&mut text);
            let error = text.read().map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn windows_are_read() {
        let at = |s| Time::ZERO + Span::from_secs(s);
        assert_eq!(measure("5s..").unwrap(), (at(5), None));
        assert_eq!(measure("5s..25s").unwrap(), (at(5), Some(at(25))));
        assert!(measure("25s..5s").is_err() && measure("5s").is_err());
    }
}
