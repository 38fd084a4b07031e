//! The automatic step against one an eighth as long, over random links, laws and senders. No law is
//! named here.

use forebay_aqm::laws::LAWS;
use forebay_aqm::{LawSpec, QueueChoice};
use forebay_fluid::{run, Bottleneck, Change, Class, Model, Sender, Step, Trace, What, Windows};
use forebay_scenario::LawChoice;
use forebay_theory::design::DesignRequest;
use forebay_theory::linear::OperatingPoint;
use forebay_units::{Bytes, Rate, Rng, SetPoint, Site, Span, Time, Value};

const DURATION_S: usize = 40;
/// Rows of 10 ms in a second.
const ROWS: usize = 100;

/// A link from 2 to 1000 thousand packets a second, and a law designed for its load where it has a
/// rule. Packets of 1 MB, so that a law that counts bytes sees the queue to 1e-6 packets.
fn model(spec: &'static LawSpec, rng: &mut Rng) -> Option<Model> {
    let pkts_per_s = 10_f64.powf(rng.uniform_in(3.3, 5.1)).round();
    let rtt_s = 10_f64.powf(rng.uniform_in(-2.0, -0.7));
    let window_pkts = rng.uniform_in(5.0, 30.0);
    let pipe_pkts = pkts_per_s * rtt_s;
    let target_pkts = (pipe_pkts * rng.uniform_in(0.2, 0.6)).max(20.0);
    let flows = ((pipe_pkts + target_pkts) / window_pkts).max(1.0);
    let site = Site {
        rate: Rate::from_bps(pkts_per_s as u64 * 8_000_000),
        buffer_pkts: 4.0 * target_pkts + 100.0,
        packet: Bytes(1_000_000),
    };
    let rtt_then_s = rtt_s + target_pkts / pkts_per_s;
    let point = OperatingPoint::of_flows(flows, rtt_then_s, pkts_per_s);
    let mut given = Vec::new();
    let in_bytes = ("queue_in_bytes".to_owned(), Value::Flag(true));
    if spec
        .build(std::slice::from_ref(&in_bytes), &site, 1)
        .is_ok()
    {
        given.push(in_bytes);
    }
    let set_point = match spec.set_point()?.name {
        _ if spec
            .build(&[("target".into(), Value::Text("20ms".into()))], &site, 1)
            .is_ok() =>
        {
            SetPoint::Delay(Span::from_secs_f64(target_pkts / pkts_per_s))
        }
        _ => SetPoint::Packets(target_pkts),
    };
    let request = DesignRequest {
        point,
        probability: point.probability(),
        marked: false,
        set_point,
        site,
    };
    let law = spec.read(&given).ok()?;
    let design = law.theory()?.design(&request, &[]).ok()??;
    let designed = design.params.into_iter();
    given.extend(designed.map(|(name, value)| (name.to_owned(), value)));
    let senders = ["reno", "cubic", "linux-cubic", "dctcp"];
    let tcp = senders[(4.0 * rng.uniform()) as usize];
    let windows = [Windows::Smooth, Windows::Sawtooth][usize::from(rng.chance(0.5))];
    Some(Model {
        bottlenecks: vec![Bottleneck {
            rate: site.rate,
            packet: site.packet,
            buffer_pkts: site.buffer_pkts,
            law: LawChoice::in_queue(spec, given, QueueChoice::default()).ok()?,
        }],
        classes: vec![Class {
            marks: rng.chance(0.5),
            sender: Sender::named(tcp).unwrap(),
            windows,
            initial_window_pkts: window_pkts / 2.0,
            ..Class::new(tcp, flows, Span::from_secs_f64(rtt_s))
        }],
        changes: vec![Change {
            at: Time::ZERO + Span::from_secs(DURATION_S as u64 / 2),
            what: What::Flows {
                class: 0,
                flows: 0.8 * flows,
            },
        }],
        duration: Span::from_secs(DURATION_S as u64),
        step: Step::AUTO,
        sample: Span::from_millis(10),
        seed: 1,
    })
}

/// From lowest to highest of the queue in the last `seconds` before a time.
fn swing(trace: &Trace, until_s: usize, seconds: usize) -> f64 {
    let rows = &trace.queue_pkts[0][(until_s - seconds) * ROWS..until_s * ROWS];
    let (low, high) = (rows.iter()).fold((f64::MAX, 0.0_f64), |(l, h), q| (l.min(*q), h.max(*q)));
    high - low
}

/// Whether the probability jumps, as where RED's average passes its upper threshold.
fn jumps(trace: &Trace) -> bool {
    (trace.probability[0].windows(2)).any(|rows| (rows[1] - rows[0]).abs() > 0.2)
}

#[test]
fn the_automatic_step_is_as_good_as_one_an_eighth_as_long() {
    let mut rng = Rng::new(1, "links");
    let (mut compared, mut laws) = (0, 0);
    for spec in LAWS {
        let before = compared;
        for _ in 0..6 {
            let Some(model) = model(spec, &mut rng) else {
                continue;
            };
            let fine = Model {
                step: Step::AUTO.divided(8),
                ..model.clone()
            };
            let (Ok(auto), Ok(fine)) = (run(&model), run(&fine)) else {
                continue;
            };
            // A loop that does not settle amplifies any difference, and so does a full buffer, or a law
            // that jumps.
            let largest = fine.queue_pkts[0].iter().fold(0.0, |a: f64, b| a.max(*b));
            if largest >= model.bottlenecks[0].buffer_pkts || jumps(&fine) {
                continue;
            }
            let settled = [DURATION_S / 2, DURATION_S];
            if settled
                .iter()
                .any(|at| swing(&fine, *at, 3) > 0.02 * largest)
            {
                continue;
            }
            compared += 1;
            let off = |k: usize| (auto.queue_pkts[0][k] - fine.queue_pkts[0][k]).abs() / largest;
            let rows = auto.time_s.len();
            let greatest = (2 * ROWS..rows).map(off).fold(0.0, f64::max);
            let mean = (0..rows).map(off).sum::<f64>() / rows as f64;
            let class = &model.classes[0];
            let link = &model.bottlenecks[0];
            let said = format!(
                "{} {} {} {:?} {} {:.0} flows: {mean:.1e}, at most {greatest:.1e}",
                spec.kind, link.rate, class.rtt, class.windows, class.label, class.flows
            );
            // A law that counts whole packets may rest anywhere within one.
            let whole = !link
                .law
                .given()
                .iter()
                .any(|(name, _)| name == "queue_in_bytes");
            let rounding = if whole { 0.5 / largest } else { 0.0 };
            assert!(mean < MEAN + rounding && greatest < GREATEST, "{said}");
        }
        laws += usize::from(compared > before);
    }
    assert!(compared > 20 && laws > 5, "{compared} links, {laws} laws");
}

/// Differences of the queue, as parts of the longest: over all of a run, and after two seconds, as
/// a law may jump at the start.
const MEAN: f64 = 1e-3;
const GREATEST: f64 = 5e-2;

/// Where a queue empties, fills and empties again: every such moment is found, and time goes on.
#[test]
fn no_law_holds_time_up() {
    for spec in LAWS {
        for (flows, rtt_ms, tcp, windows) in [
            (100.0, 10, "reno", Windows::Smooth),
            (500.0, 200, "reno", Windows::Smooth),
            (100.0, 10, "cubic", Windows::Sawtooth),
        ] {
            let class = Class {
                sender: Sender::named(tcp).unwrap(),
                windows,
                ..Class::new(tcp, flows, Span::from_millis(rtt_ms))
            };
            let model = Model {
                bottlenecks: vec![Bottleneck {
                    rate: Rate::from_bps(1_000_000_000),
                    packet: Bytes(1000),
                    buffer_pkts: 12_500.0,
                    law: LawChoice::of(spec, Vec::new()).unwrap(),
                }],
                classes: vec![class],
                changes: Vec::new(),
                duration: Span::from_secs(3),
                step: Step::AUTO,
                sample: Span::from_millis(10),
                seed: 1,
            };
            assert_eq!(run(&model).unwrap().time_s.len(), 301, "{}", spec.kind);
        }
    }
}
