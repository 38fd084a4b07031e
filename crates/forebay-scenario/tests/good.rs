//! Scenarios that are right: what the text says is what the model holds.

use std::sync::Arc;

use forebay_aqm::laws::baseline;
use forebay_aqm::{ConfiguredLaw, Law, LawSpec};
use forebay_scenario::{
    parse, prototypes, EcnChoice, Experiment, Instant, LinkSetting, Options, Own, Setting,
    TrafficKind,
};
use forebay_units::{
    Buffer, Bytes, ParamError, ParamSpec, ParamTable, ParamType, ParamValues, Rate, SetPoint,
    Shape, Site, Span, Time, Value,
};

/// PD-RED at a constant load: every part that a scenario can have.
const CONSTANT: &str = include_str!("good/constant.toml");

fn read(text: &str, options: &Options) -> Experiment {
    parse(text.as_bytes(), "test.toml", options).unwrap_or_else(|error| panic!("{error}"))
}

fn sets(pairs: &[(&str, &str)]) -> Options {
    let owned = |(key, value): &(&str, &str)| (key.to_string(), value.to_string());
    Options {
        sets: pairs.iter().map(owned).collect(),
        ..Options::default()
    }
}

fn laws(names: &[&str]) -> Options {
    Options {
        laws: names.iter().map(|name| name.to_string()).collect(),
        ..Options::default()
    }
}

fn second(s: f64) -> Time {
    Time::ZERO + Span::from_secs_f64(s)
}

#[test]
fn every_part_of_a_scenario_is_read() {
    let experiment = read(CONSTANT, &Options::default());
    assert_eq!(experiment.title, "PD-RED: constant load");
    assert_eq!(experiment.seeds, [1, 2, 3, 4, 5]);
    assert_eq!(experiment.laws, ["red", "pd-red"]);
    assert_eq!(experiment.points.len(), 2);

    let scenario = &experiment.points[0].scenario;
    assert_eq!(scenario.duration, Span::from_secs(100));
    assert_eq!(scenario.measure, (second(50.0), second(100.0)));
    assert_eq!(scenario.sample, Span::from_millis(10));
    assert_eq!(scenario.target_pkts(), Some(400.0));
    assert_eq!(scenario.tested_link().rate, Rate::from_bps(45_000_000));
    assert_eq!(scenario.tested_link().delay, Span::from_millis(40));
    assert_eq!(scenario.tested_link().buffer, Buffer::Packets(1125));
    assert!(scenario.tested_link().ecn);

    let [ftp] = scenario.traffic.as_slice() else {
        panic!("{:?}", scenario.traffic)
    };
    assert_eq!((ftp.label.as_str(), ftp.flows), ("ftp", 100));
    assert_eq!(ftp.packet, Bytes(500));
    assert_eq!(ftp.rtts, [Span::from_millis(100)]);
    assert_eq!(ftp.access, Rate::from_bps(100_000_000));
    assert_eq!(ftp.start, Instant::Uniform(second(0.0), second(1.0)));
    assert_eq!((ftp.stop, ftp.pairs, &ftp.group), (None, None, &None));
    let TrafficKind::Ftp(tcp) = &ftp.kind else {
        panic!("{:?}", ftp.kind)
    };
    assert_eq!(tcp.sender().name, "reno");
    assert_eq!((tcp.window.0, tcp.initial_window.0), (10_000, 2));
    assert_eq!(tcp.min_rto, Span::from_millis(200));
    assert_eq!((tcp.ecn, tcp.pacing), (EcnChoice::Off, false));
    assert!(!tcp.delayed_ack && tcp.limited_transmit);

    let [change] = scenario.changes.as_slice() else {
        panic!("{:?}", scenario.changes)
    };
    assert_eq!(change.at, second(60.0));
    let rate = LinkSetting::Rate(Rate::from_bps(20_000_000));
    assert_eq!(
        change.what,
        Setting::Link {
            link: 0,
            what: rate
        }
    );

    let red = &experiment.points[0].laws[0];
    assert_eq!(red.spec.kind, "red");
    let given = |key: &str| {
        red.given()
            .iter()
            .find(|(name, _)| name == key)
            .unwrap()
            .1
            .clone()
    };
    assert_eq!(given("min_th"), Value::Text("15p".into()));
    assert_eq!(given("max_p"), Value::Number(0.01));
    assert_eq!(red.given().len(), 4);
    assert_eq!(
        experiment.points[0].laws[1].set_point(),
        Some(SetPoint::Packets(400.0))
    );
}

/// Reads one traffic with these keys in a run of this length, and returns the bounds of its starts
/// in s.
fn start_bounds_s(kind: &str, keys: &str, duration: &str) -> (f64, f64) {
    let text = format!(
        "duration = {duration:?}\nbottleneck = {{ rate = \"10Mbit/s\", buffer = \"100p\" }}\n\
         [[traffic]]\nkind = {kind:?}\nflows = 2\nrtt = \"20ms\"\n{keys}\n\
         [[law]]\nkind = \"droptail\"\n"
    );
    let options = Options {
        programs: true,
        ..Options::default()
    };
    let (first, last) = read(&text, &options).points[0].scenario.traffic[0]
        .start
        .bounds();
    (first.as_secs_f64(), last.as_secs_f64())
}

#[test]
fn flows_whose_times_no_seed_draws_draw_their_starts_by_default() {
    let rate = "rate = \"1Mbit/s\"";
    for (kind, keys) in [
        ("ftp", ""),
        ("cbr", rate),
        ("voice", ""),
        ("frames", ""),
        ("video", ""),
    ] {
        assert_eq!(start_bounds_s(kind, keys, "20s"), (0.0, 1.0), "{kind}");
        let at_zero = format!("{keys}\nstart = \"0s\"");
        assert_eq!(start_bounds_s(kind, &at_zero, "20s"), (0.0, 0.0), "{kind}");
    }
    for (kind, keys) in [
        ("mice", ""),
        ("web", ""),
        ("pages", ""),
        ("onoff", rate),
        ("program", "client = \"true\""),
    ] {
        assert_eq!(start_bounds_s(kind, keys, "20s"), (0.0, 0.0), "{kind}");
    }
}

#[test]
fn a_short_run_begins_within_its_first_tenth() {
    assert_eq!(start_bounds_s("ftp", "", "2s"), (0.0, 0.2));
    assert_eq!(
        start_bounds_s("ftp", "stop = \"500ms\"", "20s"),
        (0.0, 0.05)
    );
    assert_eq!(start_bounds_s("ftp", "stop = \"15s\"", "20s"), (0.0, 1.0));
}

/// Three loads at two rates, of four kinds of traffic.
const LOADS: &str = include_str!("good/loads.toml");

#[test]
fn defaults_labels_and_kinds_of_traffic() {
    let experiment = read(LOADS, &Options::default());
    assert_eq!(experiment.laws, ["red", "red 2", "Hollot"]);
    assert_eq!(experiment.seeds, [1, 2]);
    let scenario = &experiment.points[0].scenario;
    assert_eq!(scenario.measure, (second(100.0), second(200.0)));
    assert_eq!(scenario.target, None);
    assert!(scenario.tested_link().ecn);
    let labels: Vec<&str> = scenario.traffic.iter().map(|t| t.label.as_str()).collect();
    assert_eq!(labels, ["ftp", "mice", "late mice", "cbr"]);

    let [ftp, mice, late, cbr] = scenario.traffic.as_slice() else {
        panic!("{labels:?}")
    };
    assert_eq!((ftp.pairs, ftp.group.as_deref()), (Some(9), Some("all")));
    assert_eq!(ftp.rtts.len(), 3);
    assert_eq!(ftp.stop, Some(Instant::At(second(150.0))));
    let TrafficKind::Ftp(tcp) = &ftp.kind else {
        panic!("{:?}", ftp.kind)
    };
    assert_eq!((tcp.ecn, tcp.sender().name), (EcnChoice::Classic, "sack"));
    let TrafficKind::Mice(keys, _) = &mice.kind else {
        panic!("{:?}", mice.kind)
    };
    let (on, off) = (Span::from_millis(500), Span::from_secs(1));
    assert_eq!((keys.on, keys.off), (on, off));
    assert_eq!(
        (late.start, late.packet),
        (Instant::At(second(100.0)), Bytes(1000))
    );
    assert_eq!(
        late.stop,
        Some(Instant::Uniform(second(120.0), second(130.0)))
    );
    let TrafficKind::Mice(_, tcp) = &late.kind else {
        panic!("{:?}", late.kind)
    };
    assert_eq!((tcp.window.0, tcp.delayed_ack), (20, true));
    assert_eq!(tcp.sender().name, "linux-cubic");
    assert_eq!((tcp.ack_delay, tcp.quick_acks), (Span::from_millis(40), 16));
    assert_eq!((late.payload(), cbr.payload()), (Bytes(960), Bytes(172)));
    let TrafficKind::Cbr(keys) = &cbr.kind else {
        panic!("{:?}", cbr.kind)
    };
    assert_eq!(
        (keys.rate, keys.ecn, cbr.packet),
        (Rate::from_bps(64_000), false, Bytes(200))
    );
}

#[test]
fn changes_come_in_order_of_time() {
    let experiment = read(LOADS, &Options::default());
    let changes: Vec<_> = experiment.points[0]
        .scenario
        .changes
        .iter()
        .map(|change| (change.at, change.what.clone()))
        .collect();
    let flows = Setting::Flows {
        traffic: 2,
        flows: 0,
    };
    let bottleneck = |what| Setting::Link { link: 0, what };
    let delay = LinkSetting::Delay(Span::from_millis(6));
    let want = [
        (second(60.0), bottleneck(delay)),
        (second(120.0), flows),
        (
            second(120.0),
            bottleneck(LinkSetting::Buffer(Buffer::Bytes(64_000))),
        ),
    ];
    assert_eq!(changes, want);
}

#[test]
fn a_sweep_is_the_cross_product_with_the_last_key_fastest() {
    let experiment = read(CONSTANT, &Options::default());
    let labels: Vec<&str> = experiment.points.iter().map(|p| p.label.as_str()).collect();
    assert_eq!(labels, ["traffic.0.flows = 100", "traffic.0.flows = 2000"]);
    assert_eq!(experiment.points[1].scenario.traffic[0].flows, 2000);

    let experiment = read(LOADS, &Options::default());
    let seen: Vec<_> = experiment
        .points
        .iter()
        .map(|point| {
            let scenario = &point.scenario;
            let flows = |i: usize| scenario.traffic[i].flows;
            (
                flows(0),
                flows(1),
                scenario.tested_link().rate.as_bps() / 1_000_000,
            )
        })
        .collect();
    let want = [
        (63, 126, 30),
        (63, 126, 20),
        (90, 180, 30),
        (90, 180, 20),
        (126, 252, 30),
        (126, 252, 20),
    ];
    assert_eq!(seen, want);
    let last = &experiment.points[5];
    assert_eq!(
        last.label,
        "traffic.0.flows = 126, traffic.mice.flows = 252, bottleneck.rate = 20Mbit/s"
    );
    assert_eq!(
        last.settings[1],
        ("traffic.mice.flows".into(), Value::Integer(252))
    );
}

#[test]
fn parameters_of_laws_can_be_swept() {
    let text = CONSTANT.replace(
        "\"traffic.0.flows\" = [100, 2000]",
        "\"law.red.max_p\" = [0.1, 0.2]",
    );
    let experiment = read(&text, &Options::default());
    let max_p = |point: usize| {
        let law = &experiment.points[point].laws[0];
        law.law()
            .values()
            .into_iter()
            .find(|(name, _)| *name == "max_p")
            .unwrap()
            .1
    };
    assert_eq!(
        (max_p(0), max_p(1)),
        (Value::Number(0.1), Value::Number(0.2))
    );
}

#[test]
fn sets_replace_what_the_file_says() {
    let options = sets(&[
        ("duration", "80s"),
        ("measure", "[\"30s\", \"80s\"]"),
        ("bottleneck.ecn", "false"),
        ("traffic.ftp.rtt", "[\"1s\", \"2s\"]"),
        ("traffic.0.stop", "{ uniform = [\"70s\", \"71s\"] }"),
        ("law.1.target", "50p"),
        ("law.red.max_p", "0.2"),
        ("title", "an = sign, and a comma"),
    ]);
    let experiment = read(CONSTANT, &options);
    assert_eq!(experiment.title, "an = sign, and a comma");
    let point = &experiment.points[0];
    assert_eq!(point.scenario.measure, (second(30.0), second(80.0)));
    assert!(!point.scenario.tested_link().ecn);
    assert_eq!(
        point.scenario.traffic[0].rtts,
        [Span::from_secs(1), Span::from_secs(2)]
    );
    assert_eq!(
        point.scenario.traffic[0].stop,
        Some(Instant::Uniform(second(70.0), second(71.0)))
    );
    assert_eq!(point.laws[1].set_point(), Some(SetPoint::Packets(50.0)));
    assert!(point.laws[0]
        .given()
        .contains(&("max_p".into(), Value::Number(0.2))));
}

#[test]
fn a_law_names_its_queue_and_may_hold_a_delay() {
    let options = sets(&[
        ("law.1.target", "15ms"),
        ("law.1.queue", "priority"),
        ("law.red.queue", "{ kind = \"priority\", dscp = 46 }"),
        ("traffic.0.dscp", "46"),
    ]);
    let point = &read(CONSTANT, &options).points[0];
    assert_eq!(point.scenario.traffic[0].dscp, 46);
    let [red, other] = [&point.laws[0], &point.laws[1]];
    assert_eq!(red.queue.to_string(), "{ kind = \"priority\", dscp = 46 }");
    assert_eq!(other.queue.to_string(), "priority");
    assert_eq!(
        other.set_point(),
        Some(SetPoint::Delay(Span::from_millis(15)))
    );
    // 45 Mbit/s in packets of 500 bytes: 11 250 a second.
    assert_eq!(other.target_pkts(&point.scenario.site()), Some(168.75));
    assert!(read(CONSTANT, &Options::default()).points[0].laws[0]
        .queue
        .is_default());
}

#[test]
fn what_is_set_is_not_swept() {
    let experiment = read(CONSTANT, &sets(&[("traffic.ftp.flows", "7")]));
    assert_eq!(experiment.points.len(), 1);
    assert_eq!(experiment.points[0].label, "");
    assert_eq!(experiment.points[0].scenario.traffic[0].flows, 7);
    // One of two keys that are swept together: the other is still swept.
    let experiment = read(LOADS, &sets(&[("traffic.0.flows", "7")]));
    let point = &experiment.points[2];
    assert_eq!(
        point.label,
        "traffic.mice.flows = 180, bottleneck.rate = 30Mbit/s"
    );
    assert_eq!(point.scenario.traffic[0].flows, 7);
}

#[test]
fn laws_are_kept_by_label_or_kind_and_added_by_kind() {
    assert_eq!(read(LOADS, &laws(&["Hollot"])).laws, ["Hollot"]);
    assert_eq!(read(LOADS, &laws(&["red"])).laws, ["red", "red 2"]);
    assert_eq!(read(LOADS, &laws(&["red 2"])).laws, ["red 2"]);
    assert_eq!(
        read(LOADS, &laws(&["pi", "red"])).laws,
        ["red", "red 2", "Hollot"]
    );
    let experiment = read(LOADS, &laws(&["droptail", "Hollot"]));
    assert_eq!(experiment.laws, ["Hollot", "droptail"]);
    // A law that only the command line names can be set.
    let mut options = sets(&[("law.pid.target", "50p")]);
    options.laws = vec!["pid".into()];
    let experiment = read(LOADS, &options);
    assert_eq!(
        experiment.points[0].laws[0].set_point(),
        Some(SetPoint::Packets(50.0))
    );
}

fn silent(given: &ParamValues) -> Result<Arc<dyn ConfiguredLaw>, ParamError> {
    let target = given.iter().find(|(name, _)| name == "target");
    let target = target.map_or(Value::Text("30p".into()), |(_, value)| value.clone());
    Ok(Arc::new(SilentAt { target }))
}

struct SilentAt {
    target: Value,
}

impl ParamTable for SilentAt {
    fn values(&self) -> Vec<(&'static str, Value)> {
        vec![("target", self.target.clone())]
    }
}

impl ConfiguredLaw for SilentAt {
    fn build(&self, site: &Site, seed: u64) -> Result<Box<dyn Law>, ParamError> {
        baseline().build(&[], site, seed)
    }
    fn set_point(&self) -> Option<SetPoint> {
        SetPoint::from_value(&self.target).ok()
    }
}

/// A law of the caller's under this kind.
fn own(kind: &'static str, label: &str, runs: bool) -> Own {
    const TARGET: ParamSpec = ParamSpec {
        name: "target",
        unit: "p",
        shape: Shape::Quantity,
        expected: "packets",
        default: &|| Value::Text("30p".into()),
        default_base: &|| Some(30.0),
        required: false,
        min: 0.0,
        max: 1e9,
        doc: "",
    };
    let spec = LawSpec::custom(kind, "Mine", "", &[TARGET], &silent);
    Own {
        spec: Box::leak(Box::new(spec)),
        label: label.into(),
        runs,
    }
}

#[test]
fn laws_of_the_caller_stand_in_for_those_of_the_file() {
    let (head, _) = CONSTANT.split_once("[[law]]").unwrap();
    let mut options = Options {
        own: vec![own("python:Mine", "Mine", true)],
        ..Options::default()
    };
    assert_eq!(read(head, &options).laws, ["Mine"]);
    assert_eq!(read(LOADS, &options).laws, ["Mine"]);
    options.laws = vec!["Hollot".into()];
    options.sets = vec![("law.Mine.target".into(), "20p".into())];
    let experiment = read(LOADS, &options);
    assert_eq!(experiment.laws, ["Hollot", "Mine"]);
    let set_point = experiment.points[0].laws[1].set_point();
    assert_eq!(set_point, Some(SetPoint::Packets(20.0)));
    options.own = vec![own("python:Hollot", "Hollot", true)];
    assert!(parse(LOADS.as_bytes(), "test.toml", &options).is_err());
}

#[test]
fn a_file_names_laws_of_the_caller() {
    let (head, _) = CONSTANT.split_once("[[law]]").unwrap();
    let law = |more: &str| format!("[[law]]\nkind = \"mine.py:Mine\"\n{more}\n");
    let text = format!(
        "{head}{}{}{}",
        law("target = \"10p\""),
        law(""),
        law("label = \"third\"")
    );
    let mut options = Options {
        laws: vec!["other.py:Else".into(), "mine.py:Mine".into()],
        ..Options::default()
    };
    let wanted = prototypes(text.as_bytes(), "test.toml", &options).unwrap();
    let names: Vec<_> = wanted
        .iter()
        .map(|(kind, in_file)| (kind.as_str(), *in_file))
        .collect();
    assert_eq!(names, [("mine.py:Mine", true), ("other.py:Else", false)]);
    options.own = vec![
        own("mine.py:Mine", "Mine", false),
        own("other.py:Else", "Else", false),
    ];
    let experiment = read(&text, &options);
    assert_eq!(experiment.laws, ["Mine", "Mine 2", "third", "Else"]);
    options.laws = vec!["Mine 2".into()];
    assert_eq!(read(&text, &options).laws, ["Mine 2"]);
}

#[test]
fn a_law_that_does_not_run_is_not_loaded() {
    let (head, _) = CONSTANT.split_once("[[law]]").unwrap();
    let text = format!(
        "{head}[[law]]\nkind = \"pi\"\n[[law]]\nkind = \"mine.py:Mine\"\n\
         [[law]]\nkind = \"deep/other.py:Else\"\nlabel = \"other\"\n"
    );
    let loaded = |laws: &[&str], brings_laws: bool, without_own_laws: bool| {
        let options = Options {
            laws: laws.iter().map(|law| (*law).to_owned()).collect(),
            brings_laws,
            without_own_laws,
            ..Options::default()
        };
        let all = prototypes(text.as_bytes(), "test.toml", &options).unwrap();
        let kinds: Vec<String> = all.into_iter().map(|(kind, _)| kind).collect();
        kinds.join(" ")
    };
    assert_eq!(loaded(&[], false, false), "mine.py:Mine deep/other.py:Else");
    assert_eq!(loaded(&["pi"], false, false), "");
    // One that the file does not have, and one that is no law.
    assert_eq!(loaded(&["codel"], false, false), "");
    assert_eq!(loaded(&["other"], false, false), "deep/other.py:Else");
    assert_eq!(loaded(&["mine.py:Mine"], false, false), "mine.py:Mine");
    // It may be the label that the class has.
    assert_eq!(loaded(&["Mine"], false, false), "mine.py:Mine");
    assert_eq!(loaded(&["else.py:New"], false, false), "else.py:New");
    assert_eq!(loaded(&[], true, false), "");
    // And the others run without it.
    let options = Options {
        laws: vec!["pi".into()],
        ..Options::default()
    };
    assert_eq!(read(&text, &options).laws, ["pi"]);
    assert_eq!(loaded(&[], false, true), "");
}

#[test]
fn a_law_in_a_file_outside_the_scenarios_folder_is_refused() {
    let (head, _) = CONSTANT.split_once("[[law]]").unwrap();
    for path in [
        "../mine.py",
        "deep/../../mine.py",
        "/tmp/mine.py",
        "./../mine.py",
    ] {
        let text = format!("{head}[[law]]\nkind = \"{path}:Mine\"\n");
        let error = prototypes(text.as_bytes(), "test.toml", &Options::default()).unwrap_err();
        let line = error.to_string();
        let message = format!(
            "law.0.kind: \"{path}:Mine\" is not valid; expected FILE.py:CLASS with a file in the \
             folder of the scenario or below it, without \"..\""
        );
        assert!(line.ends_with(&message), "{line}");
        let options = Options {
            laws: vec!["pi".into()],
            ..Options::default()
        };
        assert!(prototypes(text.as_bytes(), "test.toml", &options)
            .unwrap()
            .is_empty());
    }
}

#[test]
fn seeds_count_from_one() {
    let options = Options {
        seeds: Some(3),
        ..Options::default()
    };
    assert_eq!(read(CONSTANT, &options).seeds, [1, 2, 3]);
}

/// Several links with laws, and every kind of traffic.
const NETWORK: &str = include_str!("good/network.toml");

#[test]
fn links_join_nodes_and_paths_follow_them() {
    let experiment = read(NETWORK, &Options::default());
    let scenario = &experiment.points[0].scenario;
    let names: Vec<&str> = scenario
        .links
        .iter()
        .map(|link| link.name.as_str())
        .collect();
    assert_eq!(names, ["Q2", "Q4", "R3-R4", "R5-R4"]);
    let paths: Vec<&[usize]> = scenario.traffic.iter().map(|t| t.path.as_slice()).collect();
    let expected: [&[usize]; 6] = [&[0, 2, 1], &[3], &[0], &[1], &[0], &[0]];
    assert_eq!(paths, expected);
    assert_eq!(
        (
            scenario.opposite(1),
            scenario.opposite(3),
            scenario.opposite(0)
        ),
        (Some(3), Some(1), None)
    );
    // The law under test acts on the bottleneck and on Q4.
    assert_eq!(scenario.tested_queues().len(), 2);
    let own: Vec<Option<&str>> = scenario
        .links
        .iter()
        .map(|link| link.law.as_ref().map(|law| law.spec.kind))
        .collect();
    assert_eq!(own, [None, None, Some("droptail"), Some("red")]);
    let what: Vec<&Setting> = scenario.changes.iter().map(|change| &change.what).collect();
    let rate = LinkSetting::Rate(Rate::from_bps(5_000_000));
    let buffer = LinkSetting::Buffer(Buffer::Bytes(32_000));
    let flows = Setting::Flows {
        traffic: 3,
        flows: 10,
    };
    assert_eq!(
        what,
        [
            &Setting::Link {
                link: 1,
                what: rate
            },
            &Setting::Link {
                link: 3,
                what: buffer
            },
            &flows
        ]
    );
}

#[test]
fn kinds_of_traffic_have_their_numbers() {
    let experiment = read(NETWORK, &sets(&[("link.Q4.rate", "9Mbit/s")]));
    let scenario = &experiment.points[0].scenario;
    assert_eq!(scenario.links[1].rate, Rate::from_bps(9_000_000));
    let kinds: Vec<&TrafficKind> = scenario.traffic.iter().map(|t| &t.kind).collect();
    let [_, _, TrafficKind::Web(web, _, size), TrafficKind::Pages(pages, ..), TrafficKind::OnOff(onoff), TrafficKind::OnOff(always)] =
        kinds.as_slice()
    else {
        panic!("{kinds:?}")
    };
    assert_eq!((web.requests, size.shape), (5.0, 1.2));
    assert_eq!(size.scale, Bytes(2000));
    assert_eq!((pages.pages.0, pages.objects), (Some(10), 4));
    assert_eq!(pages.page_gap, Span::from_secs(3));
    assert_eq!((onoff.arrivals.0, onoff.swing), (Some(0.2), 0.9));
    assert_eq!(
        (onoff.period, onoff.peak),
        (Span::from_secs(10), Span::from_secs(5))
    );
    assert_eq!((onoff.on_shape.0, onoff.bursts.0), (Some(1.5), Some(50.0)));
    let unset = [always.arrivals.0, always.on_shape.0, always.bursts.0];
    assert_eq!(unset, [None; 3]);
}

#[test]
fn files_that_are_needed_at_any_point_are_known_before() {
    let text = CONSTANT.replace("delay  =", "rate_trace = \"lte.down\"\ndelay  =");
    let names = |text: &str, options: &Options| -> Vec<String> {
        let names = forebay_scenario::files(text.as_bytes(), "x.toml", options);
        names.unwrap().into_iter().collect()
    };
    assert_eq!(names(CONSTANT, &Options::default()), [""; 0]);
    assert_eq!(names(&text, &Options::default()), ["lte.down"]);
    let swept = text.replace(
        "[sweep]",
        "[sweep]\n\"bottleneck.rate_trace\" = [\"a\", \"b\"]",
    );
    assert_eq!(names(&swept, &Options::default()), ["a", "b", "lte.down"]);
    let set = sets(&[("bottleneck.rate_trace", "c")]);
    assert_eq!(names(&swept, &set), ["c"]);
}

#[test]
fn a_rate_trace_comes_with_the_call() {
    let text = CONSTANT.replace("delay  =", "rate_trace = \"lte.down\"\ndelay  =");
    let with = |contents: &str| Options {
        files: vec![("lte.down".into(), contents.as_bytes().to_vec())],
        ..Options::default()
    };
    let experiment = read(&text, &with("0\n3\n3\r\n10\n\n"));
    let trace = experiment.points[0]
        .scenario
        .tested_link()
        .trace
        .clone()
        .unwrap();
    assert_eq!(trace.times_ms, [0, 3, 3, 10]);
    assert_eq!(trace.mean_rate(), Rate::from_bps(4_800_000));
    let error = |options: &Options| match parse(text.as_bytes(), "x.toml", options) {
        Ok(_) => panic!("no error"),
        Err(error) => error.to_string(),
    };
    const ORDER: &str = "a whole number of ms that is not below that of the line before";
    const TIMES: &str = "times in ms, one per line, such as \"5\"";
    for (contents, fault, expected) in [
        (
            "0\n5\n4\n",
            "\"4\" in line 3 of \"lte.down\" is not valid",
            ORDER,
        ),
        (
            "0\n5ms\n",
            "\"5ms\" in line 2 of \"lte.down\" is not valid",
            ORDER,
        ),
        ("0\n", "\"lte.down\" has no time above 0", TIMES),
        ("", "\"lte.down\" has no time above 0", TIMES),
    ] {
        let line = error(&with(contents));
        let message = format!("x.toml:11: bottleneck.rate_trace: {fault}; expected {expected}");
        assert_eq!(line, message);
    }
    assert!(error(&Options::default()).ends_with(
        ": \"lte.down\" is not valid; expected a readable file, relative to the folder of the scenario"
    ));
}

/// A law whose name has a queue of its own takes the queue's keys beside its own.
#[test]
fn a_name_can_stand_for_a_law_in_its_queue() {
    let laws = |lines: &str| {
        let text = format!(
            "duration = \"1s\"\n[bottleneck]\nrate = \"10Mbit/s\"\nbuffer = \"500p\"\n\
             [[traffic]]\nkind = \"ftp\"\nflows = 1\nrtt = \"10ms\"\n[[law]]\n{lines}\n"
        );
        parse(text.as_bytes(), "test", &Options::default())
            .map(|experiment| experiment.points[0].laws[0].clone())
            .map_err(|error| error.to_string())
    };
    let fq = laws("kind = \"fq-codel\"\ntarget = \"10ms\"\nqueues = 64").unwrap();
    assert_eq!(fq.queue.to_string(), "{ kind = \"fq\", queues = 64 }");
    assert_eq!(fq.given().len(), 1);
    let same = laws("kind = \"fq-codel\"\nqueue = { kind = \"fq\", queues = 64 }").unwrap();
    assert_eq!(same.queue, fq.queue);
    // Around any law.
    let any = laws("kind = \"pi\"\nqueue = \"fq\"").unwrap();
    assert_eq!((any.spec.kind, any.queue.spec.kind), ("pi", "fq"));
    let dual = laws("kind = \"dualpi2\"\ncoupling = 3.0\nstep = \"2ms\"").unwrap();
    assert_eq!(dual.queue.given().len(), 2);
    // Another queue would make it another thing.
    let error = laws("kind = \"fq-codel\"\nqueue = \"priority\"").unwrap_err();
    assert!(
        error.ends_with(
            ": law.0.queue: priority cannot hold fq-codel; expected fq, the queue of fq-codel"
        ),
        "{error}"
    );
    let error = laws("kind = \"fq-codel\"\nqueues = 0").unwrap_err();
    assert!(
        error.ends_with(": law.0.queues: 0 is not valid; expected a value from 1 to 65536"),
        "{error}"
    );
}

/// `stack = "linux"` is what its keys say, at every kind over TCP, and a key that is written wins.
#[test]
fn one_word_stands_for_a_host_with_linux() {
    const KEYS: [&str; 7] = [
        "tcp = \"linux-cubic\"",
        "packet = \"1500B\"",
        "header = \"52B\"",
        "initial_window = \"10p\"",
        "delayed_ack = true",
        "ack_delay = \"40ms\"",
        "quick_acks = 16",
    ];
    let resolved = |kind: &str, keys: &str, options: &Options| {
        let text = format!(
            "duration = \"10s\"\n[bottleneck]\nrate = \"10Mbit/s\"\nbuffer = \"100p\"\n\
             [[traffic]]\nkind = \"{kind}\"\nflows = 4\nrtt = \"40ms\"\n{keys}\n\
             [[law]]\nkind = \"droptail\"\n"
        );
        read(&text, options).points[0].scenario.resolved()
    };
    let none = Options::default();
    for kind in ["ftp", "mice", "web", "pages", "video"] {
        let linux = resolved(kind, "stack = \"linux\"", &none);
        assert_eq!(linux, resolved(kind, &KEYS.join("\n"), &none), "{kind}");
        let ns2 = resolved(kind, "stack = \"ns2\"", &none);
        assert_eq!(ns2, resolved(kind, "", &none), "{kind}");
        assert_ne!(linux, ns2, "{kind}");
        let other = "tcp = \"bbr\"\npacket = \"1000B\"\nquick_acks = 0";
        let mut keys = KEYS.to_vec();
        keys.retain(|key| {
            !["tcp", "packet", "quick_acks"]
                .iter()
                .any(|it| key.starts_with(it))
        });
        keys.push(other);
        let written = resolved(kind, &format!("{other}\nstack = \"linux\""), &none);
        assert_eq!(written, resolved(kind, &keys.join("\n"), &none), "{kind}");
    }
    // From the command line, too.
    let asked = resolved("ftp", "", &sets(&[("traffic.0.stack", "linux")]));
    assert_eq!(asked, resolved("ftp", "stack = \"linux\"", &none));
    let wrong =
        "duration = \"1s\"\n[bottleneck]\nrate = \"1Mbit/s\"\nbuffer = \"9p\"\n[[traffic]]\n\
                 kind = \"ftp\"\nflows = 1\nrtt = \"9ms\"\nstack = \"bsd\"\n[[law]]\n\
                 kind = \"droptail\"\n";
    let Err(error) = forebay_scenario::parse(wrong.as_bytes(), "test", &none) else {
        panic!("a stack that does not exist is read")
    };
    assert!(
        error.to_string().contains("\"ns2\" or \"linux\""),
        "{error}"
    );
}
