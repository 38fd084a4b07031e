//! BLUE of Feng, Shin, Kandlur and Saha: a probability that changes only when the buffer overflows
//! and when the link becomes idle.

use forebay_linux_tc::fixed_point::{self, FixedPointLaw, Twin};
use forebay_theory::search::{number, time, Conditions, Search};
use forebay_units::{params, ParamError, Rng, Site, Span, Time, Value};

use crate::configured_law::ConfiguredLaw;
use crate::law::{FluidLaw, Law, PacketMeta, QueueView, Verdict};
use crate::law_spec::LawSpec;

/// The registry entry of BLUE.
pub const LAW: LawSpec = LawSpec::of::<BlueParams>(
    "blue",
    "BLUE: raise the probability when the buffer overflows, lower it when the link goes idle",
    "Feng et al. 2002; pi-pd section 2.4",
)
.with_equation(
    "p += increment at an overflow, p −= decrement where the link goes idle, once in freeze_time",
)
.with_search(BlueParams::search);

params! {
    /// BLUE. The defaults are those of its authors' experiments: the probability increases fast and
    /// decreases slowly.
    pub struct BlueParams {
        /// Increase of the probability at an overflow (d_inc in the paper).
        increment: f64 = 0.0025, 0.0 => 1.0;
        /// Decrease of the probability when the link becomes idle (d_dec).
        decrement: f64 = 0.00025, 0.0 => 1.0;
        /// Shortest time between two changes, so that a change can take effect.
        freeze_time: Span = Span::from_millis(100), 0.0 => 60.0;
    }
}

impl BlueParams {
    /// Fast and slow increments, with a short and a long freeze time each. The decrement is a tenth
    /// of the increment, as its authors have it.
    fn search(_conditions: &Conditions) -> Search {
        let setting = |increment: f64, freeze_s: f64| {
            vec![
                ("increment", number(increment)),
                ("decrement", number(increment / 10.0)),
                ("freeze_time", time(freeze_s, 4)),
            ]
        };
        let (slow, fast) = (0.0025, 0.02);
        Search::Listed(vec![
            setting(slow, 0.03),
            setting(slow, 0.3),
            setting(fast, 0.03),
            setting(fast, 0.3),
        ])
    }
}

impl ConfiguredLaw for BlueParams {
    fn build(&self, _site: &Site, _seed: u64) -> Result<Box<dyn Law>, ParamError> {
        Ok(Box::new(Blue {
            params: self.clone(),
            probability: 0.0,
            last_change: None,
        }))
    }

    /// The freeze time must be long enough for a change to take effect (Feng et al. 2002, section
    /// III).
    fn fitted(&self, rtt: Span, _site: &Site) -> Vec<(&'static str, Value)> {
        if rtt <= self.freeze_time {
            return Vec::new();
        }
        vec![("freeze_time", time(rtt.as_secs_f64(), 4))]
    }

    fn kernel(&self) -> Option<&dyn FixedPointLaw> {
        Some(self)
    }
}

impl FixedPointLaw for BlueParams {
    fn twin(&self, _site: &Site) -> Result<Twin, ParamError> {
        Ok(Twin {
            interval: None,
            config: vec![
                ("increment", fixed_point::probability(self.increment)),
                ("decrement", fixed_point::probability(self.decrement)),
                ("freeze_ns", fixed_point::nanos(self.freeze_time)),
            ],
            state: Vec::new(),
        })
    }
}

/// BLUE at a queue.
struct Blue {
    params: BlueParams,
    probability: f64,
    /// The time of the last change in either direction: both events share one freeze time.
    last_change: Option<Time>,
}

impl Blue {
    /// Changes the probability by `step`, unless the freeze time has not passed yet.
    fn change(&mut self, now: Time, step: f64) {
        let frozen = |last| now.since(last) <= self.params.freeze_time;
        if self.last_change.is_some_and(frozen) {
            return;
        }
        self.probability = (self.probability + step).clamp(0.0, 1.0);
        self.last_change = Some(now);
    }
}

impl Law for Blue {
    fn watches_departures(&self) -> bool {
        false
    }

    fn on_enqueue(&mut self, _: Time, _: &QueueView, _: &PacketMeta, rng: &mut Rng) -> Verdict {
        Verdict::signal_if(rng.chance(self.probability))
    }

    fn on_overflow(&mut self, now: Time, _q: &QueueView) {
        self.change(now, self.params.increment);
    }

    fn on_idle(&mut self, now: Time, _q: &QueueView) {
        self.change(now, -self.params.decrement);
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("p", self.probability);
    }
}

impl FluidLaw for Blue {
    fn intensity(&self, _q: &QueueView) -> Option<f64> {
        Some(self.probability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::testing::{site, view};
    use forebay_units::Params;

    #[test]
    fn overflow_increases_and_idleness_decreases_the_probability_once_per_freeze_time() {
        let mut blue = BlueParams::defaults().build(&site(), 0).unwrap();
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let p = |blue: &dyn Law| blue.intensity(&view(0)).unwrap();
        blue.on_overflow(at(10), &view(800)); // the first event has nothing to wait for
        assert_eq!(p(&*blue), 0.0025);
        blue.on_overflow(at(110), &view(800)); // not more than freeze_time later
        assert_eq!(p(&*blue), 0.0025);
        blue.on_overflow(at(111), &view(800));
        assert_eq!(p(&*blue), 0.005);
        blue.on_idle(at(200), &view(0));
        assert_eq!(p(&*blue), 0.005);
        blue.on_idle(at(212), &view(0));
        assert_eq!(p(&*blue), 0.00475);
        for k in 1..1000 {
            blue.on_idle(at(212 + 101 * k), &view(0));
        }
        assert_eq!(p(&*blue), 0.0);
    }
}
