//! A session that is taken further step by step comes to the trace of a run in one go.

use std::sync::Arc;

use forebay_core::{Span, Time};
use forebay_scenario::{parse, Options};
use forebay_sim::{run, Session, Watch};

const LAW: &str = r#"
duration = "5s"
sample   = "20ms"
[[law]]
kind   = "pi"
target = "40p"
[bottleneck]
rate   = "10Mbit/s"
buffer = "100p"
delay  = "5ms"
"#;

const ONE: &str = r#"
[[traffic]]
kind  = "ftp"
flows = 8
rtt   = ["40ms", "60ms"]
[[traffic]]
kind = "mice"
flows = 10
rtt = "50ms"
[[at]]
time = "2s"
set  = { bottleneck.rate = "5Mbit/s" }
"#;

const TWO: &str = r#"
from   = "a"
to     = "b"
[[link]]
rate   = "8Mbit/s"
buffer = "100p"
delay  = "5ms"
from   = "b"
to     = "c"
[[traffic]]
kind  = "ftp"
flows = 8
rtt   = "60ms"
path  = ["a", "b", "c"]
"#;

#[test]
fn steps_come_to_the_same_trace() {
    for text in [ONE, TWO].map(|links| format!("{LAW}{links}")) {
        let experiment = parse(text.as_bytes(), "test", &Options::default()).unwrap();
        let point = &experiment.points[0];
        let scenario = Arc::new(point.scenario.clone());
        let aqm = point.laws[0].aqm();
        let whole = run(&scenario, &aqm, 3, &Watch::default()).unwrap().unwrap();
        // With the samples, and at times that fall between any two events.
        for step in [Span::from_millis(20), Span::from_nanos(13_370_001)] {
            let mut session = Session::new(&scenario, &aqm, 3).unwrap();
            let end = Time::ZERO + scenario.duration;
            let mut now = Time::ZERO;
            while now < end {
                now += step;
                session.run_until(now);
                let rows = now.min(end).since(Time::ZERO).as_nanos() / 20_000_000;
                assert_eq!(session.samples().len() as u64, rows);
            }
            assert!(session.delivered_bytes() > 0);
            assert_eq!(
                format!("{:?}", session.finish()),
                format!("{whole:?}"),
                "{step}"
            );
        }
    }
}
