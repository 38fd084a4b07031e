//! Packets are conserved in any scenario: at every queue an arrived packet has left, was dropped or
//! is waiting, and no flow gets more than the links carry.

use forebay_aqm::laws::LAWS;
use forebay_scenario::{parse, Options, SENDERS};
use forebay_sim::{run, Watch};
use forebay_trace::{LinkView, Metrics};
use proptest::prelude::*;
use proptest::sample::select;

/// Returns a strategy for the keys of one traffic, without its path.
fn traffic() -> impl Strategy<Value = String> {
    let senders: Vec<&str> = SENDERS.iter().map(|sender| sender.name).collect();
    let tcp = (select(senders), any::<bool>(), any::<bool>(), 0..3_u32).prop_map(
        |(sender, ecn, delayed_ack, header)| {
            let header = [0, 40, 52][header as usize];
            format!("tcp = \"{sender}\"\necn = {ecn}\ndelayed_ack = {delayed_ack}\nheader = \"{header}B\"\n")
        },
    );
    let kind = prop_oneof![
        3 => tcp.clone().prop_map(|tcp| format!("kind = \"ftp\"\n{tcp}")),
        1 => tcp.clone().prop_map(|tcp| format!("kind = \"mice\"\non = \"200ms\"\noff = \"100ms\"\n{tcp}")),
        1 => tcp.clone().prop_map(|tcp| format!("kind = \"web\"\nrequests = 30\n{tcp}")),
        1 => tcp.prop_map(|tcp| format!("kind = \"pages\"\npage_gap = \"100ms\"\nobjects = 3\n{tcp}")),
        1 => (1..4000_u32, any::<bool>()).prop_map(|(kbps, ecn)| {
            format!("kind = \"cbr\"\nrate = \"{kbps}kbit/s\"\necn = {ecn}\n")
        }),
        1 => (1..4000_u32, 1.1..3.0).prop_map(|(kbps, shape)| {
            format!("kind = \"onoff\"\nrate = \"{kbps}kbit/s\"\non_shape = {shape}\n")
        }),
    ];
    (kind, 1..20_u32, 53..1500_u32, 40..200_u32, 0..900_u32).prop_map(
        |(kind, flows, packet, rtt, start)| {
            format!(
                "[[traffic]]\n{kind}flows = {flows}\npacket = \"{packet}B\"\nrtt = \"{rtt}ms\"\n\
                 start = {{ uniform = [\"0s\", \"{start}ms\"] }}\n"
            )
        },
    )
}

fn law() -> impl Strategy<Value = &'static str> {
    select(LAWS.iter().map(|law| law.kind).collect::<Vec<_>>())
}

/// Returns a strategy for a link's rate, delay and buffer, each with its key.
fn link() -> impl Strategy<Value = [String; 3]> {
    // The buffers are above the default set-points of laws, or too short for any law except
    // DropTail.
    let buffer = prop_oneof![
        (1..60_u32).prop_map(|pkts| format!("{pkts}p")),
        (900..1500_u32).prop_map(|pkts| format!("{pkts}p")),
        (1500..90_000_u32).prop_map(|bytes| format!("{bytes}B")),
    ];
    (100..40_000_u32, 0..15_u32, buffer).prop_map(|(kbps, ms, buffer)| {
        [
            format!("rate\" = \"{kbps}kbit/s\""),
            format!("delay\" = \"{ms}ms\""),
            format!("buffer\" = \"{buffer}\""),
        ]
    })
}

/// Returns a strategy for scenarios with one bottleneck, two in series, or one in each direction,
/// with or without a change during the run.
fn scenario() -> impl Strategy<Value = String> {
    let links = (link(), link(), 0..3_u8);
    let traffic = proptest::collection::vec((traffic(), any::<bool>()), 1..4);
    let change = proptest::option::of((0..1000_u32, link()));
    (links, traffic, change).prop_map(|((first, second, shape), traffic, change)| {
        let paths = [
            [r#"["a", "b"]"#, r#"["a", "b"]"#],
            [r#"["a", "b", "c"]"#, r#"["b", "c"]"#],
            [r#"["a", "b"]"#, r#"["b", "a"]"#],
        ];
        let ends = [
            "",
            "from = \"b\"\nto = \"c\"\n",
            "from = \"b\"\nto = \"a\"\n",
        ];
        let mut text = format!(
            "duration = \"1s\"\nmeasure = [\"300ms\", \"1s\"]\n\n\
             [bottleneck]\nfrom = \"a\"\nto = \"b\"\n{}\n",
            first.map(|key| format!("\"{key}\n")).concat()
        );
        if shape > 0 {
            let ends = ends[usize::from(shape)];
            let keys = second.map(|key| format!("\"{key}\n")).concat();
            text += &format!("[[link]]\n{ends}{keys}\n");
        }
        for (traffic, other) in traffic {
            let path = paths[usize::from(shape)][usize::from(other)];
            text += &format!("{traffic}path = {path}\n\n");
        }
        if let Some((ms, to)) = change {
            let set = to.map(|key| format!("\"bottleneck.{key}")).join(", ");
            text += &format!("[[at]]\ntime = \"{ms}ms\"\nset = {{ {set} }}\n");
        }
        text
    })
}

fn total(column: &[u32]) -> u64 {
    column.iter().map(|&count| u64::from(count)).sum()
}

/// Checks that the trace of a link conserves packets. `largest_bits` is the size of the largest
/// packet, which counts when its transmission begins.
fn check(trace: LinkView<'_>, changes: usize, largest_bits: f64) -> Result<(), TestCaseError> {
    let samples = &trace.samples;
    let drops =
        total(&samples.early_drops) + total(&samples.forced_drops) + total(&samples.overflow_drops);
    let waiting = u64::from(*samples.queue_pkts.last().expect("a second has samples"));
    prop_assert_eq!(
        total(&samples.arrivals),
        drops + trace.forwarded_packets + waiting,
        "arrivals at {}: {} drops, {} forwarded, {} waiting",
        trace.name,
        drops,
        trace.forwarded_packets,
        waiting
    );
    prop_assert!(total(&samples.marks) <= total(&samples.arrivals));
    let mut spare_bits = (1 + changes) as f64 * largest_bits;
    for (bytes, capacity_bits) in samples.departed_bytes.iter().zip(&samples.capacity_bits) {
        spare_bits += capacity_bits - 8.0 * *bytes as f64;
        prop_assert!(spare_bits >= 0.0, "{} sent more than it can", trace.name);
    }
    for (pkts, bytes) in samples.queue_pkts.iter().zip(&samples.queue_bytes) {
        prop_assert!((u64::from(*pkts) * 40..=u64::from(*pkts) * 1500).contains(bytes));
    }
    let metrics = Metrics::of(trace, None);
    for (name, value) in metrics.fields() {
        prop_assert!(value.is_nan() || value >= 0.0, "{name} = {value}");
    }
    prop_assert!(metrics.jain.is_nan() || metrics.jain <= 1.0 + 1e-9);
    let delivered_bytes: u64 = trace.flows().map(|flow| flow.delivered_bytes).sum();
    let departed_bytes: u64 = samples.departed_bytes.iter().sum();
    prop_assert!(
        delivered_bytes <= departed_bytes,
        "goodput of {}",
        trace.name
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn packets_are_conserved(text in scenario(), law in law(), seed in 0..1000_u64) {
        let options = Options {
            laws: vec![law.to_owned()],
            ..Options::default()
        };
        let parsed = parse(text.as_bytes(), "random", &options);
        // A law whose default set-point does not fit the buffer is rejected, and so are paths
        // slower than the RTT.
        prop_assume!(parsed.is_ok());
        let point = &parsed.unwrap().points[0];
        let scenario = &point.scenario;
        let trace = run(scenario, &point.laws[0].aqm(), seed, &Watch::default());
        let trace = trace.unwrap().expect("nobody cancels it");
        let largest_bits = 8.0 * 1500.0;
        for link in trace.views() {
            check(link, scenario.changes.len(), largest_bits)?;
        }
    }
}
