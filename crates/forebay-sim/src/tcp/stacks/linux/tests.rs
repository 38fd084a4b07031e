//! Tests of a connection with hand-written ACKs, and of RACK and PRR alone.

use super::*;
use crate::tcp::congestion::{window_in, CongestionEvent, Dctcp, Growth, LinuxReno, WholeWindow};
use crate::tcp::testing::{self, at, config, MS};
use crate::uplink::testing::TestLink;

use prr::Progress;
use scoreboard::{Delivery, SentPacket};

/// The round-trip time of every packet that is not lost.
const RTT: Span = Span::from_millis(60);

/// A sender and the segments that it has sent.
struct TestHost<C = LinuxReno> {
    config: Config,
    tcp: Linux<C>,
    now: Time,
    link: TestLink,
}

impl<C: CongestionControl> TestHost<C> {
    /// Creates a sender that has not sent its SYN.
    fn closed(config: Config) -> TestHost<C> {
        TestHost {
            tcp: Linux::new(Connection::new(), &config),
            config,
            now: Time::ZERO,
            link: TestLink::new(),
        }
    }

    /// Creates a sender just after the handshake, with packets 1 to 10 under way.
    fn connected() -> TestHost<C> {
        let mut host = TestHost::closed(config());
        host.open();
        assert_eq!(host.numbers(), [0]);
        host.now = at(RTT);
        host.ack(1, &[]);
        assert_eq!(host.numbers(), (1..11).collect::<Vec<u32>>());
        host
    }

    /// Creates a sender just after the handshake with no further data, a round trip later.
    fn with_the_last_packets_out() -> TestHost<C> {
        let mut host = TestHost::connected();
        host.tcp.connection.close();
        host.now += RTT;
        host
    }

    /// Offers endless data.
    fn open(&mut self) {
        self.tcp.connection.limit = u32::MAX;
        self.step(|tcp, step| tcp.send(step));
    }

    fn step(&mut self, act: impl FnOnce(&mut Linux<C>, &mut SenderStep)) {
        let mut step = SenderStep {
            config: &self.config,
            now: self.now,
            link: self.link.uplink(),
            held: false,
            sent_pkts: 0,
            resent_pkts: 0,
        };
        act(&mut self.tcp, &mut step);
    }

    fn echo(&mut self, next: u32, blocks: &[(u32, u32)], ece: bool) {
        let ack = Ack {
            ece,
            ..testing::ack(next, blocks)
        };
        self.step(|tcp, step| tcp.on_ack(&ack, step));
    }

    fn ack(&mut self, next: u32, blocks: &[(u32, u32)]) {
        self.echo(next, blocks, false);
    }

    /// Lets the timer fire; returns the time until then.
    fn fire(&mut self) -> Span {
        let due = self.tcp.connection.timer_due;
        assert_ne!(due, Time::NEVER);
        let waited = due - self.now;
        self.now = due;
        self.step(|tcp, step| tcp.on_timer(step));
        waited
    }

    /// Returns the time until a timer fires that is set now to this timeout.
    fn on_the_wheel(&self, delay: Span) -> Span {
        timer_wheel::expiry(self.now, delay) - self.now
    }

    /// Returns the numbers of the data packets sent since the last call.
    fn numbers(&mut self) -> Vec<u32> {
        let data = self.link.take().into_iter().filter(|segment| !segment.bare);
        data.map(|segment| segment.seq).collect()
    }

    fn window(&self) -> (u32, u32) {
        (
            self.tcp.congestion.cwnd_pkts(),
            self.tcp.congestion.ssthresh_pkts(),
        )
    }
}

#[test]
fn the_handshake_ends_with_an_ack_of_its_own() {
    fn ends_with<C: CongestionControl>() -> Vec<(u32, bool, Ecn)> {
        let config = config();
        let mut host = TestHost {
            tcp: Linux::<C>::new(Connection::new(), &config),
            config,
            now: Time::ZERO,
            link: TestLink::new(),
        };
        host.open();
        host.now = at(RTT);
        host.ack(1, &[]);
        let sent = host.link.take().into_iter();
        sent.map(|it| (it.seq, it.bare, it.ecn)).collect()
    }
    // As in the trace of a guest: the ACK is behind the SYN and before the data, and ECN-capable
    // only with DCTCP.
    for (sent, syn, bare) in [
        (ends_with::<LinuxReno>(), Ecn::NotEct, Ecn::NotEct),
        (ends_with::<Dctcp>(), Ecn::Ect0, Ecn::Ect0),
    ] {
        let begins = [(0, false, syn), (1, true, bare), (1, false, Ecn::Ect0)];
        assert_eq!(sent[..3], begins);
        assert_eq!(sent.len(), 12);
    }
}

#[test]
fn three_sacked_packets_prove_a_loss_and_the_window_falls_in_proportion() {
    let mut host: TestHost = TestHost::connected();
    host.now += RTT;
    // Packet 1 is lost; limited transmit sends a new packet for each of the first two ACKs.
    host.ack(1, &[(2, 3)]);
    host.now += 2 * MS;
    host.ack(1, &[(2, 4)]);
    assert_eq!(host.numbers(), [11, 12]);
    assert_eq!(host.tcp.state, CaState::Disorder);
    host.now += 2 * MS;
    host.ack(1, &[(2, 5)]);
    assert_eq!(host.tcp.state, CaState::Recovery);
    assert_eq!((host.numbers(), host.window().1), (vec![1], 5));
    // Half as many packets are sent as are delivered.
    let mut sent = Vec::new();
    for end in 6..=11 {
        host.ack(1, &[(2, end)]);
        sent.extend(host.numbers());
    }
    assert_eq!(sent, [13, 14]);
    // The hole is filled: the window is the threshold.
    host.now += RTT;
    host.ack(13, &[]);
    assert_eq!((host.tcp.state, host.window()), (CaState::Open, (5, 5)));
}

#[test]
fn without_three_of_them_a_timer_waits_a_quarter_of_the_round_trip() {
    let mut host: TestHost = TestHost::with_the_last_packets_out();
    host.ack(9, &[(10, 11)]);
    assert_eq!(host.tcp.timer, Timer::Reordering);
    assert_eq!(host.numbers(), [0u32; 0]);
    // Both were sent at the same time: the timer fires 60/4 ms after the round trip, plus 2 ms and
    // a tick of the host.
    assert_eq!(host.fire(), 18 * MS);
    assert_eq!(
        (host.numbers(), host.tcp.state),
        (vec![9], CaState::Recovery)
    );
}

#[test]
fn a_copy_that_is_lost_is_found_when_later_packets_arrive() {
    let mut host: TestHost = TestHost::connected();
    host.now += RTT;
    host.ack(1, &[(2, 11)]);
    let sent = host.numbers();
    assert_eq!(sent[0], 1);
    let later = *sent.last().expect("new packets were sent as well");
    assert!(later > 10, "{sent:?}");
    // A round trip later a packet arrives that was sent after the retransmission.
    host.now += RTT;
    host.ack(1, &[(2, 11), (later, later + 1)]);
    assert_eq!(host.numbers()[0], 1);
    assert_eq!(host.tcp.timeouts, 0);
}

#[test]
fn a_lost_tail_is_probed_and_costs_a_window() {
    let mut host: TestHost = TestHost::with_the_last_packets_out();
    host.ack(9, &[]);
    // Packets 9 and 10 are lost. After two round trips and 2 ms the probe repeats the last packet.
    let srtt = host.tcp.rtt.srtt;
    let probe = host.on_the_wheel(2 * srtt + 2 * MS);
    assert_eq!(host.fire(), probe);
    assert_eq!(host.numbers(), [10]);
    // The probe shows without a timeout that packet 9 is lost.
    host.now += RTT;
    host.ack(9, &[(10, 11)]);
    let waited = host.tcp.timer == Timer::Reordering;
    if waited {
        host.fire();
    }
    assert_eq!(host.numbers(), [9]);
    assert_eq!(host.tcp.timeouts, 0);
}

#[test]
fn one_packet_in_flight_is_probed_later_for_its_ack_may_be_delayed() {
    let mut host: TestHost = TestHost::with_the_last_packets_out();
    host.ack(10, &[]);
    let tcp = &host.tcp;
    let (want, rto) = (2 * tcp.rtt.srtt + 200 * MS, tcp.rtt.rto);
    let probe = host.on_the_wheel(want.min(rto));
    assert_eq!(host.fire(), probe);
}

#[test]
fn with_data_to_send_the_probe_is_new() {
    let mut host: TestHost = TestHost::connected();
    host.fire();
    assert_eq!(host.numbers(), [11]);
    // There is one probe per episode. The timeout follows, with all packets lost except one.
    host.fire();
    assert_eq!(host.numbers(), [1]);
    assert_eq!((host.tcp.state, host.window()), (CaState::Loss, (1, 5)));
}

#[test]
fn after_a_timeout_slow_start_sends_what_is_lost() {
    let mut host: TestHost = TestHost::connected();
    host.fire();
    let rto = host.tcp.rtt.rto;
    host.fire();
    assert_eq!(host.tcp.rtt.rto, 2 * rto);
    host.numbers();
    host.now += RTT;
    // F-RTO sends new packets; their arrival behind a hole shows that the loss was real.
    host.ack(2, &[]);
    assert_eq!(host.numbers(), [12, 13]);
    host.now += RTT;
    host.ack(2, &[(12, 14)]);
    assert_eq!(host.numbers(), [2, 3]);
    host.now += RTT;
    host.ack(4, &[(12, 14)]);
    assert_eq!(host.numbers(), [4, 5, 6, 7]);
    assert_eq!(host.tcp.state, CaState::Loss);
}

#[test]
fn a_timeout_that_was_too_early_is_undone() {
    let mut host: TestHost = TestHost::connected();
    host.fire();
    host.fire();
    host.numbers();
    // The ACKs were late, not lost: packet 2 was never sent again.
    host.ack(3, &[]);
    assert_eq!(
        (host.tcp.state, host.tcp.scoreboard.lost_out()),
        (CaState::Open, 0)
    );
    assert!(host.window().0 >= 10);
}

#[test]
fn an_answer_that_comes_too_soon_to_be_the_copy_s_undoes_the_timeout() {
    for (after_ms, state, pkts) in [(20, CaState::Open, 11), (61, CaState::Loss, 2)] {
        let mut host: TestHost = TestHost::connected();
        // The probe, then the timeout, which sends the first packet again.
        host.fire();
        host.fire();
        host.numbers();
        host.now += after_ms * MS;
        host.ack(2, &[]);
        assert_eq!((host.tcp.state, host.window().0), (state, pkts));
    }
}

#[test]
fn a_mark_reduces_once_and_is_answered_with_cwr() {
    let mut host: TestHost = TestHost::connected();
    host.now += RTT;
    host.echo(3, &[], true);
    assert_eq!((host.tcp.state, host.window().1), (CaState::Cwr, 5));
    let mut cwr = Vec::new();
    for next in (5..=11).step_by(2) {
        host.echo(next, &[], true);
        cwr.extend(host.link.take().iter().map(|segment| segment.cwr));
    }
    assert_eq!(host.window().1, 5);
    assert_eq!(cwr.iter().filter(|cwr| **cwr).count(), 1);
    assert!(cwr[0]);
    host.now += RTT;
    let next = host.tcp.connection.next;
    host.ack(next, &[]);
    // A whole window is acknowledged at once, and the window grows by one again.
    assert_eq!((host.tcp.state, host.window().0), (CaState::Open, 6));
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let mut host: TestHost = TestHost::with_the_last_packets_out();
    for next in [3, 5, 7] {
        host.ack(next, &[]);
    }
    // The flow used 10 of 10 packets of the window in this round trip.
    let (cwnd, _) = host.window();
    assert_eq!(cwnd, 16);
    // The application continues with few packets.
    let mut host: TestHost = TestHost::connected();
    host.now += RTT;
    host.tcp.connection.limit = 14;
    host.ack(11, &[]);
    assert_eq!((host.numbers(), host.window().0), (vec![11, 12, 13], 20));
    host.now += RTT;
    host.ack(14, &[]);
    assert_eq!(host.window().0, 20);
}

#[test]
fn lost_syns_are_sent_again_every_second() {
    let mut host: TestHost = TestHost::closed(config());
    host.open();
    let waits: Vec<u64> = (0..7).map(|_| host.fire() / (1000 * MS)).collect();
    assert_eq!(waits, [1, 1, 1, 1, 1, 2, 4]);
    assert_eq!(host.numbers(), [0; 8]);
    host.now += RTT;
    host.ack(1, &[]);
    assert_eq!(host.numbers(), [1]);
}

#[test]
fn a_lost_syn_takes_ecn_with_it() {
    for (timeouts, ecn) in [(0, Ecn::Ect0), (1, Ecn::NotEct)] {
        let config = Config {
            ect: Ecn::Ect0,
            ..config()
        };
        let mut host: TestHost = TestHost::closed(config);
        host.open();
        for _ in 0..timeouts {
            host.fire();
        }
        host.link.take();
        host.now += RTT;
        host.ack(1, &[]);
        // The data follows the ACK that ends the handshake.
        assert_eq!(host.link.take()[1].ecn, ecn);
    }
}

#[test]
fn what_a_receiver_of_linux_has_no_room_for_is_not_sent() {
    for (quick, last) in [(16, 56), (0, 1001)] {
        let mut host: TestHost = TestHost::connected();
        host.config.acks.quick = quick;
        host.tcp.receive_window = ReceiveWindow::new(&host.config);
        host.tcp.receive_window.offer(1);
        host.now += RTT;
        host.tcp.congestion.set_cwnd(2000.0);
        host.ack(2, &[]);
        assert_eq!(host.numbers().last(), Some(&last));
        // Packet 2 is lost, and the packets behind it occupy the buffer.
        host.ack(2, &[(3, 40)]);
        let sent = host.numbers();
        assert_eq!(sent, [2], "{quick}");
    }
}

fn delivery(seq: u32, sent_at: Time, ever_retransmitted: bool) -> Delivery {
    Delivery {
        seq,
        sent: SentPacket {
            sent_at,
            sacked: false,
            lost: false,
            retransmitted: ever_retransmitted,
            ever_retransmitted,
        },
        by_sack: true,
        behind_pkts: 0,
    }
}

#[test]
fn rack_takes_packets_in_the_order_in_which_they_were_sent() {
    let mut scoreboard = Scoreboard::default();
    for i in 0..4 {
        scoreboard.push(at(i * MS));
    }
    let mut rack = Rack::default();
    rack.advance(&delivery(2, at(2 * MS), false), at(RTT + 2 * MS), RTT);
    // Packets 0 and 1 were sent before 2, but within the reordering window of 1.5 ms packet 1 is
    // not yet lost.
    let now = at(RTT + 2 * MS);
    let losses = rack.detect(&mut scoreboard, 3 * MS / 2, now);
    assert_eq!((losses.lost_pkts, losses.wait), (1, MS / 2));
    assert_eq!(
        (scoreboard.next_to_retransmit(), scoreboard.lost_out()),
        (Some(0), 1)
    );
    let losses = rack.detect(&mut scoreboard, 3 * MS / 2, now + MS / 2);
    assert_eq!((losses.lost_pkts, losses.wait), (1, Span::ZERO));
    // The retransmission of 0 was sent after all other packets, so that nothing shows that it is
    // lost.
    scoreboard.mark_retransmitted(0, now, false);
    assert_eq!(
        rack.detect(&mut scoreboard, Span::ZERO, now + 2 * RTT)
            .lost_pkts,
        0
    );
    // An ACK that arrives so soon is for the first copy.
    rack.advance(&delivery(0, now, true), now + RTT / 2, RTT);
    assert_eq!(rack.rtt, RTT);
}

#[test]
fn reordering_makes_rack_wait() {
    let mut rack = Rack::default();
    let window =
        |rack: &Rack, recovering, sacked| rack.reordering_window(recovering, sacked, RTT, 2 * RTT);
    assert_eq!(window(&rack, false, 2), RTT / 4);
    let windows = (window(&rack, false, 3), window(&rack, true, 1));
    assert_eq!(windows, (Span::ZERO, Span::ZERO));
    rack.on_reordering(5);
    assert_eq!(
        (window(&rack, false, 3), window(&rack, true, 9)),
        (RTT / 4, RTT / 4)
    );
    assert_eq!(rack.reordering_pkts, 5);
}

#[test]
fn prr_sends_in_proportion_and_then_up_to_the_threshold() {
    let progress = |una_advanced, lost| Progress {
        delivered: 1,
        lost,
        una_advanced,
    };
    // With a window of 20 packets, a threshold of 14 and 19 in flight, 7 packets leave for 10 that
    // are delivered.
    let mut prr = Prr::new(20);
    let mut in_flight = 19;
    for _ in 0..10 {
        let window = prr
            .cwnd_after(progress(false, 0), in_flight, 14)
            .expect("one arrived");
        prr.out += window - in_flight;
        in_flight = window - 1;
    }
    assert_eq!(prr.out, 7);
    // Far below the threshold, one packet more is sent than is delivered while recovery makes
    // progress.
    let mut prr = Prr::new(20);
    prr.out = 1;
    assert_eq!(prr.cwnd_after(progress(true, 0), 3, 10), Some(5));
    prr.out += 2;
    assert_eq!(prr.cwnd_after(progress(true, 1), 3, 10), Some(4));
    assert_eq!(
        prr.cwnd_after(
            Progress {
                delivered: 0,
                ..progress(true, 0)
            },
            3,
            10
        ),
        None
    );
}

#[test]
fn the_timeout_has_a_floor_on_its_deviation() {
    let mut rtt = Rtt::default();
    for i in 0..50 {
        rtt.update(RTT, i, i + 1, 200 * MS);
    }
    assert_eq!((rtt.srtt, rtt.rto), (RTT, RTT + 200 * MS));
    rtt.update(460 * MS, 60, 61, 200 * MS);
    // The deviation counts four times, at a quarter's weight.
    let want = RTT + 50 * MS + 400 * MS;
    assert!(rtt.rto.abs_diff(want) < Span::from_micros(1), "{}", rtt.rto);
}

#[test]
fn blocks_join_and_report_each_packet_once() {
    let mut scoreboard = Scoreboard::default();
    for _ in 0..12 {
        scoreboard.push(Time::ZERO);
    }
    let mut newly_reported = |blocks: &[(u32, u32)]| {
        let mut seen = Vec::new();
        let ack = testing::ack(1, blocks);
        scoreboard.update(&ack, |delivery| {
            seen.push((delivery.seq, delivery.behind_pkts))
        });
        seen
    };
    assert_eq!(
        newly_reported(&[(8, 10), (3, 4)]),
        [(3, 0), (8, 0), (9, 0), (0, 0)]
    );
    // Packet 6 was overtaken by 9.
    assert_eq!(newly_reported(&[(6, 10), (3, 4)]), [(6, 3), (7, 2)]);
    assert_eq!(newly_reported(&[(2, 10)]), [(2, 7), (4, 5), (5, 4)]);
    assert_eq!(newly_reported(&[(2, 10)]), []);
    assert_eq!((scoreboard.sacked_out(), scoreboard.in_flight()), (8, 3));
}

#[test]
fn a_paced_window_leaves_in_segments_over_the_round_trip() {
    let mut host: TestHost = TestHost::connected();
    host.config.pacing = true;
    host.now += RTT;
    // In slow start the window is 20 packets, which leave in half a round trip.
    host.ack(11, &[]);
    let segment_pkts = host.numbers().len() as u64;
    assert_eq!(segment_pkts, 2);
    let mut gaps = Vec::new();
    let mut sent = segment_pkts;
    while sent < 20 {
        let before = host.now;
        host.now = host.tcp.connection.pacer.next_at();
        host.step(|tcp, step| tcp.on_pace(step));
        gaps.push(host.now - before);
        sent += host.numbers().len() as u64;
    }
    assert_eq!(sent, 20);
    // The smoothed round-trip time is still the first one, so that the rate is twice 20 packets in
    // 60 ms.
    let gap = segment_pkts * RTT / 40;
    // The idle time in the first round trip shortens the gap by half.
    assert_eq!(gaps[0], gap / 2);
    assert_eq!(gaps[1..], [gap; 8]);
    // The window is used up, so that no packet waits for the pacer.
    host.now += RTT / 40;
    host.step(|tcp, step| {
        tcp.on_pace(step);
        assert!(!step.held);
    });
    assert_eq!(host.numbers(), [0u32; 0]);
}

/// Reno's window, with a record of the rate samples that it receives.
struct Listening {
    window: WholeWindow,
    rates: Vec<RateSample>,
}

impl CongestionControl for Listening {
    window_in!(window: WholeWindow);
    const RATE_SAMPLES: bool = true;

    fn new(_config: &Config) -> Listening {
        Listening {
            window: WholeWindow::new(),
            rates: Vec::new(),
        }
    }

    fn on_rate(&mut self, sample: &RateSample) {
        self.rates.push(*sample);
    }

    fn grow(&mut self, growth: &Growth) {
        self.window.slow_start(growth.acked_pkts);
    }

    fn on_congestion_event(&mut self, _event: &CongestionEvent) -> f64 {
        self.window.lower(self.window.cwnd / 2)
    }
}

#[test]
fn a_window_that_asks_is_told_how_fast_packets_arrive() {
    let mut host = TestHost::<Listening>::connected();
    // The SYN yields no sample.
    assert_eq!(host.tcp.congestion.rates, []);
    let sample = |host: &TestHost<Listening>| *host.tcp.congestion.rates.last().unwrap();
    let rate = |host: &TestHost<Listening>| sample(host).rate.unwrap();
    host.now += RTT;
    host.ack(3, &[(4, 5)]);
    assert_eq!((rate(&host).pkts, rate(&host).interval), (3, RTT));
    let first = sample(&host);
    assert_eq!((first.acked_pkts, first.lost_pkts), (3, 0));
    assert_eq!((first.prior_in_flight_pkts, first.rtt), (10, Some(RTT)));
    assert_eq!((first.in_flight_pkts, first.delivered_pkts), (7, 4));
    // Six more packets are acknowledged 4 ms later, and packet 3 is lost.
    host.now += 4 * MS;
    host.ack(3, &[(4, 11)]);
    assert_eq!((rate(&host).pkts, rate(&host).interval), (9, RTT + 4 * MS));
    assert!(!rate(&host).app_limited);
    assert_eq!(
        (rate(&host).in_flight_then_pkts, rate(&host).lost_since_pkts),
        (10, 1)
    );
    assert_eq!((sample(&host).acked_pkts, sample(&host).lost_pkts), (6, 1));
    assert_eq!(
        (sample(&host).total_lost_pkts, sample(&host).recovery_state),
        (1, RecoveryState::Recovery)
    );
    // The retransmission of packet 3 and the packets sent after it arrive after the application has
    // stopped.
    host.tcp.connection.close();
    host.now += RTT;
    let next = host.tcp.connection.next;
    host.ack(next, &[]);
    assert!(!rate(&host).app_limited);
    host.tcp.connection.limit = next + 2;
    host.step(|tcp, step| tcp.send(step));
    host.now += RTT;
    host.ack(next + 2, &[]);
    assert_eq!((rate(&host).pkts, rate(&host).app_limited), (2, true));
}

#[test]
fn a_copy_tells_the_round_trip_in_the_ticks_of_its_timestamp() {
    // The copy is sent at 120.7 ms.
    let rtt_of_answer_after = |delay: Span| {
        let mut host = TestHost::<Listening>::connected();
        host.now += RTT + Span::from_micros(700);
        host.ack(1, &[(2, 11)]);
        host.now += delay;
        host.ack(11, &[]);
        host.tcp.congestion.rates.last().unwrap().rtt
    };
    assert_eq!(rtt_of_answer_after(RTT + Span::from_micros(200)), Some(RTT));
    assert_eq!(
        rtt_of_answer_after(RTT + Span::from_micros(300)),
        Some(RTT + MS)
    );
    // A round trip within one tick still counts as one tick.
    assert_eq!(
        rtt::stamped_rtt(at(5 * MS), at(5 * MS + Span::from_micros(900))),
        MS
    );
}
