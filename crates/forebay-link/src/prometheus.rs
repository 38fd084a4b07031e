//! Counters of a run for Prometheus, in its text format, version 0.0.4. Names are those of
//! node_exporter's qdisc collector where it has the quantity.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::PoisonError;
use std::thread;
use std::time::Duration;

use forebay_core::ParamError;

use crate::classes::ClassNow;
use crate::live::{Now, Picture, Shared};

/// Longest request that is read, in bytes.
const LONGEST_REQUEST: u64 = 8192;
const PATIENCE: Duration = Duration::from_secs(2);

/// An address that serves metrics. It is bound before the caller enters a namespace.
pub struct Endpoint {
    listener: TcpListener,
}

impl Endpoint {
    /// The endpoint at `address`, such as "127.0.0.1:9100".
    ///
    /// # Errors
    /// A text that is no address, or an address that cannot be bound.
    pub fn at(address: &str) -> Result<Endpoint, ParamError> {
        let wrong = |found: String| {
            let allowed = "an address of this machine with a free port, such as 127.0.0.1:9100";
            ParamError::new("metrics", found, allowed)
        };
        let address: SocketAddr = address.parse().map_err(|_| wrong(format!("{address:?}")))?;
        Endpoint::bind(address).map_err(|error| wrong(format!("{address}, {error}")))
    }

    /// # Errors
    /// As bind(2) says.
    pub fn bind(address: SocketAddr) -> io::Result<Endpoint> {
        Ok(Endpoint {
            listener: TcpListener::bind(address)?,
        })
    }

    /// # Errors
    /// As getsockname(2) says.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers in threads of its own for as long as the process lives. Each connection has one,
    /// so that a silent one does not hold up the others.
    pub fn serve(self, shared: Shared) {
        thread::spawn(move || {
            for stream in self.listener.incoming().flatten() {
                let shared = Shared::clone(&shared);
                // A connection that breaks off concerns nobody else.
                thread::spawn(move || answer(stream, &shared));
            }
        });
    }
}

fn answer(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = BufReader::new((&stream).take(LONGEST_REQUEST));
    let mut line = String::new();
    request.read_line(&mut line)?;
    let mut header = String::new();
    while request.read_line(&mut header)? > 2 {
        header.clear();
    }
    let mut words = line.split_whitespace();
    let (status, kind, body) = match (words.next(), words.next()) {
        (Some("GET"), Some("/metrics" | "/")) => {
            let picture = shared
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone();
            (
                "200 OK",
                "text/plain; version=0.0.4; charset=utf-8",
                text(&picture),
            )
        }
        (Some("GET"), _) => ("404 Not Found", "text/plain", "see /metrics\n".to_owned()),
        _ => (
            "405 Method Not Allowed",
            "text/plain",
            "GET /metrics\n".to_owned(),
        ),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// Name, help and value of what each direction, or each class of its discipline, has once.
type Table<T> = &'static [(&'static str, &'static str, fn(&T) -> f64)];

const COUNTERS: Table<Now> = &[
    ("bytes_total", "Bytes sent by the link.", |now| {
        now.counts.sent_bytes as f64
    }),
    ("packets_total", "Packets sent by the link.", |now| {
        now.counts.sent_packets as f64
    }),
    (
        "arrived_packets_total",
        "Packets that came to the queue.",
        |now| now.counts.arrived_packets as f64,
    ),
    (
        "marks_total",
        "Packets that the law marked with CE.",
        |now| now.counts.marks as f64,
    ),
    (
        "lost_packets_total",
        "Packets lost after the queue, by the option loss.",
        |now| now.counts.lost_packets as f64,
    ),
];

const GAUGES: Table<Now> = &[
    ("current_queue_length", "Packets in the queue.", |now| {
        f64::from(now.queue_pkts)
    }),
    ("backlog", "Bytes in the queue.", |now| {
        now.queue_bytes as f64
    }),
    (
        "rate_bits_per_second",
        "Rate of the link; the mean of a recorded one.",
        |now| now.rate_bps,
    ),
    (
        "target_packets",
        "Set-point of the law; NaN where it has none.",
        |now| now.target_pkts.unwrap_or(f64::NAN),
    ),
];

const CLASS_COUNTERS: Table<ClassNow> = &[
    ("class_bytes_total", "Bytes sent of a class.", |class| {
        class.sent_bytes as f64
    }),
    ("class_packets_total", "Packets sent of a class.", |class| {
        class.sent_packets as f64
    }),
    (
        "class_drops_total",
        "Packets dropped of a class.",
        |class| class.drops as f64,
    ),
    (
        "class_marks_total",
        "Packets of a class that were marked with CE.",
        |class| class.marks as f64,
    ),
];

const QUANTILES: [&str; 3] = ["0.5", "0.95", "0.99"];

/// A sample: its labels, and its value.
type Labelled = (String, f64);

/// A delay at each quantile.
fn quantiles(labels: &str, delay_s: [f64; 3]) -> impl Iterator<Item = Labelled> + use<'_> {
    let sample =
        move |(quantile, value): (&str, f64)| (format!("{labels},quantile=\"{quantile}\""), value);
    QUANTILES.into_iter().zip(delay_s).map(sample)
}

/// A picture as Prometheus reads it. What each class of the disciplines met is headings alone where
/// there are none.
pub fn text(picture: &Picture) -> String {
    let mut out = String::new();
    let ways: Vec<(String, &Now)> = ["up", "down"]
        .into_iter()
        .zip(&picture.ways)
        .map(|(way, now)| (format!("direction=\"{way}\",kind=\"{}\"", now.law), now))
        .collect();
    let mut classes: Vec<(String, &ClassNow)> = Vec::new();
    for (labels, now) in &ways {
        for class in &now.classes {
            classes.push((format!("{labels},class=\"{}\"", class.name), class));
        }
    }
    for (kind, table) in [("counter", COUNTERS), ("gauge", GAUGES)] {
        for (name, help, value) in table {
            let samples = ways
                .iter()
                .map(|(labels, now)| (labels.clone(), value(now)));
            family(&mut out, name, kind, help, samples);
        }
    }
    let drops = ways.iter().flat_map(|(labels, now)| {
        let reasons = [
            ("early", now.counts.early_drops),
            ("forced", now.counts.forced_drops),
            ("overflow", now.counts.overflow_drops),
        ];
        reasons.map(|(reason, drops)| (format!("{labels},reason=\"{reason}\""), drops as f64))
    });
    family(
        &mut out,
        "drops_total",
        "counter",
        "Packets dropped.",
        drops,
    );
    let delays = ways
        .iter()
        .flat_map(|(labels, now)| quantiles(labels, now.delay_s));
    let help = "Queuing delay of the last moment, by quantile.";
    family(&mut out, "delay_seconds", "gauge", help, delays);
    for (name, help, value) in CLASS_COUNTERS {
        let samples = classes
            .iter()
            .map(|(labels, class)| (labels.clone(), value(class)));
        family(&mut out, name, "counter", help, samples);
    }
    let delays = classes
        .iter()
        .flat_map(|(labels, class)| quantiles(labels, class.delay_s));
    let help =
        "Queuing delay of a class in the last moment, by quantile; NaN where no packet left.";
    family(&mut out, "class_delay_seconds", "gauge", help, delays);
    let states = ways.iter().flat_map(|(labels, now)| {
        let state = move |(name, value): &(_, f64)| (format!("{labels},name=\"{name}\""), *value);
        now.probes.iter().map(state)
    });
    let help = "Inner values of the law; p is its probability.";
    family(&mut out, "law_state", "gauge", help, states);
    let lateness = [(String::new(), picture.lateness_p99_s)];
    let help = "Lateness that 99 % of the released packets did not exceed.";
    family(&mut out, "lateness_p99_seconds", "gauge", help, lateness);
    out
}

/// A metric with its samples.
fn family(
    out: &mut String,
    name: &str,
    kind: &str,
    help: &str,
    samples: impl IntoIterator<Item = Labelled>,
) {
    let _ = writeln!(out, "# HELP forebay_link_{name} {help}");
    let _ = writeln!(out, "# TYPE forebay_link_{name} {kind}");
    for (labels, value) in samples {
        let labels = match labels.as_str() {
            "" => labels,
            _ => format!("{{{labels}}}"),
        };
        let _ = writeln!(out, "forebay_link_{name}{labels} {}", number(value));
    }
}

/// As the format has it: "NaN", "+Inf" and "-Inf" are numbers too.
fn number(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    fn shared() -> Shared {
        let mut picture = Picture::default();
        picture.ways[0].law = "pi".into();
        picture.ways[0].counts.early_drops = 7;
        picture.ways[0].probes = vec![("p", 0.25)];
        picture.ways[0].classes = ["l4s", "classic"]
            .map(|name| ClassNow {
                name,
                sent_packets: 9,
                delay_s: [0.001, 0.002, f64::NAN],
                ..ClassNow::default()
            })
            .into();
        Arc::new(Mutex::new(picture))
    }

    fn ask(request: &str) -> String {
        let endpoint = Endpoint::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let mut stream = TcpStream::connect(endpoint.address().unwrap()).unwrap();
        endpoint.serve(shared());
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn metrics_are_served() {
        let answer = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"));
        for line in [
            "forebay_link_drops_total{direction=\"up\",kind=\"pi\",reason=\"early\"} 7\n",
            "forebay_link_law_state{direction=\"up\",kind=\"pi\",name=\"p\"} 0.25\n",
            "# TYPE forebay_link_current_queue_length gauge\n",
            "# TYPE forebay_link_class_packets_total counter\n",
            "forebay_link_class_packets_total{direction=\"up\",kind=\"pi\",class=\"classic\"} 9\n",
            "forebay_link_class_delay_seconds{direction=\"up\",kind=\"pi\",class=\"l4s\",quantile=\"0.5\"} 0.001\n",
        ] {
            assert!(answer.contains(line), "{answer}");
        }
    }

    #[test]
    fn one_that_says_nothing_holds_nobody_up() {
        let endpoint = Endpoint::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = endpoint.address().unwrap();
        let mut silent = TcpStream::connect(address).unwrap();
        endpoint.serve(shared());
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"));
        // The silent one is still waited for.
        silent.set_nonblocking(true).unwrap();
        let waiting = silent.read(&mut [0]).unwrap_err();
        assert_eq!(waiting.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn every_sample_follows_its_type() {
        let body = text(&shared().lock().unwrap());
        let mut family = String::new();
        for line in body.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                family = rest.split(' ').next().unwrap().to_owned();
            } else if !line.starts_with('#') {
                assert!(line.starts_with(&family), "{line} under {family}");
                let value = line.rsplit(' ').next().unwrap();
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
    }

    #[test]
    fn anything_else_is_refused() {
        assert!(ask("GET /x HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert!(ask("\r\n\r\n").starts_with("HTTP/1.1 405"));
    }
}
