//! Recorded packets in whole runs.

mod common;

use forebay_scenario::Options;
use forebay_trace::{Metrics, RunTrace};
use forebay_units::Rng;

/// Runs a scenario with the packets of `list`. `law` has the keys of the law, `traffic` further
/// keys of the traffic.
fn simulate(list: &str, traffic: &str, law: &str) -> RunTrace {
    let more = format!(
        r#"
        [[traffic]]
        kind = "arrivals"
        file = "list.csv"
        {traffic}
        [[law]]
        {law}
        "#
    );
    let options = Options {
        files: vec![("list.csv".into(), list.as_bytes().to_vec())],
        ..Options::default()
    };
    let text = common::one_bottleneck([0, 20], "10Mbit/s", "1000p", &more);
    common::simulate(&text, &options)
}

const DROPTAIL: &str = "kind = \"droptail\"";

/// Returns packets as (time in ns, size in bytes): Poisson arrivals with sizes of 40 to 1500 bytes,
/// about 0.9 of 10 Mbit/s.
fn poisson(n: usize) -> Vec<(u64, u32)> {
    let mut rng = Rng::new(4, "list");
    let mut at_ns = 3_000_000_000;
    let draw = |_| {
        at_ns += rng.exponential(684_000.0) as u64;
        (at_ns, rng.uniform_in(40.0, 1500.0) as u32)
    };
    (0..n).map(draw).collect()
}

fn list(packets: &[(u64, u32)], more: impl Fn(usize) -> String) -> String {
    let mut text = "time_s,size_bytes,flow,ecn,dscp\n".to_owned();
    for (i, (at_ns, bytes)) in packets.iter().enumerate() {
        let at_s = format!("{}.{:09}", at_ns / 1_000_000_000, at_ns % 1_000_000_000);
        text += &format!("{at_s},{bytes},{}\n", more(i));
    }
    text
}

#[test]
fn packets_wait_as_lindley_says() {
    let packets = poisson(20_000);
    let trace = simulate(&list(&packets, |i| format!("{},0,0", i % 7)), "", DROPTAIL);
    // Lindley's equation: W(n + 1) = max(0, W(n) + S(n) - A(n)), with 0.8 us per byte.
    let (mut wait_ns, mut sum_ns, mut longest_ns) = (0_i64, 0_i64, 0_i64);
    for (now, next) in packets.iter().zip(packets.iter().skip(1)) {
        sum_ns += wait_ns;
        longest_ns = longest_ns.max(wait_ns);
        wait_ns = (wait_ns + 800 * i64::from(now.1) - (next.0 - now.0) as i64).max(0);
    }
    sum_ns += wait_ns;
    longest_ns = longest_ns.max(wait_ns);
    let mean_s = sum_ns as f64 / packets.len() as f64 / 1e9;
    let found = Metrics::of(trace.link(0), None);
    assert_eq!(trace.links[0].forwarded_packets, 20_000);
    // The recorder's histogram has a resolution of three digits and begins at 1 us.
    assert!(
        (found.delay_mean_s / mean_s - 1.0).abs() < 1e-3,
        "{found:?} {mean_s}"
    );
    let longest = trace.links[0].delay_ns.max() as f64;
    assert!(
        (longest / longest_ns as f64 - 1.0).abs() < 2e-3,
        "{longest} {longest_ns}"
    );
    let bytes: u64 = packets.iter().map(|packet| u64::from(packet.1)).sum();
    let delivered: u64 = trace.flows.iter().map(|flow| flow.delivered_bytes).sum();
    assert_eq!((trace.flows.len(), delivered), (7, bytes));
}

#[test]
fn a_scale_and_a_period_multiply_the_load() {
    let packets = poisson(4_000);
    let list = list(&packets, |_| "a,0,0".into());
    let once = Metrics::of(simulate(&list, "", DROPTAIL).link(0), None);
    let dense = Metrics::of(simulate(&list, "scale = 0.7", DROPTAIL).link(0), None);
    assert!(
        dense.delay_mean_s > 10.0 * once.delay_mean_s,
        "{dense:?} {once:?}"
    );
    let again = simulate(&list, "period = \"5s\"\nstop = \"19s\"", DROPTAIL);
    assert_eq!(again.links[0].forwarded_packets, 16_000);
    let late = simulate(&list, "start = \"1s\"\nstop = \"1.5s\"", DROPTAIL);
    let within = packets
        .iter()
        .filter(|(at_ns, _)| at_ns - packets[0].0 < 500_000_000);
    assert_eq!(late.links[0].forwarded_packets, within.count() as u64);
}

#[test]
fn queues_see_codepoints_as_they_were() {
    // The packets arrive at 1.5 times the link's rate.
    let packets: Vec<(u64, u32)> = (0..20_000).map(|i| (i * 800_000, 1500)).collect();
    let red = "kind = \"red\"\nmin_th = \"5p\"\nmax_th = \"900p\"\nmax_p = 0.4";
    let (marked, dropped) = {
        let of = |ecn: u8| {
            let list = list(&packets, |_| format!("a,{ecn},0"));
            Metrics::of(simulate(&list, "", red).link(0), None)
        };
        (of(2), of(0))
    };
    assert!(
        marked.mark_rate > 0.01 && marked.early_drop_rate == 0.0,
        "{marked:?}"
    );
    assert!(
        dropped.early_drop_rate > 0.01 && dropped.mark_rate == 0.0,
        "{dropped:?}"
    );
    // DualPI2 prefers ECT(1) and the priority queue DSCP 46, each a tenth of the packets.
    for (law, one, other) in [
        ("kind = \"dualpi2\"", "a,1,0", "b,0,0"),
        (
            "kind = \"droptail\"\nqueue = \"priority\"",
            "a,0,46",
            "b,0,0",
        ),
    ] {
        let list = list(&packets, |i| if i % 10 == 0 { one } else { other }.into());
        let trace = simulate(&list, "", law);
        let early = trace.links[0].delay_ns.value_at_quantile(0.05) as f64 / 1e9;
        let late = trace.links[0].delay_ns.value_at_quantile(0.9) as f64 / 1e9;
        assert!(late > 5.0 * early, "{law} {early} {late}");
    }
}

#[test]
fn flows_are_told_apart() {
    // Flow b sends nine times as much as flow a, and more than the link carries.
    let packets: Vec<(u64, u32)> = (0..20_000).map(|i| (i * 800_000, 1500)).collect();
    let list = list(&packets, |i| {
        if i % 10 == 0 { "a,0,0" } else { "b,0,0" }.into()
    });
    let all = |law: &str| {
        let trace = simulate(&list, "", law);
        trace.flows[0].delivered_bytes as f64 / (2_000.0 * 1500.0)
    };
    assert!(all("kind = \"fq-codel\"") > 0.999);
    assert!(all("kind = \"codel\"") < 0.95);
}
