//! A session that runs step by step yields the same trace as a run without steps.

mod common;

use std::sync::Arc;

use common::{ftp, one_bottleneck};
use forebay_scenario::{parse, Options};
use forebay_sim::{run, Session, Watch};
use forebay_units::{Span, Time};

/// Returns a scenario with one bottleneck under PI, and with the tables and traffic in `more`.
fn scenario(more: &str) -> String {
    let law = "[[law]]\nkind = \"pi\"\ntarget = \"40p\"\n";
    let more = format!("delay = \"5ms\"\n{more}{law}");
    let text = one_bottleneck([0, 5], "10Mbit/s", "100p", &more);
    format!("sample = \"20ms\"\n{text}")
}

fn one() -> String {
    let more = r#"
        [[traffic]]
        kind  = "mice"
        flows = 10
        rtt   = "50ms"
        [[at]]
        time  = "2s"
        set   = { bottleneck.rate = "5Mbit/s" }
    "#;
    scenario(&(ftp(8, r#"["40ms", "60ms"]"#, "") + more))
}

fn two() -> String {
    let next = r#"
        from   = "a"
        to     = "b"
        [[link]]
        rate   = "8Mbit/s"
        buffer = "100p"
        delay  = "5ms"
        from   = "b"
        to     = "c"
    "#;
    let flows = ftp(8, "\"60ms\"", r#"path = ["a", "b", "c"]"#);
    scenario(&format!("{next}{flows}"))
}

#[test]
fn steps_come_to_the_same_trace() {
    for text in [one(), two()] {
        let experiment = parse(text.as_bytes(), "test", &Options::default()).unwrap();
        let point = &experiment.points[0];
        let scenario = Arc::new(point.scenario.clone());
        let aqm = point.laws[0].aqm();
        let whole = run(&scenario, &aqm, 3, &Watch::default()).unwrap().unwrap();
        // The steps end at the samples, or at times between events.
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
