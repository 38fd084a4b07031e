//! Relations between the parameters of a law, and to its queue, that `ConfiguredLaw::check` holds:
//! the values on the edge are accepted, and those beyond it are refused with the parameter's name.

use forebay_aqm::laws::find;
use forebay_units::{Bytes, ParamError, Rate, Site, Value};

/// Returns a link of 1875 packets/s.
fn site(buffer_pkts: f64) -> Site {
    Site {
        rate: Rate::from_bps(15_000_000),
        buffer_pkts,
        packet: Bytes(1000),
    }
}

fn number(x: f64) -> Value {
    Value::Number(x)
}

fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

/// Checks a law with these settings at a buffer; the law must also be built if the check passes.
fn checked(kind: &str, settings: &[(&str, Value)], buffer_pkts: f64) -> Result<(), ParamError> {
    let settings: Vec<_> = (settings.iter())
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect();
    let spec = find(kind).unwrap_or_else(|| panic!("a law {kind}"));
    let law = spec.read(&settings)?;
    let site = site(buffer_pkts);
    let result = law.check(&site);
    let built = law.build(&site, 1).map(|_| ());
    assert_eq!(built, result, "{kind}: check and build differ");
    result
}

fn assert_accepted(kind: &str, settings: &[(&str, Value)], buffer_pkts: f64) {
    let result = checked(kind, settings, buffer_pkts);
    assert_eq!(result, Ok(()), "{kind} {settings:?}");
}

/// Asserts that a law is refused, with an error about `key` whose text has this end.
fn assert_refused(kind: &str, settings: &[(&str, Value)], buffer_pkts: f64, key: &str, end: &str) {
    let error = checked(kind, settings, buffer_pkts).expect_err(kind);
    assert_eq!(error.key, key, "{kind}: {error}");
    assert!(error.to_string().ends_with(end), "{kind}: {error}");
}

/// Laws that subtract a target from the queue length, and do not exist in Linux.
const WITH_TARGET: [&str; 9] = [
    "pi", "pid", "rem", "stpi", "pd-red", "p-avg", "pi-avg", "pd-avg", "pid-avg",
];

/// At 1875 packets/s, 375 packets wait for 200 ms.
#[test]
fn a_set_point_is_at_most_the_buffer() {
    for kind in WITH_TARGET {
        assert_accepted(kind, &[("target", text("375p"))], 375.0);
        let above = [("target", text("376p"))];
        assert_refused(
            kind,
            &above,
            375.0,
            "target",
            "expected at most the buffer, \"375p\"",
        );
        assert_accepted(kind, &[("target", text("200ms"))], 375.0);
        let above = [("target", text("201ms"))];
        let end = "expected at most the buffer's delay, \"200ms\"";
        assert_refused(kind, &above, 375.0, "target", end);
    }
}

/// PI-PD divides by its set-point, and by the buffer above it (pi-pd eq. 11 and 15).
#[test]
fn the_set_point_of_pi_pd_is_below_the_buffer() {
    assert_accepted("pi-pd", &[("target", text("374p"))], 375.0);
    for target in ["375p", "376p"] {
        let end = "expected less than the buffer, \"375p\"";
        assert_refused("pi-pd", &[("target", text(target))], 375.0, "target", end);
    }
    let end = "expected less than the buffer's delay, \"200ms\"";
    assert_refused("pi-pd", &[("target", text("200ms"))], 375.0, "target", end);
}

#[test]
fn laws_that_divide_by_the_buffer_need_one_in_packets() {
    for kind in ["pi-pd", "pd-red", "p-avg", "pi-avg", "pd-avg", "pid-avg"] {
        let end = "expected a buffer in packets, by which the law divides its error";
        assert_refused(kind, &[], f64::INFINITY, "target", end);
        assert_accepted(kind, &[], 1e6);
    }
    for kind in ["pi", "pid", "rem", "stpi"] {
        assert_accepted(kind, &[], f64::INFINITY);
    }
}

#[test]
fn a_virtual_queue_needs_a_buffer_of_its_own_if_that_of_the_link_is_in_bytes() {
    for kind in ["avq", "e-avq"] {
        let end = "expected more than zero packets, since the queue's own buffer is in bytes";
        assert_refused(kind, &[], f64::INFINITY, "virtual_buffer", end);
        assert_accepted(kind, &[("virtual_buffer", text("50p"))], f64::INFINITY);
        assert_accepted(kind, &[], 100.0);
    }
}

/// A neuron without a weight above zero has no output.
#[test]
fn a_neuron_has_a_weight_above_zero() {
    let weights = |w_1, w_2, w_3| {
        [
            ("w_1", number(w_1)),
            ("w_2", number(w_2)),
            ("w_3", number(w_3)),
        ]
    };
    let end = "expected at least one of w_1, w_2 and w_3 above zero";
    assert_refused("e-avq", &weights(0.0, 0.0, 0.0), 100.0, "w_1", end);
    for weights in [
        weights(0.1, 0.0, 0.0),
        weights(0.0, 0.1, 0.0),
        weights(0.0, 0.0, 0.1),
    ] {
        assert_accepted("e-avq", &weights, 100.0);
    }
}

/// With b above a, a long queue would decrease the probability.
#[test]
fn the_gain_on_the_last_error_of_pi_is_at_most_that_on_this_error() {
    let gains = |b| [("a", number(2e-5)), ("b", number(b))];
    assert_accepted("pi", &gains(2e-5), 400.0);
    assert_refused(
        "pi",
        &gains(2.1e-5),
        400.0,
        "b",
        "expected at most 0.00002, the value of a",
    );
}

#[test]
fn the_lower_threshold_of_red_is_below_the_upper_one() {
    for kind in ["red", "ared", "pd-red", "stred"] {
        let thresholds = |min: &str| [("min_th", text(min)), ("max_th", text("20p"))];
        assert_accepted(kind, &thresholds("19p"), 1000.0);
        for min in ["20p", "21p"] {
            let end = "expected less than max_th, \"20p\"";
            assert_refused(kind, &thresholds(min), 1000.0, "min_th", end);
        }
    }
}
