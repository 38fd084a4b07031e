//! The points of a sweep: ranges, samples, rows that a caller has, and another link.

use forebay_scenario::{
    parse, DesignedGains, Experiment, LinkPlace, Options, Reading, Relink, ScenarioError,
};
use forebay_theory::window_law::WindowLaw;
use forebay_units::{Bytes, Rate, Span, Value};

const BASE: &str = r#"
duration = "2s"
[bottleneck]
rate   = "10Mbit/s"
delay  = "5ms"
buffer = "400p"
[[traffic]]
kind   = "ftp"
flows  = 5
packet = "1500B"
rtt    = "40ms"
[[law]]
kind = "pi"
[[law]]
kind = "droptail"
"#;

fn swept(lines: &str) -> String {
    format!("{BASE}[sweep]\n{lines}\n")
}

fn set(pairs: &[(&str, &str)]) -> Options {
    let owned = |(key, value): &(&str, &str)| (key.to_string(), value.to_string());
    Options {
        sets: pairs.iter().map(owned).collect(),
        ..Options::default()
    }
}

fn only(laws: &[&str]) -> Options {
    Options {
        laws: laws.iter().map(|name| name.to_string()).collect(),
        ..Options::default()
    }
}

fn reading(text: &str, options: Options) -> Reading {
    Reading::new(text.as_bytes(), "x.toml", options).unwrap_or_else(|error| panic!("{error}"))
}

fn experiment(text: &str, options: &Options) -> Experiment {
    parse(text.as_bytes(), "x.toml", options).unwrap_or_else(|error| panic!("{error}"))
}

fn labels(experiment: &Experiment) -> Vec<&str> {
    let points = experiment.points.iter();
    points.map(|point| point.label.as_str()).collect()
}

fn refused<T>(result: Result<T, ScenarioError>) -> String {
    match result {
        Ok(_) => panic!("no error"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_range_is_the_list_that_it_stands_for() {
    let text =
        swept("\"traffic.0.flows\" = \"1..100 log 3\"\nbottleneck.buffer = [\"350p\", \"360p\"]");
    let all = experiment(&text, &Options::default());
    let mut wanted = Vec::new();
    for flows in [1, 10, 100] {
        for buffer in [350, 360] {
            wanted.push(format!(
                "traffic.0.flows = {flows}, bottleneck.buffer = {buffer}p"
            ));
        }
    }
    assert_eq!(labels(&all), wanted);
    assert_eq!(all.points[5].scenario.traffic[0].flows, 100);
    // What the command line sets is not varied.
    let fixed = experiment(&text, &set(&[("traffic.0.flows", "7")]));
    assert_eq!(
        labels(&fixed),
        ["bottleneck.buffer = 350p", "bottleneck.buffer = 360p"]
    );
}

const SAMPLED: &str = r#"points = "latin 4 seed 9"
"bottleneck.rate" = "1..100Mbit/s log"
"traffic.0.flows" = "1..3"
"traffic.0.tcp"   = ["reno", "cubic"]"#;

#[test]
fn a_sample_is_drawn_by_the_caller() {
    let reading = reading(&swept(SAMPLED), Options::default());
    let sample = reading.sweep().sample().unwrap();
    assert_eq!((sample.method, sample.points, sample.seed), ("latin", 4, 9));
    let ranges: Vec<_> = sample
        .ranges()
        .map(|(key, range)| (key, range.low, range.high))
        .collect();
    assert_eq!(
        ranges,
        [
            ("bottleneck.rate", 1.0, 100.0),
            ("traffic.0.flows", 1.0, 3.0)
        ]
    );
    let keys: Vec<_> = reading.sweep().keys().collect();
    assert_eq!(
        keys,
        ["traffic.0.tcp", "bottleneck.rate", "traffic.0.flows"]
    );
    assert_eq!(reading.sweep().point_count(), 8);
    let shares = [0.0, 0.0, 0.5, 0.5, 0.25, 0.9, 1.0, 1.0];
    let points = reading.points(&shares).unwrap();
    let all = reading.experiment(&points, |_| &[]).unwrap();
    // The sample is the fastest, and the ends of its ranges stay as they are written.
    let of = |tcp: &str| {
        [
            ("1Mbit/s", 1),
            ("10Mbit/s", 2),
            ("3.16228Mbit/s", 3),
            ("100Mbit/s", 3),
        ]
        .map(|(rate, flows)| {
            format!("traffic.0.tcp = {tcp}, bottleneck.rate = {rate}, traffic.0.flows = {flows}")
        })
    };
    assert_eq!(labels(&all), [of("reno"), of("cubic")].concat());
    let row = reading.sweep().row(5, &shares);
    let text = |text: &str| Value::Text(text.to_owned());
    assert_eq!(row, [text("cubic"), text("10Mbit/s"), Value::Integer(2)]);
}

#[test]
fn what_is_drawn_twice_is_one_point() {
    let text = swept("points = \"latin 3\"\n\"traffic.0.flows\" = \"1..3\"");
    let reading = reading(&text, Options::default());
    let points = reading.points(&[0.1, 0.6, 0.2]).unwrap();
    let all = reading.experiment(&points, |_| &[]).unwrap();
    assert_eq!(labels(&all), ["traffic.0.flows = 1", "traffic.0.flows = 2"]);
}

#[test]
fn a_sample_may_be_set_to_another_size() {
    let sweep = |options| {
        let reading = reading(&swept(SAMPLED), options);
        let sample = reading
            .sweep()
            .sample()
            .map(|sample| (sample.points, sample.ranges().len()));
        (reading.sweep().point_count(), sample)
    };
    assert_eq!(
        sweep(set(&[("sweep.points", "sobol 8")])),
        (16, Some((8, 2)))
    );
    // A key that is set is drawn no more; without any there is no sample.
    assert_eq!(sweep(set(&[("traffic.0.flows", "2")])), (8, Some((4, 1))));
    let both = set(&[("traffic.0.flows", "2"), ("bottleneck.rate", "2Mbit/s")]);
    assert_eq!(sweep(both), (2, None));
    let wrong = |text: &str, value: &str| {
        refused(Reading::new(
            text.as_bytes(),
            "x.toml",
            set(&[("sweep.points", value)]),
        ))
    };
    assert_eq!(
        wrong(&swept(SAMPLED), "sobol 7"),
        "--set: sweep.points: \"sobol 7\" is not valid; expected 1 to 1048576 points, and a power of 2 \
         with sobol"
    );
    assert_eq!(
        wrong(BASE, "sobol 8"),
        "--set: sweep.points: \"sobol 8\" requires a range to sample; expected a range without steps as \
         well, such as \"1..100Mbit/s log\""
    );
}

#[test]
fn rows_are_points_whose_faults_name_the_line_of_their_key() {
    let reading = reading(
        &swept("\"traffic.0.flows\" = \"1..9 lin 2\""),
        Options::default(),
    );
    let read = |flows: i64| {
        let points = reading.points_at(vec![vec![Value::Integer(flows)]])?;
        reading.experiment(&points, |_| &[])
    };
    assert_eq!(labels(&read(77).unwrap()), ["traffic.0.flows = 77"]);
    assert_eq!(
        refused(read(0)),
        "x.toml:17: traffic.0.flows: 0 is not valid; expected a value from 1 to 5000000"
    );
    let short = reading.points_at(vec![vec![]]).map(|_| ());
    assert_eq!(
        refused(short),
        "x.toml:16: sweep: the number of values is 0; expected 1, one value for each swept key"
    );
}

// --- laws that ask for numbers ---------------------------------------------------------------

fn auto() -> String {
    BASE.replace(
        "kind = \"pi\"",
        "kind = \"pi\"\ninterval = \"2ms\"\ngains = \"auto\"",
    )
}

#[test]
fn a_law_asks_for_numbers_of_its_link_and_load() {
    let reading = reading(&auto(), Options::default());
    let points = reading.points(&[]).unwrap();
    let requests = reading.gains_requests(&points).unwrap();
    let [request] = requests.as_slice() else {
        panic!("{requests:?}")
    };
    assert_eq!(
        (request.law, request.kind, request.per_flow),
        (0, "pi", false)
    );
    assert_eq!(
        request.given,
        [("interval".to_owned(), Value::Text("2ms".into()))]
    );
    let load = &request.load;
    assert_eq!((load.rate_bps, load.packet_bytes), (10_000_000, 1500));
    assert_eq!((load.rtt_s, load.room_pkts), ((0.04, 0.04), 400.0));
    assert_eq!(
        (load.flows, load.window_law),
        (Some((5.0, 5.0)), WindowLaw::Reno)
    );
    // What is designed is its numbers, and what is given stays.
    let params = [
        ("a", Value::Number(2e-5)),
        ("b", Value::Number(1e-5)),
        ("interval", Value::Text("9ms".into())),
    ];
    let designed = [DesignedGains {
        law: 0,
        params: params
            .map(|(name, value)| (name.to_owned(), value))
            .to_vec(),
    }];
    let read = reading.experiment(&points, |_| &designed).unwrap();
    assert_eq!(
        read.points[0].laws[0].in_words(),
        "interval=2ms, a=0.00002, b=0.00001, rest default"
    );
    assert_eq!(
        refused(reading.experiment(&points, |_| &[])),
        "x.toml:15: law.0.gains: \"auto\" is not valid; expected \"paper\", or a command that designs \
         gains"
    );
}

#[test]
fn only_laws_that_run_ask() {
    let requests = |text: &str, options: Options| {
        let reading = reading(text, options);
        let requests = reading
            .gains_requests(&reading.points(&[]).unwrap())
            .unwrap();
        requests
            .into_iter()
            .map(|one| (one.law, one.label))
            .collect::<Vec<_>>()
    };
    let label = |law: usize, label: &str| (law, label.to_owned());
    assert_eq!(requests(&auto(), only(&["droptail"])), []);
    let read = reading(&auto(), only(&["droptail"]));
    assert!(read.experiment(&read.points(&[]).unwrap(), |_| &[]).is_ok());
    assert_eq!(requests(&auto(), set(&[("law.pi.gains", "paper")])), []);
    let paper = "[[law]]\nkind = \"red\"\nlabel = \"old\"\n";
    let asked = requests(&format!("{BASE}{paper}"), set(&[("law.old.gains", "auto")]));
    assert_eq!(asked, [label(2, "old")]);
    let mut named = set(&[("law.pi2.gains", "auto")]);
    named.laws = vec!["pi2".to_owned()];
    assert_eq!(requests(BASE, named), [label(2, "pi2")]);
    let swept = format!("{BASE}[sweep]\n\"law.pi.gains\" = [\"paper\", \"auto\"]\n");
    assert_eq!(requests(&swept, Options::default()), [label(0, "pi")]);
}

#[test]
fn a_law_asks_for_the_extremes_of_all_points() {
    let more = r#"
        [[at]]
        time = "1s"
        set = { "bottleneck.rate" = "50Mbit/s", "traffic.0.flows" = 2 }
        [sweep]
        "traffic.0.flows, law.0.target" = [[8, "20p"], [80, "20p"], [80, "30p"]]
        "traffic.0.rtt" = ["20ms", "200ms"]
        "bottleneck.buffer" = ["64p", "30kB"]
        "traffic.0.tcp" = ["linux-reno", "linux-cubic"]
    "#;
    let text = auto() + more;
    let reading = reading(&text, Options::default());
    let points = reading.points(&[]).unwrap();
    let requests = reading.gains_requests(&points).unwrap();
    let load = &requests[0].load;
    assert_eq!((load.rate_bps, load.rtt_s), (50_000_000, (0.02, 0.2)));
    assert_eq!((load.flows, load.room_pkts), (Some((2.0, 80.0)), 20.0));
    assert_eq!(load.window_law, WindowLaw::Reno);
    let target = ("target".to_owned(), Value::Text("20p".into()));
    assert!(
        requests[0].given.contains(&target),
        "{:?}",
        requests[0].given
    );
    // At one point its own link, but all senders that are compared.
    let row = |tcp: &str| {
        let text = |text: &str| Value::Text(text.to_owned());
        let values = [text("30p"), text("20ms"), text("64p"), text(tcp)];
        [&[Value::Integer(80)][..], &values].concat()
    };
    let at = |tcp| reading.gains_requests_at(row(tcp)).unwrap().remove(0);
    assert_eq!(at("linux-reno"), at("linux-cubic"));
    assert_eq!(at("linux-reno").load.rtt_s, (0.02, 0.02));
}

#[test]
fn what_is_wrong_with_a_law_that_asks_is_told_before_anybody_designs_it() {
    let asked = |from: &str, to: &str| {
        let text = auto().replacen(from, to, 1);
        assert_ne!(text, auto());
        let reading = reading(&text, Options::default());
        refused(reading.gains_requests(&reading.points(&[]).unwrap()))
    };
    for (from, to, message) in [
        (
            "\"auto\"",
            "\"auto\"\nintervall = 2",
            "law.0.intervall: unknown key; expected one of kind, label, queue, gains, target, a, b, \
             interval, queue_in_bytes (did you mean \"interval\"?)",
        ),
        (
            "\"pi\"",
            "\"pike\"",
            "law.0.kind: \"pike\" is not valid; expected one of droptail, red, pi, ",
        ),
        (
            "\"2ms\"",
            "\"0ms\"",
            "law.0.interval: \"0ms\" is not valid; expected a value from 0.000001s to 60s",
        ),
        (
            "\"10Mbit/s\"",
            "\"fast\"",
            "bottleneck.rate: \"fast\" is not valid; expected a rate with its unit, such as ",
        ),
    ] {
        let error = asked(from, to);
        assert!(error.contains(message), "{error}");
    }
}

// --- another link ----------------------------------------------------------------------------

const HERE: LinkPlace = LinkPlace {
    rate: Rate::from_bps(10_000_000),
    delay: Span::from_millis(50),
};

fn at(rate_bps: u64, delay_ms: u64) -> Options {
    let to = LinkPlace {
        rate: Rate::from_bps(rate_bps),
        delay: Span::from_millis(delay_ms),
    };
    Options {
        link: Some(Relink {
            from: HERE,
            to,
            packet: Bytes(1500),
        }),
        ..Options::default()
    }
}

const MOVED: &str = r#"
duration   = "9s"
bottleneck = { rate = "10Mbit/s", delay = "15ms", buffer = "83p" }
traffic    = [
    { kind = "ftp", flows = 2, rtt = ["100ms", "30ms"] },
    { kind = "cbr", flows = 1, rtt = "100ms", rate = "1Mbit/s" },
    { kind = "voice", flows = 1, rtt = "100ms" },
    { kind = "video", flows = 1, rtt = "100ms", ladder = ["300kbit/s", "1Mbit/s"] },
    { kind = "frames", flows = 1, rtt = "100ms", frame = "5p" },
    { kind = "web", flows = 1, rtt = "100ms", requests = 3 },
]
[[law]]
kind = "droptail"
[[at]]
time = "5s"
set  = { "bottleneck.rate" = "5Mbit/s", bottleneck.buffer = "40p" }
[sweep]
"traffic.0.rtt, bottleneck.buffer" = [["100ms", "83p"], ["560ms", "467p"]]
"traffic.1.rate" = ["2Mbit/s"]
"#;

#[test]
fn a_scenario_follows_its_link() {
    use forebay_scenario::TrafficKind;

    let moved = experiment(MOVED, &at(20_000_000, 10));
    assert_eq!(
        labels(&moved),
        [
            "traffic.0.rtt = 20ms, bottleneck.buffer = 33p, traffic.1.rate = 4Mbit/s",
            "traffic.0.rtt = 560ms, bottleneck.buffer = 933p, traffic.1.rate = 4Mbit/s",
        ]
    );
    let scenario = &moved.points[0].scenario;
    assert_eq!(scenario.tested_link().rate, Rate::from_bps(20_000_000));
    assert_eq!(scenario.tested_link().delay, Span::from_millis(10));
    let rates = |index: usize| scenario.traffic[index].kind.clone();
    assert!(matches!(rates(2), TrafficKind::Voice(voice) if voice.rate == Rate::from_bps(64_000)));
    assert!(matches!(rates(3), TrafficKind::Video(video, _)
        if video.ladder == [600_000, 2_000_000].map(Rate::from_bps)));
    assert!(matches!(rates(4), TrafficKind::Frames(frames) if frames.frame.0 == 10));
    assert!(matches!(rates(5), TrafficKind::Web(web, ..) if web.requests == 6.0));
    let access = scenario.traffic.iter().map(|one| one.access);
    assert!(access.eq([Rate::from_bps(200_000_000); 6]));
    let changes = format!("{:?}", scenario.changes);
    assert!(changes.contains("Rate(10000000)"), "{changes}");
    // Two fifths of the product of rate and round trip, as before.
    assert!(changes.contains("Packets(16)"), "{changes}");
}

#[test]
fn its_own_link_changes_nothing() {
    let alone = experiment(MOVED, &Options::default());
    let moved = experiment(MOVED, &at(10_000_000, 50));
    assert_eq!(labels(&alone), labels(&moved));
    for (one, other) in alone.points.iter().zip(&moved.points) {
        assert_eq!(one.scenario.resolved(), other.scenario.resolved());
    }
}

#[test]
fn a_value_that_cannot_be_moved_is_an_error_with_its_line() {
    let text = MOVED.replace("rate = \"10Mbit/s\"", "rate = \"fast\"");
    let error = refused(parse(text.as_bytes(), "x.toml", &at(20_000_000, 10)));
    assert!(
        error.starts_with(
            "x.toml:3: bottleneck.rate: \"fast\" is not valid; expected a rate with its unit, "
        ),
        "{error}"
    );
    let text = MOVED.replace("kind = \"cbr\"", "kind = \"cbx\"");
    let error = refused(parse(text.as_bytes(), "x.toml", &at(20_000_000, 10)));
    assert!(
        error.starts_with(
            "x.toml:6: traffic.1.kind: \"cbx\" is not valid; expected one of ftp, mice, cbr, "
        ),
        "{error}"
    );
}

#[test]
fn the_laws_of_a_file_may_be_left_out() {
    let mut options = only(&["red", "pi"]);
    options.without_own_laws = true;
    let text = BASE.replace("kind = \"pi\"", "kind = \"pi\"\ntarget = \"7p\"");
    let read = experiment(&text, &options);
    assert_eq!(read.laws, ["red", "pi"]);
    assert!(read.points[0].laws[1].given().is_empty());
}
