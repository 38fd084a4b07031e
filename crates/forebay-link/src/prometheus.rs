//! Metrics endpoint of a run, in Prometheus' text format, version 0.0.4. The names are those of
//! node_exporter's qdisc collector where it has the same quantity.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use forebay_units::ParamError;

use crate::classes::ClassNow;
use crate::connections::{self, MOST_CONNECTIONS};
use crate::live::{DirectionNow, Picture, Shared};

/// The longest request that is read, in bytes.
const LONGEST_REQUEST: u64 = 8192;
/// The time that a connection has for request and answer together.
const PATIENCE: Duration = Duration::from_secs(2);

/// A TCP address that serves metrics. It is bound before the caller enters a namespace.
pub struct Endpoint {
    listener: TcpListener,
}

impl Endpoint {
    /// Binds an endpoint at `address`, such as "127.0.0.1:9100".
    ///
    /// # Errors
    /// The text is not an address with a port, or the address cannot be bound.
    pub fn at(address: &str) -> Result<Endpoint, ParamError> {
        let not_available = |reason: String| {
            let expected = "an address of this machine with a free port, such as 127.0.0.1:9100";
            ParamError::new("metrics", format!("{address:?}"), expected).because(reason)
        };
        let address: SocketAddr = address
            .parse()
            .map_err(|_| not_available("is not valid".to_owned()))?;
        Endpoint::bind(address).map_err(|error| not_available(format!("cannot be used ({error})")))
    }

    /// Binds an endpoint at `address`.
    ///
    /// # Errors
    /// Those of bind(2).
    pub fn bind(address: SocketAddr) -> io::Result<Endpoint> {
        Ok(Endpoint {
            listener: TcpListener::bind(address)?,
        })
    }

    /// Returns the address of the endpoint. Its port is the one that the kernel chose if 0 was
    /// bound.
    ///
    /// # Errors
    /// Those of getsockname(2).
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers requests for as long as the process lives. Each connection has a thread of its own,
    /// so that a silent client does not delay others, and is closed after 2 s.
    ///
    /// # Errors
    /// The thread that accepts connections cannot be started.
    pub fn serve(self, shared: Shared) -> io::Result<()> {
        connections::serve(
            move || Ok(self.listener.accept()?.0),
            move |stream| answer(stream, &shared),
            |stream| {
                let _ = stream.set_nonblocking(true);
                let body = format!("{MOST_CONNECTIONS} connections are open, which is the limit\n");
                let _ = respond(stream, "503 Service Unavailable", PLAIN, &body);
            },
        )
    }
}

/// A connection with a deadline for the whole exchange, however slowly its bytes arrive.
struct Deadline<'a> {
    stream: &'a TcpStream,
    end: Instant,
}

impl Deadline<'_> {
    /// Returns the time that remains, or an error where none does.
    fn rest(&self) -> io::Result<Option<Duration>> {
        let rest = self.end.saturating_duration_since(Instant::now());
        match rest.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(Some(rest)),
        }
    }
}

impl Read for Deadline<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.rest()?)?;
        self.stream.read(bytes)
    }
}

impl Write for Deadline<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.rest()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns whether the Host of a request names this machine: by an address, as localhost, or by its
/// host name. Otherwise a web page whose name resolves to this machine (DNS rebinding) could read
/// the metrics.
fn is_this_machine(host: &str) -> bool {
    if host.parse::<SocketAddr>().is_ok() || host.parse::<IpAddr>().is_ok() {
        return true;
    }
    let without_port = host.rsplit_once(':').map_or(host, |(name, _)| name);
    // An IPv6 address without a port is in square brackets.
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    if bare.is_some_and(|address| address.parse::<IpAddr>().is_ok()) {
        return true;
    }
    let name = without_port.trim_end_matches('.').to_ascii_lowercase();
    let own = nix::unistd::gethostname().ok();
    let own = own
        .and_then(|own| own.into_string().ok())
        .unwrap_or_default();
    name == "localhost" || (!own.is_empty() && name == own.to_ascii_lowercase())
}

/// Reads a request and answers it.
fn answer(stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    let mut stream = Deadline {
        stream,
        end: Instant::now() + PATIENCE,
    };
    let mut request = BufReader::new((&mut stream).take(LONGEST_REQUEST));
    let mut line = String::new();
    request.read_line(&mut line)?;
    let mut hosts = Vec::new();
    let mut header = String::new();
    while request.read_line(&mut header)? > 2 {
        if let Some((name, value)) = header.split_once(':') {
            if name.eq_ignore_ascii_case("host") {
                hosts.push(value.trim().to_owned());
            }
        }
        header.clear();
    }
    let mut words = line.split_whitespace();
    let (method, path, version) = (words.next(), words.next(), words.next());
    // HTTP/1.1 requires a Host header field (RFC 9112, section 3.2); HTTP/1.0 does not.
    let host_is_allowed = match &hosts[..] {
        [] => version != Some("HTTP/1.1"),
        [host] => is_this_machine(host),
        _ => false,
    };
    let (status, kind, body) = match (method, path) {
        (Some("GET"), _) if !host_is_allowed => (
            "403 Forbidden",
            PLAIN,
            "the request's Host is not this machine: ask by its address, its host name or localhost\n"
                .to_owned(),
        ),
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
        (Some("GET"), _) => ("404 Not Found", PLAIN, "see /metrics\n".to_owned()),
        _ => (
            "405 Method Not Allowed",
            PLAIN,
            "GET /metrics\n".to_owned(),
        ),
    };
    respond(stream, status, kind, &body)
}

const PLAIN: &str = "text/plain; charset=utf-8";

/// Writes a response with this content type and closes the exchange.
fn respond(mut stream: impl Write, status: &str, kind: &str, body: &str) -> io::Result<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    );
    stream.write_all((head + body).as_bytes())
}

/// Metrics of which each direction, or each class of its discipline, has one value: name, help
/// text, and the function that returns the value.
type Table<T> = &'static [(&'static str, &'static str, fn(&T) -> f64)];

const COUNTERS: Table<DirectionNow> = &[
    ("bytes_total", "Bytes sent by the link.", |now| {
        now.counts.sent_bytes as f64
    }),
    ("packets_total", "Packets sent by the link.", |now| {
        now.counts.sent_packets as f64
    }),
    (
        "arrived_packets_total",
        "Packets that arrived at the queue.",
        |now| now.counts.arrived_packets as f64,
    ),
    (
        "marks_total",
        "Packets that the law marked with CE.",
        |now| now.counts.marks as f64,
    ),
    (
        "lost_packets_total",
        "Packets lost after the queue because of the option loss.",
        |now| now.counts.lost_packets as f64,
    ),
];

const GAUGES: Table<DirectionNow> = &[
    ("current_queue_length", "Packets in the queue.", |now| {
        f64::from(now.queue_pkts)
    }),
    ("backlog", "Bytes in the queue.", |now| {
        now.queue_bytes as f64
    }),
    (
        "rate_bits_per_second",
        "Rate of the link; the mean rate of a recorded link.",
        |now| now.rate_bps,
    ),
    (
        "target_packets",
        "Set-point of the law; NaN where it has none.",
        |now| now.target_pkts.unwrap_or(f64::NAN),
    ),
];

const CLASS_COUNTERS: Table<ClassNow> = &[
    (
        "class_bytes_total",
        "Bytes of a class that the link sent.",
        |class| class.sent_bytes as f64,
    ),
    (
        "class_packets_total",
        "Packets of a class that the link sent.",
        |class| class.sent_packets as f64,
    ),
    (
        "class_drops_total",
        "Packets of a class that were dropped.",
        |class| class.drops as f64,
    ),
    (
        "class_marks_total",
        "Packets of a class that were marked with CE.",
        |class| class.marks as f64,
    ),
];

const QUANTILES: [&str; 3] = ["0.5", "0.95", "0.99"];

/// The labels of a sample, and its value.
type Labelled = (String, f64);

/// Returns a label with its value, in which three characters are escaped.
fn label(name: &str, value: &str) -> String {
    let value = value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

/// Returns a sample for each quantile of a delay.
fn quantiles(labels: &str, delay_s: [f64; 3]) -> impl Iterator<Item = Labelled> + use<'_> {
    let sample =
        move |(quantile, value): (&str, f64)| (format!("{labels},quantile=\"{quantile}\""), value);
    QUANTILES.into_iter().zip(delay_s).map(sample)
}

/// Returns a picture in Prometheus' text format. Without classes, the metrics of classes have
/// headings only.
pub fn text(picture: &Picture) -> String {
    let mut out = String::new();
    let ways: Vec<(String, &DirectionNow)> = ["up", "down"]
        .into_iter()
        .zip(&picture.ways)
        .map(|(way, now)| {
            (
                format!("direction=\"{way}\",{}", label("kind", &now.law)),
                now,
            )
        })
        .collect();
    let mut classes: Vec<(String, &ClassNow)> = Vec::new();
    for (labels, now) in &ways {
        for class in &now.classes {
            classes.push((format!("{labels},{}", label("class", class.name)), class));
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
    let help = "Recent queuing delay, by quantile.";
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
    let help = "Recent queuing delay of a class, by quantile; NaN where no packet left.";
    family(&mut out, "class_delay_seconds", "gauge", help, delays);
    let states = ways.iter().flat_map(|(labels, now)| {
        let state = move |(name, value): &(&str, f64)| {
            (format!("{labels},{}", label("name", name)), *value)
        };
        now.probes.iter().map(state)
    });
    let help = "State variables of the law; p is its drop or mark probability.";
    family(&mut out, "law_state", "gauge", help, states);
    let lateness = [(String::new(), picture.lateness_p99_s)];
    let help = "Lateness that 99 % of the released packets did not exceed.";
    family(&mut out, "lateness_p99_seconds", "gauge", help, lateness);
    out
}

/// Writes a metric with its samples.
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

/// Returns a number in the format's syntax, which includes "NaN", "+Inf" and "-Inf".
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
        endpoint.serve(shared()).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_get_request_is_answered_with_the_metrics() {
        let answer = ask("GET /metrics HTTP/1.1\r\nHost: localhost:9100\r\n\r\n");
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
    fn a_silent_connection_does_not_delay_others() {
        let endpoint = Endpoint::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = endpoint.address().unwrap();
        let mut silent = TcpStream::connect(address).unwrap();
        endpoint.serve(shared()).unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"));
        // The silent connection is still open.
        silent.set_nonblocking(true).unwrap();
        let waiting = silent.read(&mut [0]).unwrap_err();
        assert_eq!(waiting.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn every_sample_follows_the_type_line_of_its_metric() {
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
    fn a_host_that_is_not_this_machine_is_refused() {
        for host in [
            "127.0.0.1:9100",
            "[::1]:9100",
            "[::1]",
            "10.1.2.3",
            "LOCALHOST",
            "localhost.",
        ] {
            let answer = ask(&format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert!(answer.starts_with("HTTP/1.1 200"), "{host}: {answer}");
        }
        for host in [
            "evil.example:9100",
            "localhost.evil.example",
            "",
            "127.0.0.1.evil.example",
        ] {
            let answer = ask(&format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert!(answer.starts_with("HTTP/1.1 403"), "{host}: {answer}");
            assert!(!answer.contains("forebay_link_"));
        }
        let twice = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n";
        assert!(ask(twice).starts_with("HTTP/1.1 403"));
        assert!(ask("GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 403"));
    }

    #[test]
    fn a_connection_beyond_the_limit_gets_an_error() {
        let endpoint = Endpoint::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = endpoint.address().unwrap();
        endpoint.serve(shared()).unwrap();
        let silent: Vec<TcpStream> = (0..MOST_CONNECTIONS + 1)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let mut answer = String::new();
        let mut last = &silent[MOST_CONNECTIONS];
        last.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        // Silent connections are closed, also one that sends a byte now and then.
        let mut slow = &silent[0];
        let start = Instant::now();
        while slow.write_all(b"x").is_ok() && start.elapsed() < 4 * PATIENCE {
            std::thread::sleep(PATIENCE / 20);
        }
        assert!(start.elapsed() < 2 * PATIENCE, "{:?}", start.elapsed());
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        answer.clear();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    #[test]
    fn labels_are_escaped() {
        let mut picture = Picture::default();
        picture.ways[0].law = "a\"b\\c\nd".into();
        let line = "forebay_link_packets_total{direction=\"up\",kind=\"a\\\"b\\\\c\\nd\"} 0";
        let body = text(&picture);
        assert!(body.lines().any(|text_line| text_line == line), "{body}");
    }

    #[test]
    fn other_paths_and_methods_are_refused() {
        assert!(ask("GET /x HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert!(ask("\r\n\r\n").starts_with("HTTP/1.1 405"));
    }
}
