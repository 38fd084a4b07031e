//! Networks of several queues in whole runs.

mod common;

use common::{ftp, link_back, one_bottleneck, IDLE_LINK};
use forebay_scenario::Options;
use forebay_trace::{Metrics, RunTrace};

fn simulate(text: &str) -> RunTrace {
    common::simulate(text, &Options::default())
}

fn sum(column: &[u32]) -> u64 {
    column.iter().map(|n| u64::from(*n)).sum()
}

/// Returns a dumbbell with `traffic` and the additional `links`.
fn dumbbell(links: &str, traffic: &str) -> String {
    let more = format!(
        r#"
        delay = "10ms"
        {links}
        {traffic}
        [[law]]
        kind = "red"
        min_th = "15p"
        max_th = "60p"
        max_p = 0.1
        "#
    );
    one_bottleneck([5, 20], "10Mbit/s", "100p", &more)
}

fn forward() -> String {
    let keys = "tcp = \"sack\"\nstart = { uniform = [\"0s\", \"1s\"] }";
    ftp(20, r#"["40ms", "80ms"]"#, keys)
}

/// Returns flows in the opposite direction.
fn reverse(flows: u32) -> String {
    let keys = r#"
        label = "reverse"
        tcp = "sack"
        path = ["right", "left"]
    "#;
    ftp(flows, "\"60ms\"", keys)
}

#[test]
fn a_link_that_nobody_crosses_changes_nothing() {
    let alone = simulate(&dumbbell("", &forward()));
    let with = simulate(&dumbbell(IDLE_LINK, &forward()));
    assert_eq!(with.flows, alone.flows);
    assert_eq!((alone.links.len(), with.links.len()), (1, 2));
    let (alone, idle, with) = (alone.link(0), with.link(1), with.link(0));
    assert_eq!(with.samples.queue_pkts, alone.samples.queue_pkts);
    assert_eq!(with.samples.departed_bytes, alone.samples.departed_bytes);
    assert_eq!(with.forwarded_packets, alone.forwarded_packets);
    assert!(alone.forwarded_packets > 10_000);
    assert_eq!(
        (idle.name.as_str(), idle.forwarded_packets),
        ("elsewhere-nowhere", 0)
    );
    assert_eq!(idle.flows().count(), 0);
}

/// On a separate, wide link back ACKs pass as on the line back that replaces it.
#[test]
fn acks_cross_the_queue_of_the_way_back() {
    let back = link_back("10Mbit/s", "1000p", "\"droptail\"");
    let alone = simulate(&dumbbell("", &forward()));
    let with = simulate(&dumbbell(&back, &forward()));
    let (with, back) = (with.link(0), with.link(1));
    // There is one ACK of 40 bytes for each packet that arrives, except for packets under way at
    // the end.
    let (data, acks) = (with.forwarded_packets, back.forwarded_packets);
    assert!(acks <= data && acks + 100 > data, "{data} {acks}");
    let bytes: u64 = back.samples.departed_bytes.iter().sum();
    assert!(40 * acks - bytes <= 40 * 10, "{bytes}");
    let (alone, with) = (Metrics::of(alone.link(0), None), Metrics::of(with, None));
    let near = (with.queue_mean_pkts / alone.queue_mean_pkts - 1.0).abs();
    assert!(
        near < 0.1,
        "{} {}",
        with.queue_mean_pkts,
        alone.queue_mean_pkts
    );
}

#[test]
fn reverse_traffic_has_its_own_queue_and_drops_acks() {
    let red = r#"{ kind = "red", min_th = "5p", max_th = "15p" }"#;
    let back = link_back("2Mbit/s", "30p", red);
    let trace = simulate(&dumbbell(&back, &(forward() + &reverse(10))));
    let back = trace.link(1);
    assert!(sum(&back.samples.early_drops) > 100);
    let (forward, reverse) = (Metrics::of(trace.link(0), None), Metrics::of(back, None));
    assert!(reverse.utilisation > 0.9, "{}", reverse.utilisation);
    assert!(forward.utilisation > 0.5, "{}", forward.utilisation);
    // Each queue counts the flows whose data crosses it.
    let counts = (trace.link(0).flows().count(), back.flows().count());
    assert_eq!(counts, (20, 10));
    assert!(back.flows().all(|flow| flow.traffic == 1));
    // The ACKs of the forward flows use a part of the link back.
    assert!(reverse.goodput_bps < 1.9e6, "{}", reverse.goodput_bps);
}

/// Runs e-avq's figure 8: one group of flows crosses both bottlenecks, two other groups cross one
/// each.
fn two_bottlenecks(law: &str) -> RunTrace {
    let link = |from: &str, to: &str| {
        format!(
            "[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"10Mbit/s\"\ndelay = \"5ms\"\n\
             buffer = \"100p\"\necn = true\n"
        )
    };
    let group = |flows: u32, path: &str| {
        format!(
            "[[traffic]]\nkind = \"ftp\"\nflows = {flows}\npath = [{path}]\nrtt = \"100ms\"\n\
             tcp = \"newreno\"\necn = true\nstart = {{ uniform = [\"0s\", \"1s\"] }}\n"
        )
    };
    let links = [link("R1", "R2"), link("R3", "R4"), link("R4", "R5")].concat();
    let traffic = [
        group(10, "\"R1\", \"R2\", \"R3\", \"R4\", \"R5\""),
        group(20, "\"R2\", \"R3\""),
        group(40, "\"R4\", \"R5\""),
    ]
    .concat();
    let own = "name = \"Q2\"\nfrom = \"R2\"\nto = \"R3\"\ndelay = \"5ms\"\necn = true";
    let more = format!("{own}\n{links}{traffic}\n[[law]]\n{law}");
    simulate(&one_bottleneck([10, 30], "10Mbit/s", "100p", &more))
}

#[test]
fn each_bottleneck_has_a_law_of_its_own() {
    let trace = two_bottlenecks("kind = \"pi\"\ntarget = \"20p\"\na = 4e-4\nb = 3.9e-4");
    let names: Vec<&str> = trace.links.iter().map(|link| link.name.as_str()).collect();
    assert_eq!(names, ["Q2", "R1-R2", "R3-R4", "R4-R5"]);
    let [q2, into, between, q4] = [0, 1, 2, 3].map(|link| trace.link(link));
    // Both laws integrate to their own set-points, with different probabilities: the second
    // bottleneck has twice as many flows of its own.
    for queue in [q2, q4] {
        let m = Metrics::of(queue, None);
        assert!(
            (m.queue_mean_pkts - 20.0).abs() < 4.0,
            "{}",
            m.queue_mean_pkts
        );
        assert!(m.utilisation > 0.97 && m.mark_rate > 0.0, "{m:?}");
    }
    let (q2, q4) = (Metrics::of(q2, None), Metrics::of(q4, None));
    assert!(
        q4.mark_rate > 1.3 * q2.mark_rate,
        "{} {}",
        q4.mark_rate,
        q2.mark_rate
    );
    // The links before and between the bottlenecks carry only the first group and have almost no
    // queue.
    for link in [into, between] {
        let m = Metrics::of(link, None);
        assert!(m.utilisation < 0.5 && m.queue_mean_pkts < 2.0, "{m:?}");
        assert_eq!(link.flows().count(), 10);
    }
    assert_eq!(trace.link(0).flows().count(), 30);
    // The receivers of the first group get what both bottlenecks forward of it.
    let first: u64 = into.flows().map(|flow| flow.delivered_bytes).sum();
    // Only the payload is delivered: 960 of 1000 bytes.
    let crossing = 8.0 * first as f64 / 0.96 / 20.0;
    let through = Metrics::of(between, None).utilisation * 10e6;
    assert!(
        (crossing / through - 1.0).abs() < 0.02,
        "{crossing} {through}"
    );
}

#[test]
fn runs_repeat_exactly() {
    let law = "kind = \"avq\"";
    let (one, two) = (two_bottlenecks(law), two_bottlenecks(law));
    for (a, b) in one.links.iter().zip(&two.links) {
        assert_eq!(a.samples.queue_pkts, b.samples.queue_pkts);
    }
    assert_eq!(one.flows, two.flows);
}

#[test]
fn a_rate_step_acts_on_its_link_alone() {
    let back = r#"
        [[link]]
        name = "back"
        from = "right"
        to = "left"
        rate = "10Mbit/s"
        delay = "10ms"
        buffer = "100p"
    "#;
    let change = r#"
        [[at]]
        time = "10s"
        set = { "link.back.rate" = "5Mbit/s" }
    "#;
    let trace = simulate(&dumbbell(back, &(forward() + &reverse(20) + change)));
    let capacity = |link: usize| trace.links[link].samples.capacity_bits.iter().sum::<f64>() / 1e6;
    assert!((capacity(0) - 200.0).abs() < 0.2);
    assert!((capacity(1) - 150.0).abs() < 0.2);
}

/// Far below the link's rate, all requested data arrives.
#[test]
fn web_sessions_get_what_they_request() {
    let web = r#"
        [[traffic]]
        kind = "web"
        flows = 10
        requests = 10.0
        shape = 3.0
        scale = "6kB"
        tcp = "sack"
        rtt = "60ms"
    "#;
    let trace = simulate(&dumbbell("", web));
    assert_eq!(trace.flows.len(), 10, "connections belong to their session");
    // A size of Lomax(3, 6 packets) in whole packets has the mean Σ P(X > n), n = 0, 1, …
    let packets: f64 = (0..10_000)
        .map(|n| (1.0 + f64::from(n) / 6.0).powi(-3))
        .sum();
    let want = 8.0 * 1000.0 * packets * 100.0;
    let goodput = Metrics::of(trace.link(0), None).goodput_bps;
    assert!((goodput / want - 1.0).abs() < 0.1, "{goodput} {want}");
    let drops =
        sum(&trace.links[0].samples.overflow_drops) + sum(&trace.links[0].samples.early_drops);
    assert!(drops < 100, "{drops}");
}

/// A session waits for the end of a page, so that a slow link brings fewer pages.
#[test]
fn sessions_of_pages_wait_for_their_pages() {
    let pages = |sessions: u32| {
        format!(
            "[[traffic]]\nkind = \"pages\"\nflows = {sessions}\nobjects = 4\npage_gap = \"1s\"\n\
             shape = 3.0\nscale = \"6kB\"\ntcp = \"sack\"\nrtt = \"60ms\"\n"
        )
    };
    let goodput = |sessions| Metrics::of(simulate(&dumbbell("", &pages(sessions))).link(0), None);
    let (few, many) = (goodput(10), goodput(3000));
    // A page without other traffic takes its gap and a few round trips.
    let packets: f64 = (0..10_000)
        .map(|n| (1.0 + f64::from(n) / 6.0).powi(-3))
        .sum();
    let most = 8.0 * 1000.0 * packets * 4.0 * 10.0;
    assert!(
        few.goodput_bps < most && few.goodput_bps > 0.6 * most,
        "{few:?} {most}"
    );
    assert!(
        many.utilisation > 0.95 && many.goodput_bps < 10e6,
        "{many:?}"
    );
}

#[test]
fn a_change_ends_sessions_and_brings_them_back() {
    let web = r#"
        [[traffic]]
        kind = "pages"
        flows = 50
        page_gap = "100ms"
        rtt = "60ms"
        [[at]]
        time = "8s"
        set = { "traffic.pages.flows" = 0 }
        [[at]]
        time = "14s"
        set = { "traffic.pages.flows" = 50 }
    "#;
    let trace = simulate(&dumbbell("", web));
    let arrivals = |from_s: usize, to_s: usize| {
        sum(&trace.links[0].samples.arrivals[100 * from_s..100 * to_s])
    };
    assert!(arrivals(4, 8) > 1000 && arrivals(10, 14) < 20 && arrivals(15, 19) > 1000);
}

#[test]
fn bursts_load_the_link_as_declared() {
    let onoff = r#"
        [[traffic]]
        kind = "onoff"
        flows = 200
        rate = "100kbit/s"
        on = "100ms"
        off = "100ms"
        bursts = 2.0
        arrivals = 200.0
        packet = "125B"
        header = "0B"
        rtt = "60ms"
    "#;
    let trace = simulate(&dumbbell("", onoff));
    // There are 400 bursts per second of 100 ms on average, each with E[ceil(on/10 ms)] = 1/(1 −
    // e^−0.1) packets.
    let want = 400.0 * 8.0 * 125.0 / (1.0 - (-0.1f64).exp());
    let goodput = Metrics::of(trace.link(0), None).goodput_bps;
    assert!((goodput / want - 1.0).abs() < 0.1, "{goodput} {want}");
}

/// A recorded capacity of 1500 bytes at 10, 10 and 50 ms of every 50 ms, which is three packets of
/// 500 bytes each time.
#[test]
fn a_trace_of_times_drives_a_link() {
    let text = r#"
        duration = "10s"
        measure = ["1s", "10s"]
        sample = "1ms"
        [bottleneck]
        rate = "720kbit/s"
        rate_trace = "times"
        buffer = "50p"
        [[traffic]]
        kind = "cbr"
        flows = 1
        rate = "1Mbit/s"
        packet = "PACKETB"
        header = "0B"
        rtt = "0s"
        [[law]]
        kind = "droptail"
    "#;
    let with_packet = |packet: &str| {
        let options = Options {
            files: vec![("times".into(), b"10\n10\n50\n".to_vec())],
            ..Options::default()
        };
        let text = text.replace("PACKET", packet);
        common::simulate(&text, &options)
    };
    let trace = with_packet("500");
    // Row i ends at i + 1 ms, so that packets that leave at 1010 ms are in row 1009.
    let sent = |from: usize, to: usize| {
        trace.links[0].samples.departed_bytes[from..to]
            .iter()
            .sum::<u64>()
    };
    assert_eq!((sent(1001, 1009), sent(1009, 1010)), (0, 3000));
    assert_eq!((sent(1010, 1049), sent(1049, 1050)), (0, 1500));
    let m = Metrics::of(trace.link(0), None);
    assert!((m.utilisation - 1.0).abs() < 0.01, "{}", m.utilisation);
    assert!(
        (m.goodput_bps / 720e3 - 1.0).abs() < 0.01,
        "{}",
        m.goodput_bps
    );
    // A packet that does not fit into one opportunity continues in the next one, without a loss of
    // capacity.
    let m = Metrics::of(with_packet("700").link(0), None);
    assert!(
        (m.goodput_bps / 720e3 - 1.0).abs() < 0.01,
        "{}",
        m.goodput_bps
    );
}

/// Requests that are so few that hardly any two overlap, with windows that hold most of the
/// objects.
const FEW_TRANSFERS: &str = r#"
    [[traffic]]
    kind = "web"
    flows = 1
    requests = 0.5
    shape = 100.0
    scale = "990kB"
    packet = "1000B"
    tcp = "sack"
    initial_window = "30p"
    rtt = "40ms"
    access = "10Gbit/s"
"#;

#[test]
fn a_transfer_takes_the_round_trips_that_it_needs() {
    // The time is one round trip for the handshake, one for a window that holds the object, and the
    // packets' transmission at the bottleneck.
    let trace = simulate(&dumbbell("", FEW_TRANSFERS));
    assert!(trace.transfers.len() >= 3, "{:?}", trace.transfers);
    let packets = sum(&trace.links[0].samples.arrivals);
    let sent: u64 = trace
        .transfers
        .iter()
        .map(|one| u64::from(one.packets))
        .sum();
    assert!(sent <= packets);
    let alone = trace.transfers.iter().filter(|one| one.packets <= 30);
    for one in alone.clone() {
        // Each packet takes 0.8 ms at 10 Mbit/s, and the ACK takes 32 us on the way back.
        let expected_s = 0.080 + 0.0008 * f64::from(one.packets);
        let took_s = one.took.as_secs_f64();
        assert!((took_s - expected_s).abs() < 0.001, "{one:?}");
    }
    assert!(alone.count() >= 2);
    let metrics = Metrics::of(trace.link(0), None);
    assert!(metrics.flow_completion_p50_s <= metrics.flow_completion_p95_s);
}

/// The least round trip of a single flow includes the time of an ACK on the line back, which is
/// almost zero on a fast line.
#[test]
fn a_way_back_may_be_faster_than_the_link() {
    let took_s = |rate_back: &str| {
        let text = dumbbell("", FEW_TRANSFERS)
            .replace("[bottleneck]", &format!("[bottleneck]\n{rate_back}"));
        let slow = text.replace("rate = \"10Mbit/s\"", "rate = \"100kbit/s\"");
        let trace = simulate(&slow);
        let short = trace.transfers.iter().filter(|one| one.packets <= 30);
        let took = short.map(|one| one.took.as_secs_f64() - 0.08 * f64::from(one.packets));
        took.fold(f64::INFINITY, f64::min)
    };
    // Each of two ACKs of 40 bytes takes 3.2 ms at 100 kbit/s.
    let (alike, fast) = (took_s(""), took_s("rate_back = \"1Tbit/s\""));
    assert!((alike - fast - 0.0064).abs() < 1e-4, "{alike} {fast}");
}
