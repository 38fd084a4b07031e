//! The quality of applications: calls and viewers of adaptive video.

use forebay_units::Span;

/// One call in one direction over the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Index into the scenario's traffic.
    pub traffic: u32,
    /// Packets received.
    pub received: u64,
    /// Packets missing before the last one received.
    pub lost: u64,
    /// Sum of the one-way delays of the packets received.
    pub delays: Span,
    /// Sum of the absolute changes of the one-way delay from packet to packet.
    pub changes: Span,
}

/// One viewer of adaptive video over the window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Viewer {
    /// Index into the scenario's traffic.
    pub traffic: u32,
    /// Segments received.
    pub segments: u32,
    /// Sum of the bit rates of these segments in bit/s.
    pub rates_bps: f64,
    /// Number of times that playback stalled because no segment was in the buffer.
    pub stalls: u32,
    /// Time for which playback was stalled, counted from the first segment.
    pub stalled: Span,
}

/// Returns the mean one-way delay of the packets of calls in s; NaN without packets.
pub(crate) fn voice_delay_s(calls: &[Call]) -> f64 {
    let received: u64 = calls.iter().map(|call| call.received).sum();
    let delays: f64 = calls.iter().map(|call| call.delays.as_secs_f64()).sum();
    delays / received as f64
}

/// Returns the mean absolute change of the one-way delay from one packet of a call to the next in s
/// (RFC 3393); NaN without packets.
pub(crate) fn voice_jitter_s(calls: &[Call]) -> f64 {
    let pairs: u64 = calls
        .iter()
        .map(|call| call.received.saturating_sub(1))
        .sum();
    let changes: f64 = calls.iter().map(|call| call.changes.as_secs_f64()).sum();
    changes / pairs as f64
}

/// Returns the fraction of the packets of calls that were lost; NaN without packets.
pub(crate) fn voice_loss(calls: &[Call]) -> f64 {
    let lost: u64 = calls.iter().map(|call| call.lost).sum();
    let received: u64 = calls.iter().map(|call| call.received).sum();
    lost as f64 / (lost + received) as f64
}

/// Returns the mean bit rate of the segments of video in bit/s; NaN without segments.
pub(crate) fn video_rate_bps(viewers: &[Viewer]) -> f64 {
    let segments: f64 = viewers
        .iter()
        .map(|viewer| f64::from(viewer.segments))
        .sum();
    viewers.iter().map(|viewer| viewer.rates_bps).sum::<f64>() / segments
}

/// Returns the mean fraction of the window for which playback was stalled; NaN without viewers.
pub(crate) fn video_stalled(viewers: &[Viewer], window_s: f64) -> f64 {
    let stalled: f64 = viewers
        .iter()
        .map(|viewer| viewer.stalled.as_secs_f64())
        .sum();
    stalled / window_s / viewers.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_over_packets_and_segments() {
        let call = |received, lost, ms| Call {
            traffic: 0,
            received,
            lost,
            delays: Span::from_millis(ms),
            changes: Span::from_millis(ms / 2),
        };
        let calls = [call(9, 1, 90), call(1, 0, 50), Call::default()];
        assert!((voice_delay_s(&calls) - 0.014).abs() < 1e-12);
        assert!((voice_jitter_s(&calls) - 0.07 / 8.0).abs() < 1e-12);
        assert!((voice_loss(&calls) - 1.0 / 11.0).abs() < 1e-12);
        assert!(voice_delay_s(&[]).is_nan() && voice_loss(&[]).is_nan());
        let viewer = |segments, rates_bps, ms| Viewer {
            traffic: 0,
            segments,
            rates_bps,
            stalls: 1,
            stalled: Span::from_millis(ms),
        };
        let viewers = [viewer(3, 6e6, 0), viewer(1, 1e6, 500)];
        assert!((video_rate_bps(&viewers) - 1.75e6).abs() < 1e-6);
        assert!((video_stalled(&viewers, 10.0) - 0.025).abs() < 1e-12);
        assert!(video_rate_bps(&[]).is_nan() && video_stalled(&[], 1.0).is_nan());
    }
}
