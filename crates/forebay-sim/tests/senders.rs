//! Effects of a sender's keys in whole runs: pacing, and the feedback of marks.

mod common;

use common::ftp;
use forebay_scenario::Options;
use forebay_trace::Metrics;

const DROPTAIL: &str = "\n[[law]]\nkind = \"droptail\"\n";

/// Runs the scenario of [`common::one_bottleneck`] and returns its metrics.
fn simulate(measure_s: [u32; 2], rate: &str, buffer: &str, more: &str) -> Metrics {
    let text = common::one_bottleneck(measure_s, rate, buffer, more);
    Metrics::of(common::simulate(&text, &Options::default()).link(0), None)
}

/// Runs a connection with an initial window of 60 packets and a buffer of 20 packets.
fn large_initial_window(keys: &str) -> Metrics {
    let path = r#"
        packet = "1000B"
        access = "1Gbit/s"
        window = "60p"
        initial_window = "60p"
        start = "0s"
    "#;
    let more = ftp(1, "\"100ms\"", path) + keys + DROPTAIL;
    simulate([0, 2], "10Mbit/s", "20p", &more)
}

#[test]
fn a_paced_window_fits_a_buffer_that_a_burst_overflows() {
    for tcp in ["sack", "linux-reno", "linux-cubic"] {
        let drops = |pacing: bool| {
            large_initial_window(&format!("tcp = \"{tcp}\"\npacing = {pacing}")).drop_rate
        };
        assert_eq!((drops(true), drops(false) > 0.01), (0.0, true), "{tcp}");
    }
}

#[test]
fn a_paced_sender_uses_its_window() {
    for tcp in ["reno", "linux-reno"] {
        let paced = large_initial_window(&format!("tcp = \"{tcp}\"\npacing = true"));
        // The flow sends 60 packets of 1000 bytes in 100 ms, except for the start and the time to
        // cross the network.
        assert!(
            (4.0e6..4.8e6).contains(&paced.goodput_bps),
            "{tcp}: {paced:?}"
        );
    }
}

/// Runs two connections whose packets are marked above a step of 20 packets.
fn step(keys: &str) -> Metrics {
    let path = r#"
        packet = "1500B"
        access = "10Gbit/s"
        initial_window = "10p"
        delayed_ack = true
        ack_delay = "40ms"
    "#;
    let red = r#"
        [[law]]
        kind = "red"
        min_th = "19p"
        max_th = "20p"
        max_p = 1.0
        w_q = 1.0
        gentle = true
        wait = false
    "#;
    let more = format!("delay = \"1ms\"\n{}{keys}{red}", ftp(2, "\"10ms\"", path));
    simulate([2, 6], "100Mbit/s", "500p", &more)
}

#[test]
fn dctcp_holds_a_step_that_reno_swings_about() {
    let dctcp = step("tcp = \"dctcp\"\necn = true");
    let reno = step("tcp = \"linux-reno\"\necn = true");
    assert!((10.0..26.0).contains(&dctcp.queue_mean_pkts), "{dctcp:?}");
    assert!(
        dctcp.utilisation > 0.98 && dctcp.drop_rate == 0.0,
        "{dctcp:?}"
    );
    assert!(reno.queue_std_pkts > 1.5 * dctcp.queue_std_pkts, "{reno:?}");
}

#[test]
fn counts_of_marks_are_answered_once_a_round_trip() {
    for tcp in ["sack", "linux-reno", "linux-cubic"] {
        let [echoed, counted] =
            ["true", "\"l4s\""].map(|ecn| step(&format!("tcp = \"{tcp}\"\necn = {ecn}")));
        for run in [echoed, counted] {
            assert!(
                run.mark_rate > 0.0 && run.drop_rate == 0.0,
                "{tcp}: {run:?}"
            );
            assert!(run.utilisation > 0.8, "{tcp}: {run:?}");
        }
        let ratio = counted.mark_rate / echoed.mark_rate;
        assert!((0.5..2.0).contains(&ratio), "{tcp}: {ratio}");
    }
}

/// Runs a single BBR connection with a large buffer and measures it after its start.
fn alone(tcp: &str, mbit: u32, rtt_ms: u32) -> Metrics {
    let path = r#"
        packet = "1500B"
        access = "10Gbit/s"
        window = "40000p"
        initial_window = "10p"
    "#;
    let flow = ftp(1, &format!("\"{rtt_ms}ms\""), path);
    let more = format!("delay = \"0ms\"\n{flow}tcp = \"{tcp}\"{DROPTAIL}");
    simulate([10, 40], &format!("{mbit}Mbit/s"), "20000p", &more)
}

#[test]
fn one_bbr_connection_fills_the_link_with_two_products_in_flight_at_most() {
    for (mbit, rtt_ms) in [(10, 20), (10, 100), (50, 50), (200, 10)] {
        let third = alone("bbr3", mbit, rtt_ms);
        assert!(third.utilisation > 0.95, "{mbit} {rtt_ms}: {third:?}");
        assert!(
            third.delay_p99_s < 1.3e-3 * f64::from(rtt_ms),
            "{mbit} {rtt_ms}: {third:?}"
        );
        let run = alone("bbr", mbit, rtt_ms);
        assert!(run.utilisation > 0.95, "{mbit} {rtt_ms}: {run:?}");
        assert_eq!(run.drop_rate, 0.0);
        // The packets in flight are one bandwidth-delay product and the queue.
        assert!(
            run.delay_p99_s
                < 1.05e-3 * f64::from(rtt_ms) + 5.0 * 12_000.0 / (1e6 * f64::from(mbit)),
            "{mbit} {rtt_ms}: {run:?}"
        );
    }
}

#[test]
fn ledbat_keeps_below_its_target_and_gives_way() {
    let run = alone("ledbat++", 10, 40);
    assert!(run.utilisation > 0.85, "{run:?}");
    assert!(run.delay_mean_s < 0.07, "{run:?}");
    let beside = |tcp: &str| {
        let flow = |label: &str, tcp: &str| {
            let keys = format!("label = \"{label}\"\npacket = \"1500B\"\ntcp = \"{tcp}\"");
            ftp(1, "\"40ms\"", &keys)
        };
        let more = flow("foreground", "linux-cubic") + &flow("background", tcp) + DROPTAIL;
        simulate([20, 60], "10Mbit/s", "150p", &more)
    };
    // Two equal flows have an index near 1; if one of them gets a tenth, it is below 0.62.
    assert!(beside("linux-cubic").jain > 0.8);
    assert!(beside("ledbat++").jain < 0.62, "{:?}", beside("ledbat++"));
}

/// Runs two connections of this sender whose packets are marked above a step of 8 packets.
#[test]
fn prague_holds_a_step_with_a_short_queue() {
    let run = step("tcp = \"prague\"\necn = \"l4s\"");
    assert!(run.utilisation > 0.97 && run.drop_rate == 0.0, "{run:?}");
    assert!(run.queue_mean_pkts < 30.0, "{run:?}");
    assert!(run.mark_rate > 0.005, "{run:?}");
}
