//! Statistics of each class of the discipline, for watchers: totals since the start of the run, and
//! recent queuing delays.

use forebay_units::Span;

use crate::recent::RecentDelays;

/// Statistics of one class of the discipline. Counts are since the start of the run.
#[derive(Clone, Debug, Default)]
pub struct ClassNow {
    /// The name of the class, such as "l4s".
    pub name: &'static str,
    /// Packets that left the queue.
    pub sent_packets: u64,
    /// Bytes that left the queue.
    pub sent_bytes: u64,
    /// Packets that the queue dropped.
    pub drops: u64,
    /// Packets that the queue marked.
    pub marks: u64,
    /// The 50th, 95th and 99th percentile of the queuing delay since the last picture, in s; NaN
    /// where no packet left.
    pub delay_s: [f64; 3],
}

/// A class with the delays of its packets since the last picture.
#[derive(Default)]
struct Class {
    totals: ClassNow,
    recent_delays: RecentDelays,
}

/// All classes of the run's disciplines, past and present. The classes of the present discipline
/// are addressed by their number, as the discipline itself does.
#[derive(Default)]
pub struct Classes {
    all: Vec<Class>,
    /// The position in `all` of each class of the present discipline, by the class's number.
    present: Vec<usize>,
}

impl Classes {
    /// Returns classes with these names, with zero counts.
    pub fn of(names: &[&'static str]) -> Classes {
        let mut classes = Classes::default();
        classes.set_present(names);
        classes
    }

    /// Makes `names` the classes of the present discipline. A class whose name existed before keeps
    /// its totals.
    pub fn set_present(&mut self, names: &[&'static str]) {
        self.present.clear();
        for name in names {
            let position = self.all.iter().position(|class| class.totals.name == *name);
            let index = position.unwrap_or(self.all.len());
            if position.is_none() {
                self.all.push(Class {
                    totals: ClassNow {
                        name,
                        ..ClassNow::default()
                    },
                    ..Class::default()
                });
            }
            self.present.push(index);
        }
    }

    /// Returns the class with this number in the present discipline.
    fn get(&mut self, class: u8) -> Option<&mut Class> {
        let index = *self.present.get(usize::from(class))?;
        self.all.get_mut(index)
    }

    /// Counts a packet that left the queue after waiting `sojourn` in it.
    pub fn sent(&mut self, class: u8, bytes: u32, sojourn: Span) {
        if let Some(class) = self.get(class) {
            class.totals.sent_packets += 1;
            class.totals.sent_bytes += u64::from(bytes);
            class.recent_delays.record(sojourn);
        }
    }

    /// Counts a packet that the queue dropped.
    pub fn dropped(&mut self, class: u8) {
        if let Some(class) = self.get(class) {
            class.totals.drops += 1;
        }
    }

    /// Counts a packet that the queue marked.
    pub fn marked(&mut self, class: u8) {
        if let Some(class) = self.get(class) {
            class.totals.marks += 1;
        }
    }

    /// Returns the statistics of all classes. The percentiles of the next call cover only the
    /// packets after this one.
    pub fn take_statistics(&mut self) -> Vec<ClassNow> {
        let now = |class: &mut Class| {
            class.totals.delay_s = class.recent_delays.take_s().unwrap_or([f64::NAN; 3]);
            class.totals.clone()
        };
        self.all.iter_mut().map(now).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_stay_when_another_discipline_takes_over_and_comes_back() {
        let mut classes = Classes::of(&["l4s", "classic"]);
        classes.sent(1, 1500, Span::from_millis(20));
        classes.marked(0);
        classes.set_present(&[]);
        classes.sent(1, 1500, Span::from_millis(1));
        classes.set_present(&["classic", "l4s"]);
        classes.sent(0, 500, Span::from_millis(10));
        classes.dropped(0);
        let [l4s, classic] = &classes.take_statistics()[..] else {
            panic!("two classes")
        };
        assert_eq!((l4s.name, l4s.sent_packets, l4s.marks), ("l4s", 0, 1));
        assert!(l4s.delay_s[0].is_nan());
        assert_eq!((classic.sent_packets, classic.sent_bytes), (2, 2000));
        assert_eq!((classic.drops, classic.marks), (1, 0));
        assert!((classic.delay_s[2] - 0.02).abs() < 0.001, "{classic:?}");
        assert!(
            classes.take_statistics()[1].delay_s[0].is_nan(),
            "the delays were taken by the call before"
        );
    }
}
