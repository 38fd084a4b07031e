//! The Linux kernel's sender in whole runs.

mod common;

use common::{ftp, one_bottleneck};
use forebay_scenario::Options;
use forebay_trace::{Metrics, RunTrace};

/// Runs ten flows over 15 Mbit/s and 60 ms with RED; `keys` are further keys of the traffic.
fn simulate(keys: &str) -> RunTrace {
    let path = r#"
        packet = "1500B"
        access = "1Gbit/s"
        start = { uniform = ["0s", "1s"] }
        initial_window = "10p"
    "#;
    let red = r#"
        [[law]]
        kind = "red"
        min_th = "25p"
        max_th = "75p"
        max_p = 0.04
        w_q = 0.002
    "#;
    let more = ftp(10, "\"60ms\"", path) + keys + red;
    let text = one_bottleneck([5, 20], "15Mbit/s", "150p", &more);
    common::simulate(&text, &Options::default())
}

fn delivered_bytes(trace: &RunTrace) -> u64 {
    trace.flows.iter().map(|flow| flow.delivered_bytes).sum()
}

#[test]
fn flows_fill_the_link_and_share_it() {
    for keys in [
        "tcp = \"linux-reno\"\ndelayed_ack = true",
        "tcp = \"linux-cubic\"\ndelayed_ack = true",
        "tcp = \"linux-cubic\"\nquick_acks = 16\necn = true",
    ] {
        let trace = simulate(keys);
        let metrics = Metrics::of(trace.link(0), None);
        assert!(metrics.utilisation > 0.97, "{keys}: {metrics:?}");
        let mean = delivered_bytes(&trace) / 10;
        for flow in &trace.flows {
            let share = flow.delivered_bytes as f64 / mean as f64;
            assert!((0.4..2.0).contains(&share), "{keys}: {share}");
        }
    }
}

#[test]
fn runs_repeat_exactly() {
    let [first, again] = [(); 2].map(|()| simulate(r#"tcp = "linux-cubic""#));
    assert_eq!(
        first.links[0].samples.queue_pkts,
        again.links[0].samples.queue_pkts
    );
    assert_eq!(first.flows, again.flows);
    assert_eq!(
        first.links[0].forwarded_packets,
        again.links[0].forwarded_packets
    );
}

/// Growth counts acknowledged packets, so that the same losses hold the window with and without
/// delayed ACKs. The sender of ns-2 needs half as many with delayed ACKs.
#[test]
fn delayed_acks_do_not_slow_growth() {
    let dropped = |tcp: &str, delayed: bool| {
        let trace = simulate(&format!("tcp = \"{tcp}\"\ndelayed_ack = {delayed}"));
        Metrics::of(trace.link(0), None).drop_rate
    };
    let linux = dropped("linux-reno", true) / dropped("linux-reno", false);
    assert!((0.8..1.25).contains(&linux), "{linux}");
    let ns2 = dropped("sack", true) / dropped("sack", false);
    assert!(ns2 < 0.75, "{ns2}");
}

#[test]
fn goodput_leaves_headers_out_and_nothing_else_changes() {
    for tcp in ["sack", "linux-reno"] {
        let [whole, payload] = ["0B", "52B"]
            .map(|header| simulate(&format!("tcp = \"{tcp}\"\nheader = \"{header}\"")));
        assert_eq!(
            whole.links[0].samples.queue_pkts, payload.links[0].samples.queue_pkts,
            "{tcp}"
        );
        let (whole, payload) = (delivered_bytes(&whole), delivered_bytes(&payload));
        assert_eq!(whole / 1500 * 1448, payload, "{tcp}");
    }
}

/// Under any loss, including that of SYNs and last packets, all requested data arrives in the end.
/// It is as much as with any other sender, because requests are drawn independently of the network.
#[test]
fn transfers_complete_over_a_link_that_loses_much() {
    let delivered = |tcp: &str| {
        let more = format!(
            r#"
            [[traffic]]
            kind = "web"
            flows = 20
            packet = "1500B"
            rtt = ["20ms", "100ms"]
            requests = 2.0
            shape = 2.5
            scale = "30kB"
            stop = "40s"
            tcp = "{tcp}"
            initial_window = "10p"
            delayed_ack = true
            [[law]]
            kind = "droptail"
            "#
        );
        let text = one_bottleneck([0, 200], "5Mbit/s", "6p", &more);
        let trace = common::simulate(&text, &Options::default());
        (
            delivered_bytes(&trace),
            Metrics::of(trace.link(0), None).drop_rate,
        )
    };
    let (all, _) = delivered("newreno");
    for tcp in ["linux-reno", "linux-cubic"] {
        let (bytes, lost) = delivered(tcp);
        assert_eq!(bytes, all, "{tcp}");
        assert!(lost > 0.02, "{tcp}: {lost}");
    }
}
