//! Control socket: another program reads and changes a running link over a Unix socket that only
//! the user can open.
//!
//! A request is one line. An answer ends with an empty line.
//!
//! | request | answer |
//! |---|---|
//! | `metrics` | the metrics in Prometheus' text format |
//! | `up` or `down` | the law of this direction with every parameter, as KEY=VALUE |
//! | `up KEY=VALUE …` | `ok`, or `error` and the reason; KEY is `rate`, `law`, or a parameter of the law |
//!
//! Values have the syntax of `--set`. A change of the law or of its gains starts the law afresh. A
//! change of the set-point alone keeps the law's state.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};

use forebay_scenario::{law_named, set_value, LawChoice};
use forebay_units::{ParamError, ParamType, Rate, Value};
use nix::sys::stat::{umask, Mode};

use crate::connections::{self, MOST_CONNECTIONS};
use crate::live::{LiveChange, Shared};
use crate::prometheus;
use crate::settings::{DirectionSettings, Settings};

/// The longest request that is accepted, in bytes.
const LONGEST_REQUEST: u64 = 4096;
/// The answer to a change that was made.
const OK: &str = "ok\n";

/// A control socket. It is bound before the caller enters a namespace.
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
}

impl Control {
    /// Binds a socket at `path`. The socket file of a link that was killed is replaced.
    ///
    /// # Errors
    /// Another file or a live socket is at `path`, or the socket cannot be bound there.
    pub fn at(path: &Path) -> Result<Control, ParamError> {
        let bind = || {
            // Only this user may connect. The process still has one thread, so the mask
            // affects no
            // other file.
            let former_mask = umask(Mode::from_bits_truncate(0o177));
            let listener = UnixListener::bind(path);
            umask(former_mask);
            listener
        };
        let is_dead = || {
            fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
                && UnixStream::connect(path).is_err()
        };
        let listener = match bind() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_dead() => {
                fs::remove_file(path).and_then(|()| bind())
            }
            listener => listener,
        };
        let listener = listener.map_err(|error| {
            let expected = "a path in a writable folder at which there is no file";
            let error = error.to_string();
            ParamError::new(
                "control",
                format!("{:?}", path.display().to_string()),
                expected,
            )
            .because(format!("cannot be used ({error})"))
        })?;
        // The working directory of the process may change.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        Ok(Control { listener, path })
    }

    /// Returns a guard that removes the socket's file when it is dropped.
    pub fn file(&self) -> File {
        File(self.path.clone())
    }

    /// Answers requests in threads of its own for as long as the process lives.
    ///
    /// # Errors
    /// The thread that accepts connections cannot be started.
    pub fn serve(
        self,
        settings: &Settings,
        shared: Shared,
        changes: Sender<LiveChange>,
    ) -> io::Result<()> {
        let hand = Mutex::new(Hand {
            ways: [settings.up.clone(), settings.down.clone()],
            mtu: settings.mtu,
            changes,
        });
        connections::serve(
            move || Ok(self.listener.accept()?.0),
            move |stream| answer(stream, &hand, &shared),
            |stream| {
                let line = format!(
                    "error connections: {MOST_CONNECTIONS} are open, which is the limit; close one\n\n"
                );
                // The buffer of a new connection has room for a line: the write does not block.
                let _ = (&*stream).write_all(line.as_bytes());
            },
        )
    }
}

/// A guard of the socket's file, which is removed when the guard is dropped.
pub struct File(PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Answers the requests of a connection until it is closed.
fn answer(stream: &UnixStream, hand: &Mutex<Hand>, shared: &Shared) -> io::Result<()> {
    let mut requests = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if (&mut requests).take(LONGEST_REQUEST).read_line(&mut line)? == 0 {
            return Ok(());
        }
        if !line.ends_with('\n') {
            // The line is too long or incomplete, so the rest of the stream has no request
            // either.
            return (&*stream).write_all(b"error request: the line has no end; expected at most 4096 bytes and a newline\n\n");
        }
        let answer = if line.trim() == "metrics" {
            let picture = shared
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone();
            prometheus::text(&picture)
        } else {
            let mut hand = hand.lock().unwrap_or_else(PoisonError::into_inner);
            match hand.obey(&line) {
                Ok(answer) => answer,
                Err(error) => format!("error {error}\n"),
            }
        };
        (&*stream).write_all(format!("{answer}\n").as_bytes())?;
    }
}

/// The control socket's view of the settings, and its channel to the driver. The keys of the live
/// view change the same settings independently: the last change holds.
struct Hand {
    ways: [DirectionSettings; 2],
    mtu: u32,
    changes: Sender<LiveChange>,
}

impl Hand {
    /// Carries out a request for a direction and returns its answer.
    ///
    /// # Errors
    /// If the request is malformed or a value is not valid; nothing is changed then.
    fn obey(&mut self, line: &str) -> Result<String, ParamError> {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let way = ["up", "down"]
            .iter()
            .position(|direction| *direction == name);
        let Some(way) = way else {
            return Err(ParamError::new(
                "request",
                format!("{name:?}"),
                "one of metrics, up, down",
            ));
        };
        let mut next = self.ways[way].clone();
        let mut rate = None;
        let mut law_changes = false;
        for word in words {
            let Some((key, text)) = word.split_once('=') else {
                return Err(ParamError::new(
                    "request",
                    format!("{word:?}"),
                    "KEY=VALUE, such as rate=10Mbit/s",
                ));
            };
            let value = set_value(key, text)?;
            match key {
                "rate" => {
                    let invalid = |_| ParamError::new("rate", format!("{text:?}"), Rate::EXPECTED);
                    let new_rate = Rate::from_value(&value).map_err(invalid)?;
                    // These are also the limits of the live view's keys.
                    if !(1_000..=100_000_000_000).contains(&new_rate.as_bps()) {
                        let expected = "a rate from 1kbit/s to 100Gbit/s";
                        return Err(ParamError::new("rate", format!("{text:?}"), expected));
                    }
                    next.capacity.set_rate(new_rate);
                    rate = Some(new_rate);
                }
                "law" => {
                    let spec = law_named(text).map_err(|expected| {
                        ParamError::new("law", format!("{text:?}"), expected)
                    })?;
                    if spec.kind != next.law.spec.kind {
                        next.law = LawChoice::of(spec, Vec::new())?;
                    }
                    law_changes = true;
                }
                _ => {
                    next.law = next.law.with(key, value)?;
                    law_changes = true;
                }
            }
        }
        next.law.check(&next.site(self.mtu))?;
        // The receiver is gone where the run has ended; then the change no longer matters.
        if let Some(rate) = rate {
            let _ = self.changes.send(LiveChange::Rate(way, rate));
        }
        if law_changes {
            let _ = self.changes.send(LiveChange::Law(way, next.law.clone()));
        }
        self.ways[way] = next;
        Ok(if rate.is_some() || law_changes {
            OK.to_owned()
        } else {
            self.describe(way)?
        })
    }

    /// Returns the line with the rate and the law of a direction, with every parameter.
    fn describe(&self, way: usize) -> Result<String, ParamError> {
        let way = &self.ways[way];
        let params = way.law.law().values();
        let words = params
            .iter()
            .map(|(name, value)| format!(" {name}={}", plain(value)));
        let (rate, kind) = (way.capacity.mean_rate(), way.law.spec.kind);
        let rate = rate.to_value();
        let words: String = words.collect();
        Ok(format!("rate={} law={kind}{words}\n", plain(&rate)))
    }
}

/// Returns the value as text, without the quotation marks around a string.
fn plain(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_aqm::laws::find;
    use forebay_scenario::LinkOptions;
    use forebay_units::SetPoint;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::mpsc::{channel, Receiver};

    fn hand() -> (Hand, Receiver<LiveChange>) {
        let text = |key: &str, text: &str| (key.to_owned(), Value::Text(text.to_owned()));
        let options = [
            text("rate", "10Mbit/s"),
            text("buffer", "100p"),
            text("aqm", "pi"),
            ("set".to_owned(), Value::Table(vec![text("target", "20p")])),
        ];
        let settings = Settings::of(&LinkOptions::read(&options, &[]).unwrap()).unwrap();
        let (changes, requests) = channel();
        let hand = Hand {
            ways: [settings.up, settings.down],
            mtu: settings.mtu,
            changes,
        };
        (hand, requests)
    }

    #[test]
    fn a_direction_is_shown_with_its_rate_and_every_parameter_of_its_law() {
        let (mut hand, _) = hand();
        let answer = hand.obey("up\n").unwrap();
        assert!(
            answer.starts_with("rate=10Mbit/s law=pi target=20p a=0.00001822 b="),
            "{answer}"
        );
        assert_eq!(answer.lines().count(), 1);
    }

    #[test]
    fn a_request_changes_the_rate_and_the_law_of_a_direction() {
        let (mut hand, requests) = hand();
        assert_eq!(
            hand.obey("down rate=20Mbit/s target=30ms a=0.0001")
                .unwrap(),
            OK
        );
        let LiveChange::Rate(1, rate) = requests.recv().unwrap() else {
            panic!("no rate for down")
        };
        assert_eq!(rate, Rate::from_bps(20_000_000));
        let LiveChange::Law(1, law) = requests.recv().unwrap() else {
            panic!("no law for down")
        };
        assert!(matches!(law.set_point(), Some(SetPoint::Delay(_))));
        assert!(hand
            .obey("down")
            .unwrap()
            .contains(" target=30ms a=0.0001 "));
        // Another law has its own defaults.
        assert_eq!(hand.obey("down law=red max_p=0.02").unwrap(), OK);
        let LiveChange::Law(1, law) = requests.recv().unwrap() else {
            panic!("no law for down")
        };
        assert_eq!(
            (law.spec.kind, law.given().len()),
            (find("red").unwrap().kind, 1)
        );
        assert!(requests.try_recv().is_err());
    }

    #[test]
    fn a_wrong_request_is_refused_and_changes_nothing() {
        let (mut hand, requests) = hand();
        for (line, start) in [
            (
                "",
                "request: \"\" is not valid; expected one of metrics, up, down",
            ),
            (
                "left a=1",
                "request: \"left\" is not valid; expected one of metrics, up, down",
            ),
            (
                "up a",
                "request: \"a\" is not valid; expected KEY=VALUE, such as rate=10Mbit/s",
            ),
            ("up a=7", "a: 7 is not valid; expected a value from 0 to 1"),
            (
                "up target=20furlongs",
                "target: \"20furlongs\" is not valid; expected a queue length such as \"200p\", or a \
                 queuing delay such as \"15ms\" (at most 1000s)",
            ),
            (
                "up gain=1",
                "gain: unknown key; expected one of target, a, b, interval, queue_in_bytes",
            ),
            (
                "up law=magic",
                "law: \"magic\" is not valid; expected one of droptail, red, pi, ",
            ),
            (
                "up rate=1bit/s",
                "rate: \"1bit/s\" is not valid; expected a rate from 1kbit/s to 100Gbit/s",
            ),
            (
                "up rate=20Mbit/s a=7",
                "a: 7 is not valid; expected a value from 0 to 1",
            ),
        ] {
            let error = hand.obey(line).unwrap_err().to_string();
            assert!(error.starts_with(start), "{line}: {error}");
        }
        assert!(requests.try_recv().is_err());
        assert!(hand
            .obey("up")
            .unwrap()
            .starts_with("rate=10Mbit/s law=pi target=20p"));
    }

    #[test]
    fn only_the_user_can_open_the_socket_and_its_file_is_removed_with_the_link() {
        let folder = std::env::temp_dir().join(format!("forebay-control-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("link.sock");
        let control = Control::at(&path).unwrap();
        let file = control.file();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        // A live socket is not replaced.
        assert!(Control::at(&path).is_err());
        let (shared, (changes, _requests)) = (Shared::default(), channel());
        let (hand, _) = hand();
        let mut settings = Settings::of(
            &LinkOptions::read(&[("rate".to_owned(), Value::Text("1Mbit/s".into()))], &[]).unwrap(),
        )
        .unwrap();
        [settings.up, settings.down] = hand.ways;
        control.serve(&settings, shared, changes).unwrap();
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"nonsense\nup\nmetrics\n").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answers = String::new();
        stream.read_to_string(&mut answers).unwrap();
        let answers: Vec<&str> = answers.split("\n\n").collect();
        assert!(
            answers[0]
                == "error request: \"nonsense\" is not valid; expected one of metrics, up, down",
            "{answers:?}"
        );
        assert!(
            answers[1].starts_with("rate=10Mbit/s law=pi"),
            "{answers:?}"
        );
        assert!(
            answers[2].contains("forebay_link_current_queue_length"),
            "{answers:?}"
        );
        // A connection refused the limit gets one error line. After a connection is closed, another
        // one
        // is accepted.
        let open: Vec<_> = (0..MOST_CONNECTIONS)
            .map(|_| {
                let mut stream = UnixStream::connect(&path).unwrap();
                stream.write_all(b"up\n").unwrap();
                assert_eq!(stream.read(&mut [0]).unwrap(), 1);
                stream
            })
            .collect();
        let mut answer = String::new();
        let mut refused = UnixStream::connect(&path).unwrap();
        refused.read_to_string(&mut answer).unwrap();
        assert_eq!(
            answer,
            "error connections: 32 are open, which is the limit; close one\n\n"
        );
        drop(open);
        let is_served = || {
            let mut stream = UnixStream::connect(&path).unwrap();
            let _ = stream.write_all(b"up\n");
            let mut first = [0];
            stream.read(&mut first).is_ok() && first == *b"r"
        };
        let mut tries = 0..200;
        assert!(tries.any(|_| is_served() || {
            std::thread::sleep(std::time::Duration::from_millis(10));
            false
        }));
        drop(file);
        assert!(!path.exists());
        fs::write(&path, "mine").unwrap();
        assert!(Control::at(&path).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
