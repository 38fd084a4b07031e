//! The next time of each kind of thing that happens at few places: one pending time each, which
//! stays out of the queues of events.

use crate::tcp::NEVER;

/// When things that are not the arrival of a packet happen next.
pub struct Agenda {
    /// The first of all below; [`Agenda::refresh`] finds it anew once one has moved back.
    pub first: u64,
    pub change: u64,
    pub tick: u64,
    /// When the links have to be brought up to the clock.
    pub links: u64,
    /// The same for the line back of a dumbbell.
    pub line_back: u64,
    pub sample: u64,
    pub alarm: u64,
    /// Just past the end of the run.
    pub over: u64,
}

impl Agenda {
    /// Nothing but samples, up to the end of the run.
    pub fn new(sample: u64, end: u64) -> Agenda {
        Agenda {
            first: 0,
            change: NEVER,
            tick: NEVER,
            links: NEVER,
            line_back: NEVER,
            sample,
            alarm: NEVER,
            over: end + 1,
        }
    }

    pub fn refresh(&mut self) {
        self.first = self.first_besides_the_end().min(self.over);
    }

    /// The first of all but the end of the run.
    #[inline(always)]
    pub fn first_besides_the_end(&self) -> u64 {
        (self.change.min(self.tick))
            .min(self.links.min(self.line_back))
            .min(self.sample.min(self.alarm))
    }

    #[inline(always)]
    pub fn links_by(&mut self, at: u64) {
        self.links = self.links.min(at);
        self.first = self.first.min(at);
    }

    #[inline(always)]
    pub fn line_back_by(&mut self, at: u64) {
        self.line_back = self.line_back.min(at);
        self.first = self.first.min(at);
    }

    #[inline(always)]
    pub fn alarm_by(&mut self, at: u64) {
        self.alarm = self.alarm.min(at);
        self.first = self.first.min(at);
    }
}
