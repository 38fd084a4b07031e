//! The capabilities of each law, as a table: a law that loses one fails here.

use forebay_aqm::laws::LAWS;
use forebay_aqm::{ConfiguredLaw, LawSpec, QueueChoice};
use forebay_linux_tc::TcSite;
use forebay_theory::linear::OperatingPoint;
use forebay_units::{Buffer, Bytes, QueueSite, Rate, Site, Span, Value};

/// The capabilities of a law with its default parameters.
#[derive(Debug, PartialEq)]
struct Capabilities {
    /// The law is a qdisc of Linux.
    linux: bool,
    /// The law runs in the kernel in fixed point.
    kernel: bool,
    /// The law has a linear model.
    model: bool,
    /// The model integrates the distance to the set-point.
    integrates: bool,
    /// The law has a design rule.
    rule: bool,
    /// The law has a set-point.
    set_point: bool,
    /// The law controls the arrival rate.
    rate_control: bool,
    /// The names of the parameters that the authors advise to change for a round trip of a second.
    fitted: Vec<&'static str>,
}

/// Returns the capabilities that a line of the table lists, and the fitted parameters.
fn listed(capabilities: &str, fitted: &[&'static str]) -> Capabilities {
    let has = |name| capabilities.split(' ').any(|capability| capability == name);
    Capabilities {
        linux: has("linux"),
        kernel: has("kernel"),
        model: has("model"),
        integrates: has("integrates"),
        rule: has("rule"),
        set_point: has("set-point"),
        rate_control: has("rate"),
        fitted: fitted.to_vec(),
    }
}

/// The capabilities of every law. The laws of the kernel are those with a header in
/// `python/forebay/linux/bpf/laws`; the qdiscs are those of tc.
fn table() -> Vec<(&'static str, Capabilities)> {
    let controlled = "kernel model integrates rule set-point";
    let rows: [(&str, &str, &[&'static str]); 25] = [
        ("droptail", "linux", &[]),
        ("red", "linux kernel model rule", &[]),
        ("pi", controlled, &[]),
        ("pid", controlled, &[]),
        ("pi-pd", controlled, &[]),
        ("p-avg", "kernel model rule set-point", &[]),
        ("pi-avg", controlled, &[]),
        ("pd-avg", "kernel model rule set-point", &[]),
        ("pid-avg", controlled, &[]),
        ("ared", "linux kernel model rule set-point", &[]),
        ("pd-red", controlled, &[]),
        ("stpi", controlled, &[]),
        ("stred", "kernel model rule", &[]),
        ("blue", "kernel", &["freeze_time"]),
        ("rem", "model integrates rule set-point", &[]),
        ("avq", "kernel rule rate", &[]),
        ("e-avq", "", &[]),
        ("codel", "linux set-point", &["interval"]),
        ("fq-codel", "linux set-point", &["interval"]),
        ("pie", "linux model integrates rule set-point", &[]),
        ("fq-pie", "linux set-point", &[]),
        ("pi2", "model integrates rule set-point", &[]),
        ("dualpi2", "linux model integrates rule set-point", &[]),
        ("cobalt", "set-point", &["interval"]),
        ("cake", "linux set-point", &["interval"]),
    ];
    rows.into_iter()
        .map(|(law, capabilities, fitted)| (law, listed(capabilities, fitted)))
        .collect()
}

/// Returns a link of 1250 packets/s whose buffer holds every default set-point.
fn site() -> Site {
    Site {
        rate: Rate::from_bps(15_000_000),
        buffer_pkts: 4000.0,
        packet: Bytes(1500),
    }
}

/// Returns true if the law is a qdisc of Linux in its own queue. A qdisc may refuse this link.
fn has_qdisc(spec: &LawSpec, law: &dyn ConfiguredLaw) -> bool {
    let site = TcSite {
        queue: QueueSite {
            rate: site().rate,
            buffer: Buffer::Packets(4000),
            packet: site().packet,
            ecn: true,
        },
        header: Bytes(0),
        in_packet: Bytes(14),
        held: false,
    };
    !matches!(QueueChoice::of_law(spec).tc(law, &site), Ok(None))
}

fn capabilities(spec: &LawSpec) -> Capabilities {
    let law = spec.read(&[]).unwrap();
    let point = OperatingPoint::of_flows(40.0, 0.1, 1250.0);
    let theory = law.theory();
    Capabilities {
        linux: has_qdisc(spec, &*law),
        kernel: law.kernel().is_some(),
        model: law.linear(&point, &site()).unwrap().is_some(),
        integrates: law.integrates(),
        rule: spec.has_rule(),
        set_point: law.set_point().is_some(),
        rate_control: theory.is_some_and(|theory| theory.rate_control().is_some()),
        fitted: (law.fitted(Span::from_secs(1), &site()).iter())
            .map(|(name, _)| *name)
            .collect(),
    }
}

#[test]
fn every_law_has_the_capabilities_of_the_table() {
    let names: Vec<_> = LAWS.iter().map(|spec| spec.kind).collect();
    let table = table();
    let listed: Vec<_> = table.iter().map(|(law, _)| *law).collect();
    assert_eq!(names, listed);
    for (spec, (law, expected)) in LAWS.iter().zip(table) {
        assert_eq!(capabilities(spec), expected, "{law}");
    }
}

/// A law's own set-point is the value of the parameter that the registry names.
#[test]
fn the_set_point_of_a_law_is_its_parameter() {
    for spec in LAWS {
        let law = spec.read(&[]).unwrap();
        let Some(set_point) = law.set_point() else {
            continue;
        };
        let values = law.values();
        let name = spec.set_point().expect("a parameter").name;
        let (_, value) = values.iter().find(|(key, _)| *key == name).unwrap();
        assert_eq!(*value, Value::Text(set_point.to_string()), "{}", spec.kind);
    }
}
