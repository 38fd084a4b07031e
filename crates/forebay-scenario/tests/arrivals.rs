//! Packets that came once, as a scenario names them.

use std::sync::Arc;

use forebay_scenario::{parse, Experiment, Options, ScenarioError, TrafficKind};
use forebay_units::{Bytes, Span};

const LIST: &[u8] = b"time_s,size_bytes,flow\n5,100,a\n5.5,2000,b\n7,300,a\n";

fn text(keys: &str, more: &str) -> String {
    format!(
        r#"
        duration = "10s"
        [bottleneck]
        rate = "10Mbit/s"
        delay = "5ms"
        buffer = "100p"
        [[traffic]]
        kind = "arrivals"
        file = "list.csv"
        {keys}
        [[law]]
        kind = "droptail"
        {more}
        "#
    )
}

fn options() -> Options {
    let file = |name: &str| (name.to_owned(), LIST.to_vec());
    Options {
        files: vec![file("list.csv"), file("other.csv")],
        ..Options::default()
    }
}

fn read(keys: &str, more: &str) -> Result<Experiment, ScenarioError> {
    parse(text(keys, more).as_bytes(), "x.toml", &options())
}

#[test]
fn flows_and_sizes_are_those_of_the_file() {
    let experiment = read("scale = 2\nperiod = \"4s\"", "").unwrap();
    let traffic = &experiment.points[0].scenario.traffic[0];
    assert_eq!((traffic.flows, traffic.packet), (2, Bytes(1500)));
    assert_eq!(traffic.rtts, [Span::from_millis(10)]);
    let TrafficKind::Arrivals(recorded) = &traffic.kind else {
        panic!("{traffic:?}")
    };
    let sizes: Vec<u16> = recorded.packets.packets.iter().map(|it| it.bytes).collect();
    assert_eq!(sizes, [100, 1500, 500, 300]);
    let numbers = traffic.kind.numbers();
    let number = |name| {
        let mut numbers = numbers.iter();
        numbers.find(|it| it.name == name).unwrap().number
    };
    assert_eq!((number("packets"), number("length")), (4.0, 4.0));
}

#[test]
fn files_are_known_before_and_read_once() {
    let sweep = "[sweep]\n\"traffic.arrivals.file\" = [\"list.csv\", \"other.csv\"]\n\
                 \"bottleneck.rate\" = [\"1Mbit/s\", \"2Mbit/s\"]";
    let text = text("", sweep);
    let names = forebay_scenario::files(text.as_bytes(), "x.toml", &Options::default()).unwrap();
    assert!(names.iter().eq(["list.csv", "other.csv"]));
    let points = parse(text.as_bytes(), "x.toml", &options()).unwrap().points;
    let packets = |point: usize| match &points[point].scenario.traffic[0].kind {
        TrafficKind::Arrivals(recorded) => Arc::clone(&recorded.packets),
        other => panic!("{other:?}"),
    };
    assert!(Arc::ptr_eq(&packets(0), &packets(1)));
    assert!(!Arc::ptr_eq(&packets(0), &packets(2)));
}

#[test]
fn a_key_that_does_not_fit_the_file_is_one_line() {
    let line = |keys: &str, more: &str| match read(keys, more) {
        Ok(_) => panic!("no error"),
        Err(error) => error.to_string(),
    };
    assert_eq!(
        line("period = \"1s\"", ""),
        "x.toml:10: traffic.0.period: \"1s\" is not valid; expected at least \"2s\", the duration of \
         \"list.csv\""
    );
    let message = "traffic.0.file: \"list.csv\" has no addresses, so no packet can be chosen from \
                   10.0.0.1/32; expected a capture (pcap or pcapng)";
    let error = line("source = \"10.0.0.1\"", "");
    assert!(error.ends_with(message), "{error}");
    assert!(line(
        "",
        "[[at]]\ntime = \"1s\"\nset = { \"traffic.0.flows\" = 3 }"
    )
    .contains("at.0.set.traffic.0.flows: the key cannot change during a run; expected one of "));
    assert!(line("", "[sweep]\n\"traffic.0.file\" = [\"none\"]")
        .contains("traffic.0.file: \"none\" is not valid; expected a readable file, relative to "));
}
