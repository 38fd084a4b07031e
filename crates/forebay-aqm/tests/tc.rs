//! Laws as Linux qdiscs: the arguments of tc, values that are rounded, and parameters that are
//! refused.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use forebay_aqm::laws::{find, LAWS};
use forebay_aqm::{disciplines, QueueChoice};
use forebay_linux_tc::{Tc, TcSite};
use forebay_units::{Buffer, Bytes, ParamError, QueueSite, Rate, Value};

fn site() -> TcSite {
    TcSite {
        queue: QueueSite {
            rate: Rate::from_bps(15_000_000),
            buffer: Buffer::Packets(1000),
            packet: Bytes(1500),
            ecn: true,
        },
        header: Bytes(0),
        in_packet: Bytes(14),
        held: false,
    }
}

fn text(value: &str) -> Value {
    Value::Text(value.into())
}

/// Returns the tc line of a law with these parameters, which may belong to the law or its queue.
fn words(law: &str, params: &[(&str, Value)], site: &TcSite) -> Result<Option<Tc>, ParamError> {
    let spec = find(law).unwrap();
    let params: Vec<(String, Value)> = params
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.clone()))
        .collect();
    let queue = QueueChoice::of_law(spec);
    let keys = queue.spec.params;
    let (queue_params, law_params) = params
        .into_iter()
        .partition(|(name, _)| keys.iter().any(|key| key.name == name));
    QueueChoice::new(queue.spec, queue_params)?.tc(&*spec.read(&law_params)?, site)
}

/// Returns the tc line of a law as text.
fn line(law: &str, params: &[(&str, Value)], site: &TcSite) -> String {
    words(law, params, site).unwrap().unwrap().to_string()
}

/// Returns the key that is refused.
fn refused(law: &str, params: &[(&str, Value)], site: &TcSite) -> String {
    words(law, params, site).unwrap_err().key
}

#[test]
fn defaults_are_those_of_the_kernel() {
    for (law, expected) in [
        ("droptail", "pfifo limit 1000"),
        (
            "codel",
            "codel limit 1000 target 5ms interval 100ms ecn",
        ),
        (
            "fq-codel",
            "fq_codel limit 1000 target 5ms interval 100ms ecn flows 1024 quantum 1514 drop_batch 64",
        ),
        (
            "pie",
            "pie limit 1000 target 15ms tupdate 15ms alpha 2 beta 20 ecn nobytemode \
             no_dq_rate_estimator",
        ),
        (
            "fq-pie",
            "fq_pie limit 1000 target 15ms tupdate 15ms alpha 2 beta 20 ecn ecn_prob 10 nobytemode \
             no_dq_rate_estimator flows 1024 quantum 1514",
        ),
        (
            "dualpi2",
            "dualpi2 limit 1000 target 15ms tupdate 16ms alpha 0.161133 beta 3.204102 \
             coupling_factor 2 step_thresh 1ms min_qlen_step 2 l4s_ect classic_protection 10% \
             drop_on_overload",
        ),
        (
            "cake",
            "cake rtt 100ms unlimited diffserv3 triple-isolate nowash no-ack-filter raw memlimit \
             2304000",
        ),
    ] {
        assert_eq!(line(law, &[], &site()), expected);
    }
}

#[test]
fn a_law_without_a_qdisc_has_no_tc_line() {
    let kinds: Vec<&str> = LAWS.iter().map(|law| law.kind).collect();
    let without = kinds
        .iter()
        .filter(|kind| matches!(words(kind, &[], &site()), Ok(None)));
    let with: Vec<_> = kinds
        .iter()
        .filter(|kind| !matches!(words(kind, &[], &site()), Ok(None)))
        .collect();
    assert_eq!(
        with,
        [
            &"droptail",
            &"red",
            &"ared",
            &"codel",
            &"fq-codel",
            &"pie",
            &"fq-pie",
            &"dualpi2",
            &"cake"
        ]
    );
    assert_eq!(without.count() + with.len(), kinds.len());
    // Linux has no qdisc for CoDel in priority bands.
    let priority = QueueChoice::with_defaults(disciplines::find("priority").unwrap());
    let codel = find("codel").unwrap().read(&[]).unwrap();
    assert_eq!(priority.tc(&*codel, &site()), Ok(None));
}

#[test]
fn red_parameters_are_those_of_the_kernel_or_refused() {
    let classic = [
        ("gentle", Value::Flag(false)),
        ("wait", Value::Flag(false)),
        ("queue_in_bytes", Value::Flag(true)),
        ("min_th", text("30p")),
        ("max_th", text("90p")),
        ("w_q", Value::Number(1.0 / 128.0)),
    ];
    let held = TcSite {
        held: true,
        ..site()
    };
    assert_eq!(
        line("red", &classic, &held),
        "red limit 1501500 min 46500 max 136500 avpkt 1500 burst 75 probability 0.1 \
         bandwidth 15000000bit ecn harddrop"
    );
    let marks = [&classic[..], &[("mark_above", Value::Flag(true))]].concat();
    assert!(line("red", &marks, &site()).ends_with(" ecn"));
    for (i, (key, _)) in classic.iter().enumerate().take(3) {
        let mut other = classic.to_vec();
        other.remove(i);
        assert_eq!(refused("red", &other, &site()), *key);
    }
    let slow = [&classic[..5], &[("w_q", Value::Number(1e-5))]].concat();
    assert_eq!(refused("red", &slow, &site()), "w_q");
}

#[test]
fn adaptive_red_parameters_are_those_of_the_kernel_or_refused() {
    let classic = [
        ("gentle", Value::Flag(false)),
        ("wait", Value::Flag(false)),
        ("queue_in_bytes", Value::Flag(true)),
        ("min_th", text("30p")),
        ("max_th", text("90p")),
        ("w_q", Value::Number(1.0 / 128.0)),
        ("bottom", Value::Number(0.01)),
    ];
    let plain = line("red", &classic[..6], &site());
    assert_eq!(line("ared", &classic, &site()), format!("{plain} adaptive"));
    // At 15 Mbit/s the law's default for bottom is lower than the kernel's constant.
    assert_eq!(refused("ared", &classic[..6], &site()), "bottom");
    let other = [&classic[..], &[("beta", Value::Number(0.8))]].concat();
    assert_eq!(refused("ared", &other, &site()), "beta");
}

#[test]
fn an_error_names_every_constant_that_differs() {
    let error = words("red", &[], &site()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "gentle: true is not valid; expected false, which is constant in Linux's red, with \
         wait = false, queue_in_bytes = true"
    );
}

#[test]
fn a_limit_of_the_queue_replaces_the_buffer_of_the_link() {
    let limit = [("limit", text("10240p"))];
    assert!(line("fq-codel", &limit, &site()).starts_with("fq_codel limit 10240 "));
    assert!(line("cake", &limit, &site()).ends_with(" memlimit 23592960"));
}

#[test]
fn rounded_values_are_reported() {
    let params = [("alpha", Value::Number(0.1)), ("target", text("20p"))];
    let tc = words("pie", &params, &site()).unwrap().unwrap();
    assert!(tc
        .to_string()
        .contains("target 16ms tupdate 15ms alpha 2 beta 20 "));
    assert_eq!(tc.rounded.len(), 1);
    assert_eq!(
        (tc.rounded[0].key.as_str(), tc.rounded[0].applied.as_str()),
        ("alpha", "0.125")
    );
    assert!(words("pie", &[], &site())
        .unwrap()
        .unwrap()
        .rounded
        .is_empty());
    let dual = words("dualpi2", &[], &site()).unwrap().unwrap();
    // dualpi2_scale_alpha_beta of 41 and 820: 44 and 880 multiples of 0.003638.
    let applied: Vec<f64> = dual
        .rounded
        .iter()
        .map(|rounded| rounded.applied.parse().unwrap())
        .collect();
    assert!(
        (applied[0] - 0.160_07).abs() < 1e-5 && (applied[1] - 3.201_42).abs() < 1e-5,
        "{applied:?}"
    );
}

#[test]
fn a_parameter_that_the_qdisc_does_not_have_is_refused() {
    let plain = TcSite {
        queue: QueueSite {
            ecn: false,
            ..site().queue
        },
        ..site()
    };
    for (law, param, key) in [
        ("codel", ("arithmetic", text("exact")), "arithmetic"),
        ("codel", ("least_backlog", text("3000B")), "least_backlog"),
        ("pie", ("bounded", Value::Flag(true)), "bounded"),
        ("pie", ("estimator", text("departure-rate")), "estimator"),
        ("pie", ("alpha", Value::Number(1e-3)), "alpha"),
        ("pie", ("beta", Value::Number(2.5)), "beta"),
        ("fq-pie", ("drop_batch", Value::Integer(1)), "drop_batch"),
        ("dualpi2", ("ramp", text("1ms")), "ramp"),
        ("cake", ("target", text("10ms")), "target"),
    ] {
        assert_eq!(refused(law, &[param], &site()), key, "{law}");
    }
    for law in ["dualpi2", "cake"] {
        assert_eq!(refused(law, &[], &plain), "ecn");
    }
    assert!(line("codel", &[], &plain).ends_with(" noecn"));
}

#[test]
fn the_packet_that_tbf_holds_and_the_header_are_counted() {
    let held = TcSite {
        held: true,
        header: Bytes(14),
        in_packet: Bytes(0),
        ..site()
    };
    assert_eq!(line("droptail", &[], &held), "pfifo limit 1001");
    let bytes = TcSite {
        queue: QueueSite {
            buffer: Buffer::Bytes(150_000),
            ..site().queue
        },
        ..held
    };
    assert_eq!(line("droptail", &[], &bytes), "bfifo limit 152914");
    let departure = [("estimator", text("linux-departure-rate"))];
    assert!(line("pie", &departure, &held).contains("target 15800us "));
    let dsl = [("overhead", text("22B")), ("framing", text("atm"))];
    assert!(line("cake", &dsl, &held).contains(" overhead 22 mpu 0 atm "));
    assert!(line("cake", &dsl, &site()).contains(" overhead 36 mpu 0 atm "));
}

#[test]
fn a_long_queue_raises_the_memory_limit() {
    let long = TcSite {
        queue: QueueSite {
            buffer: Buffer::Packets(20_000),
            ..site().queue
        },
        ..site()
    };
    assert!(line("fq-codel", &[], &long).ends_with(" memory_limit 46082304"));
}
