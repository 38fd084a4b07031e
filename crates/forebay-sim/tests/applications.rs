//! Voice, frames and adaptive video in whole runs.

mod common;

use forebay_scenario::Options;
use forebay_trace::{Metrics, RunTrace};

fn simulate(rate: &str, traffic: &str, law: &str) -> (RunTrace, Metrics) {
    let more = format!("delay = \"10ms\"\n{traffic}\n[[law]]\nkind = \"{law}\"");
    let text = common::one_bottleneck([20, 60], rate, "60p", &more);
    let trace = common::simulate(&text, &Options::default());
    let metrics = Metrics::of(trace.link(0), None);
    (trace, metrics)
}

const CALLS: &str = r#"
    [[traffic]]
    kind = "voice"
    flows = 5
    rtt = "40ms"
    start = { uniform = ["0s", "20ms"] }
"#;

#[test]
fn calls_alone_have_the_path_s_delay() {
    let (trace, metrics) = simulate("10Mbit/s", CALLS, "droptail");
    assert_eq!(trace.calls.len(), 5);
    assert!(trace
        .calls
        .iter()
        .all(|call| (call.received, call.lost) == (2000, 0)));
    // The delay is half of 40 ms, 160 us on the link, and 16 us on each access link.
    let path_s = 0.020 + 160e-6 + 2.0 * 16e-6;
    assert!((metrics.voice_delay_s - path_s).abs() < 1e-4, "{metrics:?}");
    assert!(metrics.voice_jitter_s < 1e-6);
    assert_eq!(metrics.voice_loss, 0.0);
    // Packets of 200 bytes hold 160 bytes of speech.
    assert!(
        (metrics.goodput_bps / (5.0 * 64_000.0) - 1.0).abs() < 1e-3,
        "{metrics:?}"
    );
}

#[test]
fn calls_suffer_behind_a_full_buffer_and_not_beside_it() {
    let flows = common::ftp(2, "\"40ms\"", "tcp = \"cubic\"\npacket = \"1500B\"");
    let both = format!("{CALLS}{flows}");
    let (_, behind) = simulate("5Mbit/s", &both, "droptail");
    let (trace, beside) = simulate("5Mbit/s", &both, "fq-codel");
    assert!(behind.voice_delay_s > 0.06, "{behind:?}");
    assert!(
        behind.voice_loss > 0.0 && behind.voice_jitter_s > 1e-4,
        "{behind:?}"
    );
    assert!(beside.voice_delay_s < 0.03, "{beside:?}");
    assert_eq!((beside.voice_loss, trace.calls.len()), (0.0, 5));
}

#[test]
fn a_frame_fills_the_queue_at_once() {
    let frames = r#"
        [[traffic]]
        kind = "frames"
        flows = 1
        frame = "20p"
        interval = "100ms"
        packet = "1250B"
        start = "0s"
        rtt = "20ms"
    "#;
    // A packet takes 1 ms on the link and 0.1 ms on the access link, so that the last one waits for
    // 19 x 0.9 ms.
    let (trace, metrics) = simulate("10Mbit/s", frames, "droptail");
    assert_eq!(trace.links[0].forwarded_packets, 20 * 600);
    assert!(
        (metrics.delay_mean_s - 9.5 * 0.9e-3).abs() < 1e-5,
        "{metrics:?}"
    );
    assert!((trace.links[0].delay_ns.max() as f64 / 1e9 - 0.0171).abs() < 3e-5);
}

fn video(rate: &str, more: &str) -> (RunTrace, Metrics) {
    let text = format!(
        r#"
        [[traffic]]
        kind = "video"
        flows = 1
        tcp = "cubic"
        packet = "1500B"
        header = "52B"
        initial_window = "10p"
        rtt = "40ms"
        {more}
        "#
    );
    simulate(rate, &text, "droptail")
}

#[test]
fn video_takes_the_rate_that_the_link_has() {
    let (fast, most) = video("20Mbit/s", "");
    assert!((most.video_rate_bps - 6e6).abs() < 0.4e6, "{most:?}");
    assert_eq!((most.video_stalled, fast.viewers[0].stalls), (0.0, 0));
    let (_, some) = video("2Mbit/s", "");
    assert!((1.0e6..2.0e6).contains(&some.video_rate_bps), "{some:?}");
    assert_eq!(some.video_stalled, 0.0);
    // On a link below the lowest rate the video stalls, and it plays at most the link's rate.
    let (_, none) = video("200kbit/s", "");
    assert_eq!(none.video_rate_bps, 300e3);
    assert!((0.30..0.55).contains(&none.video_stalled), "{none:?}");
}
