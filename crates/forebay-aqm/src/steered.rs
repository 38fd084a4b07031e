//! A law whose probability of a signal the caller sets while the law runs, either directly or
//! through the gains of a PID controller.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_units::{Rng, SetPoint, Site, Span, Time};

use crate::clock::{self, state_of, Errors, State, Ticking};
use crate::difference::{Coefficients, Difference};
use crate::law::{FluidLaw, Law, PacketMeta, QueueView, Target, Verdict};

/// The caller's latest command.
#[derive(Clone, Copy, Debug)]
enum Course {
    /// Signal with this probability.
    Hold(f64),
    /// Move the probability by a PID controller.
    Control(Coefficients),
}

/// The handle by which a caller sets the probability of a signal of all laws that it built with
/// [`law`](Helm::law), or the gains of the controller that computes it, while they run.
#[derive(Clone, Debug)]
pub struct Helm {
    course: Arc<Mutex<Course>>,
    set_point: SetPoint,
    interval: Span,
}

impl Helm {
    /// Creates a handle. Its laws start at a probability of zero. Their controller samples the
    /// queue every `interval`, which is above zero, and controls it to `set_point`.
    pub fn new(set_point: SetPoint, interval: Span) -> Helm {
        Helm {
            course: Arc::new(Mutex::new(Course::Hold(0.0))),
            set_point,
            interval,
        }
    }

    /// Builds a law for one queue.
    pub fn law(&self, site: &Site) -> Box<dyn Law> {
        Box::new(Steered {
            helm: self.clone(),
            target: Target::new(self.set_point, site),
            next: Time::ZERO + self.interval,
            state: Difference::default(),
            probability: 0.0,
        })
    }

    /// Signals every packet with this probability, limited to [0, 1], from now on.
    pub fn hold(&self, probability: f64) {
        *self.course() = Course::Hold(probability.clamp(0.0, 1.0));
    }

    /// Lets a PID controller determine the probability from now on (equation 6 of the PI-PD paper,
    /// Ryu et al.). Each law has a controller of its own, which starts at the probability that it
    /// last computed, or at zero. The gains are `k_p` per packet, `k_i` per packet and second, and
    /// `k_d` in seconds per packet.
    pub fn control(&self, k_p: f64, k_i: f64, k_d: f64) {
        let gains = Coefficients::pid(k_p, k_i, k_d, self.interval.as_secs_f64());
        *self.course() = Course::Control(gains);
    }

    /// Locks and returns the latest command.
    fn course(&self) -> MutexGuard<'_, Course> {
        self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A law under a [`Helm`].
struct Steered {
    helm: Helm,
    target: Target,
    next: Time,
    state: Difference,
    probability: f64,
}

impl Steered {
    /// Returns the probability in force.
    fn probability(&self) -> f64 {
        match *self.helm.course() {
            Course::Hold(probability) => probability,
            Course::Control(_) => self.probability,
        }
    }

    /// Returns the distance of the queue from the target, in packets.
    fn error_pkts(&self, q: &QueueView) -> f64 {
        f64::from(q.packets) - self.target.pkts(q)
    }
}

impl Law for Steered {
    fn watches_departures(&self) -> bool {
        false
    }

    fn on_enqueue(&mut self, _: Time, _: &QueueView, _: &PacketMeta, rng: &mut Rng) -> Verdict {
        Verdict::signal_if(rng.chance(self.probability()))
    }

    fn poll_timeout(&self) -> Option<Time> {
        Some(self.next)
    }

    fn handle_timeout(&mut self, now: Time, q: &QueueView) {
        self.next = clock::run(self, self.next, now, q);
    }

    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("p", self.probability());
    }
}

impl Ticking for Steered {
    fn interval(&self) -> Span {
        self.helm.interval
    }

    fn tick(&mut self, _: Time, q: &QueueView) {
        let course = *self.helm.course();
        if let Course::Control(gains) = course {
            let error = self.error_pkts(q);
            self.probability = self.state.step(gains, error);
        }
    }

    fn state(&self) -> Option<State> {
        let [p, e_1, e_2] = self.state.state();
        Some(state_of(&[p, e_1, e_2, self.probability]))
    }

    fn skip(&mut self, _: Time, ticks: u64, q: &QueueView) {
        let course = *self.helm.course();
        if let Course::Control(gains) = course {
            let errors = Errors::constant(self.error_pkts(q));
            self.state.advance(gains, &errors, ticks);
        }
    }
}

impl FluidLaw for Steered {
    fn intensity(&self, _: &QueueView) -> Option<f64> {
        Some(self.probability())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::testing::{probed, site, view};

    #[test]
    fn a_law_holds_the_commanded_probability_until_the_controller_takes_over() {
        let interval = Span::from_millis(10);
        let helm = Helm::new(SetPoint::Packets(50.0), interval);
        let mut law = helm.law(&site());
        helm.hold(7.0);
        assert_eq!(probed(&*law, "p"), 1.0);
        helm.control(0.0, 0.1, 0.0);
        // The first error adds K_I·T/2, and the second K_I·T (by the trapezoidal rule).
        for (k, expected) in [(1, 0.0005 * 10.0), (2, 0.0015 * 10.0)] {
            law.handle_timeout(Time::ZERO + interval * k, &view(60));
            assert!((probed(&*law, "p") - expected).abs() < 1e-12);
        }
    }
}
