//! The maximum of the samples in a sliding window, approximated with three samples (Nichols;
//! Linux's lib/win_minmax.c).

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TimedSample {
    time: u32,
    value: u64,
}

/// The best, second best and third best sample, each later than the one before.
#[derive(Clone, Debug, Default)]
pub struct WindowedMax([TimedSample; 3]);

impl WindowedMax {
    /// Returns the maximum.
    pub fn get(&self) -> u64 {
        self.0[0].value
    }

    /// Replaces all samples by this one.
    pub fn reset(&mut self, time: u32, value: u64) {
        self.0 = [TimedSample { time, value }; 3];
    }

    /// Adds a sample and forgets those older than `window`.
    pub fn update(&mut self, window: u32, time: u32, value: u64) {
        let new = TimedSample { time, value };
        let [best, second, third] = &mut self.0;
        if value >= best.value || time.wrapping_sub(third.time) > window {
            return self.reset(time, value);
        }
        if value >= second.value {
            (*second, *third) = (new, new);
        } else if value >= third.value {
            *third = new;
        }
        let age = time.wrapping_sub(best.time);
        if age > window {
            // The best sample is too old: the other two move up, and the new one is the third.
            (*best, *second, *third) = (*second, *third, new);
            if time.wrapping_sub(best.time) > window {
                (*best, *second, *third) = (*second, *third, new);
            }
        } else if second.time == best.time && age > window / 4 {
            // A quarter of the window has passed without a second-best sample, so that the new one
            // becomes it.
            (*second, *third) = (new, new);
        } else if third.time == second.time && age > window / 2 {
            *third = new;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_close_to_the_greatest_of_the_window() {
        let mut max = WindowedMax::default();
        max.reset(0, 0);
        let values: Vec<u64> = (0..200u64)
            .map(|i| (i * 7919 + i * i * 31) % 1000)
            .collect();
        for (time, &value) in values.iter().enumerate() {
            max.update(10, time as u32, value);
            let window = &values[time.saturating_sub(10)..=time];
            assert!(max.get() <= *window.iter().max().unwrap());
            assert!(max.get() >= value);
        }
    }

    #[test]
    fn an_old_maximum_is_forgotten() {
        let mut max = WindowedMax::default();
        max.update(10, 0, 100);
        for time in 1..=10 {
            max.update(10, time, 50);
            assert_eq!(max.get(), 100);
        }
        max.update(10, 11, 50);
        assert_eq!(max.get(), 50);
    }
}
