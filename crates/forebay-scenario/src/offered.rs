//! The load of a link in addition to long-lived flows: the number of short flows at a time, and the
//! rate of traffic that does not respond to congestion, or that ends before it could respond.

use forebay_units::{Span, Time};

use crate::model::{Instant, OnOff, Pareto2, Scenario, Traffic, TrafficKind};

/// Means over time of the load that is present during the whole measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Offered {
    /// Short flows that send at a time.
    pub short_flows: f64,
    /// The rate of packets without congestion control and of transfers that end by themselves.
    pub bps: f64,
}

/// Returns the load of the first link at a point by traffic other than `ftp`.
pub fn offered(point: &Scenario) -> Offered {
    let mut sum = Offered::default();
    for (index, traffic) in point.traffic.iter().enumerate() {
        if !traffic.path.contains(&0) || !stays(traffic, point.measure) {
            continue;
        }
        let flows = f64::from(fewest_flows(point, index));
        let one = of_a_flow(traffic);
        sum.short_flows += flows * one.short_flows;
        sum.bps += match &traffic.kind {
            TrafficKind::Arrivals(_) => one.bps,
            TrafficKind::OnOff(onoff) => at_a_time(onoff, flows) * one.bps,
            _ => flows * one.bps,
        };
    }
    sum
}

/// Returns true if the traffic has begun when measuring begins, and goes on until measuring ends.
/// A measurement from the start of the run includes the first second, in which flows draw their
/// starts by default.
fn stays(traffic: &Traffic, (start, end): (Time, Time)) -> bool {
    let start = start.max(Time::ZERO + Span::from_secs(1));
    let latest = match traffic.start {
        Instant::At(time) | Instant::Uniform(_, time) => time,
    };
    let stops = traffic.stop.map(|stop| match stop {
        Instant::At(time) | Instant::Uniform(time, _) => time,
    });
    latest <= start && stops.is_none_or(|time| time >= end)
}

fn fewest_flows(point: &Scenario, index: usize) -> u32 {
    let changed = point.changes.iter();
    let changed = changed.filter_map(|change| change.flows_of(index));
    changed.fold(point.traffic[index].flows, u32::min)
}

/// Returns the load that one active flow offers; for recorded packets, the load of the whole
/// recording.
fn of_a_flow(traffic: &Traffic) -> Offered {
    let rate = |bps: f64| Offered {
        bps,
        ..Offered::default()
    };
    match &traffic.kind {
        TrafficKind::Mice(mice, _) => Offered {
            short_flows: share(mice.on.as_secs_f64(), mice.off.as_secs_f64()),
            bps: 0.0,
        },
        TrafficKind::Cbr(cbr) => rate(cbr.rate.as_bps() as f64),
        TrafficKind::OnOff(onoff) => {
            let on = share(onoff.on.as_secs_f64(), onoff.off.as_secs_f64());
            rate(on * onoff.rate.as_bps() as f64)
        }
        TrafficKind::Voice(voice) => {
            let speaks = voice.spurts().map_or(1.0, |(talk, pause)| {
                share(talk.as_secs_f64(), pause.as_secs_f64())
            });
            rate(speaks * bits(voice.packet().0 as f64) / voice.interval.as_secs_f64())
        }
        TrafficKind::Frames(frames) => {
            let bytes = f64::from(frames.frame.0) * traffic.packet.0 as f64;
            rate(bits(bytes) / frames.interval.as_secs_f64())
        }
        TrafficKind::Web(web, _, size) => rate(web.requests * object_bits(traffic, size)),
        TrafficKind::Pages(pages, _, size) if pages.pages.0.is_none() => {
            let objects = f64::from(pages.objects);
            // A page takes at least the round trip of its last object.
            let rtt_s = traffic.rtts.iter().map(|rtt| rtt.as_secs_f64());
            let page_s = pages.page_gap.as_secs_f64()
                + (objects - 1.0) * pages.object_gap.as_secs_f64()
                + rtt_s.fold(0.0, f64::max);
            rate(objects * object_bits(traffic, size) / page_s)
        }
        TrafficKind::Arrivals(recorded) => {
            let packets = &recorded.packets.packets;
            let bytes: f64 = packets.iter().map(|packet| f64::from(packet.bytes)).sum();
            let once_s = packets
                .last()
                .map_or(0.0, |last| 1e-9 * last.at.as_nanos_f64());
            let period_s = recorded
                .period
                .map_or(once_s * recorded.scale, |period| period.as_secs_f64());
            rate(if period_s > 0.0 {
                bits(bytes) / period_s
            } else {
                0.0
            })
        }
        // Long-lived, finite, a viewer who takes the rate that he gets, or not known.
        TrafficKind::Ftp(_)
        | TrafficKind::Pages(..)
        | TrafficKind::Video(..)
        | TrafficKind::External(_)
        | TrafficKind::Program(_) => Offered::default(),
    }
}

/// Returns the flows of bursts that are there at a time: all, or as many as come in the time that
/// one stays.
fn at_a_time(onoff: &OnOff, flows: f64) -> f64 {
    let stays_s = onoff
        .bursts
        .0
        .map(|bursts| bursts * (onoff.on + onoff.off).as_secs_f64());
    match (onoff.arrivals.0, stays_s) {
        (None, None) => flows,
        // They come once.
        (None, Some(_)) => 0.0,
        (Some(_), None) => flows,
        (Some(per_s), Some(stays_s)) => flows.min(per_s * stays_s),
    }
}

/// Returns the mean bits on the wire of an object; none where the size has no mean.
fn object_bits(traffic: &Traffic, size: &Pareto2) -> f64 {
    if size.shape <= 1.0 {
        return 0.0;
    }
    let payload = traffic.payload().0.max(1) as f64;
    // The last packet of an object is half full.
    let packets = size.scale.0 as f64 / (size.shape - 1.0) / payload + 0.5;
    packets * bits(traffic.packet.0 as f64)
}

fn share(on: f64, off: f64) -> f64 {
    on / (on + off)
}

fn bits(bytes: f64) -> f64 {
    8.0 * bytes
}
