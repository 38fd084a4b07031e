//! The queue of events against a plain binary heap: `cargo bench -p forebay-sim`.
//!
//! The hold model: a queue holds so many events; the first is taken and another put a random
//! time later, again and again. A packet's events lie a round trip ahead, so most delays here
//! are of one length, as on a delay line; the rest are spread.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::time::Instant;

use forebay_sim::calendar::Calendar;
use forebay_sim::events::{EventQueue, LineCounts};
use forebay_units::{Rng, Span, Time};

/// As large as a packet on its way.
type Event = [u32; 4];

const HOLDS: u32 = 2_000_000;
const DELAY: Span = Span::from_millis(50);
/// Most events lie within it.
const HORIZON: Span = Span::from_millis(500);

fn main() {
    println!("ns per event taken and put back, best of five");
    println!(
        "{:>9} {:>12} {:>9} {:>12} {:>12}",
        "in flight", "binary heap", "calendar", "delay line", "21 lines"
    );
    for in_flight in [1_000, 10_000, 100_000] {
        let spacing = DELAY / in_flight;
        let heap = best(|| {
            let mut heap = BinaryHeap::new();
            // The tie-break keeps runs repeatable, as the others do.
            let mut count = 0u64;
            hold(in_flight, |time, event| {
                heap.push(Reverse((time, count, event)));
                count += 1;
                if heap.len() as u64 > in_flight {
                    heap.pop().map(|Reverse((time, _, event))| (time, event))
                } else {
                    None
                }
            })
        });
        let calendar = best(|| {
            let mut calendar = Calendar::<Event>::new(spacing, HORIZON);
            let mut len = 0;
            hold(in_flight, |time, event| {
                calendar.push(time, event);
                len += 1;
                if len <= in_flight {
                    return None;
                }
                len -= 1;
                calendar.pop().map(|entry| (entry.time, entry.event))
            })
        });
        let line = best(|| on_lines(1, in_flight, spacing));
        let lines = best(|| on_lines(21, in_flight, spacing));
        println!("{in_flight:9} {heap:12.0} {calendar:9.0} {line:12.0} {lines:12.0}");
    }
}

/// The delay lines, with the events dealt out to them by turns.
fn on_lines(count: usize, in_flight: u64, spacing: Span) -> f64 {
    let lines = LineCounts {
        prompt: count,
        ..LineCounts::default()
    };
    let mut events = EventQueue::new(spacing, HORIZON, lines, true);
    let mut len = 0;
    let mut turn = 0;
    hold(in_flight, |time, event: Event| {
        events.push_on(turn, time, event, ());
        turn = (turn + 1) % count;
        len += 1;
        if len <= in_flight {
            return None;
        }
        len -= 1;
        let next = events.peek().map(|(time, event, _)| (time, *event));
        events.pop(|_| {});
        next
    })
}

/// Puts an event in; once enough are in flight, each put takes the first out, and the next is put
/// a delay after that.
fn hold(in_flight: u64, mut put: impl FnMut(Time, Event) -> Option<(Time, Event)>) -> f64 {
    let mut rng = Rng::new(1, "hold");
    let spacing = DELAY / in_flight;
    let mut now = Time::ZERO;
    for i in 0..in_flight {
        put(Time::ZERO + i * spacing, [i as u32; 4]);
    }
    let start = Instant::now();
    for i in 0..HOLDS {
        // One in eight has waited somewhere.
        let waited = if i % 8 == 0 {
            rng.uniform() * DELAY.as_nanos_f64()
        } else {
            0.0
        };
        let time = now + DELAY + Span::from_nanos(waited as u64);
        if let Some((first, event)) = put(time, [i; 4]) {
            now = first;
            black_box(event);
        }
    }
    start.elapsed().as_nanos() as f64 / f64::from(HOLDS)
}

fn best(mut run: impl FnMut() -> f64) -> f64 {
    (0..5).map(|_| run()).fold(f64::INFINITY, f64::min)
}
