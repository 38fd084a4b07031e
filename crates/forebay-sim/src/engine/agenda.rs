//! The agenda: the next time of each kind of event that is not the arrival of a packet. There is
//! one pending time per kind, outside the queues of events.

use forebay_units::Time;

/// The next time of each kind of event other than the arrival of a packet.
pub struct Agenda {
    /// The earliest of the times below. After a time has moved back, [`Agenda::refresh`] finds it
    /// again.
    pub first: Time,
    /// The next change of the scenario.
    pub change: Time,
    /// The next tick of a law.
    pub tick: Time,
    /// The time at which the links must catch up with the clock.
    pub links: Time,
    /// The time at which the line back of a dumbbell must catch up.
    pub line_back: Time,
    /// The next sample.
    pub sample: Time,
    /// The next alarm.
    pub alarm: Time,
    /// Just past the end of the run.
    pub over: Time,
}

impl Agenda {
    /// Creates an agenda that has only samples, from `sample` on, and the end of the run.
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

    /// Finds the earliest time again.
    pub fn refresh(&mut self) {
        self.first = self.first_besides_the_end().min(self.over);
    }

    /// Returns the earliest of all times except that of the links.
    #[inline(always)]
    pub fn first_besides_the_links(&self) -> Time {
        (self.change.min(self.tick))
            .min(self.line_back.min(self.sample))
            .min(self.alarm.min(self.over))
    }

    /// Returns the earliest of all times except that of the alarms.
    #[inline(always)]
    pub fn first_besides_alarms(&self) -> Time {
        (self.change.min(self.tick))
            .min(self.links.min(self.line_back))
            .min(self.sample.min(self.over))
    }

    /// Returns the earliest of all times except the end of the run.
    #[inline(always)]
    pub fn first_besides_the_end(&self) -> Time {
        (self.change.min(self.tick))
            .min(self.links.min(self.line_back))
            .min(self.sample.min(self.alarm))
    }

    /// Requires that the links catch up at `at` or earlier.
    #[inline(always)]
    pub fn links_by(&mut self, at: Time) {
        if at < self.links {
            self.links = at;
            self.first = self.first.min(at);
        }
    }

    /// Requires that the line back catches up at `at` or earlier.
    #[inline(always)]
    pub fn line_back_by(&mut self, at: Time) {
        self.line_back = self.line_back.min(at);
        self.first = self.first.min(at);
    }

    /// Notes that an alarm is due at `at`.
    #[inline(always)]
    pub fn alarm_by(&mut self, at: Time) {
        self.alarm = self.alarm.min(at);
        self.first = self.first.min(at);
    }
}
