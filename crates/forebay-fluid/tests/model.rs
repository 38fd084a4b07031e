//! The model against what can be worked out by hand.

use forebay_aqm::{laws, QueueChoice};
use forebay_fluid::{halving, run, Bottleneck, Change, Class, Model, Step, Trace, What, Windows};
use forebay_scenario::LawChoice;
use forebay_units::{Bytes, Rate, Span, Time, Value};

fn law(kind: &str, given: &[(&str, Value)]) -> LawChoice {
    let given = given.iter();
    let given = given.map(|(name, value)| ((*name).into(), value.clone()));
    let spec = laws::find(kind).unwrap();
    LawChoice::in_queue(spec, given.collect(), QueueChoice::default()).unwrap()
}

/// PI as staqm designs it for N = 60, C = 3750/s, R = 0.2467 s. Told of bytes, it sees the queue
/// to 1e-6 packets.
fn pi() -> LawChoice {
    law(
        "pi",
        &[
            ("target", Value::Text("175p".into())),
            ("a", Value::Number(7.853e-5)),
            ("b", Value::Number(7.827e-5)),
            ("queue_in_bytes", Value::Flag(true)),
        ],
    )
}

/// 60 flows of 200 ms over 3750 packets/s. Packets of 1 MB, so that a byte is little.
fn model(law: LawChoice) -> Model {
    Model {
        bottlenecks: vec![Bottleneck {
            rate: Rate::from_bps(3750 * 8_000_000),
            packet: Bytes(1_000_000),
            buffer_pkts: 800.0,
            law,
        }],
        classes: vec![Class {
            marks: true,
            ..Class::new("ftp", 60.0, Span::from_millis(200))
        }],
        changes: Vec::new(),
        duration: Span::from_secs(100),
        step: Step::AUTO,
        sample: Span::from_millis(10),
        seed: 1,
    }
}

/// Mean over the last `share` of the rows.
fn late(column: &[f64], share: f64) -> f64 {
    let from = ((1.0 - share) * column.len() as f64) as usize;
    column[from..].iter().sum::<f64>() / (column.len() - from) as f64
}

fn close(got: f64, want: f64, relative: f64) {
    assert!((got / want - 1.0).abs() < relative, "{got}, not {want}");
}

#[test]
fn marks_settle_where_the_equations_are_zero() {
    // dq = 0: W0 = R0·C/N. dW = 0: p0·W0² = 2. PI holds q at its target (staqm appendix D).
    let trace = run(&model(pi())).unwrap();
    let r0 = 0.2 + 175.0 / 3750.0;
    let w0 = r0 * 3750.0 / 60.0;
    close(late(&trace.queue_pkts[0], 0.1), 175.0, 1e-4);
    close(late(&trace.window_pkts[0], 0.1), w0, 1e-4);
    close(late(&trace.probability[0], 0.1), 2.0 / (w0 * w0), 1e-4);
}

#[test]
fn drops_stay_out_of_the_queue() {
    // N·x·(1 − p) = C now, so W0 = R0·C/(N(1 − p0)) and still p0·W0² = 2.
    let mut dropping = model(pi());
    dropping.classes[0].marks = false;
    let trace = run(&dropping).unwrap();
    let w0 = late(&trace.window_pkts[0], 0.1);
    let p0 = late(&trace.probability[0], 0.1);
    close(p0 * w0 * w0, 2.0, 1e-4);
    close(
        w0 * 60.0 * (1.0 - p0),
        (0.2 + 175.0 / 3750.0) * 3750.0,
        1e-4,
    );
}

#[test]
fn delayed_acks_halve_the_probability_needed() {
    let mut delayed = model(pi());
    delayed.classes[0].growth_pkts_per_rtt = 0.5;
    let trace = run(&delayed).unwrap();
    let w0 = late(&trace.window_pkts[0], 0.1);
    close(late(&trace.probability[0], 0.1) * w0 * w0, 1.0, 1e-3);
}

#[test]
fn classes_share_by_their_round_trips() {
    // All see one p, so all windows are √(2/p), and rates go as 1/R.
    let mut mixed = model(pi());
    mixed.classes = [40, 100, 200]
        .map(|ms| Class {
            marks: true,
            ..Class::new(format!("{ms} ms"), 20.0, Span::from_millis(ms))
        })
        .into();
    let trace = run(&mixed).unwrap();
    let w0 = late(&trace.window_pkts[0], 0.1);
    close(late(&trace.window_pkts[1], 0.1), w0, 2e-3);
    close(late(&trace.window_pkts[2], 0.1), w0, 2e-3);
    let carried: f64 = [0.04, 0.1, 0.2]
        .map(|rtt| 20.0 * w0 / (rtt + 175.0 / 3750.0))
        .iter()
        .sum();
    close(carried, 3750.0, 2e-3);
}

#[test]
fn changes_of_flows_capacity_and_rtt_move_the_equilibrium() {
    let mut changing = model(pi());
    let at = |s| Time::ZERO + Span::from_secs(s);
    let rate = Rate::from_bps(3000 * 8_000_000);
    let change = |s, what| Change { at: at(s), what };
    changing.changes = vec![
        change(
            50,
            What::Flows {
                class: 0,
                flows: 80.0,
            },
        ),
        change(
            100,
            What::Rate {
                bottleneck: 0,
                rate,
            },
        ),
        change(
            150,
            What::Rtt {
                class: 0,
                rtt: Span::from_millis(150),
            },
        ),
    ];
    changing.duration = Span::from_secs(200);
    let trace = run(&changing).unwrap();
    let row = |s: f64| (s * 100.0) as usize;
    for (from, to, flows, capacity, rtt) in [
        (45.0, 50.0, 60.0, 3750.0, 0.2),
        (95.0, 100.0, 80.0, 3750.0, 0.2),
        (145.0, 150.0, 80.0, 3000.0, 0.2),
        (195.0, 200.0, 80.0, 3000.0, 0.15),
    ] {
        let part = row(from)..row(to);
        let w0 = (rtt + 175.0 / capacity) * capacity / flows;
        close(late(&trace.queue_pkts[0][part.clone()], 1.0), 175.0, 2e-3);
        close(late(&trace.window_pkts[0][part], 1.0), w0, 2e-3);
    }
}

/// As [`model`], with sawtooth windows.
fn sawtooth(law: LawChoice) -> Model {
    let mut model = model(law);
    model.classes[0].windows = Windows::Sawtooth;
    model
}

fn flows_at(s: u64, class: usize, flows: f64) -> Change {
    Change {
        at: Time::ZERO + Span::from_secs(s),
        what: What::Flows { class, flows },
    }
}

#[test]
fn ack_clocked_packets_are_conserved() {
    // As long as the link is busy, what is in flight is in the pipe or in the queue, whatever the
    // windows do: q = N(W − 1/2) − CT. As published, the queue trails behind by a round trip.
    let astray = |windows| {
        let mut model = sawtooth(pi());
        model.classes[0].windows = windows;
        model.classes[0].initial_window_pkts = 18.0;
        let trace = run(&model).unwrap();
        let spare = if windows == Windows::Sawtooth {
            0.5
        } else {
            0.0
        };
        let queue = &trace.queue_pkts[0][300..2000];
        let swing = queue
            .iter()
            .fold(0.0_f64, |most, q| most.max((q - 175.0).abs()));
        assert!(swing > 10.0 && queue.iter().all(|q| *q > 0.0), "{swing}");
        (queue.iter().zip(&trace.window_pkts[0][300..]))
            .map(|(q, w)| (q - (60.0 * (w - spare) - 750.0)).abs())
            .fold(0.0, f64::max)
    };
    let (clocked, published) = (astray(Windows::Sawtooth), astray(Windows::Smooth));
    assert!(clocked < 1e-2, "{clocked}");
    assert!(published > 5.0, "{published}");
}

#[test]
fn packets_of_flows_that_leave_drain_in_one_round_trip() {
    // Windows at their limit of 16, so 15.5 packets are in flight. 10 of 70 flows leave a
    // queue of 335 packets: it falls by 155, evenly, in a round trip of 0.2 s + 335/C. Then they
    // come back.
    let mut model = sawtooth(law("droptail", &[]));
    model.classes[0].flows = 70.0;
    model.classes[0].window_pkts = 16.0;
    model.classes[0].initial_window_pkts = 16.0;
    model.changes = vec![flows_at(50, 0, 60.0), flows_at(60, 0, 70.0)];
    let trace = run(&model).unwrap();
    let queue = |s: f64| trace.queue_pkts[0][(s * 100.0).round() as usize];
    let (longer, shorter) = (0.2 + 335.0 / 3750.0, 0.2 + 180.0 / 3750.0);
    for after in [0.05, 0.1, 0.2, 0.28, 0.29, 0.5, 5.0] {
        let (left, back) = (
            f64::min(after / longer, 1.0),
            f64::min(after / shorter, 1.0),
        );
        close(queue(50.0 + after), 335.0 - 155.0 * left, 1e-4);
        close(queue(60.0 + after), 180.0 + 155.0 * back, 1e-4);
    }
    // The same if they are a class of their own, and of nothing where nothing queues.
    let mut apart = model.clone();
    apart.classes.push(apart.classes[0].clone());
    apart.classes[0].flows = 60.0;
    apart.classes[1].flows = 10.0;
    apart.changes = vec![flows_at(50, 1, 0.0)];
    let other = run(&apart).unwrap();
    for row in 5000..6000 {
        close(other.queue_pkts[0][row], trace.queue_pkts[0][row], 1e-6);
    }
    model.classes[0].rtt = Span::from_millis(400);
    let idle = run(&model).unwrap();
    assert!(idle.queue_pkts[0][100..].iter().all(|q| *q == 0.0));
}

#[test]
fn ack_clocking_damps_pi() {
    // docs/explanation/fluid.md: of 70 flows 10 leave. The packets do not swing back above the target, nor do
    // windows on the clock of their ACKs; as published, the queue overshoots.
    let overshoot = |windows| {
        let mut model = model(pi());
        model.classes[0].windows = windows;
        model.classes[0].flows = 70.0;
        model.changes = vec![flows_at(50, 0, 60.0)];
        let trace = run(&model).unwrap();
        let queue = &trace.queue_pkts[0];
        let after = &queue[5000..];
        let fall = queue[5000] - after.iter().fold(f64::MAX, |low, q| low.min(*q));
        assert!(fall > 90.0, "{fall}");
        (after.iter().fold(0.0_f64, |high, q| high.max(*q)) - 175.0) / fall
    };
    let (clocked, published) = (overshoot(Windows::Sawtooth), overshoot(Windows::Smooth));
    assert!(clocked < 0.05, "{clocked}");
    assert!(published > 0.2, "{published}");
}

#[test]
fn sawtooth_windows_share_two_queues_in_a_row() {
    let mut row = sawtooth(pi());
    row.bottlenecks.push(row.bottlenecks[0].clone());
    row.classes[0].route = vec![0, 1];
    for (route, flows) in [(0, 30.0), (1, 20.0)] {
        row.classes.push(Class {
            route: vec![route],
            flows,
            ..row.classes[0].clone()
        });
    }
    row.duration = Span::from_secs(300);
    row.changes = vec![flows_at(150, 0, 45.0)];
    let trace = run(&row).unwrap();
    for v in [0, 1] {
        close(late(&trace.queue_pkts[v], 0.1), 175.0, 2e-2);
        // Both links are full.
        let carried = [(0, 45.0), (v + 1, [30.0, 20.0][v])]
            .map(|(class, flows)| {
                let in_flight = late(&trace.window_pkts[class], 0.1) - 0.5;
                flows * in_flight / late(&trace.rtt_s[class], 0.1)
            })
            .iter()
            .sum::<f64>();
        close(carried, 3750.0, 1e-2);
    }
}

#[test]
fn a_wrong_gain_unsettles_the_queue() {
    let gain = |law: LawChoice, key, gain| law.with(key, Value::Number(gain)).unwrap();
    let bad = gain(gain(pi(), "a", 4.0 * 7.853e-5), "b", 4.0 * 7.827e-5);
    let spread = |trace: &Trace| {
        let queue = &trace.queue_pkts[0][5000..];
        let (low, high) = queue
            .iter()
            .fold((f64::MAX, 0.0_f64), |(l, h), q| (l.min(*q), h.max(*q)));
        high - low
    };
    let wrong = spread(&run(&model(bad)).unwrap());
    assert!(wrong > 50.0, "{wrong}");
    assert!(spread(&run(&model(pi())).unwrap()) < 1.0);
}

#[test]
fn half_the_step_changes_little() {
    let at_step = |us| {
        let mut model = model(pi());
        model.duration = Span::from_secs(20);
        model.classes[0].initial_window_pkts = 15.0;
        model.step = Step::Longest(Span::from_micros(us));
        halving(&model).unwrap()
    };
    let (coarse, fine) = (at_step(4000), at_step(1000));
    assert!(fine.queue_pkts < 1e-4, "{fine:?}");
    assert!(fine.window_pkts < 1e-5, "{fine:?}");
    // Second order, from the moments at which jumps reach the senders: 16 times less.
    assert!(
        fine.queue_pkts < coarse.queue_pkts / 5.0,
        "{coarse:?} {fine:?}"
    );
}

#[test]
fn half_the_step_changes_little_on_the_clock_of_acks() {
    // The rate has the jumps of the probability now, and they come back a round trip later.
    let mut model = sawtooth(pi());
    model.duration = Span::from_secs(20);
    model.classes[0].initial_window_pkts = 15.0;
    model.changes = vec![flows_at(10, 0, 50.0)];
    let found = halving(&model).unwrap();
    assert!(found.queue_pkts < 0.05, "{found:?}");
    assert!(found.window_pkts < 1e-3, "{found:?}");
}

#[test]
fn the_queue_stays_within_its_buffer_and_overflow_signals() {
    // Nothing but overflow: DropTail. The queue must reach the buffer, and never pass it.
    let trace = run(&model(law("droptail", &[]))).unwrap();
    let highest = trace.queue_pkts[0].iter().fold(0.0_f64, |a, b| a.max(*b));
    assert_eq!(highest, 800.0);
    assert!(trace.queue_pkts[0]
        .iter()
        .all(|q| (0.0..=800.0).contains(q)));
    // A full queue halves windows: the mean must stay near a full pipe.
    let w = late(&trace.window_pkts[0], 0.5);
    assert!(w < 1.2 * (0.2 * 3750.0 + 800.0) / 60.0, "{w}");
}

#[test]
fn two_queues_in_a_row() {
    // The second link is the slower: it alone holds a queue, at PI's target.
    let mut row = model(pi());
    let mut second = row.bottlenecks[0].clone();
    second.rate = Rate::from_bps(3000 * 8_000_000);
    row.bottlenecks.push(second);
    row.classes[0].route = vec![0, 1];
    let trace = run(&row).unwrap();
    assert!(late(&trace.queue_pkts[0], 0.2) < 1e-6);
    close(late(&trace.queue_pkts[1], 0.2), 175.0, 1e-3);
    // Numbers do not matter, order does.
    row.bottlenecks.swap(0, 1);
    row.classes[0].route = vec![1, 0];
    let swapped = run(&row).unwrap();
    assert_eq!(swapped.queue_pkts[0], trace.queue_pkts[1]);
    row.bottlenecks.swap(0, 1);
    row.classes[0].route = vec![0, 1];
    // And with cross traffic at both, both links are full and probabilities add up.
    row.bottlenecks[1].rate = row.bottlenecks[0].rate;
    row.duration = Span::from_secs(200);
    let mut cross = |route: usize| {
        let mut class = Class {
            marks: true,
            ..Class::new("cross", 30.0, Span::from_millis(200))
        };
        class.route = vec![route];
        row.classes.push(class);
    };
    cross(0);
    cross(1);
    let trace = run(&row).unwrap();
    let p = [0, 1].map(|v| late(&trace.probability[v], 0.2));
    let w = [0, 1, 2].map(|i| late(&trace.window_pkts[i], 0.2));
    close(late(&trace.queue_pkts[0], 0.2), 175.0, 5e-3);
    close(late(&trace.queue_pkts[1], 0.2), 175.0, 5e-3);
    close(p[0] * w[1] * w[1], 2.0, 5e-3);
    close((1.0 - (1.0 - p[0]) * (1.0 - p[1])) * w[0] * w[0], 2.0, 5e-3);
}

#[test]
fn laws_driven_by_packets_work_too() {
    // AVQ has no intensity: its signals are counted. It keeps arrivals at γC.
    let trace = run(&model(law("avq", &[]))).unwrap();
    let sent = 60.0 * late(&trace.window_pkts[0], 0.3) / late(&trace.rtt_s[0], 0.3);
    close(sent, 0.98 * 3750.0, 0.01);
    // RED settles where its line meets p = 2/W².
    let red = law(
        "red",
        &[
            ("min_th", Value::Text("70p".into())),
            ("max_th", Value::Text("270p".into())),
            ("max_p", Value::Number(0.05)),
            ("w_q", Value::Number(1e-5)),
        ],
    );
    let trace = run(&model(red)).unwrap();
    let (q, p) = (
        late(&trace.queue_pkts[0], 0.2),
        late(&trace.probability[0], 0.2),
    );
    close(p, 0.05 * (q - 70.0) / 200.0 / 1.5, 0.01);
    close(p, 2.0 / ((0.2 * 3750.0 + q) / 60.0).powi(2), 0.01);
}

#[test]
fn every_law_runs_the_same_twice() {
    for spec in laws::LAWS {
        let mut model = model(law(spec.kind, &[]));
        model.bottlenecks[0].packet = Bytes(1000);
        model.bottlenecks[0].rate = Rate::from_bps(30_000_000);
        model.duration = Span::from_secs(10);
        let trace = run(&model).unwrap();
        assert!(trace == run(&model).unwrap(), "{}", spec.kind);
        let queue = &trace.queue_pkts[0];
        assert!(
            queue.iter().all(|q| (0.0..=800.0).contains(q)),
            "{}",
            spec.kind
        );
        assert_eq!(trace.time_s.len(), 1001);
    }
}

#[test]
fn nonsense_is_refused_by_name() {
    let key = |change: fn(&mut Model)| {
        let mut model = model(pi());
        change(&mut model);
        run(&model).unwrap_err().key
    };
    assert_eq!(
        key(|m| m.step = Step::Longest(Span::from_millis(300))),
        "classes.0.rtt"
    );
    assert_eq!(key(|m| m.step = Step::Longest(Span::from_nanos(1))), "step");
    assert_eq!(key(|m| m.classes[0].route = vec![]), "classes.0.route");
    assert_eq!(key(|m| m.classes[0].route = vec![1]), "classes.0.route");
    let circle = |m: &mut Model| {
        m.bottlenecks.push(m.bottlenecks[0].clone());
        m.classes.push(m.classes[0].clone());
        m.classes[0].route = vec![0, 1];
        m.classes[1].route = vec![1, 0];
    };
    assert_eq!(key(circle), "classes");
    assert_eq!(key(|m| m.classes[0].route = vec![0, 0]), "classes");
    assert_eq!(key(|m| m.classes[0].flows = f64::NAN), "classes.0.flows");
    assert_eq!(key(|m| m.bottlenecks.clear()), "bottlenecks");
    assert_eq!(key(|m| m.bottlenecks[0].buffer_pkts = 100.0), "target");
}
