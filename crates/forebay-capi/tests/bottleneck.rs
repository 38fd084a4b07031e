//! Loop of `examples/capi/queue.c` over the same discipline, without the C interface. It prints the
//! same lines as the example; `python/tests/linux/test_capi.py` compares both.

use forebay::queue::{Held, Queue, Settings, Why};
use forebay_aqm::disciplines::DISCIPLINES;
use forebay_aqm::laws::LAWS;
use forebay_aqm::{Dequeued, Ecn};
use forebay_units::Time;

/// A generator of random numbers: xorshift64* (Vigna 2016).
struct Random(u64);

impl Random {
    /// Returns a number that is uniform on (0, 1].
    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let mixed = self.0.wrapping_mul(2_685_821_657_736_338_717);
        ((mixed >> 11) + 1) as f64 / 9_007_199_254_740_992.0
    }
}

/// Returns a packet of 1000 bytes. Packets of flow 1 can be marked.
fn held(handle: u64, flow: u64) -> Held {
    Held {
        handle,
        flow,
        hosts: (flow, flow),
        bytes: 1000,
        ecn: if flow == 1 { Ecn::Ect0 } else { Ecn::NotEct },
        dscp: 0,
        traffic: None,
        tcp: true,
        marked: false,
    }
}

/// Runs a bottleneck with random arrivals and returns the line of its counts; `None` where the law
/// does not fit the queue.
fn bottleneck(law: &str, queue: Option<&str>) -> Option<String> {
    let settings = Settings {
        law,
        queue,
        rate: "10Mbit/s",
        buffer: "800p",
        packet: Some("1000B"),
        ecn: true,
        seed: 1,
        ..Settings::default()
    };
    let mut queue = Queue::new(&settings).ok()?;
    let (end, send_ns) = (10_000_000_000_u64, 800_000_u32);
    let mut random = Random(1);
    let (mut arrival, mut free_at) = (0, u64::MAX);
    let (mut handle, mut waited_ns) = (0, 0);
    loop {
        let tick = queue.next_timeout().map_or(u64::MAX, Time::as_nanos);
        let now = tick.min(free_at).min(arrival);
        if now > end {
            break;
        }
        let at = Time::from_nanos(now);
        if now == tick {
            queue.handle_timeout(at).unwrap();
            continue;
        }
        if now == arrival {
            let flow = handle % 2;
            queue.enqueue(at, held(handle, flow)).unwrap();
            handle += 1;
            arrival += (-random.uniform().ln() * f64::from(send_ns) / 1.2) as u64;
            if free_at != u64::MAX {
                continue;
            }
        }
        free_at = match queue.dequeue(at).unwrap() {
            Dequeued::Packet(departure) => {
                waited_ns += departure.sojourn.as_nanos();
                now + u64::from(send_ns)
            }
            Dequeued::Idle => u64::MAX,
            Dequeued::Wait(until) => until.as_nanos(),
        };
    }
    let lost = std::iter::from_fn(|| queue.lost()).count();
    let (n, (waiting, _)) = (queue.counts(), queue.len());
    assert_eq!(n.arrived, n.sent + lost as u64 + u64::from(waiting));
    assert_eq!(lost as u64, n.early + n.forced + n.overflow);
    Some(format!(
        "arrived {}, sent {}, marked {}, lost {lost}, waiting {waiting}, waited {:.6} ms",
        n.arrived,
        n.sent,
        n.marked,
        1e-6 * waited_ns as f64 / n.sent as f64
    ))
}

#[test]
fn every_law_sends_or_drops_each_packet_once() {
    for law in LAWS {
        println!("{}: {}", law.kind, bottleneck(law.kind, None).unwrap());
    }
}

#[test]
fn every_discipline_sends_or_drops_each_packet_once() {
    for queue in DISCIPLINES {
        let mut laws = LAWS.iter();
        let fits = laws.find_map(|law| bottleneck(law.kind, Some(queue.kind)));
        assert!(fits.is_some(), "{}", queue.kind);
    }
    let urgent = "{ kind = \"priority\", dscp = 46 }";
    assert!(bottleneck(LAWS[0].kind, Some(urgent)).is_some());
    assert!(bottleneck(LAWS[0].kind, Some("{ kind = \"priority\", dscq = 46 }")).is_none());
}

#[test]
fn each_drained_packet_comes_back_once() {
    let settings = Settings {
        law: LAWS[0].kind,
        queue: Some("fq"),
        rate: "10Mbit/s",
        buffer: "100p",
        ..Settings::default()
    };
    let mut queue = Queue::new(&settings).unwrap();
    let at = Time::from_nanos(5);
    for handle in 0..10 {
        queue.enqueue(at, held(handle, handle % 3)).unwrap();
    }
    assert_eq!(queue.len(), (10, 10_000));
    queue.drain(Time::from_nanos(9)).unwrap();
    let back = std::iter::from_fn(|| queue.lost());
    let mut handles: Vec<u64> = back
        .map(|(packet, at, why)| {
            assert_eq!((at.as_nanos(), why), (9, Why::Drained));
            packet.handle
        })
        .collect();
    handles.sort_unstable();
    assert_eq!(handles, (0..10).collect::<Vec<_>>());
    assert!(queue.is_empty());
    // A time before the latest one counts as the latest.
    (queue.enqueue(Time::from_nanos(3), held(10, 0))).unwrap();
    let Dequeued::Packet(departure) = queue.dequeue(Time::from_nanos(10)).unwrap() else {
        panic!("nothing left");
    };
    assert_eq!(departure.sojourn.as_nanos(), 1);
}
