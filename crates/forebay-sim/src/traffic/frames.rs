//! Frames: bursts of a fixed number of packets at equal intervals, whatever the state of the
//! network.

use forebay_scenario as scenario;
use forebay_units::{Span, Time};

use super::{Act, Action, Application};

/// Sources that send a frame of several packets at equal intervals.
pub struct Frames {
    packets: u32,
    interval: Span,
    /// Packets of the present frame still to send, by flow.
    left: Vec<u32>,
}

impl Frames {
    /// Creates the sources of `flows` flows.
    pub fn new(frames: &scenario::Frames, flows: u32) -> Frames {
        Frames {
            packets: frames.frame.0,
            interval: frames.interval.max(Span::from_nanos(1)),
            left: vec![0; flows as usize],
        }
    }
}

impl Application for Frames {
    fn first(&mut self, flow: u32, start: Time, _stop: Option<Time>) -> Option<Act> {
        self.left[flow as usize] = self.packets;
        Some(Act {
            at: start,
            action: Action::Send,
        })
    }

    fn next(&mut self, flow: u32, done: Act, stop: Option<Time>) -> Option<Act> {
        let left = &mut self.left[flow as usize];
        *left -= 1;
        if *left > 0 {
            return Some(done);
        }
        *left = self.packets;
        let at = done.at + self.interval;
        stop.is_none_or(|stop| at < stop)
            .then_some(Act { at, ..done })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_scenario::WholePackets;
    use forebay_units::Params;

    #[test]
    fn a_frame_is_sent_whole() {
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let model = scenario::Frames {
            frame: WholePackets(3),
            ..scenario::Frames::defaults()
        };
        let mut frames = Frames::new(&model, 1);
        let stop = Some(at(85));
        let mut act = frames.first(0, at(5), stop);
        let mut times = Vec::new();
        while let Some(done) = act {
            times.push(done.at.as_millis());
            act = frames.next(0, done, stop);
        }
        assert_eq!(times, [5, 5, 5, 45, 45, 45]);
    }
}
