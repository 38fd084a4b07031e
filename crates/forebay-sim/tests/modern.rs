//! Known properties of delay-based laws and of their queues, in whole runs.

mod common;

use forebay_scenario::Options;
use forebay_trace::{ClassMetrics, Metrics, RunTrace};

/// Runs Linux's senders for half a minute; `traffic` and `law` are blocks of a scenario.
fn simulate(rate: &str, traffic: &str, law: &str) -> RunTrace {
    let more = format!("ecn = true\n{traffic}\n{law}");
    let text = common::one_bottleneck([10, 30], rate, "10000p", &more);
    common::simulate(&text, &Options::default())
}

fn flows(count: u32, tcp: &str, rtt: &str, ecn: &str) -> String {
    let keys = format!(
        r#"
        tcp = "{tcp}"
        ecn = {ecn}
        packet = "1500B"
        access = "1Tbit/s"
        start = {{ uniform = ["0s", "1s"] }}
        initial_window = "10p"
        delayed_ack = true
        quick_acks = 16
        ack_delay = "40ms"
        "#
    );
    common::ftp(count, rtt, &keys)
}

fn law(kind: &str) -> String {
    format!("[[law]]\nkind = \"{kind}\"")
}

/// Returns the bytes that a traffic's flows delivered.
fn delivered(trace: &RunTrace, traffic: u32) -> f64 {
    let flows = trace.flows.iter().filter(|flow| flow.traffic == traffic);
    flows.map(|flow| flow.delivered_bytes as f64).sum()
}

/// Flow queues share the link equally between flows with round trips of 20 to 200 ms (RFC 8290
/// section 1.1: flows are isolated).
#[test]
fn queues_of_flows_share_where_round_trips_differ() {
    for kind in ["fq-codel", "cake"] {
        let cubic = flows(10, "linux-cubic", r#"["20ms", "200ms"]"#, "false");
        let fair = Metrics::of(simulate("15Mbit/s", &cubic, &law(kind)).link(0), None);
        assert!(fair.jain >= 0.98, "{kind}: {fair:?}");
        let alone = Metrics::of(simulate("15Mbit/s", &cubic, &law("codel")).link(0), None);
        assert!(alone.jain < 0.9, "{alone:?}");
    }
}

#[test]
fn laws_hold_their_delay() {
    for (kind, target, target_s) in [("pie", "15ms", 0.015), ("pi2", "20ms", 0.020)] {
        let cubic = flows(20, "linux-cubic", r#""60ms""#, "false");
        let law = format!("[[law]]\nkind = \"{kind}\"\ntarget = \"{target}\"");
        let held = Metrics::of(simulate("30Mbit/s", &cubic, &law).link(0), None);
        assert!(
            (held.delay_mean_s / target_s - 1.0).abs() < 0.1,
            "{kind}: {held:?}"
        );
        assert!(held.utilisation > 0.98, "{kind}: {held:?}");
    }
}

/// The coupling gives flows of both kinds similar rates, from 4 to 200 Mbit/s and from 5 to 100 ms
/// (RFC 9332 section 2.1).
///
/// The rate of DCTCP is inversely proportional to its round-trip time. That is a few milliseconds
/// on short paths, where the classic queue adds its 15 ms to the other flows' round trips; there,
/// the windows are similar. Each DCTCP flow has a window of less than 100 packets: the kernel's
/// arithmetic counts marks in 64ths of a window, so that a larger window would miss most of the
/// coupled marks.
#[test]
fn classic_and_scalable_flows_get_like_rates() {
    for (rate, rtt_ms, count) in [
        (4, 5, 1),
        (4, 20, 1),
        (4, 100, 1),
        (40, 10, 4),
        (40, 50, 4),
        (200, 5, 10),
        (200, 20, 10),
        (200, 100, 10),
    ] {
        for tcp in ["prague", "dctcp"] {
            let trace = cubic_and(tcp, rate, rtt_ms, count, "");
            let [low, classic] = classes(&trace);
            let mut ratio = delivered(&trace, 1) / delivered(&trace, 0);
            let case = format!("{rate} Mbit/s, {rtt_ms} ms, {tcp}: {ratio}, {low:?}");
            if tcp == "dctcp" && rtt_ms == 5 {
                ratio *= (0.005 + low.delay_mean_s) / (0.005 + classic.delay_mean_s);
            }
            assert!((0.5..=2.0).contains(&ratio), "{case}");
            // At 4 Mbit/s a packet of the classic queue in its turn is a third packet, which takes
            // 3 ms.
            let packets = if rate == 4 { 3.0 } else { 2.0 };
            let packet_s = 12_000.0 / (f64::from(rate) * 1e6);
            assert!(low.delay_p99_s < 0.002 + packets * packet_s, "{case}");
            assert!(classic.delay_mean_s > 3.0 * low.delay_mean_s, "{case}");
        }
    }
}

/// An L4S packet waits for the rest of the packet on the link, for earlier L4S packets, and for one
/// packet of the classic queue in its turn, which takes 3 ms at 4 Mbit/s. With rarer turns, as
/// here, the bound for faster links holds at 4 Mbit/s as well.
#[test]
fn low_latency_is_that_of_two_packets_but_for_the_classic_turn() {
    let rare = r#"queue = { kind = "dualpi2", classic_share = 0.02 }"#;
    for rtt_ms in [20, 100] {
        for tcp in ["prague", "dctcp"] {
            let [low, _] = classes(&cubic_and(tcp, 4, rtt_ms, 1, rare));
            // Prague's window is rounded up, as in UDP-Prague: with a window of three packets a
            // fourth one waits.
            let most_s = if (tcp, rtt_ms) == ("prague", 20) {
                0.012
            } else {
                0.008
            };
            assert!(low.delay_p99_s < most_s, "{rtt_ms} ms, {tcp}: {low:?}");
        }
    }
}

/// Runs flows of CUBIC and equally many flows of `tcp` with L4S in a dual queue.
fn cubic_and(tcp: &str, mbit_per_s: u32, rtt_ms: u32, count: u32, queue: &str) -> RunTrace {
    let rtt = format!("\"{rtt_ms}ms\"");
    let both = flows(count, "linux-cubic", &rtt, "false") + &flows(count, tcp, &rtt, "\"l4s\"");
    let law = format!("{}\n{queue}", law("dualpi2"));
    simulate(&format!("{mbit_per_s}Mbit/s"), &both, &law)
}

/// Returns the metrics of a dual queue: those of L4S, and those of the classic queue.
fn classes(trace: &RunTrace) -> [ClassMetrics; 2] {
    let names: Vec<_> = trace.links[0]
        .classes
        .iter()
        .map(|class| class.name)
        .collect();
    assert_eq!(names, ["l4s", "classic"]);
    [0, 1].map(|class| ClassMetrics::of(&trace.links[0].classes[class], &trace.links[0]))
}

/// CAKE's tins by DSCP each have their own delays, and voice has the lowest delay.
#[test]
fn tins_are_told_apart() {
    let voice = r#"
        [[traffic]]
        kind = "cbr"
        flows = 1
        rtt = "20ms"
        rate = "200kbit/s"
        packet = "200B"
        dscp = 46
    "#;
    let both = flows(4, "linux-cubic", r#""20ms""#, "false") + voice;
    let trace = simulate("10Mbit/s", &both, &law("cake"));
    let of = |name: &str| {
        let class = trace.links[0]
            .classes
            .iter()
            .find(|class| class.name == name);
        ClassMetrics::of(class.unwrap(), &trace.links[0])
    };
    let (bulk, voice) = (of("best-effort"), of("voice"));
    assert!((bulk.packet_share + voice.packet_share - 1.0).abs() < 1e-12);
    // The source sends 125 packets per second.
    let packets = voice.packet_share * trace.links[0].delay_ns.len() as f64;
    assert!((2450.0..=2550.0).contains(&packets), "{packets}");
    assert!(voice.delay_p99_s < 0.004, "{voice:?}");
    assert!(bulk.delay_mean_s > 4.0 * voice.delay_mean_s, "{bulk:?}");
    assert!(bulk.drop_rate > 0.0 && voice.drop_rate == 0.0);
    assert_eq!(of("background").packet_share, 0.0);
}

/// Each of two hosts gets exactly half of the link whatever the number of its flows: ten flows
/// compete with one flow of another host. Without named hosts, each flow counts as a host of its
/// own.
#[test]
fn hosts_that_traffic_names_share_first() {
    let cubic = flows(10, "linux-cubic", r#""60ms""#, "false");
    let udp = r#"
        [[traffic]]
        kind = "cbr"
        flows = 1
        rtt = "60ms"
        rate = "9Mbit/s"
        packet = "1500B"
    "#;
    let share_of_udp = |names: [&str; 2], isolation: &str| {
        let [cubic, udp] = [(&*cubic, names[0]), (udp, names[1])]
            .map(|(traffic, name)| format!("{traffic}\n{name}"));
        let queue =
            format!(r#"{{ kind = "cake", bandwidth = "15Mbit/s", isolation = "{isolation}" }}"#);
        let law = format!("{}\nqueue = {queue}", law("cake"));
        let trace = simulate("15Mbit/s", &format!("{cubic}\n{udp}"), &law);
        delivered(&trace, 1) / (delivered(&trace, 0) + delivered(&trace, 1))
    };
    let two = [r#"host = "a""#, r#"host = "b""#];
    let one = [r#"host = "a""#, r#"host = "a""#];
    for (names, isolation, share) in [
        (two, "triple-isolate", 0.5),
        (two, "dual-srchost", 0.5),
        (two, "dual-dsthost", 0.5),
        (two, "flows", 1.0 / 11.0),
        (one, "triple-isolate", 1.0 / 11.0),
        (["", ""], "triple-isolate", 1.0 / 11.0),
    ] {
        let got = share_of_udp(names, isolation);
        assert!((got - share).abs() < 0.03, "{isolation} {names:?}: {got}");
    }
}
