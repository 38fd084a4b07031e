//! Laws with a clock that are called late by more ticks than are run one by one. A law then skips
//! ticks by a closed form of its equation, which must agree with every tick.
//!
//! The parameters are such that the probability is between its bounds during all ticks and never
//! repeats, so that no tick is without effect.

use forebay_aqm::clock::MOST_TICKS;
use forebay_aqm::laws::{find, LAWS};
use forebay_aqm::{Ecn, Law, PacketMeta, QueueView, Signal};
use forebay_units::{Bytes, Rate, Rng, Site, Span, Time, Value};

/// Every law here ticks once a millisecond.
const TICK: Span = Span::from_millis(1);
/// The length of a late call, in ticks.
const LATE: u64 = 100_000;

/// Returns a link of 3750 packets/s.
fn site() -> Site {
    Site {
        rate: Rate::from_bps(30_000_000),
        buffer_pkts: 800.0,
        packet: Bytes(1000),
    }
}

/// A law with settings, and what happens to it.
struct Case {
    law: &'static str,
    settings: &'static [(&'static str, &'static str)],
    /// Packets that arrive before the first tick.
    arrivals: u32,
    /// The delays of a packet that departs before the first tick, and of one that departs before
    /// the late call, in ms.
    delays_ms: Option<[u64; 2]>,
    /// The ticks that are run at their times before the late call. A packet waits during them.
    prompt: u64,
    /// The queue, in packets.
    queue: u32,
    /// True if a packet has waited since time zero when the late call is made.
    waits: bool,
    /// The largest relative error. Tuned laws skip in parts, during which the tuner sees a constant
    /// output of the law.
    tolerance: f64,
}

impl Case {
    const fn new(law: &'static str, settings: &'static [(&'static str, &'static str)]) -> Case {
        Case {
            law,
            settings,
            arrivals: 0,
            delays_ms: None,
            prompt: 2,
            queue: 203,
            waits: false,
            tolerance: 1e-8,
        }
    }

    /// Returns the queue before the late call, in which a packet waits.
    fn before(&self) -> QueueView {
        QueueView {
            head_since: Some(Time::ZERO),
            ..QueueView::busy(self.queue.max(1), 1000, 800, site().rate)
        }
    }

    /// Returns the queue at the late call.
    fn late(&self) -> QueueView {
        QueueView {
            head_since: self.waits.then_some(Time::ZERO),
            ..QueueView::busy(self.queue, 1000, 800, site().rate)
        }
    }

    /// Returns the law before the late call.
    fn build(&self) -> Box<dyn Law> {
        let value = |text: &str| match (text, text.parse()) {
            ("true", _) => Value::Flag(true),
            (_, Ok(number)) => Value::Number(number),
            (_, Err(_)) => Value::Text(text.to_owned()),
        };
        let mut values = vec![("interval".to_owned(), value("1ms"))];
        let settings = self.settings.iter();
        values.extend(settings.map(|(name, text)| ((*name).to_owned(), value(text))));
        let mut law = find(self.law).unwrap().build(&values, &site(), 1).unwrap();
        let mut rng = Rng::new(1, "late");
        let packet = |delay_ms| PacketMeta {
            flow: 0,
            bytes: 1000,
            ecn: Ecn::NotEct,
            signal: Signal::Drop,
            tcp: true,
            sojourn: Span::from_millis(delay_ms),
        };
        for _ in 0..self.arrivals {
            law.on_enqueue(Time::ZERO, &self.before(), &packet(0), &mut rng);
        }
        // A packet can depart after its delay, and before the first tick of the law.
        let mut now = Time::ZERO + Span::from_millis(249);
        for (part, ticks) in [0, self.prompt].into_iter().enumerate() {
            for _ in 0..ticks {
                now = law.poll_timeout().expect("a clock");
                law.handle_timeout(now, &self.before());
            }
            if let Some(delays_ms) = self.delays_ms {
                law.on_dequeue(now, &self.before(), &packet(delays_ms[part]), &mut rng);
            }
        }
        law
    }
}

const CASES: &[Case] = &[
    Case::new("pi", &[("target", "200p"), ("a", "2e-5"), ("b", "1.9e-5")]),
    Case::new(
        "pid",
        &[
            ("target", "200p"),
            ("k_p", "6e-5"),
            ("k_i", "1e-3"),
            ("k_d", "5e-6"),
        ],
    ),
    Case::new("pi-pd", &[("target", "200p"), ("alpha", "2e-4")]),
    // A slow average of a longer queue crosses the target.
    Case {
        queue: 700,
        ..Case::new(
            "p-avg",
            &[
                ("target", "200p"),
                ("k_p", "1"),
                ("w_q", "1e-5"),
                ("average_at_samples", "true"),
            ],
        )
    },
    Case {
        queue: 700,
        ..Case::new(
            "pi-avg",
            &[
                ("target", "300p"),
                ("k_p", "0.5"),
                ("k_i", "0.05"),
                ("w_q", "1e-5"),
                ("average_at_samples", "true"),
            ],
        )
    },
    Case {
        queue: 700,
        ..Case::new(
            "pd-avg",
            &[
                ("target", "200p"),
                ("k_p", "1"),
                ("k_d", "1e-4"),
                ("w_q", "1e-5"),
                ("average_at_samples", "true"),
            ],
        )
    },
    Case {
        queue: 700,
        ..Case::new(
            "pid-avg",
            &[
                ("target", "300p"),
                ("k_p", "0.5"),
                ("k_i", "0.05"),
                ("k_d", "1e-4"),
                ("w_q", "1e-5"),
                ("average_at_samples", "true"),
            ],
        )
    },
    Case {
        arrivals: 100,
        ..Case::new("pd-red", &[("target", "200p"), ("w_q", "0.5")])
    },
    // The first design is for fewer flows than p means, and is replaced at 79 s, while ticks are
    // skipped.
    Case {
        queue: 210,
        tolerance: 3e-3,
        ..Case::new(
            "stpi",
            &[("target", "200p"), ("flows", "6"), ("tune_after", "79s")],
        )
    },
    Case {
        arrivals: 3000,
        queue: 20,
        tolerance: 3e-3,
        ..Case::new(
            "stred",
            &[
                ("max_th", "100p"),
                ("phase_margin", "30"),
                ("crossover", "0.5"),
                ("rtt", "20ms"),
                ("flows", "10"),
                ("load_time", "100s"),
                ("tune_after", "1s"),
            ],
        )
    },
    // Without arrivals the price falls by 3.75 packets in a tick.
    Case {
        queue: 244,
        ..Case::new(
            "rem",
            &[("target", "200p"), ("gamma", "0.001"), ("alpha", "0.1")],
        )
    },
    // The probability rises from one range of its gains to the next, and falls to the one below.
    Case {
        delays_ms: Some([16, 16]),
        ..Case::new(
            "pie",
            &[
                ("target", "15ms"),
                ("alpha", "0.0034"),
                ("beta", "0.02"),
                ("max_burst", "0s"),
                ("first_change", "250ms"),
            ],
        )
    },
    Case {
        delays_ms: Some([200, 14]),
        prompt: 1200,
        ..Case::new(
            "pie",
            &[
                ("target", "15ms"),
                ("alpha", "0.002"),
                ("beta", "0.02"),
                ("max_burst", "0s"),
                ("first_change", "250ms"),
            ],
        )
    },
    // Without a delay the probability decays, in parts with constant gains.
    Case {
        delays_ms: Some([200, 0]),
        prompt: 10,
        queue: 0,
        tolerance: 1e-3,
        ..Case::new(
            "pie",
            &[
                ("target", "15ms"),
                ("alpha", "1e-5"),
                ("beta", "0"),
                ("max_burst", "0s"),
                ("first_change", "250ms"),
                ("high_delay", "100ms"),
                ("decay", "1000000"),
            ],
        )
    },
    // The delay grows while a packet waits, and crosses the target.
    Case {
        waits: true,
        ..Case::new(
            "pi2",
            &[("target", "40s"), ("alpha", "2e-7"), ("beta", "5e-3")],
        )
    },
    // No packet waits any more, and p' falls.
    Case {
        prompt: 20_000,
        ..Case::new("pi2", &[("target", "1s"), ("alpha", "2e-6"), ("beta", "0")])
    },
];

/// Returns the state variables of a law, and its intensity.
fn state(law: &dyn Law, q: &QueueView) -> Vec<(&'static str, f64)> {
    let mut state = vec![("intensity", law.intensity(q).unwrap())];
    law.probe(&mut |name, value| state.push((name, value)));
    state
}

/// Returns the probability that the ticks of a law change: max_p of a tuned RED, and otherwise p,
/// whether or not the law spares the queue.
fn probability(law: &dyn Law) -> f64 {
    let (mut p, mut max_p) = (f64::NAN, None);
    law.probe(&mut |name, value| match name {
        "p" => p = value,
        "max_p" => max_p = Some(value),
        _ => {}
    });
    max_p.unwrap_or(p)
}

#[test]
fn skipped_ticks_lead_to_the_state_of_all_ticks() {
    for case in CASES {
        let (mut late, mut prompt) = (case.build(), case.build());
        let q = case.late();
        let before = late.poll_timeout().unwrap();
        let now = before + TICK * (LATE - 1);
        late.handle_timeout(now, &q);
        let mut last = f64::NAN;
        for tick in 0..LATE {
            let due = prompt.poll_timeout().unwrap();
            prompt.handle_timeout(due, &q);
            let p = probability(&*prompt);
            // Where ticks are skipped, each has an effect.
            if tick > MOST_TICKS {
                assert!(0.0 < p && p < 1.0 && p != last, "{} {tick}: {p}", case.law);
            }
            last = p;
        }
        assert_eq!(late.poll_timeout(), prompt.poll_timeout(), "{}", case.law);
        let (actual, expected) = (state(&*late, &q), state(&*prompt, &q));
        for ((name, actual), (_, expected)) in actual.into_iter().zip(expected) {
            let error = (actual - expected).abs() / expected.abs().max(1e-6);
            assert!(
                error <= case.tolerance,
                "{} {name}: {actual}, tick by tick {expected}",
                case.law
            );
        }
    }
}

/// A law in a fifo that is missing above has no clock.
#[test]
fn every_law_with_a_clock_is_called_late() {
    for spec in LAWS.iter().filter(|spec| spec.queue == "fifo") {
        let law = spec.build(&[], &site(), 1).unwrap();
        let has_clock = law.poll_timeout().is_some();
        let is_tested = CASES.iter().any(|case| case.law == spec.kind);
        assert_eq!(has_clock, is_tested, "{}", spec.kind);
    }
}
