//! Scenarios as fluids: what becomes of their keys, and what is refused.

#[path = "../../forebay-scenario/tests/texts/mod.rs"]
mod texts;

use forebay_fluid::{from_scenario, run, Model, Step, What, Windows};
use forebay_scenario::{parse, Options};
use texts::{ftp, one_bottleneck};

/// With further keys of the bottleneck, and tables.
fn model(more: &str) -> Result<Model, String> {
    let law = "[[law]]\nkind = \"pi\"\n";
    let more = format!("delay = \"10ms\"\n{more}\n{law}");
    whole(&one_bottleneck([0, 40], "30Mbit/s", "800p", &more))
}

fn whole(text: &str) -> Result<Model, String> {
    let options = Options {
        files: vec![("cell.down".into(), b"0\n1\n2\n".to_vec())],
        ..Options::default()
    };
    let read = parse(text.as_bytes(), "test.toml", &options).map_err(|e| e.to_string())?;
    let point = &read.points[0];
    let step = Step::AUTO;
    from_scenario(&point.scenario, &point.laws[0], Windows::Smooth, step).map_err(|e| e.to_string())
}

fn flows(count: u32) -> String {
    let keys = "packet = \"1000B\"\naccess = \"80Mbit/s\"";
    ftp(count, r#"["100ms", "200ms"]"#, keys)
}

#[test]
fn flows_are_dealt_over_round_trips() {
    let model = model(&flows(61)).unwrap();
    // 1000 bytes take 8/30 ms at the bottleneck and twice 0.1 ms on access links.
    let own = 8e-3 / 30.0 + 2e-4;
    let rtts: Vec<f64> = model
        .classes
        .iter()
        .map(|class| class.rtt.as_secs_f64())
        .collect();
    assert!((rtts[0] - 0.1 - own).abs() < 1e-9 && (rtts[1] - 0.2 - own).abs() < 1e-9);
    // All start at zero, 31 with the first RTT.
    let started: Vec<f64> = (model.changes.iter())
        .map(|change| match change.what {
            What::Flows { flows, .. } => flows,
            _ => panic!("nothing else changes"),
        })
        .collect();
    assert_eq!(started, [31.0, 30.0]);
    run(&model).unwrap();
}

#[test]
fn flows_that_come_later_are_a_class_of_their_own() {
    let more = "[[at]]\ntime = \"20s\"\nset = { \"traffic.0.flows\" = 90 }\n\
                [[at]]\ntime = \"30s\"\nset = { \"traffic.0.flows\" = 60 }\n";
    let model = model(&(flows(60) + more)).unwrap();
    assert_eq!(model.classes.len(), 4);
    let trace = run(&model).unwrap();
    let window = |class: usize, s: f64| trace.window_pkts[class][(s / 0.01) as usize];
    // NaN where there is no flow.
    assert!(window(2, 19.0).is_nan() && window(2, 31.0).is_nan());
    assert!(window(0, 19.0) > 5.0 && window(2, 20.02) < 3.0 && window(2, 29.0) > 3.0);
}

#[test]
fn a_longer_link_lengthens_both_ways() {
    let more = "[[at]]\ntime = \"20s\"\nset = { \"bottleneck.delay\" = \"35ms\" }\n";
    let model = model(&(flows(60) + more)).unwrap();
    let trace = run(&model).unwrap();
    let queueing = |s: f64| trace.queue_pkts[0][(s / 0.01) as usize] / 3750.0;
    let base = |s: f64| trace.rtt_s[1][(s / 0.01) as usize] - queueing(s);
    assert!((base(21.0) - base(19.0) - 0.05).abs() < 1e-9);
}

#[test]
fn traffic_that_the_fluid_model_lacks_is_refused_by_key() {
    let error = model(&flows(60).replace("ftp", "mice")).err().unwrap();
    assert_eq!(
        error,
        "traffic.0.kind: \"mice\" is not valid; expected \"ftp\", since the fluid model has \
         long-lived TCP flows only"
    );
    let other = flows(60).replace("1000B", "500B");
    let error = model(&(flows(60) + &other)).err().unwrap();
    assert_eq!(
        error,
        "traffic.1.packet: \"500B\" is not valid; expected \"1000B\", since the fluid model has one \
         packet size"
    );
}

#[test]
fn links_in_a_row_are_queues_in_a_row() {
    let link = "[[link]]\nfrom = \"right\"\nto = \"end\"\nrate = \"20Mbit/s\"\n\
                delay = \"5ms\"\nbuffer = \"400p\"\n";
    let far = flows(60).replace("flows", "path = [\"left\", \"right\", \"end\"]\nflows");
    let more = "[[at]]\ntime = \"20s\"\nset = { \"link.right-end.delay\" = \"10ms\" }\n";
    let model = model(&format!("{link}{far}{more}")).unwrap();
    assert_eq!(model.classes[0].route, [0, 1]);
    let trace = run(&model).unwrap();
    // The slower link alone holds a queue; its delay counts both ways.
    let late = |column: &[f64]| column[3000..].iter().sum::<f64>() / (column.len() - 3000) as f64;
    assert!(late(&trace.queue_pkts[0]) < 1e-6);
    assert!((late(&trace.queue_pkts[1]) - 200.0).abs() < 40.0);
    let base = |s: usize| trace.rtt_s[0][100 * s] - trace.queue_pkts[1][100 * s] / 2500.0;
    assert!((base(21) - base(19) - 0.01).abs() < 1e-9);
}

#[test]
fn a_rate_trace_is_refused_by_key() {
    let traced = "rate_trace = \"cell.down\"\n".to_owned() + &flows(60);
    let error = model(&traced).err().unwrap();
    let message = "the link has a trace; expected a constant rate, since the fluid model has no \
                   traces";
    assert_eq!(error, format!("bottleneck.rate_trace: {message}"));
    let link = "[[link]]\nfrom = \"right\"\nto = \"end\"\nrate = \"20Mbit/s\"\n\
                buffer = \"400p\"\nrate_trace = \"cell.down\"\n";
    let error = model(&format!("{link}{}", flows(60))).err().unwrap();
    assert_eq!(error, format!("link.0.rate_trace: {message}"));
}

#[test]
fn a_queue_for_acks_is_refused() {
    let back =
        "[[link]]\nfrom = \"right\"\nto = \"left\"\nrate = \"20Mbit/s\"\nbuffer = \"400p\"\n";
    let error = model(&format!("{back}{}", flows(60))).err().unwrap();
    assert_eq!(
        error,
        "link: \"bottleneck\" has a link in the opposite direction; expected links in one \
         direction, since ACKs do not queue in the fluid model"
    );
}
