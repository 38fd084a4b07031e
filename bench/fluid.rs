//! Time of one fluid run, 100 s: `cargo bench -p forebay-fluid`.
//! The aim is under 20 ms for one class and one queue, windows smooth.

use std::time::Instant;

use forebay_core::{laws, Bytes, QueueChoice, Rate, Span};
use forebay_fluid::{run, Bottleneck, Class, Model, Step, Windows};
use forebay_scenario::LawChoice;

const RUNS: usize = 20;

fn main() {
    for kind in ["pi", "pi-pd", "red", "stpi"] {
        for (classes, windows) in [
            (1, Windows::Smooth),
            (1, Windows::Sawtooth),
            (9, Windows::Smooth),
            (9, Windows::Sawtooth),
        ] {
            let model = model(kind, classes, windows);
            let mut times_ms: Vec<f64> = (0..RUNS)
                .map(|_| {
                    let start = Instant::now();
                    run(&model).expect("the model is sound");
                    1e3 * start.elapsed().as_secs_f64()
                })
                .collect();
            times_ms.sort_by(f64::total_cmp);
            let (best, median) = (times_ms[0], times_ms[RUNS / 2]);
            println!("{kind:6} {classes} class(es), {windows:?}: best {best:.1} ms, median {median:.1} ms");
        }
    }
}

/// pi-pd's link: 3750 packets/s, 60 flows, RTTs from 200 ms up.
fn model(kind: &str, classes: u32, windows: Windows) -> Model {
    Model {
        bottlenecks: vec![Bottleneck {
            rate: Rate::from_bps(30_000_000),
            packet: Bytes(1000),
            buffer_pkts: 800.0,
            law: LawChoice {
                label: kind.into(),
                spec: laws::find(kind).expect("a law of the registry"),
                given: Vec::new(),
                queue: QueueChoice::default(),
            },
        }],
        classes: (0..classes)
            .map(|i| {
                let rtt = Span::from_millis(200 + 20 * u64::from(i));
                Class {
                    windows,
                    ..Class::new(i.to_string(), 60.0 / f64::from(classes), rtt)
                }
            })
            .collect(),
        changes: Vec::new(),
        duration: Span::from_secs(100),
        step: Step::AUTO,
        sample: Span::from_millis(10),
        seed: 1,
    }
}
