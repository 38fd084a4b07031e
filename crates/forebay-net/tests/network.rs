//! Tests of the network with packets of the caller: exact times, one fate for every packet, and the
//! same events however the network is polled.

use forebay_net::{DropReason, Ecn, End, Event, Handle, Loss, Network, Options, Span, Time};
use proptest::prelude::*;

fn options(law: &str, sets: &[(&str, &str)]) -> Options {
    let own = |(key, text): &(&str, &str)| ((*key).to_owned(), (*text).to_owned());
    Options {
        laws: vec![law.to_owned()],
        sets: sets.iter().map(own).collect(),
        ..Options::default()
    }
}

/// Two external flows over one link, without cross traffic.
const ALONE: &str = include_str!("alone.toml");

/// External flows with cross traffic, and a queue on the reverse path.
const BESIDE: &str = r#"
    duration = "4s"
    measure  = ["1s", "4s"]
    [bottleneck]
    from   = "a"
    to     = "b"
    rate   = "10Mbit/s"
    delay  = "2ms"
    buffer = "60p"
    [[link]]
    name   = "up"
    from   = "b"
    to     = "a"
    rate   = "2Mbit/s"
    delay  = "2ms"
    buffer = "30p"
    [[traffic]]
    kind  = "ftp"
    flows = 5
    rtt   = "40ms"
    path  = ["a", "b"]
    tcp   = "linux-cubic"
    ecn   = true
    [[traffic]]
    kind  = "external"
    label = "mine"
    flows = 3
    rtt   = ["20ms", "50ms"]
    path  = ["a", "b"]
    [[law]]
    kind = "droptail"
"#;

fn at_us(us: u64) -> Time {
    Time::ZERO + Span::from_micros(us)
}

fn packet(number: u64, length: usize) -> Handle {
    Handle { number, length }
}

fn all<P: forebay_net::Payload>(network: &mut Network<P>) -> Vec<Event<P>> {
    let end = network.end();
    let events = std::iter::from_fn(|| match network.poll(end) {
        Event::End(_) => None,
        event => Some(event),
    });
    events.collect()
}

#[test]
fn a_packet_arrives_after_its_transmission_and_propagation_times() {
    let mut network = Network::from_toml(ALONE, 1).unwrap();
    // 1000 B on the wire: 100 µs on each access link and 1 ms on the link; propagation of 7.5 ms,
    // 5 ms and 7.5 ms. What goes back crosses the line back, at the rate of the link.
    let sent = Time::ZERO;
    for end in [End::Source, End::Sink] {
        let payload = packet(7, 1000 - 28);
        network.send(1, end, sent, payload, Ecn::Ect0).unwrap();
    }
    let delivered = all(&mut network);
    assert_eq!(delivered.len(), 2);
    for event in delivered {
        let Event::Delivered(packet) = event else {
            panic!("{event:?}");
        };
        assert_eq!(packet.at, at_us(100 + 7_500 + 1_000 + 5_000 + 100 + 7_500));
        assert_eq!((packet.flow, packet.ecn), (1, Ecn::Ect0));
        assert_eq!(packet.payload.number, 7);
    }
    assert_eq!((network.under_way(), network.now()), (0, network.end()));
}

#[test]
fn each_packet_that_a_full_buffer_drops_is_lost() {
    let mut network = Network::from_toml(ALONE, 1).unwrap();
    for number in 0..30 {
        let payload = packet(number, 972);
        network
            .send(0, End::Source, Time::ZERO, payload, Ecn::NotEct)
            .unwrap();
    }
    // The packets arrive at intervals of 100 µs and leave at intervals of 1 ms: one is in
    // transmission, ten wait, and two more find room when others leave.
    let mut lost = Vec::new();
    let mut delivered = Vec::new();
    for event in all(&mut network) {
        match event {
            Event::Delivered(packet) => delivered.push(packet.payload.number),
            Event::Lost(packet) => {
                assert_eq!(packet.why, Loss::Queue(DropReason::Overflow));
                assert_eq!((packet.flow, packet.from), (0, End::Source));
                // At the queue, as it comes: 100 µs for each before it, and its own.
                assert_eq!(packet.at, at_us(7_500 + 100 * (packet.payload.number + 1)));
                lost.push(packet.payload.number);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(delivered, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 20]);
    assert_eq!(lost.len(), 17);
}

#[test]
fn time_passes_only_by_polling_and_never_goes_back() {
    let mut network = Network::from_toml(ALONE, 1).unwrap();
    assert_eq!(network.poll(at_us(500)), Event::Time(at_us(500)));
    assert_eq!(network.poll(at_us(100)), Event::Time(at_us(500)));
    // A packet with an earlier time is sent now.
    network
        .send(0, End::Source, Time::ZERO, packet(1, 972), Ecn::NotEct)
        .unwrap();
    let Event::Delivered(first) = network.poll(Time::MAX) else {
        panic!("an empty network");
    };
    assert_eq!(first.at, at_us(500 + 21_200));
    assert_eq!(network.poll(Time::MAX), Event::End(network.end()));
    assert_eq!(network.poll(Time::ZERO), Event::End(network.end()));
}

#[test]
fn a_share_of_packets_is_lost_at_random_after_the_queue() {
    let sets = [
        ("traffic.0.loss", "10%"),
        ("bottleneck.rate", "1Gbit/s"),
        ("traffic.0.access", "1Gbit/s"),
    ];
    let mut network = Network::with_options(ALONE, &options("droptail", &sets), 1).unwrap();
    let mut lost = [0, 0];
    for number in 0..10_000 {
        let from = [End::Source, End::Sink][number as usize % 2];
        let now = at_us(100 * number);
        network
            .send(0, from, now, packet(number, 972), Ecn::NotEct)
            .unwrap();
    }
    for event in all(&mut network) {
        if let Event::Lost(packet) = event {
            assert_eq!(packet.why, Loss::Random);
            lost[usize::from(packet.from == End::Sink)] += 1;
        }
    }
    // 5,000 each: 500 ± 21; four deviations.
    assert!(
        lost.iter().all(|lost| (415..=585).contains(lost)),
        "{lost:?}"
    );
}

#[test]
fn only_ecn_capable_packets_are_marked() {
    let sets = [("bottleneck.ecn", "true"), ("bottleneck.buffer", "200p")];
    for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1] {
        let mut network = Network::with_options(ALONE, &options("codel", &sets), 1).unwrap();
        // Twice what the link carries, for 2 s.
        for number in 0..4000 {
            let now = at_us(500 * number);
            network
                .send(0, End::Source, now, packet(number, 972), ecn)
                .unwrap();
        }
        let (mut marked, mut early) = (0, 0);
        for event in all(&mut network) {
            match event {
                Event::Delivered(packet) => marked += u32::from(packet.ecn == Ecn::Ce),
                Event::Lost(packet) => {
                    early += u32::from(packet.why == Loss::Queue(DropReason::Early))
                }
                other => panic!("{other:?}"),
            }
        }
        let can = ecn != Ecn::NotEct;
        assert_eq!(
            (marked > 0, early > 0),
            (can, !can),
            "{ecn:?}: {marked}, {early}"
        );
    }
}

/// A caller that answers each packet of the source with a short one and sends on at a rate; every
/// event in words.
fn traffic(law: &str, seed: u64, step: Span) -> Vec<String> {
    let mut network = Network::with_options(BESIDE, &options(law, &[]), seed).unwrap();
    assert_eq!(network.flows_of("mine"), Some(0..3));
    let every = Span::from_micros(700);
    let mut next = Time::ZERO;
    let mut number = 0;
    let mut events = Vec::new();
    loop {
        let until = next.min(network.now() + step);
        match network.poll(until) {
            Event::Time(now) => {
                if now == next {
                    let flow = (number % 3) as u32;
                    let payload = packet(number, 100 + (number as usize * 37) % 1300);
                    let ecn = [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1][number as usize % 3];
                    network.send(flow, End::Source, now, payload, ecn).unwrap();
                    number += 1;
                    next += every;
                }
            }
            Event::Delivered(delivered) => {
                events.push(format!("{delivered:?}"));
                if delivered.to == End::Sink {
                    let payload = packet(delivered.payload.number, 600);
                    network
                        .send(
                            delivered.flow,
                            End::Sink,
                            delivered.at,
                            payload,
                            Ecn::NotEct,
                        )
                        .unwrap();
                }
            }
            Event::Lost(lost) => events.push(format!("{lost:?}")),
            Event::End(_) => return events,
        }
    }
}

#[test]
fn the_same_calls_have_the_same_events_however_often_they_poll() {
    for law in ["droptail", "pie", "fq-codel", "dualpi2", "cake", "codel"] {
        let coarse = traffic(law, 1, Span::from_secs(1));
        assert_eq!(coarse, traffic(law, 1, Span::from_secs(1)), "{law}");
        assert_eq!(coarse, traffic(law, 1, Span::from_micros(13)), "{law}");
        let back = coarse
            .iter()
            .filter(|event| event.starts_with("Lost") && event.contains("from: Sink"));
        assert!(back.count() > 0, "{law}: the way back has a queue");
        assert!(
            coarse.iter().any(|event| event.contains("to: Source")),
            "{law}"
        );
    }
    assert_ne!(
        traffic("pie", 1, Span::from_secs(1)),
        traffic("pie", 2, Span::from_secs(1))
    );
}

#[test]
fn a_report_agrees_with_the_events() {
    let mut network = Network::with_options(BESIDE, &options("pie", &[]), 5).unwrap();
    let (start, end) = (Time::ZERO + Span::from_secs(1), network.end());
    let within = |at: Time| at > start && at <= end;
    let (mut bytes, mut lost, mut marked) = (0, 0, 0);
    let mut next = Time::ZERO;
    loop {
        match network.poll(next) {
            Event::Time(now) => {
                network
                    .send(0, End::Source, now, packet(0, 1000), Ecn::Ect0)
                    .unwrap();
                next += Span::from_micros(1500);
            }
            Event::Delivered(delivered) if within(delivered.at) => {
                bytes += delivered.payload.length;
                marked += u32::from(delivered.ecn == Ecn::Ce);
            }
            Event::Lost(packet) => lost += u32::from(within(packet.at)),
            Event::Delivered(_) => {}
            Event::End(_) => break,
        }
    }
    let report = network.finish();
    let goodput_bps = report.traffic_metric("mine", "goodput_bps").unwrap();
    assert_eq!(goodput_bps, 8.0 * bytes as f64 / 3.0);
    let mine = report.trace.links[0]
        .traffic
        .iter()
        .find(|it| it.traffic == 1)
        .unwrap();
    assert_eq!(mine.dropped_packets, u64::from(lost));
    // Some that were marked are still on their way at the end, and others delivered from before.
    assert!(
        mine.marked_packets.abs_diff(u64::from(marked)) <= 4,
        "{marked}: {mine:?}"
    );
    assert!(report.metric("utilisation").unwrap() > 0.9);
    assert_eq!(report.metric("nothing"), None);
    assert!(report.traffic_metric("ftp", "goodput_bps").unwrap() > 0.0);
}

#[test]
fn errors_are_one_line() {
    let line =
        |text: &str, options: &Options| match Network::<Handle>::with_options(text, options, 1) {
            Ok(_) => "no error".to_owned(),
            Err(error) => error.to_string(),
        };
    let none = Options::default();
    let ftp = ALONE.replace("\"external\"", "\"ftp\"");
    assert_eq!(
        line(&ftp, &none),
        "traffic: the caller has no packets to send; expected a [[traffic]] of kind \"external\""
    );
    let two = ALONE.to_owned() + "\n[[law]]\nkind = \"pie\"\n";
    assert_eq!(
        line(&two, &none),
        "law: the scenario has the laws droptail, pie; expected one law, in the scenario or in \
         Options::laws"
    );
    assert_eq!(line(&two, &options("pie", &[])), "no error");
    let swept = ALONE.to_owned() + "\n[sweep]\n\"bottleneck.rate\" = [\"1Mbit/s\", \"2Mbit/s\"]\n";
    assert_eq!(
        line(&swept, &none),
        "sweep: the scenario has 2 points; expected one point, with a value for each swept key in \
         Options::sets"
    );
    let wrong = ALONE.replace("\"10s\"", "\"10\"");
    let error = line(&wrong, &none);
    assert!(
        error.starts_with(
            "scenario:2: duration: \"10\" is not valid; expected a time with its unit, such as "
        ),
        "{error}"
    );
    let changed = ALONE.to_owned() + "\n[[at]]\ntime = \"1s\"\nset = { \"traffic.0.flows\" = 3 }\n";
    let error = line(&changed, &none);
    let message = "traffic.0.flows: the key cannot change during a run; expected one of ";
    assert!(error.contains(message), "{error}");
    let mut network = Network::from_toml(ALONE, 1).unwrap();
    assert_eq!(
        (
            network.flows(),
            network.most_bytes(1),
            network.most_bytes(2)
        ),
        (2, 1472, 0)
    );
    let mut send = |flow, length| {
        let sent = network.send(
            flow,
            End::Source,
            Time::ZERO,
            packet(1, length),
            Ecn::NotEct,
        );
        sent.map_or_else(|error| error.to_string(), |()| "sent".to_owned())
    };
    assert_eq!(send(0, 1472), "sent");
    assert_eq!(
        send(0, 1473),
        "packet: 1501 B is not valid; expected a size from 1 B to 1500 B, including headers of 28 B"
    );
    assert_eq!(send(0, usize::MAX), send(0, usize::MAX));
    assert_eq!(
        send(2, 10),
        "flow: 2 is not valid; expected the number of a flow, below 2"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever is sent comes back once, in order of time, and in its order on each way where the
    /// queue keeps it.
    #[test]
    fn every_packet_is_delivered_or_lost_once(
        law in prop::sample::select(vec!["droptail", "red", "codel", "pie", "pi2", "fq-codel", "dualpi2", "cake"]),
        sends in prop::collection::vec((0u32..3, any::<bool>(), 0u64..900, 1usize..1473), 1..400),
        seed in 0u64..1000,
    ) {
        let sets = [("traffic.mine.loss", "2%")];
        let mut network = Network::with_options(BESIDE, &options(law, &sets), seed).unwrap();
        let mut back = vec![0; sends.len()];
        let mut last = Time::ZERO;
        let mut see = |event: Event<Handle>| {
            let (at, number) = match event {
                Event::Delivered(it) => (it.at, it.payload.number),
                Event::Lost(it) => (it.at, it.payload.number),
                Event::Time(_) | Event::End(_) => return false,
            };
            assert!(at >= last);
            last = at;
            back[number as usize] += 1;
            true
        };
        let mut now = Time::ZERO;
        for (number, (flow, from_sink, gap_us, length)) in sends.iter().enumerate() {
            now += Span::from_micros(*gap_us);
            while see(network.poll(now)) {}
            let from = if *from_sink { End::Sink } else { End::Source };
            network.send(*flow, from, now, packet(number as u64, *length), Ecn::Ect0).unwrap();
        }
        while see(network.poll(Time::MAX)) {}
        prop_assert!(back.iter().all(|times| *times == 1), "{:?}", back);
        prop_assert_eq!(network.under_way(), 0);
    }
}

#[test]
fn each_scenario_of_rfc_7928_runs_with_its_flows() {
    let laws = ["droptail", "codel", "pie", "fq-codel", "dualpi2"];
    for (number, (name, text)) in forebay_net::rfc7928::SCENARIOS.iter().enumerate() {
        let law = laws[number % laws.len()];
        let short = [("duration", "2s"), ("measure", "[\"1s\", \"2s\"]")];
        // A scenario with changes needs its whole duration.
        let sets = if text.contains("[[at]]") {
            &[][..]
        } else {
            &short[..]
        };
        let made = Network::<Handle>::with_options(text, &options(law, sets), 1);
        let mut network = made.unwrap_or_else(|error| panic!("{name}: {error}"));
        let flows = network.flows();
        for flow in 0..flows {
            let payload = packet(flow.into(), network.most_bytes(flow));
            network
                .send(flow, End::Source, Time::ZERO, payload, Ecn::Ect0)
                .unwrap();
        }
        let delivered = all(&mut network)
            .into_iter()
            .filter(|it| matches!(it, Event::Delivered(_)));
        assert_eq!(delivered.count(), flows as usize, "{name}");
        assert!(
            network.finish().metric("goodput_bps").unwrap() >= 0.0,
            "{name}"
        );
    }
}
