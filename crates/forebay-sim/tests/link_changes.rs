//! Changes of a link while packets are on it: after a change, no transmission continues at the old
//! rate, and no packet gets the old delay.

mod common;

use common::{ftp, link_back, one_bottleneck, IDLE_LINK};
use forebay_scenario::Options;
use forebay_trace::{Metrics, RunTrace};

const LAWS: [&str; 6] = ["droptail", "codel", "cake", "pie", "dualpi2", "fq-codel"];

/// Returns the scenario's text for changes of one key, each at its time.
fn changes(key: &str, steps: &[(&str, &str)]) -> String {
    let table = |(time, value): &(&str, &str)| {
        format!("[[at]]\ntime = \"{time}\"\nset = {{ \"{key}\" = \"{value}\" }}\n")
    };
    steps.iter().map(table).collect()
}

fn simulate(text: &str, law: &str) -> RunTrace {
    let options = Options {
        laws: vec![law.to_owned()],
        ..Options::default()
    };
    common::simulate(text, &options)
}

const CBR: &str = r#"
    [[traffic]]
    kind = "cbr"
    rate = "4Mbit/s"
    flows = 2
    rtt = "40ms"
    packet = "1500B"
"#;

#[test]
fn a_link_recovers_at_once_from_a_very_low_rate_under_every_law() {
    for low in ["1bit/s", "1kbit/s"] {
        let steps = changes("bottleneck.rate", &[("5s", low), ("7s", "10Mbit/s")]);
        for (name, bottleneck) in [("a rate", ""), ("a token bucket", "burst = \"3000B\"\n")] {
            let more = format!("delay = \"10ms\"\n{bottleneck}{CBR}{steps}");
            let text = one_bottleneck([8, 20], "10Mbit/s", "200p", &more);
            for law in LAWS {
                let metrics = Metrics::of(simulate(&text, law).link(0), None);
                // Payload and headers have 8 Mbit/s.
                let utilisation = metrics.utilisation;
                assert!(utilisation > 0.79, "{law}, {name}, {low}: {utilisation}");
            }
        }
    }
}

#[test]
fn tcp_goes_on_when_the_rate_is_back() {
    for back in ["", "rate_back = \"10Mbit/s\"\n"] {
        let steps = changes("bottleneck.rate", &[("5s", "1bit/s"), ("7s", "10Mbit/s")]);
        let more = format!("delay = \"10ms\"\n{back}{}{steps}", ftp(10, "\"40ms\"", ""));
        let text = one_bottleneck([11, 20], "10Mbit/s", "100p", &more);
        let metrics = Metrics::of(simulate(&text, "droptail").link(0), None);
        assert!(metrics.utilisation > 0.9, "{back}: {metrics:?}");
    }
}

/// ACKs cross the line back along the bottleneck, so that this line must recover, too: with several
/// kinds of access link, and in a network of several links.
#[test]
fn acks_that_wait_for_the_way_back_go_at_the_new_rate() {
    for beside in ["", IDLE_LINK] {
        let steps = changes("bottleneck.rate", &[("5s", "10bit/s"), ("6s", "10Mbit/s")]);
        let traffic = ftp(10, r#"["20ms", "80ms"]"#, "");
        let more = format!("delay = \"1ms\"\n{beside}{traffic}{steps}");
        let text = one_bottleneck([9, 20], "10Mbit/s", "100p", &more);
        let metrics = Metrics::of(simulate(&text, "droptail").link(0), None);
        assert!(metrics.utilisation > 0.9, "{beside}: {metrics:?}");
    }
}

#[test]
fn another_link_and_the_reverse_link_recover() {
    let back = link_back("10Mbit/s", "100p", "\"droptail\"");
    let steps = changes("link.back.rate", &[("5s", "1bit/s"), ("7s", "10Mbit/s")]);
    let reverse = format!("{CBR}path = [\"right\", \"left\"]\nlabel = \"reverse\"\n");
    let more = format!("delay = \"10ms\"\n{back}{CBR}{reverse}{steps}");
    let text = one_bottleneck([8, 20], "10Mbit/s", "200p", &more);
    let trace = simulate(&text, "droptail");
    let metrics = Metrics::of(trace.link(1), None);
    assert!(metrics.utilisation > 0.79, "{metrics:?}");
}

/// Between two changes the link carries exactly what its rate allows, whatever was being sent at
/// the changes.
#[test]
fn a_link_that_is_always_busy_carries_what_its_rates_allow() {
    let steps = [
        ("5s", "10kbit/s"),
        ("5500ms", "20kbit/s"),
        ("6s", "500bit/s"),
        ("9s", "8Mbit/s"),
    ];
    let overload = CBR.replace("4Mbit/s", "12Mbit/s") + "start = \"0s\"\n";
    let more = format!(
        "delay = \"1ms\"\n{overload}{}",
        changes("bottleneck.rate", &steps)
    );
    let text = one_bottleneck([1, 20], "10Mbit/s", "200p", &more);
    let trace = simulate(&text, "droptail");
    let bits = |from_s: usize, to_s: usize| {
        let rows = &trace.links[0].samples.departed_bytes[100 * from_s..100 * to_s];
        8.0 * rows.iter().sum::<u64>() as f64
    };
    // A packet has 12 000 bits, and the link sends 16 500 bits in four seconds.
    assert!((bits(5, 9) - 16_500.0).abs() <= 12_000.0, "{}", bits(5, 9));
    assert!((bits(9, 20) - 88e6).abs() <= 24_000.0, "{}", bits(9, 20));
    let capacity: f64 = trace.links[0].samples.capacity_bits.iter().sum();
    let sent = bits(0, 20);
    assert!((capacity - sent).abs() < 200_000.0, "{capacity} {sent}");
}

/// A packet has the propagation delay of the time at which its last bit leaves, and no packet
/// overtakes another.
#[test]
fn a_change_of_the_delay_holds_for_what_leaves_after_it() {
    // At 6 kbit/s a packet takes two seconds. The first packet reaches the queue within 0.71 s,
    // leaves it within 2.71 s, and reaches its sink another 0.51 s after the link's delay.
    let slow = r#"
        [[traffic]]
        kind = "cbr"
        rate = "60kbit/s"
        flows = 1
        rtt = "4040ms"
        packet = "1500B"
        header = "0B"
        start = "0s"
    "#;
    let delivered_by = |steps: &[(&str, &str)], end_s: u32| {
        let steps = changes("bottleneck.delay", steps);
        let more = format!("delay = \"1s\"\n{slow}{steps}");
        let text = one_bottleneck([0, end_s], "6kbit/s", "100p", &more);
        let flows = simulate(&text, "droptail").flows;
        flows.iter().map(|flow| flow.delivered_bytes).sum::<u64>() / 1500
    };
    assert_eq!(delivered_by(&[], 4), 0);
    assert_eq!(delivered_by(&[], 5), 1);
    assert_eq!(delivered_by(&[("1s", "10ms")], 4), 1);
    assert_eq!(delivered_by(&[("1s", "2s")], 5), 0);
    // Packets that have left keep their delay.
    assert_eq!(delivered_by(&[("3s", "2s")], 5), 1);
}
