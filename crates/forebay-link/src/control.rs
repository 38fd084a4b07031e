//! Changes from another program while traffic runs, over a Unix socket that is the user's alone.
//!
//! A request is a line, an answer ends with an empty one:
//!
//! | request | answer |
//! |---|---|
//! | `metrics` | what Prometheus gets |
//! | `up` or `down` | the law of this direction with every parameter, as KEY=VALUE |
//! | `up KEY=VALUE …` | `ok`, or `error` and why; KEY is `rate`, `law`, or a parameter of the law |
//!
//! Values are read as `--set` reads them. Another law starts afresh, and so do other gains; the
//! set-point alone moves without.

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

/// Longest request that is read, in bytes.
const LONGEST_REQUEST: u64 = 4096;
const OK: &str = "ok\n";

/// A socket for changes. It is bound before the caller enters a namespace, and its file goes with it.
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
}

impl Control {
    /// The socket at `path`, where nothing may be but what a link that was killed has left.
    ///
    /// # Errors
    /// A path that is taken, or cannot be.
    pub fn at(path: &Path) -> Result<Control, ParamError> {
        let bind = || {
            // Nobody else may connect. The process has one thread yet: no file of another gets this.
            let former = umask(Mode::from_bits_truncate(0o177));
            let bound = UnixListener::bind(path);
            umask(former);
            bound
        };
        let is_left = || {
            fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket())
                && UnixStream::connect(path).is_err()
        };
        let bound = match bind() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left() => {
                fs::remove_file(path).and_then(|()| bind())
            }
            bound => bound,
        };
        let listener = bound.map_err(|error| {
            let found = format!("{:?}, {error}", path.display().to_string());
            ParamError::new(
                "control",
                found,
                "a path in a folder of yours with nothing at it",
            )
        })?;
        // Where the process stands may change.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        Ok(Control { listener, path })
    }

    /// Removes the socket's file when it is dropped.
    pub fn file(&self) -> File {
        File(self.path.clone())
    }

    /// Answers in threads of its own for as long as the process lives.
    ///
    /// # Errors
    /// The first thread cannot be started.
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
                // A new connection takes a line without a wait.
                let _ = (&*stream).write_all(line.as_bytes());
            },
        )
    }
}

/// The socket's file, for as long as this lives.
pub struct File(PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn answer(stream: &UnixStream, hand: &Mutex<Hand>, shared: &Shared) -> io::Result<()> {
    let mut requests = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if (&mut requests).take(LONGEST_REQUEST).read_line(&mut line)? == 0 {
            return Ok(());
        }
        if !line.ends_with('\n') {
            // Too long, or broken off: what follows is no request.
            return (&*stream).write_all(b"error request: found no end, allowed: a line\n\n");
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

/// One that changes the link. The keys of the live view are another one: the last change holds.
struct Hand {
    ways: [DirectionSettings; 2],
    mtu: u32,
    changes: Sender<LiveChange>,
}

impl Hand {
    fn obey(&mut self, line: &str) -> Result<String, ParamError> {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let way = ["up", "down"].iter().position(|it| *it == name);
        let Some(way) = way else {
            return Err(ParamError::new(
                "request",
                format!("{name:?}"),
                "metrics, up, down",
            ));
        };
        let mut next = self.ways[way].clone();
        let mut rate = None;
        let mut moved = false;
        for word in words {
            let Some((key, text)) = word.split_once('=') else {
                return Err(ParamError::new("request", format!("{word:?}"), "KEY=VALUE"));
            };
            let value = set_value(key, text)?;
            match key {
                "rate" => {
                    let wrong = |_| ParamError::new("rate", format!("{text:?}"), Rate::ALLOWED);
                    let wanted = Rate::from_value(&value).map_err(wrong)?;
                    // As the keys of the live view have it.
                    if !(1_000..=100_000_000_000).contains(&wanted.as_bps()) {
                        let allowed = "1kbit/s to 100Gbit/s";
                        return Err(ParamError::new("rate", format!("{text:?}"), allowed));
                    }
                    next.capacity.set_rate(wanted);
                    rate = Some(wanted);
                }
                "law" => {
                    let spec = law_named(text)
                        .map_err(|allowed| ParamError::new("law", format!("{text:?}"), allowed))?;
                    if spec.kind != next.law.spec.kind {
                        next.law = LawChoice::of(spec, Vec::new())?;
                    }
                    moved = true;
                }
                _ => {
                    next.law = next.law.with(key, value)?;
                    moved = true;
                }
            }
        }
        next.law.check(&next.site(self.mtu))?;
        // Who reads them has ended with the run.
        if let Some(rate) = rate {
            let _ = self.changes.send(LiveChange::Rate(way, rate));
        }
        if moved {
            let _ = self.changes.send(LiveChange::Law(way, next.law.clone()));
        }
        self.ways[way] = next;
        Ok(if rate.is_some() || moved {
            OK.to_owned()
        } else {
            self.show(way)?
        })
    }

    /// The law with every parameter, and the rate.
    fn show(&self, way: usize) -> Result<String, ParamError> {
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

/// Without the quotation marks of a text.
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
        let given = [
            text("rate", "10Mbit/s"),
            text("buffer", "100p"),
            text("aqm", "pi"),
            ("set".to_owned(), Value::Table(vec![text("target", "20p")])),
        ];
        let settings = Settings::of(&LinkOptions::read(&given, &[]).unwrap()).unwrap();
        let (changes, asked) = channel();
        let hand = Hand {
            ways: [settings.up, settings.down],
            mtu: settings.mtu,
            changes,
        };
        (hand, asked)
    }

    #[test]
    fn a_law_is_shown_with_every_parameter() {
        let (mut hand, _) = hand();
        let shown = hand.obey("up\n").unwrap();
        assert!(
            shown.starts_with("rate=10Mbit/s law=pi target=20p a=0.00001822 b="),
            "{shown}"
        );
        assert_eq!(shown.lines().count(), 1);
    }

    #[test]
    fn what_is_asked_for_is_changed() {
        let (mut hand, asked) = hand();
        assert_eq!(
            hand.obey("down rate=20Mbit/s target=30ms a=0.0001")
                .unwrap(),
            OK
        );
        let LiveChange::Rate(1, rate) = asked.recv().unwrap() else {
            panic!("no rate for down")
        };
        assert_eq!(rate, Rate::from_bps(20_000_000));
        let LiveChange::Law(1, law) = asked.recv().unwrap() else {
            panic!("no law for down")
        };
        assert!(matches!(law.set_point(), Some(SetPoint::Delay(_))));
        assert!(hand
            .obey("down")
            .unwrap()
            .contains(" target=30ms a=0.0001 "));
        // Another law has its own defaults.
        assert_eq!(hand.obey("down law=red max_p=0.02").unwrap(), OK);
        let LiveChange::Law(1, law) = asked.recv().unwrap() else {
            panic!("no law for down")
        };
        assert_eq!(
            (law.spec.kind, law.given().len()),
            (find("red").unwrap().kind, 1)
        );
        assert!(asked.try_recv().is_err());
    }

    #[test]
    fn what_is_wrong_is_said_and_nothing_is_changed() {
        let (mut hand, asked) = hand();
        for (line, wanted) in [
            ("", "request: found \"\""),
            ("left a=1", "request: found \"left\""),
            ("up a", "request: found \"a\""),
            ("up a=7", "a: found 7, allowed: 0 to 1"),
            ("up target=20furlongs", "target: found"),
            ("up gain=1", "gain: found a key that is not known here"),
            ("up law=magic", "law: found \"magic\""),
            ("up rate=1bit/s", "rate: found"),
            ("up rate=20Mbit/s a=7", "a: found 7"),
        ] {
            let error = hand.obey(line).unwrap_err().to_string();
            assert!(error.starts_with(wanted), "{line}: {error}");
        }
        assert!(asked.try_recv().is_err());
        assert!(hand
            .obey("up")
            .unwrap()
            .starts_with("rate=10Mbit/s law=pi target=20p"));
    }

    #[test]
    fn the_socket_is_the_users_alone_and_goes_with_the_link() {
        let folder = std::env::temp_dir().join(format!("forebay-control-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("link.sock");
        let control = Control::at(&path).unwrap();
        let file = control.file();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        // One that is alive is not replaced, and neither is a file.
        assert!(Control::at(&path).is_err());
        let (shared, (changes, _asked)) = (Shared::default(), channel());
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
            answers[0].starts_with("error request: found"),
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
        // Beyond the limit there is one clear line, and a place is free again once one has gone.
        let open: Vec<_> = (0..MOST_CONNECTIONS)
            .map(|_| {
                let mut stream = UnixStream::connect(&path).unwrap();
                stream.write_all(b"up\n").unwrap();
                assert_eq!(stream.read(&mut [0]).unwrap(), 1);
                stream
            })
            .collect();
        let mut answer = String::new();
        let mut beyond = UnixStream::connect(&path).unwrap();
        beyond.read_to_string(&mut answer).unwrap();
        assert_eq!(
            answer,
            "error connections: 32 are open, which is the limit; close one\n\n"
        );
        drop(open);
        let asked = || {
            let mut stream = UnixStream::connect(&path).unwrap();
            let _ = stream.write_all(b"up\n");
            let mut first = [0];
            stream.read(&mut first).is_ok() && first == *b"r"
        };
        let mut tries = 0..200;
        assert!(tries.any(|_| asked() || {
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
