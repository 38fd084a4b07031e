//! Scenarios that are wrong: each gets one line with the place, the fault and what is expected.
//!
//! `bad/NAME.toml` must give exactly the line in `bad/NAME.expected`. After a change of words,
//! write them anew with `FOREBAY_BLESS=1 cargo test -p forebay-scenario --test bad`, and read
//! what changed. LAWS, QUEUES and SENDERS stand there for the entries of the registries.

use std::path::{Path, PathBuf};

use forebay_aqm::disciplines::DISCIPLINES;
use forebay_aqm::laws::LAWS;
use forebay_scenario::{parse, Options, SENDERS};

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .collect();
    files.sort();
    files
}

/// The lists of the registries by their names: they grow without these tests.
fn with_registries_named(line: &str) -> String {
    let laws: Vec<&str> = LAWS.iter().map(|spec| spec.kind).collect();
    let queues: Vec<&str> = DISCIPLINES.iter().map(|spec| spec.kind).collect();
    let senders: Vec<&str> = SENDERS.iter().map(|sender| sender.name).collect();
    line.replace(&laws.join(", "), "LAWS")
        .replace(&queues.join(", "), "QUEUES")
        .replace(&senders.join(", "), "SENDERS")
}

fn line(file: &Path) -> String {
    let text = std::fs::read(file).unwrap();
    let name = file.file_name().unwrap().to_str().unwrap();
    match parse(&text, name, &Options::default()) {
        Ok(_) => format!("{name}: no error"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn each_wrong_scenario_gets_its_line() {
    let mut differences = Vec::new();
    for file in files() {
        let expected = file.with_extension("expected");
        let message = with_registries_named(&line(&file)) + "\n";
        if std::env::var_os("FOREBAY_BLESS").is_some() {
            std::fs::write(&expected, &message).unwrap();
        }
        let former = std::fs::read_to_string(&expected).unwrap_or_default();
        if message != former {
            differences.push(format!("expected {former}got      {message}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join(""));
}

#[test]
fn each_error_is_one_line_of_file_key_fault_and_expectation() {
    let files = files();
    assert!(files.len() >= 36, "{} files", files.len());
    for file in files {
        let line = line(&file);
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(!line.contains(|c: char| c.is_control()), "{line:?}");
        assert!(line.starts_with(&format!("{name}:")), "{line}");
        let (fault, expected) = line.split_once("; expected ").expect(&line);
        let fault = fault.rsplit(": ").next().unwrap_or_default();
        assert!(!fault.is_empty() && !expected.is_empty(), "{line}");
    }
}

/// A scenario that is right.
const GOOD: &[u8] = include_bytes!("good/loads.toml");

#[test]
fn faults_of_the_command_line_name_its_option() {
    let fault = |options: Options| match parse(GOOD, "good.toml", &options) {
        Ok(_) => panic!("no error: {options:?}"),
        Err(error) => error.to_string(),
    };
    let set = |key: &str, value: &str| {
        fault(Options {
            sets: vec![(key.into(), value.into())],
            ..Options::default()
        })
    };
    let law = |name: &str| {
        fault(Options {
            laws: vec![name.into()],
            ..Options::default()
        })
    };
    let cases = [
        (
            set("traffic.0.flows", "0"),
            "--set: traffic.0.flows: 0 is not valid; expected a value from 1 to 5000000",
        ),
        (
            set("traffic.late mice.flows", "many"),
            "--set: traffic.2.flows: \"many\" is not valid; expected a non-negative whole number",
        ),
        (
            set("bottleneck.rat", "1Mbit/s"),
            "--set: bottleneck.rat: unknown key; expected one of rate, burst, rate_back, rate_trace, \
             delay, buffer, ecn, name, from, to (did you mean \"rate\"?)",
        ),
        (
            set("law.red 3.max_p", "0.1"),
            "--set: law.red 3.max_p: no law \"red 3\"; expected a number from 0 to 2 or one of the \
             labels red, red 2, Hollot",
        ),
        (
            set("law.2.target", "900p"),
            "--set: law.2.target: \"900p\" is not valid; expected at most the buffer, \"800p\"",
        ),
        (
            set("law.2.target", "300ms"),
            "--set: law.2.target: \"300ms\" is not valid; expected at most the buffer's delay, \
             \"213.333333ms\"",
        ),
        (
            set("law.2.queue", "priorty"),
            "--set: law.2.queue: \"priorty\" is not valid; expected one of QUEUES (did you mean \
             \"priority\"?)",
        ),
        (
            set("law.2.queue", "{ kind = \"priority\", dscp = 64 }"),
            "--set: law.2.queue: { kind = \"priority\", dscp = 64 } is not valid; expected priority \
             with a value from 1 to 63 as dscp",
        ),
        (
            set("duration", "99999999999999999999"),
            "--set: duration: 99999999999999999999 is not valid; expected a whole number below 2^63",
        ),
        (
            set("measure", "[\"1s\", \"900s\"]"),
            "--set: measure: \"1s\" to \"900s\" is not valid; expected a part of the run, which lasts \
             from \"0s\" to \"200s\"",
        ),
        (
            set("", "1"),
            "--set: \"\": unknown key; expected one of title, source, duration, measure, sample, \
             seeds, target, windows",
        ),
        (
            fault(Options {
                seeds: Some(0),
                ..Options::default()
            }),
            "--seeds: 0 is not valid; expected a value from 1 to 10000",
        ),
        (
            fault(Options {
                sets: vec![("law.pid.target".into(), "900p".into())],
                laws: vec!["pid".into()],
                ..Options::default()
            }),
            "--set: law.pid.target: \"900p\" is not valid; expected at most the buffer, \"800p\"",
        ),
    ];
    for (message, wanted) in cases {
        assert_eq!(with_registries_named(&message), wanted);
    }
    let unknown = law("Holot");
    assert!(
        unknown.starts_with("--law: \"Holot\" is not valid; expected one of red, red 2, Hollot, "),
        "{unknown}"
    );
    assert!(
        unknown.ends_with(" (did you mean \"Hollot\"?)"),
        "{unknown}"
    );
}

#[test]
fn an_error_knows_its_key_and_line() {
    let text = b"duration = \"10s\"\nbottleneck = 1\n";
    let Err(error) = parse(text, "x.toml", &Options::default()) else {
        panic!("no error")
    };
    assert_eq!((error.key(), error.line()), ("traffic", None));
    let Err(error) = parse(b"\n\nduration = 1", "x.toml", &Options::default()) else {
        panic!("no error")
    };
    assert_eq!(error.line(), None);
}

#[test]
fn a_scenario_has_bounds() {
    let good = std::str::from_utf8(GOOD).unwrap();
    let change = "\n[[at]]\ntime = \"1s\"\nset = { bottleneck.rate = \"1Mbit/s\" }\n";
    let comment = "# a comment that goes on and on\n";
    let (head, tail) = good.split_once("[sweep]\n").unwrap();
    let lines: String = (0..200)
        .map(|i| format!("bottleneck.x{i} = [1]\n"))
        .collect();
    for (text, wanted) in [
        (
            good.to_owned() + &change.repeat(999),
            "at: 1001 tables are too many; expected at most 1000 tables",
        ),
        (
            good.to_owned() + &comment.repeat(40_000),
            " bytes are too many; expected at most 1048576 bytes",
        ),
        (
            format!("{head}[sweep]\n{lines}{tail}"),
            "sweep: 202 lines are too many; expected at most 100 lines",
        ),
    ] {
        let Err(error) = parse(text.as_bytes(), "long.toml", &Options::default()) else {
            panic!("no error: {wanted}")
        };
        assert!(error.to_string().ends_with(wanted), "{error}");
    }
}

#[test]
fn a_sweep_is_of_laws_that_run() {
    let text = |keys: &str, values: &str| {
        let good = String::from_utf8(GOOD.into()).unwrap();
        let (head, _) = good.split_once("[sweep]").unwrap_or((&good, ""));
        format!("{head}\n[sweep]\n{keys} = {values}\n")
    };
    let read = |text: &str, laws: &[&str], sets: &[(&str, &str)]| {
        let options = Options {
            laws: laws.iter().map(ToString::to_string).collect(),
            sets: sets
                .iter()
                .map(|(k, v)| ((*k).into(), (*v).into()))
                .collect(),
            ..Options::default()
        };
        parse(text.as_bytes(), "sweep.toml", &options).map(|experiment| experiment.points.len())
    };
    let one = text("\"law.red.max_p\"", "[0.1, 0.2]");
    assert_eq!(read(&one, &["red"], &[]).unwrap(), 2);
    let refused = read(&one, &["pi"], &[]).unwrap_err().to_string();
    assert!(
        refused.ends_with(
            ": sweep.law.red.max_p: the law of this key does not run; expected a law that runs, or \
             --set law.red.max_p=VALUE, which replaces the sweep"
        ),
        "{refused}"
    );
    assert_eq!(read(&one, &["pi"], &[("law.red.max_p", "0.1")]).unwrap(), 1);
    // Together with a key of a law that runs, it only sets nothing.
    let both = text(
        "\"law.red.max_p, traffic.0.flows\"",
        "[[0.1, 5], [0.2, 6], [0.2, 5]]",
    );
    assert_eq!(read(&both, &["pi"], &[]).unwrap(), 3);
    // Of what is fixed, equal points are one.
    assert_eq!(
        read(&both, &["red"], &[("law.red.max_p", "0.3")]).unwrap(),
        2
    );
}
