//! Options of a link for real traffic, each declared once: the command line, its help, errors and
//! the arguments in Python derive from these declarations.

use std::sync::Arc;

use forebay_aqm::{QueueChoice, RateTrace};
use forebay_units::{
    params, unknown_key, Buffer, Bytes, ParamError, ParamSpec, ParamType, Params, Rate, Shape,
    Span, Time, Value,
};

use crate::law_choice::{law_named, LawChoice};
use crate::link_types::{DelayRange, DeviceKind, FileName, LawKind, MeasureWindow, Seed, Share};
use crate::links::NO_BURST;
use crate::options::set_value;
use crate::types::{BufferSize, FlowRange, Gains, Maybe, Queue};

params! {
    /// Options of a direction. Those that end in `_up` are for client to server alone.
    pub struct DirectionOptions {
        /// Rate, such as 15Mbit/s; it counts the bits of whole IP packets.
        rate: Maybe<Rate> = Maybe(None), 1e3 => 1e11;
        /// Bytes that may leave at once after a pause, such as 3000B: a token bucket, as tbf has.
        burst: Bytes = Bytes(0), 0.0 => 1e9;
        /// Delay after the queue, one way, such as 30ms; 20..200ms gives each flow a delay in
        /// that range.
        delay: DelayRange = DelayRange::of(Span::ZERO), 0.0 => 60.0;
        /// Buffer size, such as 150p, 64kB, or 100ms for what the link sends in that time.
        buffer: BufferSize = BufferSize::Room(Buffer::Packets(1000));
        /// Law, one of `forebay laws`.
        aqm: LawKind = LawKind(forebay_aqm::laws::baseline().kind.into());
        /// Queue that holds the law, one of `forebay queues`, such as priority or
        /// {kind="priority",dscp=46}.
        queue: Maybe<Queue> = Maybe(None);
        /// File of a recorded link in place of a rate: a time in ms on each line, for 1500 bytes.
        trace: Maybe<FileName> = Maybe(None);
        /// Share of packets lost after the queue, such as 1% or 0.01.
        loss: Share = Share(0.0), 0.0 => 1.0;
    }
}

params! {
    /// Options of the whole link.
    pub struct WholeLinkOptions {
        /// Mark ECN-capable packets instead of dropping them.
        ecn: bool = true;
        /// Source of the gains that are not set: auto designs them for this link, paper takes the
        /// defaults that `forebay laws` lists.
        gains: Gains = Gains::Auto;
        /// Long-lived TCP flows to design for, such as 10 or 4..40; what is assumed without it is
        /// shown.
        flows: Maybe<FlowRange> = Maybe(None), 1.0 => 1e6;
        /// Part of the run over which metrics are taken, such as 5s.. or 5s..25s.
        measure: MeasureWindow = MeasureWindow(Time::ZERO, None), 0.0 => 1e7;
        /// Time between two samples of the queue.
        sample: Span = Span::from_millis(10), 1e-3 => 60.0;
        /// Seed of the random draws of laws and loss.
        seed: Seed = Seed(1);
        /// Largest IP packet in bytes.
        mtu: u32 = 1500, 1280.0 => 65535.0;
        /// Kind of device: tun, packets (packet sockets), or any (tun if there is one).
        device: DeviceKind = DeviceKind::Any;
        /// Fetch up to 64 KiB of a TCP flow at a time; by default above 1 Gbit/s.
        super_packets: Maybe<bool> = Maybe(None);
        /// Bound on lateness: the run is void if one packet in a thousand is fetched or released
        /// later than this.
        void_lateness: Span = Span::from_millis(1), 1e-6 => 60.0;
        /// Bound on the rate: the run is void if the rate is off by more than this share.
        void_rate: Share = Share(0.001), 0.0 => 1.0;
    }
}

/// Ending of the options for client to server.
const UP: &str = "_up";
/// The option that chooses the law; errors about a parameter of the law begin with it and the kind.
const AQM: &str = "aqm";
/// The option with the law's parameters; the law declares them.
const SET: &str = "set";

/// The options of one direction.
#[derive(Clone, Debug)]
pub struct DirectionChoice {
    /// The options of the direction.
    pub options: DirectionOptions,
    /// The law in its queue.
    pub law: LawChoice,
    /// A rate trace in place of a constant rate.
    pub trace: Option<Arc<RateTrace>>,
}

/// The options of a link.
#[derive(Clone, Debug)]
pub struct LinkOptions {
    /// Client to server.
    pub up: DirectionChoice,
    /// Server to client.
    pub down: DirectionChoice,
    /// The options of the whole link.
    pub whole: WholeLinkOptions,
}

/// An option of `forebay link`, for help and signatures.
#[derive(Clone, Debug)]
pub struct LinkOption {
    /// The name with underscores, such as "rate_up".
    pub name: String,
    /// The metavariable of the value in the help, such as "RATE".
    pub placeholder: &'static str,
    /// The shape of its value.
    pub shape: Shape,
    /// The default as text; `None` where there is none.
    pub default: Option<Value>,
    /// The description.
    pub doc: String,
    /// The group in help.
    pub group: OptionGroup,
}

/// The group of an option in help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionGroup {
    /// Options of both directions.
    Link,
    /// Options of the direction from client to server, where it differs.
    Up,
    /// Options of the run.
    Run,
}

/// Returns every option, in the order of help.
pub fn link_options() -> Vec<LinkOption> {
    let option = |spec: &ParamSpec, group| {
        let default = (spec.default)();
        LinkOption {
            name: spec.name.to_owned(),
            placeholder: placeholder(spec),
            shape: spec.shape,
            default: (default != Value::Text(String::new())).then_some(default),
            doc: spec.doc.trim().to_owned(),
            group,
        }
    };
    let set = LinkOption {
        name: SET.to_owned(),
        placeholder: "KEY=VALUE",
        shape: Shape::Table,
        default: None,
        doc: "A parameter of the law, such as target=50p. May be given several times.".to_owned(),
        group: OptionGroup::Link,
    };
    let directions = DirectionOptions::SPECS.iter();
    let mut both: Vec<LinkOption> = directions
        .map(|spec| option(spec, OptionGroup::Link))
        .collect();
    let after_law = 1 + both.iter().position(|it| it.name == "aqm").unwrap_or(0);
    both.insert(after_law, set);
    let up: Vec<LinkOption> = both.iter().map(twin).collect();
    let of_run = |spec: &ParamSpec| match spec.name {
        // These options belong to the link, because both directions share them.
        "ecn" | "gains" | "flows" => option(spec, OptionGroup::Link),
        _ => option(spec, OptionGroup::Run),
    };
    both.into_iter()
        .chain(up)
        .chain(WholeLinkOptions::SPECS.iter().map(of_run))
        .collect()
}

/// Returns the option for client to server alone.
fn twin(option: &LinkOption) -> LinkOption {
    let doc = match option.name.as_str() {
        SET => "As --set, for client to server; the parameters in --set are not taken over.".into(),
        name => format!("As --{name}, for client to server."),
    };
    LinkOption {
        name: format!("{}{UP}", option.name),
        default: None,
        doc,
        group: OptionGroup::Up,
        ..option.clone()
    }
}

fn placeholder(spec: &ParamSpec) -> &'static str {
    match (spec.shape, spec.unit) {
        (Shape::Notation(name), _) => name,
        (Shape::Word(_) | Shape::Queue, _) => "KIND",
        (Shape::Integer, _) => "N",
        (_, "bit/s") => "RATE",
        (_, "s") => "TIME",
        (Shape::Quantities(_), _) => "SIZE",
        _ => "VALUE",
    }
}

/// `name` as the command line writes it.
fn dashed(name: &str) -> String {
    name.replace('_', "-")
}

impl LinkOptions {
    /// Reads options with names as in [`link_options`]. `files` has the contents of the traces
    /// that they name.
    ///
    /// # Errors
    /// The first option that is unknown, wrong or missing, under its name on the command line.
    pub fn read(
        given: &[(String, Value)],
        files: &[(String, Vec<u8>)],
    ) -> Result<LinkOptions, ParamError> {
        Self::read_named(given, files).map_err(|error| ParamError {
            key: dashed(&error.key),
            ..error
        })
    }

    fn read_named(
        given: &[(String, Value)],
        files: &[(String, Vec<u8>)],
    ) -> Result<LinkOptions, ParamError> {
        let names = link_options();
        let mut whole = WholeLinkOptions::defaults();
        let (mut for_down, mut for_up) = (Vec::new(), Vec::new());
        for (name, value) in given {
            let Some(option) = names.iter().find(|option| option.name == *name) else {
                return Err(unknown_key(name, names.iter().map(|it| it.name.as_str())));
            };
            let is_whole = WholeLinkOptions::SPECS.iter().any(|it| it.name == name);
            match option.group {
                _ if is_whole => whole.set(name, value)?,
                OptionGroup::Up => for_up.push((name.trim_end_matches(UP), value)),
                _ => for_down.push((name.as_str(), value)),
            }
        }
        let down = DirectionChoice::read(None, &for_down, files)?;
        let up = DirectionChoice::read(Some(&down), &for_up, files).map_err(|error| {
            let of_law = error
                .key
                .strip_prefix(AQM)
                .filter(|rest| rest.starts_with(' '));
            ParamError {
                key: match of_law {
                    Some(rest) => format!("{AQM}-up{rest}"),
                    None => error.key.clone() + UP,
                },
                ..error
            }
        })?;
        Ok(LinkOptions { up, down, whole })
    }
}

impl DirectionChoice {
    /// Options that are not given are those of `other`, or the defaults.
    fn read(
        other: Option<&DirectionChoice>,
        given: &[(&str, &Value)],
        files: &[(String, Vec<u8>)],
    ) -> Result<DirectionChoice, ParamError> {
        if let Some(other) = other.filter(|_| given.is_empty()) {
            return Ok(other.clone());
        }
        let has = |name: &str| given.iter().any(|(given, _)| *given == name);
        let mut options = other.map_or_else(DirectionOptions::defaults, |it| it.options.clone());
        if has("rate") || has("trace") {
            // One replaces the other.
            (options.rate, options.trace) = (Maybe(None), Maybe(None));
        }
        if has("trace") {
            // Of a link with a rate.
            options.burst = Bytes(0);
        }
        let mut params = None;
        for (name, value) in given {
            match (*name, value) {
                (SET, Value::Table(fields)) => params = Some(fields.clone()),
                (SET, _) => {
                    return Err(ParamError::new(
                        SET,
                        value,
                        "KEY=VALUE, such as target=15ms",
                    ))
                }
                // The command line has a table as a text.
                (_, Value::Text(text)) if text.starts_with('{') => {
                    options.set(name, &set_value(name, text)?)?;
                }
                _ => options.set(name, value)?,
            }
        }
        let trace = match (&options.rate.0, &options.trace.0) {
            (Some(_), None) => None,
            (None, Some(FileName(name))) => {
                let file = files.iter().find(|(file, _)| file == name);
                let (_, text) = file.ok_or_else(|| {
                    ParamError::new("trace", format!("{name:?}"), FileName::EXPECTED)
                })?;
                Some(Arc::new(RateTrace::parse(text, "trace", name)?))
            }
            (rate, _) => {
                let expected = format!("either {}, or a trace", Rate::EXPECTED);
                return Err(match rate {
                    None => ParamError::missing("rate", expected),
                    Some(rate) => {
                        let error = ParamError::new("rate", rate.to_value(), expected);
                        error.because("cannot be combined with a trace")
                    }
                });
            }
        };
        if trace.is_some() && options.burst != Bytes(0) {
            let error = ParamError::new("burst", options.burst.to_value(), NO_BURST);
            return Err(error.because("cannot be combined with a trace"));
        }
        let queue = options.queue.0.clone().map(|queue| queue.0);
        let law = match other {
            Some(other) if !has("aqm") && params.is_none() => match has("queue") {
                true => LawChoice {
                    queue: QueueChoice::of_law(other.law.spec),
                    ..other.law.clone()
                }
                .held_by(queue)?,
                false => other.law.clone(),
            },
            // The parameters of one law are not valid for another.
            _ => {
                let LawKind(kind) = &options.aqm;
                let spec = law_named(kind)
                    .map_err(|expected| ParamError::new("aqm", format!("{kind:?}"), expected))?;
                let choice = LawChoice::of(spec, params.unwrap_or_default());
                choice
                    .map_err(|error| ParamError {
                        key: format!("{AQM} {kind}: {}", error.key),
                        ..error
                    })?
                    .held_by(queue)?
            }
        };
        Ok(DirectionChoice {
            options,
            law,
            trace,
        })
    }

    /// Returns the mean rate over the whole trace; its law assumes this rate.
    pub fn mean_rate(&self) -> Rate {
        match &self.trace {
            Some(trace) => trace.mean_rate(),
            None => self.options.rate.0.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(options: &[(&str, &str)]) -> Vec<(String, Value)> {
        let text = |(name, text): &(&str, &str)| ((*name).to_owned(), Value::Text((*text).into()));
        options.iter().map(text).collect()
    }

    fn read(options: &[(&str, &str)]) -> Result<LinkOptions, ParamError> {
        let file = |name: &str, text: &[u8]| (name.to_owned(), text.to_vec());
        let files = [file("a.down", b"1\nx\n"), file("c.down", b"1\n")];
        LinkOptions::read(&given(options), &files)
    }

    #[test]
    fn the_other_direction_has_what_is_not_given_for_it() {
        let mut options = given(&[
            ("rate", "15Mbit/s"),
            ("delay", "20..200ms"),
            ("buffer", "64kB"),
            ("aqm", "pi"),
            ("loss_up", "1%"),
        ]);
        let target = vec![("target".to_owned(), Value::Text("20p".into()))];
        options.push(("set".into(), Value::Table(target)));
        let LinkOptions { up, down, .. } = LinkOptions::read(&options, &[]).unwrap();
        assert_eq!(down.options.delay.least, Span::from_millis(20));
        assert_eq!(down.options.delay.most, Span::from_millis(200));
        assert_eq!(up.options.buffer, BufferSize::Room(Buffer::Bytes(64_000)));
        assert_eq!(
            (down.options.loss, up.options.loss),
            (Share(0.0), Share(0.01))
        );
        assert_eq!(up.law.given(), down.law.given());
        // With another law, or with other parameters, the law starts from its initial state.
        options.push(("aqm_up".into(), Value::Text("pi".into())));
        assert!(LinkOptions::read(&options, &[])
            .unwrap()
            .up
            .law
            .given()
            .is_empty());
    }

    #[test]
    fn an_error_names_the_option_the_value_and_what_is_expected() {
        type Case = (&'static [(&'static str, &'static str)], &'static str);
        let cases: [Case; 16] = [
            (&[], "rate: missing; expected either a rate with its unit, "),
            (
                &[("rate", "15")],
                "rate: \"15\" is not valid; expected a rate with its unit, such as \"45Mbit/s\"",
            ),
            (
                &[("rate", "1bit/s")],
                "rate: \"1bit/s\" is not valid; expected a value from 1000bit/s to ",
            ),
            (
                &[("rate", "15Mbit/s"), ("rate_up", "x")],
                "rate-up: \"x\" is not valid; expected a rate with its unit, such as \"45Mbit/s\"",
            ),
            (
                &[("rate", "15Mbit/s"), ("trace", "a.down")],
                "rate: \"15Mbit/s\" cannot be combined with a trace; expected either a rate ",
            ),
            (
                &[("rate", "15Mbit/s"), ("trace_up", "a.down")],
                "trace-up: \"x\" in line 2 of \"a.down\" is not valid; expected a whole number of ms ",
            ),
            (
                &[("trace", "b.down")],
                "trace: \"b.down\" is not valid; expected a file with one time in ms per line",
            ),
            (
                &[("trace", "c.down"), ("burst", "3000B")],
                "burst: \"3000B\" cannot be combined with a trace; expected no burst, since ",
            ),
            (
                &[("rate", "1Mbit/s"), ("delay", "200..20ms")],
                "delay: \"200..20ms\" is not valid; expected a time with its unit, such as \"15ms\", \
                 or a range such as \"20..200ms\"",
            ),
            (
                &[("rate", "1Mbit/s"), ("delay", "61s")],
                "delay: \"61s\" is not valid; expected a value from 0s to 60s",
            ),
            (
                &[("rate", "1Mbit/s"), ("buffer", "1.5p")],
                "buffer: \"1.5p\" is not valid; expected a whole number of packets, ",
            ),
            (
                &[("rate", "1Mbit/s"), ("loss_up", "101%")],
                "loss-up: \"101%\" is not valid; expected a share from 0 to 1, such as \"1%\"",
            ),
            (
                &[("rate", "1Mbit/s"), ("aqm", "pike")],
                "aqm: \"pike\" is not valid; expected one of droptail, red, ",
            ),
            (
                &[("rate", "1Mbit/s"), ("measure", "25s..5s")],
                "measure: \"25s..5s\" is not valid; expected a range of time, such as \"5s..\" or ",
            ),
            (
                &[("rate", "1Mbit/s"), ("void_rate", "x")],
                "void-rate: \"x\" is not valid; expected a share from 0 to 1, ",
            ),
            (
                &[("rate", "1Mbit/s"), ("delya", "1ms")],
                "delya: unknown key; expected one of rate, ",
            ),
        ];
        for (options, expected) in cases {
            let error = read(options).map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn what_a_default_is_written_as_is_read_as_the_same() {
        for option in link_options() {
            let Some(default) = option.default else {
                continue;
            };
            let mut all = given(&[("rate", "1Mbit/s")]);
            all.push((option.name.clone(), default));
            let read = LinkOptions::read(&all, &[]).unwrap();
            let plain = LinkOptions::read(&given(&[("rate", "1Mbit/s")]), &[]).unwrap();
            assert_eq!(read.whole, plain.whole, "{}", option.name);
            assert_eq!(read.down.options, plain.down.options, "{}", option.name);
        }
    }
}
