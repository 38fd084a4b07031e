//! What is known of the laws on delay and of their queues, in whole runs.

use forebay_scenario::{parse, Options};
use forebay_sim::{run, Watch};
use forebay_trace::{Metrics, Trace};

/// Half a minute of Linux's senders; `traffic` and `law` are blocks of a scenario.
fn simulate(rate: &str, traffic: &str, law: &str) -> Trace {
    let text = format!(
        r#"
        duration = "30s"
        measure = ["10s", "30s"]
        [bottleneck]
        rate = "{rate}"
        buffer = "10000p"
        ecn = true
        {traffic}
        {law}
        "#
    );
    let experiment = parse(text.as_bytes(), "test", &Options::default());
    let point = &experiment.unwrap_or_else(|error| panic!("{error}")).points[0];
    let run = run(&point.scenario, &point.laws[0].aqm(), 1, &Watch::default());
    run.unwrap().unwrap()
}

fn flows(count: u32, tcp: &str, rtt: &str, ecn: &str) -> String {
    format!(
        r#"
        [[traffic]]
        kind = "ftp"
        flows = {count}
        tcp = "{tcp}"
        ecn = {ecn}
        packet = "1500B"
        rtt = {rtt}
        access = "1Tbit/s"
        start = {{ uniform = ["0s", "1s"] }}
        initial_window = "10p"
        delayed_ack = true
        quick_acks = 16
        ack_delay = "40ms"
        "#
    )
}

fn law(kind: &str) -> String {
    format!("[[law]]\nkind = \"{kind}\"")
}

/// Bytes of a traffic's flows.
fn delivered(trace: &Trace, traffic: u32) -> f64 {
    let flows = trace.flows.iter().filter(|flow| flow.traffic == traffic);
    flows.map(|flow| flow.delivered_bytes as f64).sum()
}

/// Round trips of 20 to 200 ms (RFC 8290 section 1.1: flows are isolated).
#[test]
fn queues_of_flows_share_where_round_trips_differ() {
    for kind in ["fq-codel", "cake"] {
        let cubic = flows(10, "linux-cubic", r#"["20ms", "200ms"]"#, "false");
        let fair = Metrics::of(&simulate("15Mbit/s", &cubic, &law(kind)), None);
        assert!(fair.jain >= 0.98, "{kind}: {fair:?}");
        let alone = Metrics::of(&simulate("15Mbit/s", &cubic, &law("codel")), None);
        assert!(alone.jain < 0.9, "{alone:?}");
    }
}

#[test]
fn laws_hold_their_delay() {
    for (kind, target, target_s) in [("pie", "15ms", 0.015), ("pi2", "20ms", 0.020)] {
        let cubic = flows(20, "linux-cubic", r#""60ms""#, "false");
        let law = format!("[[law]]\nkind = \"{kind}\"\ntarget = \"{target}\"");
        let held = Metrics::of(&simulate("30Mbit/s", &cubic, &law), None);
        assert!(
            (held.delay_mean_s / target_s - 1.0).abs() < 0.1,
            "{kind}: {held:?}"
        );
        assert!(held.utilisation > 0.98, "{kind}: {held:?}");
    }
}

/// RFC 9332 section 2.1: the coupling gives flows of both kinds like rates. At 4 Mbit/s a packet takes
/// 3 ms, so the step leaves two packets alone (appendix A.1, `Th_len`).
#[test]
fn classic_and_scalable_flows_get_like_rates() {
    for (rate, rtt, count) in [
        ("4Mbit/s", "20ms", 1),
        ("4Mbit/s", "100ms", 1),
        ("40Mbit/s", "10ms", 4),
        ("40Mbit/s", "50ms", 4),
        ("200Mbit/s", "5ms", 10),
        ("200Mbit/s", "20ms", 10),
        ("200Mbit/s", "100ms", 10),
    ] {
        for tcp in ["prague", "dctcp"] {
            // DCTCP's rate goes with its round trip of 6 ms, against 20 ms of the classic queue.
            if tcp == "dctcp" && rtt == "5ms" {
                continue;
            }
            let both = flows(count, "linux-cubic", &format!("{rtt:?}"), "false")
                + &flows(count, tcp, &format!("{rtt:?}"), "\"l4s\"");
            let law = law("dualpi2");
            let trace = simulate(rate, &both, &law);
            let ratio = delivered(&trace, 1) / delivered(&trace, 0);
            assert!((0.5..=2.0).contains(&ratio), "{rate} {rtt} {tcp}: {ratio}");
        }
    }
}
