//! Everything that a run depends on, as one canonical text: two scenarios that differ only in their
//! spelling have the same text, and two that can give different numbers do not. The store finds a
//! run by a digest of this text.
//!
//! The text is a list of keys and values. The keys are those of the scenario file and are written
//! out here, so that a Rust type or field can be renamed without losing any stored run. Each type
//! is destructured in full: a new field does not compile until it is either in the text or left out
//! on purpose. Titles are left out, defaults are filled in, and the contents of a file are
//! represented by a digest.

use forebay_units::{Buffer, Bytes, Rate, SetPoint, Span, Time, Value};

use crate::law_choice::LawChoice;
use crate::link_types::Share;
use crate::model::{
    Cbr, Change, EcnChoice, External, Frames, Instant, KernelSettings, Link, LinkSetting, Mice,
    Offloads, OnOff, Pages, Pareto2, Program, ProgramFile, Recorded, Scenario, Setting, Shaper,
    Tcp, Traffic, TrafficKind, Video, Voice, Web,
};
use crate::senders::Sender;
use crate::types::{Maybe, WholePackets};

impl Scenario {
    /// Returns everything that a run depends on besides its law and its seed.
    pub fn resolved(&self) -> String {
        canonical_text(&self.canonical())
    }
}

impl LawChoice {
    /// Returns the law and its queue with the value of every parameter; the label is left out.
    pub fn resolved(&self) -> String {
        canonical_text(&self.canonical())
    }
}

/// A type whose contents decide the numbers of a run.
trait Canonical {
    /// Returns the contents as keys and values that depend on no name in the code.
    fn canonical(&self) -> Value;
}

/// Writes a value so that different values have different texts.
fn canonical_text(value: &Value) -> String {
    match value {
        Value::Flag(flag) => flag.to_string(),
        Value::Integer(integer) => integer.to_string(),
        // `{:?}` of a float is the shortest text that reads back as the same float.
        Value::Number(number) => format!("{number:?}"),
        Value::Text(text) => format!("{text:?}"),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(canonical_text).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Table(fields) => {
            let field =
                |(key, value): &(String, Value)| format!("{key} = {}", canonical_text(value));
            let fields: Vec<String> = fields.iter().map(field).collect();
            format!("{{ {} }}", fields.join(", "))
        }
    }
}

fn table<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let fields = fields.into_iter();
    Value::Table(fields.map(|(key, value)| (key.to_owned(), value)).collect())
}

fn word(text: &str) -> Value {
    Value::Text(text.to_owned())
}

/// Returns a count or an exact quantity: all digits, since a float or an `i64` does not hold every
/// `u64`.
fn whole(number: impl Into<u128>) -> Value {
    word(&number.into().to_string())
}

impl Canonical for bool {
    fn canonical(&self) -> Value {
        Value::Flag(*self)
    }
}

impl Canonical for u8 {
    fn canonical(&self) -> Value {
        whole(*self)
    }
}

impl Canonical for u32 {
    fn canonical(&self) -> Value {
        whole(*self)
    }
}

impl Canonical for usize {
    fn canonical(&self) -> Value {
        word(&self.to_string())
    }
}

impl Canonical for f64 {
    fn canonical(&self) -> Value {
        Value::Number(*self)
    }
}

impl Canonical for String {
    fn canonical(&self) -> Value {
        word(self)
    }
}

impl Canonical for Span {
    fn canonical(&self) -> Value {
        word(&format!("{}ns", self.as_nanos()))
    }
}

impl Canonical for Time {
    fn canonical(&self) -> Value {
        word(&format!("{}ns", self.as_nanos()))
    }
}

impl Canonical for Rate {
    fn canonical(&self) -> Value {
        word(&format!("{}bit/s", self.as_bps()))
    }
}

impl Canonical for Bytes {
    fn canonical(&self) -> Value {
        word(&format!("{}B", self.0))
    }
}

impl Canonical for Buffer {
    fn canonical(&self) -> Value {
        word(&match self {
            Buffer::Packets(packets) => format!("{packets}p"),
            Buffer::Bytes(bytes) => format!("{bytes}B"),
        })
    }
}

impl Canonical for SetPoint {
    fn canonical(&self) -> Value {
        match self {
            SetPoint::Packets(packets) => word(&format!("{packets:?}p")),
            SetPoint::Delay(delay) => delay.canonical(),
        }
    }
}

impl Canonical for WholePackets {
    fn canonical(&self) -> Value {
        self.0.canonical()
    }
}

impl Canonical for Share {
    fn canonical(&self) -> Value {
        self.0.canonical()
    }
}

impl<T: Canonical> Canonical for Maybe<T> {
    fn canonical(&self) -> Value {
        self.0.canonical()
    }
}

impl Canonical for Value {
    fn canonical(&self) -> Value {
        self.clone()
    }
}

impl<T: Canonical> Canonical for Option<T> {
    fn canonical(&self) -> Value {
        Value::List(self.iter().map(T::canonical).collect())
    }
}

impl<T: Canonical> Canonical for Vec<T> {
    fn canonical(&self) -> Value {
        Value::List(self.iter().map(T::canonical).collect())
    }
}

impl Canonical for LawChoice {
    fn canonical(&self) -> Value {
        let LawChoice {
            label: _,
            spec,
            queue,
            given: _,
            law,
        } = self;
        // The queue was built once when the scenario was read, so it resolves.
        let parameters = |resolved: Vec<(&str, Value)>| {
            let named = |(key, value): (&str, Value)| (key.to_owned(), value);
            Value::Table(resolved.into_iter().map(named).collect())
        };
        table([
            ("kind", word(spec.kind)),
            ("parameters", parameters(law.values())),
            ("queue", word(queue.spec.kind)),
            ("queue.parameters", parameters(queue.values())),
        ])
    }
}

/// Implements [`Canonical`] for a struct: the key of each field in the text. The fields that are left
/// out follow `without`.
macro_rules! canonical {
    ($type:ident { $($field:ident: $key:literal),* $(,)? } $(without $($other:ident),+)?) => {
        impl Canonical for $type {
            fn canonical(&self) -> Value {
                let $type { $($field,)* $($($other: _,)+)? } = self;
                table([$(($key, $field.canonical())),*])
            }
        }
    };
}

impl Canonical for Scenario {
    fn canonical(&self) -> Value {
        let Scenario {
            title: _,
            source: _,
            duration,
            measure: (measure_start, measure_end),
            sample,
            target,
            windows,
            links,
            tested,
            traffic,
            changes,
            kernel,
        } = self;
        let untested = (0..).zip(links).filter(|(number, _)| number != tested);
        table([
            ("duration", duration.canonical()),
            ("measure.start", measure_start.canonical()),
            ("measure.end", measure_end.canonical()),
            ("sample", sample.canonical()),
            ("target", target.canonical()),
            ("windows", windows.canonical()),
            ("bottleneck", links[*tested].canonical()),
            (
                "link",
                Value::List(untested.map(|(_, link)| link.canonical()).collect()),
            ),
            ("traffic", traffic.canonical()),
            ("at", changes.canonical()),
            ("kernel", kernel.canonical()),
        ])
    }
}

impl Canonical for KernelSettings {
    fn canonical(&self) -> Value {
        let KernelSettings {
            given,
            tcp,
            offloads,
            shaper,
            sysctls,
            pcap,
        } = self;
        let sysctl = |(name, value): &(String, String)| (name.clone(), word(value));
        table([
            ("given", given.canonical()),
            ("tcp", tcp.canonical()),
            (
                "offloads",
                word(match offloads {
                    Offloads::Off => "off",
                    Offloads::Hosts => "hosts",
                    Offloads::All => "all",
                }),
            ),
            (
                "shaper",
                word(match shaper {
                    Shaper::Tbf => "tbf",
                    Shaper::Htb => "htb",
                }),
            ),
            (
                "sysctls",
                Value::Table(sysctls.iter().map(sysctl).collect()),
            ),
            ("pcap", pcap.canonical()),
        ])
    }
}

impl Canonical for Link {
    fn canonical(&self) -> Value {
        let Link {
            name,
            from,
            to,
            rate,
            burst,
            rate_back,
            trace,
            delay,
            buffer,
            ecn,
            law,
        } = self;
        let opportunities = |times: &[u32]| digest(times.iter().flat_map(|ms| ms.to_le_bytes()));
        table([
            ("name", name.canonical()),
            ("from", from.canonical()),
            ("to", to.canonical()),
            ("rate", rate.canonical()),
            ("burst", burst.canonical()),
            ("rate_back", rate_back.canonical()),
            (
                "rate_trace",
                trace
                    .as_ref()
                    .map(|trace| opportunities(&trace.times_ms))
                    .canonical(),
            ),
            ("delay", delay.canonical()),
            ("buffer", buffer.canonical()),
            ("ecn", ecn.canonical()),
            ("law", law.canonical()),
        ])
    }
}

impl Canonical for Traffic {
    fn canonical(&self) -> Value {
        let Traffic {
            label,
            flows,
            packet,
            header,
            path,
            rtts,
            access,
            dscp,
            pairs,
            group,
            host,
            start,
            stop,
            kind,
        } = self;
        table([
            ("label", label.canonical()),
            ("flows", flows.canonical()),
            ("packet", packet.canonical()),
            ("header", header.canonical()),
            ("path", path.canonical()),
            ("rtt", rtts.canonical()),
            ("access", access.canonical()),
            ("dscp", dscp.canonical()),
            ("pairs", pairs.canonical()),
            ("group", group.canonical()),
            ("host", host.canonical()),
            ("start", start.canonical()),
            ("stop", stop.canonical()),
            ("kind", word(kind.name())),
            ("keys", kind.canonical()),
        ])
    }
}

impl Canonical for Instant {
    fn canonical(&self) -> Value {
        match self {
            Instant::At(time) => time.canonical(),
            Instant::Uniform(low, high) => {
                let bounds = Value::List(vec![low.canonical(), high.canonical()]);
                table([("uniform", bounds)])
            }
        }
    }
}

impl Canonical for TrafficKind {
    fn canonical(&self) -> Value {
        match self {
            TrafficKind::Ftp(tcp) => tcp.canonical(),
            TrafficKind::Mice(Mice { on, off, ns2_reset }, tcp) => table([
                ("tcp", tcp.canonical()),
                ("on", on.canonical()),
                ("off", off.canonical()),
                ("ns2_reset", ns2_reset.canonical()),
            ]),
            TrafficKind::Cbr(cbr) => cbr.canonical(),
            TrafficKind::Web(web, tcp, size) => {
                let Web {
                    requests,
                    connections,
                } = web;
                table([
                    ("tcp", tcp.canonical()),
                    ("requests_per_s", requests.canonical()),
                    ("size", size.canonical()),
                    ("most_connections", connections.canonical()),
                ])
            }
            TrafficKind::Pages(pages, tcp, size) => {
                let Pages {
                    pages,
                    page_gap,
                    objects,
                    object_gap,
                } = pages;
                table([
                    ("tcp", tcp.canonical()),
                    ("pages", pages.canonical()),
                    ("page_gap", page_gap.canonical()),
                    ("objects", objects.canonical()),
                    ("object_gap", object_gap.canonical()),
                    ("size", size.canonical()),
                ])
            }
            TrafficKind::OnOff(onoff) => onoff.canonical(),
            TrafficKind::Voice(voice) => voice.canonical(),
            TrafficKind::Frames(frames) => frames.canonical(),
            TrafficKind::Video(video, tcp) => {
                let Video {
                    segment,
                    ladder,
                    buffer,
                    reservoir,
                } = video;
                table([
                    ("tcp", tcp.canonical()),
                    ("segment", segment.canonical()),
                    ("ladder", ladder.canonical()),
                    ("buffer", buffer.canonical()),
                    ("reservoir", reservoir.canonical()),
                ])
            }
            TrafficKind::Arrivals(recorded) => recorded.canonical(),
            TrafficKind::External(external) => external.canonical(),
            TrafficKind::Program(program) => program.canonical(),
        }
    }
}

impl Canonical for OnOff {
    fn canonical(&self) -> Value {
        let OnOff {
            rate,
            on,
            on_shape,
            off,
            bursts,
            arrivals,
            swing,
            period,
            peak,
            ecn,
        } = self;
        // Without arrivals, the keys of their rate have no effect.
        let arrivals = arrivals.0.map(|per_s| {
            table([
                ("per_s", per_s.canonical()),
                ("swing", swing.canonical()),
                ("period", period.canonical()),
                ("peak", peak.canonical()),
            ])
        });
        table([
            ("rate", rate.canonical()),
            ("on", on.canonical()),
            ("on_shape", on_shape.canonical()),
            ("off", off.canonical()),
            ("bursts", bursts.canonical()),
            ("arrivals", arrivals.canonical()),
            ("ecn", ecn.canonical()),
        ])
    }
}

impl Canonical for Voice {
    fn canonical(&self) -> Value {
        let Voice {
            rate,
            interval,
            talk,
            pause,
            ecn,
        } = self;
        // Either both are given or neither.
        let talk = (talk.0.zip(pause.0))
            .map(|(talk, pause)| table([("talk", talk.canonical()), ("pause", pause.canonical())]));
        table([
            ("rate", rate.canonical()),
            ("interval", interval.canonical()),
            ("talk", talk.canonical()),
            ("ecn", ecn.canonical()),
        ])
    }
}

canonical!(Cbr {
    rate: "rate",
    ecn: "ecn"
});
canonical!(Frames {
    frame: "packets",
    interval: "interval",
    ecn: "ecn"
});
canonical!(External { loss: "loss" });
canonical!(Pareto2 {
    shape: "shape",
    scale: "scale"
});
canonical!(Program {
    client: "client",
    server: "server",
    ecn: "ecn",
    files: "files"
});
canonical!(ProgramFile {
    name: "name",
    digest: "digest"
});
canonical!(Change {
    at: "time",
    what: "set"
});

// The name of the sender decides: the rest of its table is derived from it, or prose. The keys that a
// stack stands for are in the text.
canonical!(Tcp {
    tcp: "tcp",
    ecn: "ecn",
    pacing: "pacing",
    gso: "gso",
    window: "window",
    initial_window: "initial_window",
    min_rto: "min_rto",
    delayed_ack: "delayed_ack",
    ack_delay: "ack_delay",
    quick_acks: "quick_acks",
    limited_transmit: "limited_transmit",
} without stack);

impl Canonical for Sender {
    fn canonical(&self) -> Value {
        word(self.0.name)
    }
}

impl Canonical for EcnChoice {
    fn canonical(&self) -> Value {
        word(match self {
            EcnChoice::Off => "off",
            EcnChoice::Classic => "classic",
            EcnChoice::L4s => "l4s",
        })
    }
}

impl Canonical for Recorded {
    fn canonical(&self) -> Value {
        let Recorded {
            file,
            packets,
            // The packets are split already.
            mtu: _,
            scale,
            period,
        } = self;
        let of_packets = packets.packets.iter().flat_map(|packet| {
            let mut bytes = packet.at.as_nanos().to_le_bytes().to_vec();
            bytes.extend(packet.flow.to_le_bytes());
            bytes.extend(packet.bytes.to_le_bytes());
            bytes.extend([packet.class.0, u8::from(packet.tcp)]);
            bytes
        });
        let of_hosts = packets.hosts.iter().flat_map(|&(from, to)| {
            let mut bytes = from.to_le_bytes().to_vec();
            bytes.extend(to.to_le_bytes());
            bytes
        });
        table([
            ("file", file.canonical()),
            ("packets", word(&digest(of_packets))),
            ("hosts", word(&digest(of_hosts))),
            ("scale", scale.canonical()),
            ("period", period.canonical()),
        ])
    }
}

impl Canonical for Setting {
    fn canonical(&self) -> Value {
        match self {
            Setting::Link { link, what } => {
                let (key, value) = match what {
                    LinkSetting::Rate(rate) => ("rate", rate.canonical()),
                    LinkSetting::Delay(delay) => ("delay", delay.canonical()),
                    LinkSetting::Buffer(buffer) => ("buffer", buffer.canonical()),
                };
                table([("link", link.canonical()), (key, value)])
            }
            Setting::Flows { traffic, flows } => table([
                ("traffic", traffic.canonical()),
                ("flows", flows.canonical()),
            ]),
        }
    }
}

impl ProgramFile {
    /// Returns the file as a scenario keeps it: its name and a digest of its contents.
    pub fn new(name: String, contents: &[u8]) -> ProgramFile {
        let digest = digest(contents.iter().copied());
        ProgramFile { name, digest }
    }
}

/// Returns the FNV-1a hash of bytes in 128 bits (RFC 9923), in hexadecimal digits.
fn digest(bytes: impl IntoIterator<Item = u8>) -> String {
    const OFFSET_BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = (1 << 88) + 0x13b;
    let step = |hash: u128, byte: u8| (hash ^ u128::from(byte)).wrapping_mul(PRIME);
    format!("{:032x}", bytes.into_iter().fold(OFFSET_BASIS, step))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use crate::{parse, Options};

    const FILE: &str = r#"
        title = "one"
        duration = "20s"
        [bottleneck]
        rate = "10Mbit/s"
        delay = "20ms"
        buffer = "100p"
        [[traffic]]
        kind = "ftp"
        flows = 5
        rtt = "100ms"
        [[law]]
        kind = "pi"
        target = "20p"
    "#;

    fn resolved(text: &str) -> (String, String) {
        let read = parse(text.as_bytes(), "test", &Options::default()).unwrap();
        let point = &read.points[0];
        (point.scenario.resolved(), point.laws[0].resolved())
    }

    #[test]
    fn spelling_is_not_in_it() {
        let spelled = FILE
            .replace("\"one\"", "\"two\" # a comment\nseeds = 7")
            .replace("\"20ms\"", "\"0.02s\"")
            .replace("\"10Mbit/s\"", "\"10000kbit/s\"")
            .replace("kind = \"pi\"", "label = \"mine\"\nkind = \"pi\"")
            // The default, written out.
            .replace("kind = \"ftp\"", "tcp = \"reno\"\nkind = \"ftp\"");
        assert_eq!(resolved(FILE), resolved(&spelled));
    }

    #[test]
    fn each_value_is_in_it() {
        for (was, is) in [
            ("\"20s\"", "\"21s\""),
            ("\"20ms\"", "\"20001us\""),
            ("\"100p\"", "\"101p\""),
            ("\"100p\"", "\"100p\"\nrate_back = \"1Gbit/s\""),
            ("flows = 5", "flows = 6"),
            ("flows = 5", "flows = 5\ntcp = \"cubic\""),
            ("\"20p\"", "\"21p\""),
            ("\"20p\"", "\"20p\"\nqueue = \"fq\""),
        ] {
            assert_ne!(resolved(FILE), resolved(&FILE.replace(was, is)), "{is}");
        }
    }

    /// The whole text of one scenario. Its names are those of the scenario file: renaming a type or
    /// a field in the code leaves this test, and every stored run, as it is.
    #[test]
    fn the_text_has_names_of_the_file_and_none_of_the_code() {
        let (scenario, law) = resolved(FILE);
        let tcp = concat!(
            r#"{ tcp = "reno", ecn = "off", pacing = false, gso = true, window = "10000", "#,
            r#"initial_window = "2", min_rto = "200000000ns", delayed_ack = false, "#,
            r#"ack_delay = "100000000ns", quick_acks = "0", limited_transmit = true }"#,
        );
        assert!(scenario.contains(tcp), "{scenario}");
        assert!(
            law.starts_with("{ kind = \"pi\", parameters = { target = \"20p\""),
            "{law}"
        );
        for name in [
            "Span",
            "Rate",
            "Some",
            "None",
            "Ftp",
            "Tcp",
            "min_rto_ns",
            "_pkts",
        ] {
            assert!(!scenario.contains(name) && !law.contains(name), "{name}");
        }
    }

    #[test]
    fn a_digest_is_that_of_the_rfc() {
        // RFC 9923, appendix C.
        assert_eq!(
            super::digest(*b"foobar"),
            "343e1662793c64bf6f0d3597ba446f18"
        );
    }
}
