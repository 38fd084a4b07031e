//! Your transport in the scenarios of RFC 7928, under each of these laws: `cargo test -- --nocapture`
//! prints what the transport got. With `FOREBAY_RESULTS=results` in the environment each law also
//! writes `results/LAW.json`, and `results/LAW.xml` in the format of JUnit.

use forebay_net::rfc7928::{Results, SCENARIOS};
use forebay_net::{drive, Ecn, Endpoint, Endpoints, Network, Options, Time};
use my_transport::{Receiver, Sender};

/// The transport as `drive` sees it: put yours here.
enum End {
    Sender(Sender),
    Receiver(Receiver),
}

impl Endpoint for End {
    fn receive(&mut self, now: Time, payload: Vec<u8>, ecn: Ecn) {
        match self {
            End::Sender(sender) => sender.receive(now.as_nanos(), &payload),
            End::Receiver(receiver) => receiver.receive(&payload, ecn == Ecn::Ce),
        }
    }

    fn transmit(&mut self, now: Time) -> Option<(Vec<u8>, Ecn)> {
        match self {
            End::Sender(sender) => Some((sender.transmit(now.as_nanos())?, Ecn::Ect0)),
            End::Receiver(receiver) => Some((receiver.transmit()?, Ecn::NotEct)),
        }
    }

    fn timeout(&mut self) -> Option<Time> {
        match self {
            End::Sender(sender) => sender.timeout().map(Time::from_nanos),
            End::Receiver(_) => None,
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if let End::Sender(sender) = self {
            sender.handle_timeout(now.as_nanos());
        }
    }
}

/// Runs every scenario under a law, with a pair of ends for each flow.
fn under(law: &str) {
    let mut results = Results::under(law);
    for (name, scenario) in SCENARIOS {
        let options = Options {
            laws: vec![law.to_owned()],
            ..Options::default()
        };
        let mut network = Network::with_options(scenario, &options, 1).expect("a scenario");
        // Flows start one after another, as their users do.
        let pair = |flow: u32| {
            let start = 100_000_000 * u64::from(flow);
            (
                End::Sender(Sender::new(start)),
                End::Receiver(Receiver::default()),
            )
        };
        let mut pairs: Vec<(End, End)> = (0..network.flows()).map(pair).collect();
        let ends = pairs.iter_mut();
        let mut ends: Vec<Endpoints> = ends
            .map(|(source, sink)| Endpoints { source, sink })
            .collect();
        let end = network.end();
        drive(&mut network, &mut ends, end).expect("packets that fit");
        let result = results.add(name, &network.finish());

        // What every transport should reach; put your own limits here.
        for (flow, (_, sink)) in pairs.iter().enumerate() {
            let End::Receiver(receiver) = sink else {
                continue;
            };
            result.expect(receiver.received > 100, format!("flow {flow} starves"));
        }
        result.expect(result.metric("utilisation") > 0.3, "the link is idle");
    }
    if let Err(failures) = results.finish() {
        panic!("{failures}");
    }
}

macro_rules! laws {
    ($($test:ident: $law:literal),+ $(,)?) => {
        $(#[test]
        fn $test() {
            under($law);
        })+
    };
}

// `forebay laws` lists all of them.
laws! {
    droptail: "droptail",
    ared: "ared",
    codel: "codel",
    pie: "pie",
    pi2: "pi2",
    fq_codel: "fq-codel",
    dualpi2: "dualpi2",
}
