//! Laws that process a step of the fluid model at once, compared with the same packets one by one.

use forebay_aqm::laws::LAWS;
use forebay_aqm::{Ecn, FluidStep, Law, LawSpec, PacketMeta, QueueView, Signal};
use forebay_units::{Bytes, Rate, Rng, Site, Span, Time};

/// The rate of the link in bit/s.
const RATE: u64 = 8_000_000_000;
/// Packets in a step of 1 ms.
const PACKETS: u32 = 1000;
const STEPS: u32 = 2000;

fn site() -> Site {
    Site {
        rate: Rate::from_bps(RATE),
        buffer_pkts: 100_000.0,
        packet: Bytes(1000),
    }
}

fn view(queue_pkts: f64, now: Time) -> QueueView {
    let packets = (queue_pkts + 0.5) as u32;
    QueueView {
        head_since: Some(Time::from_nanos(
            now.as_nanos().saturating_sub(u64::from(packets) * 1000),
        )),
        ..QueueView::busy(packets, 1000, 100_000, site().rate)
    }
}

fn packet(queue_pkts: f64) -> PacketMeta {
    PacketMeta {
        flow: 0,
        bytes: 1000,
        ecn: Ecn::NotEct,
        signal: Signal::Drop,
        tcp: true,
        sojourn: Span::from_nanos((1000.0 * queue_pkts) as u64),
    }
}

/// Returns the queue length at a step: a slow oscillation around 1000 packets.
fn queue_pkts(step: u32) -> f64 {
    1000.0 + 400.0 * (f64::from(step) / 150.0).sin()
}

/// Returns the queue length after the fraction `part` of a step, by linear interpolation.
fn between(step: u32, part: f64) -> f64 {
    queue_pkts(step) + part * (queue_pkts(step + 1) - queue_pkts(step))
}

/// Runs the law's ticks that are due at `now`.
fn ticks(law: &mut dyn Law, now: Time, queue: f64) {
    while law.poll_timeout().is_some_and(|due| due <= now) {
        law.handle_timeout(now, &view(queue, now));
    }
}

/// The steps in which the link has half of its load and no queue.
const IDLE: std::ops::Range<u32> = 1200..1300;

/// Returns the probability after each step, processed at once or packet by packet; `None` for a law
/// that cannot process a step at once.
fn run(spec: &LawSpec, at_once: bool, idles: bool) -> Option<Vec<f64>> {
    let mut law = spec.build(&[], &site(), 1).ok()?;
    let mut rng = Rng::new(1, "flow");
    let mut probabilities = Vec::new();
    for step in 0..STEPS {
        let end = Time::from_nanos(1_000_000 * u64::from(step + 1));
        let idle = idles && IDLE.contains(&step);
        let last = if idle { 0.0 } else { between(step, 1.0) };
        if at_once && idle {
            let half = FluidStep {
                end,
                queue_pkts: [0.0; 2],
                arrivals: PACKETS / 2,
                departures: PACKETS / 2,
                missed: PACKETS / 2,
                packet: packet(0.0),
                view: view(0.0, end),
            };
            if !law.take_fluid(&half) {
                return None;
            }
        } else if idle {
            for k in 1..=PACKETS / 2 {
                let now = Time::from_nanos(1_000_000 * u64::from(step) + 2000 * u64::from(k));
                let empty = QueueView {
                    idle_since: Some(Time::from_nanos(now.as_nanos() - 1000)),
                    head_since: None,
                    ..view(0.0, now)
                };
                law.on_enqueue(now, &empty, &packet(0.0), &mut rng);
                law.on_dequeue(now, &view(0.0, now), &packet(0.0), &mut rng);
                law.on_idle(now, &view(0.0, now));
            }
        } else if at_once {
            let flow = FluidStep {
                end,
                queue_pkts: [between(step, 0.0), last],
                arrivals: PACKETS,
                departures: PACKETS,
                missed: 0,
                packet: packet(last),
                view: view(last, end),
            };
            if !law.take_fluid(&flow) {
                return None;
            }
        } else {
            for k in 1..=PACKETS {
                let queue = between(step, f64::from(k) / f64::from(PACKETS));
                let now = Time::from_nanos(1_000_000 * u64::from(step) + 1000 * u64::from(k));
                law.on_enqueue(now, &view(queue, now), &packet(queue), &mut rng);
                law.on_dequeue(now, &view(queue, now), &packet(queue), &mut rng);
            }
        }
        ticks(law.as_mut(), end, last);
        probabilities.push(law.intensity(&view(last, end))?);
    }
    Some(probabilities)
}

/// The laws that process a step at once: those with a linear model. The others decide by single
/// packets or by the queue's events.
const AT_ONCE: [&str; 17] = [
    "red", "pi", "pid", "pi-pd", "p-avg", "pi-avg", "pd-avg", "pid-avg", "ared", "pd-red", "stpi",
    "stred", "rem", "pie", "fq-pie", "pi2", "dualpi2",
];

#[test]
fn a_step_at_once_equals_the_same_packets_one_by_one() {
    compare(false, &AT_ONCE);
}

/// Self-tuning laws must know when the link becomes idle, for their estimate of its capacity.
#[test]
fn a_step_at_once_equals_the_same_packets_on_a_link_with_idle_time() {
    let law_may_idle = |law: &&str| !matches!(*law, "stpi" | "stred");
    let expected: Vec<&str> = AT_ONCE.into_iter().filter(law_may_idle).collect();
    compare(true, &expected);
}

/// Compares both ways for every law. `expected` are the laws that process all steps at once.
fn compare(idles: bool, expected: &[&str]) {
    let mut compared = Vec::new();
    for spec in LAWS {
        let Some(at_once) = run(spec, true, idles) else {
            continue;
        };
        compared.push(spec.kind);
        let one_by_one = run(spec, false, idles).expect("an intensity");
        let largest = one_by_one.iter().copied().fold(0.0, f64::max);
        // One by one, queue lengths are whole packets, and ticks fall between two packets.
        for (a, b) in at_once.iter().zip(&one_by_one) {
            let error = (a - b).abs();
            assert!(error <= 5e-3 * largest.max(1e-6), "{}: {a} {b}", spec.kind);
        }
    }
    assert_eq!(compared, expected);
}
