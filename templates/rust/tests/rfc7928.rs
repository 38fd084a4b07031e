//! Your transport in the scenarios of RFC 7928, under each of these laws:
//! `cargo test -- --nocapture` prints what it got.

use forebay_net::{drive, rfc7928, Ecn, Endpoint, Endpoints, Network, Options, Time};
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
    for (name, scenario) in rfc7928::SCENARIOS {
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
        let report = network.finish();

        // What every transport should reach; put your own limits here.
        for (flow, (_, sink)) in pairs.iter().enumerate() {
            let End::Receiver(receiver) = sink else {
                continue;
            };
            assert!(
                receiver.received > 100,
                "{name}, {law}: flow {flow} starves"
            );
        }
        let metric = |name| report.metric(name).expect("a metric of docs/metrics.md");
        assert!(
            metric("utilisation") > 0.3,
            "{name}, {law}: the link is idle"
        );
        let share = report.traffic_metric("external", "share").unwrap_or(1.0);
        println!(
            "{name:22} {law:9} its share {:3.0} %, utilisation {:3.0} %, delay p95 {:6.1} ms, drops {:5.2} %, marks {:5.2} %",
            100.0 * share,
            100.0 * metric("utilisation"),
            1e3 * metric("delay_p95_s"),
            100.0 * metric("drop_rate"),
            100.0 * metric("mark_rate"),
        );
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
