//! A real transport over the network: quinn-proto in parallel with 20 simulated CUBIC flows.

mod quic;

use forebay_net::{drive, Endpoints, Network, Options, Report, Time};
use quic::{Quic, SCENARIO};

/// The result of a transfer.
struct Transfer {
    done_at: Time,
    /// Packets that both ends sent.
    sent: u64,
    lost: u64,
    marked: u64,
    /// The client's reductions of its window, for marks and for losses.
    answered: u64,
    report: Report,
}

fn transfer(law: &str, bytes: u64, seed: u64) -> Transfer {
    let options = Options {
        laws: vec![law.to_owned()],
        ..Options::default()
    };
    let mut network = Network::with_options(SCENARIO, &options, seed).expect("a scenario");
    let (mut client, mut server) = Quic::pair(bytes, 1);
    let mut ends = [Endpoints {
        source: &mut client,
        sink: &mut server,
    }];
    let end = network.end();
    drive(&mut network, &mut ends, end).expect("packets that fit");
    assert_eq!(server.read_bytes, bytes, "{law}");
    let stats = client.stats();
    assert!(stats.path.sent_packets > bytes / 1500);
    Transfer {
        done_at: server.done_at.expect("all was read"),
        sent: stats.udp_tx.datagrams + server.stats().udp_tx.datagrams,
        lost: stats.path.lost_packets,
        marked: server.marked,
        answered: stats.path.congestion_events,
        report: network.finish(),
    }
}

#[test]
fn a_transfer_ends_and_is_reproducible_to_the_bit() {
    for law in ["fq-codel", "dualpi2"] {
        let run = |seed| {
            let transfer_result = transfer(law, 2_000_000, seed);
            let fields = transfer_result
                .report
                .metrics
                .fields()
                .map(|(_, value)| value.to_bits());
            let (at, sent) = (transfer_result.done_at, transfer_result.sent);
            (
                at,
                sent,
                transfer_result.lost,
                transfer_result.marked,
                fields,
            )
        };
        assert_eq!(run(1), run(1), "{law}");
        assert_ne!(run(1), run(2), "{law}");
    }
}

#[test]
fn a_flow_gets_its_share_under_fq_codel() {
    let transfer_result = transfer("fq-codel", 2_000_000, 3);
    // A twenty-first of the link has 0.95 Mbit/s: 2 MB would take 16.8 s, and slow start begins
    // alone.
    let took_s = transfer_result.done_at.as_secs_f64();
    assert!((8.0..20.0).contains(&took_s), "{took_s} s");
    let goodput_bps = transfer_result.report.traffic_metric("quic", "goodput_bps");
    assert!(goodput_bps.is_some_and(|it| it > 3e5), "{goodput_bps:?}");
    // Packets with ECT(0) are marked. What is lost are windows of the start, which fills the
    // buffer.
    assert!(transfer_result.marked > 0);
    assert!(
        10 * transfer_result
            .answered
            .saturating_sub(transfer_result.marked)
            < transfer_result.answered,
        "{} answered, {} marked, {} lost",
        transfer_result.answered,
        transfer_result.marked,
        transfer_result.lost
    );
}
