//! Senders other than Reno against what can be worked out by hand.

use forebay_aqm::laws;
use forebay_fluid::{
    halving, run, Bottleneck, Change, Class, Model, Sender, Step, Trace, What, Windows, SPREAD,
};
use forebay_scenario::LawChoice;
use forebay_units::{Bytes, Rate, Span, Time, Value};

/// α and β of CUBIC's Reno-friendly window (RFC 9438 section 4.3).
const BETA: f64 = 0.7;
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// PI, slow: it holds `target` packets of `bits`.
fn pi(target: u32, a: f64) -> LawChoice {
    let given = vec![
        ("target".into(), Value::Text(format!("{target}p"))),
        ("a".into(), Value::Number(a)),
        ("b".into(), Value::Number(0.995 * a)),
        ("queue_in_bytes".into(), Value::Flag(true)),
    ];
    LawChoice::of(laws::find("pi").unwrap(), given).unwrap()
}

/// Packets of 1 MB, so that a law that counts bytes sees the queue to 1e-6 packets.
fn model(pkts_per_s: u64, law: LawChoice, classes: Vec<Class>) -> Model {
    Model {
        bottlenecks: vec![Bottleneck {
            rate: Rate::from_bps(pkts_per_s * 8_000_000),
            packet: Bytes(1_000_000),
            buffer_pkts: 20_000.0,
            law,
        }],
        classes,
        changes: Vec::new(),
        duration: Span::from_secs(600),
        step: Step::AUTO,
        sample: Span::from_millis(20),
        seed: 1,
    }
}

fn class(tcp: &str, windows: Windows, flows: f64, rtt_ms: u64) -> Class {
    Class {
        marks: true,
        sender: Sender::named(tcp).unwrap(),
        windows,
        ..Class::new(tcp, flows, Span::from_millis(rtt_ms))
    }
}

/// Mean over the last tenth of the rows.
fn late(column: &[f64]) -> f64 {
    let rows = &column[column.len() * 9 / 10..];
    rows.iter().sum::<f64>() / rows.len() as f64
}

/// W, p and R of the first class at the end.
fn rest(trace: &Trace) -> (f64, f64, f64) {
    let columns = [
        &trace.window_pkts[0],
        &trace.probability[0],
        &trace.rtt_s[0],
    ];
    let [w, p, r] = columns.map(|column| late(column));
    (w, p, r)
}

fn close(got: f64, want: f64, relative: f64) {
    assert!((got / want - 1.0).abs() < relative, "{got}, not {want}");
}

/// 30 flows of 200 ms over 16,667 packets/s: W is 128, far on the cubic.
fn large(tcp: &str, windows: Windows) -> Trace {
    let flows = class(tcp, windows, 30.0, 200);
    run(&model(16_667, pi(500, 2e-8), vec![flows])).unwrap()
}

/// 60 flows of 20 ms over 12,500 packets/s: W is 9, far from it.
fn small(tcp: &str, windows: Windows) -> Trace {
    let flows = class(tcp, windows, 60.0, 20);
    run(&model(12_500, pi(300, 1e-6), vec![flows])).unwrap()
}

#[test]
fn a_small_cubic_window_rests_where_reno_s_does() {
    // α/R = (1 − β)·W·λ.
    let (w, p, _) = rest(&small("cubic", Windows::Smooth));
    close(p * w * w, ALPHA / (1.0 - BETA), 1e-3);
}

#[test]
fn cubic_flows_that_are_hit_at_random_have_larger_windows() {
    // The kinetic equation's W = 1.197·(R/p)^(3/4), of windows out of recovery; λR = pW ≈ 0.04 of
    // the time a flow is in it.
    let (w, p, r) = rest(&large("linux-cubic", Windows::Sawtooth));
    close(w, 1.197 * (r / p).powf(0.75), 0.03);
    // And AIMD(8/15, 0.7), with E[W²]/E[W]² = 1.09.
    let (w, p, r) = rest(&small("linux-cubic", Windows::Sawtooth));
    let signals = p * w;
    let (a, b) = (1.0 + signals, 1.0 + BETA * 1.087 * signals);
    // A reduction takes 0.3 packets more than 0.3·W, as Linux has whole packets, and the growth of
    // 1/64 s, as Linux looks 32 times a second.
    let taken = 0.3 * 1.087 + (0.3 + 8.0 / 15.0 / 64.0 / r) / (w * a / b);
    let friendly = 8.0 / 15.0 * (1.0 - p) / taken * (b / a).powi(2);
    close(p * w * w, friendly, 0.02);
    // RFC 9438 grows by a packet in a round trip above the last maximum: more signals.
    let (_, above, _) = rest(&small("cubic", Windows::Sawtooth));
    assert!(above > 1.2 * p, "{above} {p}");
}

#[test]
fn linux_s_reno_answers_later() {
    // At rest nothing differs: p·E[W²]/2 = 1.
    let (w, p, _) = rest(&small("linux-reno", Windows::Sawtooth));
    let (_, same, _) = rest(&small("sack", Windows::Sawtooth));
    close(p, same, 1e-3);
    let signals = p * w;
    let (a, b) = (1.0 + signals, 1.0 + SPREAD / 2.0 * signals);
    close(p * w * w, 2.0 * (1.0 - p) / SPREAD * (b / a).powi(2), 1e-2);
}

#[test]
fn scalable_senders_have_a_number_of_marks_in_each_round_trip() {
    // 20 flows of 40 ms over 12,500 packets/s, W is 37.
    let marks = |tcp: &str, windows| {
        let flows = class(tcp, windows, 20.0, 40);
        let (w, p, _) = rest(&run(&model(12_500, pi(250, 1e-6), vec![flows])).unwrap());
        (p * w, p)
    };
    // α = p, and y/2·(1 − e^−y) = 1 for y marks in a round trip.
    for tcp in ["dctcp", "prague"] {
        let (y, _) = marks(tcp, Windows::Smooth);
        close(y / 2.0 * (1.0 - (-y).exp()), 1.0, 1e-3);
    }
    // 1 − p = y·(y − 1)/2 where a reduction takes a round trip off growth and is rounded down, and
    // y²/(2(1 + y)) where neither.
    let (y, p) = marks("dctcp", Windows::Sawtooth);
    close(y * (y - 1.0) / 2.0, 1.0 - p, 1e-3);
    let (y, p) = marks("prague", Windows::Sawtooth);
    close(y * y / 2.0 / (1.0 + y - p / 2.0), 1.0 - p, 1e-3);
}

#[test]
fn short_round_trips_of_prague_get_no_more_than_those_of_25_ms() {
    // Rates are the same up to 25 ms: of both classes W is the same share of a virtual round trip.
    let classes = [2, 15].map(|rtt| class("prague", Windows::Smooth, 20.0, rtt));
    let mut model = model(12_500, pi(50, 2e-4), classes.into());
    model.duration = Span::from_secs(120);
    let trace = run(&model).unwrap();
    let rate = |i: usize| late(&trace.window_pkts[i]) / late(&trace.rtt_s[i]);
    close(rate(0), rate(1), 0.01);
}

#[test]
fn drops_halve_a_scalable_window() {
    let drops = |tcp| {
        let flows = Class {
            marks: false,
            ..class(tcp, Windows::Sawtooth, 20.0, 40)
        };
        run(&model(12_500, pi(250, 1e-6), vec![flows])).unwrap()
    };
    assert!(drops("dctcp") == drops("linux-reno"));
}

#[test]
fn a_coupled_law_marks_l4s_by_the_root() {
    // RFC 9332 section 2.1: p_C = p'² and p_L = k·p', k = 2, so √(2/p_C) = W_C, and the L4S
    // windows are y/p_L.
    let given = vec![("target".into(), Value::Text("20ms".into()))];
    let law = LawChoice::of(laws::find("pi2").unwrap(), given).unwrap();
    let l4s = Class {
        l4s: true,
        ..class("prague", Windows::Smooth, 10.0, 40)
    };
    let both = vec![class("reno", Windows::Smooth, 20.0, 40), l4s];
    let trace = run(&model(12_500, law, both)).unwrap();
    let p = late(&trace.probability[0]);
    close(late(&trace.window_pkts[0]), (2.0 / p).sqrt(), 0.01);
    let marks = late(&trace.window_pkts[1]) * 2.0 * p.sqrt();
    close(marks / 2.0 * (1.0 - (-marks).exp()), 1.0, 0.01);
    close(late(&trace.queue_pkts[0]), 250.0, 0.01);
}

#[test]
fn every_sender_is_the_same_twice_and_at_half_the_step() {
    for tcp in ["linux-reno", "cubic", "linux-cubic", "dctcp", "prague"] {
        for windows in [Windows::Smooth, Windows::Sawtooth] {
            let mut model = model(
                12_500,
                pi(300, 1e-6),
                vec![class(tcp, windows, 35.0, 60), class(tcp, windows, 5.0, 90)],
            );
            model.duration = Span::from_secs(8);
            model.changes = vec![Change {
                at: Time::ZERO + Span::from_secs(4),
                what: What::Flows {
                    class: 1,
                    flows: 10.0,
                },
            }];
            let trace = run(&model).unwrap();
            assert!(trace == run(&model).unwrap(), "{tcp}");
            let found = halving(&model).unwrap();
            assert!(found.queue_pkts < 1.0, "{tcp} {windows:?} {found:?}");
            let fine = (trace.window_pkts.iter().flatten()).all(|w| w.is_finite() && *w >= 0.0);
            assert!(fine, "{tcp}");
        }
    }
}

#[test]
fn senders_without_a_published_model_are_refused() {
    let expected = Sender::named("bbr").unwrap_err();
    let start = "a sender with a published fluid model, one of reno, newreno, ";
    assert!(expected.starts_with(start), "{expected}");
    assert!(expected.contains(", linux-cubic"), "{expected}");
}
