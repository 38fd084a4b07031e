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

type Value = fn(&Now) -> f64;

/// Name, type, help and value of the metrics that each direction has once.
const EACH: &[(&str, &str, &str, Value)] = &[
    ("bytes_total", "counter", "Bytes sent by the link.", |now| {
        now.counts.sent_bytes as f64
    }),
    (
        "packets_total",
        "counter",
        "Packets sent by the link.",
        |now| now.counts.sent_packets as f64,
    ),
    (
        "arrived_packets_total",
        "counter",
        "Packets that came to the queue.",
        |now| now.counts.arrived_packets as f64,
    ),
    (
        "marks_total",
        "counter",
        "Packets that the law marked with CE.",
        |now| now.counts.marks as f64,
    ),
    (
        "lost_packets_total",
        "counter",
        "Packets lost after the queue, by the option loss.",
        |now| now.counts.lost_packets as f64,
    ),
    (
        "current_queue_length",
        "gauge",
        "Packets in the queue.",
        |now| f64::from(now.queue_pkts),
    ),
    ("backlog", "gauge", "Bytes in the queue.", |now| {
        now.queue_bytes as f64
    }),
    (
        "rate_bits_per_second",
        "gauge",
        "Rate of the link; the mean of a recorded one.",
        |now| now.rate_bps,
    ),
    (
        "target_packets",
        "gauge",
        "Set-point of the law; NaN where it has none.",
        |now| now.target_pkts.unwrap_or(f64::NAN),
    ),
];

type ClassValue = fn(&ClassNow) -> u64;

/// Name, help and value of the counters that each class of a discipline has.
const EACH_CLASS: &[(&str, &str, ClassValue)] = &[
    ("class_bytes_total", "Bytes sent of a class.", |class| {
        class.sent_bytes
    }),
    ("class_packets_total", "Packets sent of a class.", |class| {
        class.sent_packets
    }),
    (
        "class_drops_total",
        "Packets dropped of a class.",
        |class| class.drops,
    ),
    (
        "class_marks_total",
        "Packets of a class that were marked with CE.",
        |class| class.marks,
    ),
];

/// What each class of the disciplines met; headings alone where there are none.
fn classes(out: &mut String, picture: &Picture) {
    let each = || {
        let ways = ["up", "down"].into_iter().zip(&picture.ways);
        ways.flat_map(|(way, now)| {
            now.classes.iter().map(move |class| {
                let labels = format!("{},class=\"{}\"", labels(way, now), class.name);
                (labels, class)
            })
        })
    };
    for (name, help, value) in EACH_CLASS {
        heading(out, name, "counter", help);
        for (labels, class) in each() {
            let _ = writeln!(out, "forebay_link_{name}{{{labels}}} {}", value(class));
        }
    }
    heading(
        out,
        "class_delay_seconds",
        "gauge",
        "Queuing delay of a class in the last moment, by quantile; NaN where no packet left.",
    );
    for (labels, class) in each() {
        for (quantile, value) in QUANTILES.iter().zip(class.delay_s) {
            let _ = writeln!(
                out,
                "forebay_link_class_delay_seconds{{{labels},quantile=\"{quantile}\"}} {}",
                number(value)
            );
        }
    }
}

const QUANTILES: [&str; 3] = ["0.5", "0.95", "0.99"];

fn labels(way: &str, now: &Now) -> String {
    format!("direction=\"{way}\",kind=\"{}\"", now.law)
}

/// A picture as Prometheus reads it.
pub fn text(picture: &Picture) -> String {
    let mut out = String::new();
    let ways = || ["up", "down"].into_iter().zip(&picture.ways);
    for (name, kind, help, value) in EACH {
        heading(&mut out, name, kind, help);
        for (way, now) in ways() {
            let _ = writeln!(
                out,
                "forebay_link_{name}{{{}}} {}",
                labels(way, now),
                number(value(now))
            );
        }
    }
    heading(&mut out, "drops_total", "counter", "Packets dropped.");
    for (way, now) in ways() {
        let counts = &now.counts;
        for (reason, value) in [
            ("early", counts.early_drops),
            ("forced", counts.forced_drops),
            ("overflow", counts.overflow_drops),
        ] {
            let labels = labels(way, now);
            let _ = writeln!(
                out,
                "forebay_link_drops_total{{{labels},reason=\"{reason}\"}} {value}"
            );
        }
    }
    heading(
        &mut out,
        "delay_seconds",
        "gauge",
        "Queuing delay of the last moment, by quantile.",
    );
    for (way, now) in ways() {
        for (quantile, value) in QUANTILES.iter().zip(now.delay_s) {
            let labels = labels(way, now);
            let _ = writeln!(
                out,
                "forebay_link_delay_seconds{{{labels},quantile=\"{quantile}\"}} {}",
                number(value)
            );
        }
    }
    classes(&mut out, picture);
    heading(
        &mut out,
        "law_state",
        "gauge",
        "Inner values of the law; p is its probability.",
    );
    for (way, now) in ways() {
        for (name, value) in &now.probes {
            let labels = labels(way, now);
            let _ = writeln!(
                out,
                "forebay_link_law_state{{{labels},name=\"{name}\"}} {}",
                number(*value)
            );
        }
    }
    heading(
        &mut out,
        "lateness_p99_seconds",
        "gauge",
        "Lateness that 99 % of the released packets did not exceed.",
    );
    let _ = writeln!(
        out,
        "forebay_link_lateness_p99_seconds {}",
        number(picture.lateness_p99_s)
    );
    out
}

fn heading(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP forebay_link_{name} {help}");
    let _ = writeln!(out, "# TYPE forebay_link_{name} {kind}");
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
