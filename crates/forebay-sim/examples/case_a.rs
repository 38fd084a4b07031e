use forebay_core::{discipline::Buffer, *};
use forebay_scenario::*;
fn main() {
    let arg = |i: usize, d: &str| std::env::args().nth(i).unwrap_or(d.into());
    let n: u32 = arg(1, "100").parse().unwrap();
    let kind = arg(2, "red");
    let secs: u64 = arg(3, "100").parse().unwrap();
    let seed: u64 = arg(4, "1").parse().unwrap();
    let rate: u64 = arg(5, "45000000").parse().unwrap();
    let tcp = Tcp {
        recovery: Recovery::Reno,
        ecn: false,
        window_pkts: 10000,
        initial_window_pkts: 2,
        min_rto: Span::from_millis(200),
        delayed_ack: false,
        limited_transmit: true,
    };
    let s = Scenario {
        title: "".into(),
        source: "".into(),
        duration: Span::from_secs(secs),
        measure: (
            Time::ZERO + Span::from_secs(secs / 2),
            Time::ZERO + Span::from_secs(secs),
        ),
        sample: Span::from_millis(10),
        target_pkts: Some(400.0),
        links: vec![],
        bottleneck: Link {
            name: "bottleneck".into(),
            from: "left".into(),
            to: "right".into(),
            law: None,
            trace: None,
            rate: Rate::from_bps(rate),
            delay: Span::from_millis(40),
            buffer: Buffer::Packets(1125),
            ecn: true,
        },
        traffic: vec![Traffic {
            label: "ftp".into(),
            flows: n,
            packet: Bytes(500),
            path: vec![0],
            rtts: vec![Span::from_millis(100)],
            access: Rate::from_bps(100_000_000),
            pairs: None,
            group: None,
            start: Instant::Uniform(Time::ZERO, Time::ZERO + Span::from_secs(1)),
            stop: None,
            kind: TrafficKind::Ftp(tcp),
        }],
        changes: vec![],
    };
    let text = |t: &str| Value::Text(t.into());
    let given = match kind.as_str() {
        "red" => vec![
            ("min_th".to_string(), text("15p")),
            ("max_th".into(), text("785p")),
            ("max_p".into(), Value::Number(0.01)),
        ],
        _ => vec![],
    };
    let law = laws::find(&kind).unwrap().build(&given, &s.site()).unwrap();
    let t0 = std::time::Instant::now();
    let trace = forebay_sim::run(&s, law, seed, &forebay_sim::Watch::default()).unwrap();
    let el = t0.elapsed().as_secs_f64();
    let m = forebay_trace::Metrics::of(&trace, Some(400.0));
    for (k, v) in m.fields() {
        println!("{k} {v:.6}");
    }
    println!(
        "wall {el:.3} Mpkt/s {:.3}",
        trace.forwarded_packets as f64 / el / 1e6
    );
}
