//! What watchers see of each class of the discipline: totals since the start of the run, and the
//! delays of the last moment.

use forebay_units::Span;

use crate::recent::RecentDelays;

/// One class of the discipline. Counts are since the start of the run.
#[derive(Clone, Debug, Default)]
pub struct ClassNow {
    pub name: &'static str,
    pub sent_packets: u64,
    pub sent_bytes: u64,
    pub drops: u64,
    pub marks: u64,
    /// Of the queuing delay since the last picture, in s: 50th, 95th and 99th percentile; NaN where
    /// no packet left.
    pub delay_s: [f64; 3],
}

#[derive(Default)]
struct Class {
    totals: ClassNow,
    recent_delays: RecentDelays,
}

/// Every class that there has been, by name. Those of the present discipline have numbers.
#[derive(Default)]
pub struct Classes {
    all: Vec<Class>,
    /// Of the present discipline, by number of the class: where it is in `all`.
    present: Vec<usize>,
}

impl Classes {
    pub fn of(names: &[&'static str]) -> Classes {
        let mut classes = Classes::default();
        classes.become_those(names);
        classes
    }

    /// Another discipline takes over; a class of a name that was there before goes on.
    pub fn become_those(&mut self, names: &[&'static str]) {
        self.present.clear();
        for name in names {
            let known = self.all.iter().position(|it| it.totals.name == *name);
            let place = known.unwrap_or(self.all.len());
            if known.is_none() {
                self.all.push(Class {
                    totals: ClassNow {
                        name,
                        ..ClassNow::default()
                    },
                    ..Class::default()
                });
            }
            self.present.push(place);
        }
    }

    fn get(&mut self, class: u8) -> Option<&mut Class> {
        let place = *self.present.get(usize::from(class))?;
        self.all.get_mut(place)
    }

    pub fn sent(&mut self, class: u8, bytes: u32, sojourn: Span) {
        if let Some(class) = self.get(class) {
            class.totals.sent_packets += 1;
            class.totals.sent_bytes += u64::from(bytes);
            class.recent_delays.record(sojourn);
        }
    }

    pub fn dropped(&mut self, class: u8) {
        if let Some(class) = self.get(class) {
            class.totals.drops += 1;
        }
    }

    pub fn marked(&mut self, class: u8) {
        if let Some(class) = self.get(class) {
            class.totals.marks += 1;
        }
    }

    /// All of them as they are now; their delays begin anew.
    pub fn show(&mut self) -> Vec<ClassNow> {
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
        classes.become_those(&[]);
        classes.sent(1, 1500, Span::from_millis(1));
        classes.become_those(&["classic", "l4s"]);
        classes.sent(0, 500, Span::from_millis(10));
        classes.dropped(0);
        let [low, classic] = &classes.show()[..] else {
            panic!("two classes")
        };
        assert_eq!((low.name, low.sent_packets, low.marks), ("l4s", 0, 1));
        assert!(low.delay_s[0].is_nan());
        assert_eq!((classic.sent_packets, classic.sent_bytes), (2, 2000));
        assert_eq!((classic.drops, classic.marks), (1, 0));
        assert!((classic.delay_s[2] - 0.02).abs() < 0.001, "{classic:?}");
        assert!(classes.show()[1].delay_s[0].is_nan(), "it began anew");
    }
}
