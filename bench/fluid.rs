//! Time of one fluid run of 100 s: `cargo bench -p forebay-fluid`, for one law `-- LAW`.
//! The aim is under 20 ms for Reno up to 1 Gbit/s.

use std::time::Instant;

use forebay_aqm::{laws, QueueChoice};
use forebay_fluid::{run, Bottleneck, Class, Model, Sender, Step, Windows};
use forebay_scenario::LawChoice;
use forebay_units::{Bytes, Rate, Span};

const RUNS: usize = 5;
const KINDS: &[&str] = &[
    "pi", "pi-pd", "pid", "red", "pie", "pi2", "rem", "ared", "stpi", "pd-red", "stred",
];
/// Rate in Mbit/s, RTT in ms, flows: windows of 10 to 60 packets.
const LINKS: &[(u64, u64, f64)] = &[
    (15, 10, 2.0),
    (15, 100, 10.0),
    (100, 10, 10.0),
    (100, 200, 60.0),
    (1000, 10, 100.0),
    (1000, 50, 300.0),
    (1000, 200, 500.0),
    (10_000, 100, 3000.0),
];

fn main() {
    let mut wanted: Vec<String> = std::env::args().skip(1).collect();
    wanted.retain(|word| !word.starts_with('-'));
    for kind in KINDS {
        if !wanted.is_empty() && !wanted.iter().any(|it| it == kind) {
            continue;
        }
        for link in LINKS {
            for tcp in ["reno", "cubic"] {
                for windows in [Windows::Smooth, Windows::Sawtooth] {
                    let model = model(kind, *link, tcp, windows);
                    let mut times_ms: Vec<f64> = (0..RUNS)
                        .map(|_| {
                            let start = Instant::now();
                            run(&model).expect("the model is sound");
                            1e3 * start.elapsed().as_secs_f64()
                        })
                        .collect();
                    times_ms.sort_by(f64::total_cmp);
                    let (best, median) = (times_ms[0], times_ms[RUNS / 2]);
                    let (mbit, rtt_ms, _) = link;
                    println!(
                        "{kind:6} {mbit:5} Mbit/s {rtt_ms:3} ms {tcp:5} {windows:?}: \
                         best {best:.1} ms, median {median:.1} ms"
                    );
                }
            }
        }
    }
}

/// A law at its defaults, over a buffer of 100 ms and at least 800 packets.
fn model(kind: &str, link: (u64, u64, f64), tcp: &str, windows: Windows) -> Model {
    let (mbit, rtt_ms, flows) = link;
    let rate = Rate::from_bps(1_000_000 * mbit);
    let packet = Bytes(1000);
    Model {
        bottlenecks: vec![Bottleneck {
            rate,
            packet,
            buffer_pkts: (0.1 * rate.packets_per_sec(packet)).max(800.0),
            law: LawChoice::in_queue(
                laws::find(kind).expect("a law of the registry"),
                Vec::new(),
                QueueChoice::default(),
            )
            .expect("its defaults"),
        }],
        classes: vec![Class {
            windows,
            sender: Sender::named(tcp).expect("a sender of the fluid"),
            ..Class::new(tcp, flows, Span::from_millis(rtt_ms))
        }],
        changes: Vec::new(),
        duration: Span::from_secs(100),
        step: Step::AUTO,
        sample: Span::from_millis(10),
        seed: 1,
    }
}
