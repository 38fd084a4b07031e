//! The cost of a packet that a caller sends: `cargo bench -p forebay-net`.
//!
//! First a caller that only sends, and answers every second packet; then quinn-proto. In parallel
//! with both there are 20 simulated CUBIC flows. The columns have the packets that
//! both ends of the caller send, and all packets that the bottleneck forwards.

#[path = "../crates/forebay-net/tests/quic/mod.rs"]
mod quic;

use std::time::Instant;

use forebay_net::{drive, Ecn, End, Endpoints, Event, Handle, Network, Options, Span, Time};
use quic::{Quic, SCENARIO};

/// The link is faster than any sender.
const SETS: [(&str, &str); 4] = [
    ("bottleneck.rate", "1Gbit/s"),
    ("bottleneck.buffer", "3000p"),
    ("traffic.0.access", "10Gbit/s"),
    ("traffic.1.access", "10Gbit/s"),
];

fn network<P: forebay_net::Payload>(law: &str) -> Network<P> {
    let options = Options {
        laws: vec![law.to_owned()],
        sets: SETS.map(|(key, text)| (key.into(), text.into())).into(),
        ..Options::default()
    };
    Network::with_options(SCENARIO, &options, 1).expect("a scenario")
}

fn sender(law: &str) -> (u64, f64) {
    let mut network = network::<Handle>(law);
    let every = Span::from_micros(20);
    let (mut next, mut sent) = (Time::ZERO, 0);
    loop {
        match network.poll(next) {
            Event::Time(now) => {
                let packet = Handle {
                    number: sent,
                    length: 1200,
                };
                network
                    .send(0, End::Source, now, packet, Ecn::Ect0)
                    .expect("it fits");
                sent += 1;
                next += every;
            }
            Event::Delivered(it) if it.to == End::Sink && it.payload.number % 2 == 0 => {
                let ack = Handle {
                    length: 50,
                    ..it.payload
                };
                network
                    .send(0, End::Sink, it.at, ack, Ecn::NotEct)
                    .expect("it fits");
                sent += 1;
            }
            Event::Delivered(_) | Event::Lost(_) => {}
            Event::End(_) => break,
        }
    }
    (sent, network.finish().metrics.forwarded_packets)
}

fn quinn(law: &str) -> (u64, f64) {
    let mut network = network(law);
    let (mut client, mut server) = Quic::pair(u64::MAX / 2, 1);
    let mut ends = [Endpoints {
        source: &mut client,
        sink: &mut server,
    }];
    let end = network.end();
    drive(&mut network, &mut ends, end).expect("packets that fit");
    let sent = client.stats().udp_tx.datagrams + server.stats().udp_tx.datagrams;
    (sent, network.finish().metrics.forwarded_packets)
}

/// Runs under a law; packets of the caller, and of all that the bottleneck forwards.
type Caller = fn(&str) -> (u64, f64);

fn main() {
    println!(
        "{:10} {:9} {:>12} {:>12} {:>9} {:>12}",
        "caller", "law", "its packets", "forwarded", "wall s", "forwarded/s"
    );
    let callers: [(&str, Caller); 2] = [("a sender", sender), ("quinn", quinn)];
    for (name, caller) in callers {
        for law in ["droptail", "fq-codel", "dualpi2"] {
            let began = Instant::now();
            let (own, forwarded) = caller(law);
            let took_s = began.elapsed().as_secs_f64();
            println!(
                "{name:10} {law:9} {own:12} {forwarded:12.0} {took_s:9.2} {:12.0}",
                forwarded / took_s
            );
        }
    }
}
