//! The next time of each kind of thing that happens at few places: one pending time each, which
//! stays out of the queues of events.

use forebay_units::Time;

/// When things that are not the arrival of a packet happen next.
pub struct Agenda {
    /// The first of all below; [`Agenda::refresh`] finds it anew once one has moved back.
    pub first: Time,
    pub change: Time,
    pub tick: Time,
    /// When the links have to be brought up to the clock.
    pub links: Time,
    /// The same for the line back of a dumbbell.
    pub line_back: Time,
    pub sample: Time,
    pub alarm: Time,
    /// Just past the end of the run.
    pub over: Time,
}

impl Agenda {
    /// Nothing but samples, up to the end of the run.
    pub fn new(sample: Time, end: Time) -> Agenda {
        Agenda {
            first: Time::ZERO,
            change: Time::NEVER,
            tick: Time::NEVER,
            links: Time::NEVER,
            line_back: Time::NEVER,
            sample,
            alarm: Time::NEVER,
            over: end.just_after(),
        }
    }

    pub fn refresh(&mut self) {
        self.first = self.first_besides_the_end().min(self.over);
    }

    /// The first of all but the end of the run.
    #[inline(always)]
    pub fn first_besides_the_end(&self) -> Time {
        (self.change.min(self.tick))
            .min(self.links.min(self.line_back))
            .min(self.sample.min(self.alarm))
    }

    #[inline(always)]
    pub fn links_by(&mut self, at: Time) {
        self.links = self.links.min(at);
        self.first = self.first.min(at);
    }

    #[inline(always)]
    pub fn line_back_by(&mut self, at: Time) {
        self.line_back = self.line_back.min(at);
        self.first = self.first.min(at);
    }

    #[inline(always)]
    pub fn alarm_by(&mut self, at: Time) {
        self.alarm = self.alarm.min(at);
        self.first = self.first.min(at);
    }
}
