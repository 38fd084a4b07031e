//! The PI-PD controller of Ryu, Ryu, Jeong and Park: integral control while the queue stays on
//! one side of its set-point, predictive control when it crosses.

use crate::difference::{Coefficients, Difference};
use crate::law::{needs_packet_buffer, Law, LawSpec, QueueView, Recipe, Site};
use crate::param::ParamError;
use crate::params;
use crate::periodic::{Controller, Periodic};
use crate::units::{Packets, Span};

pub const LAW: LawSpec = LawSpec::of::<PiPdParams>(
    "pi-pd",
    "PI-PD: PI while the queue stays on one side of the target, predictive PD when it crosses",
    "Ryu et al., pi-pd eq. (11)-(15), Table 1",
);

params! {
    /// PI-PD: one gain and one sampling time.
    pub struct PiPdParams {
        /// Queue length to hold; less than the buffer.
        target: Packets = Packets(200.0), 1e-3 => 1e9;
        /// Control gain; the paper takes 1e-6 per packet of buffer.
        alpha: f64 = 8.0e-4, 0.0 => 1.0;
        /// Time between two samples; at most target over rate, so that the queue cannot empty
        /// between two (section 4.1).
        interval: Span = Span::from_millis(50), 1e-6 => 60.0;
    }
}

impl Recipe for PiPdParams {
    fn check(&self, site: &Site) -> Result<(), ParamError> {
        needs_packet_buffer("target", self.target.0, site)?;
        if self.target.0 < site.buffer_pkts {
            return Ok(());
        }
        // (15) divides by the room above the set-point.
        Err(ParamError::new(
            "target",
            format!("\"{}\"", self.target),
            format!("less than the buffer, \"{}p\"", site.buffer_pkts),
        ))
    }

    fn build(&self, site: &Site) -> Box<dyn Law> {
        Box::new(Periodic::new(PiPd {
            params: self.clone(),
            buffer_pkts: site.buffer_pkts,
            state: Difference::default(),
        }))
    }
}

struct PiPd {
    params: PiPdParams,
    buffer_pkts: f64,
    state: Difference,
}

impl PiPd {
    /// γ̂_{k+1}: how far the queue moves in the next interval, by (13) and (14).
    fn predicted_change(&self, queue_pkts: f64, change: f64, change_1: f64) -> f64 {
        let same_direction = (change >= 0.0) == (change_1 >= 0.0);
        // With γ_{k−1} = 0 there is no ratio to go by: extrapolate linearly.
        let predicted = if same_direction && change_1 != 0.0 {
            change * (change / change_1)
        } else {
            change
        };
        // The queue cannot leave [0, B], whatever the ratio says.
        predicted.clamp(-queue_pkts, self.buffer_pkts - queue_pkts)
    }

    /// The coefficients of this step: PI (11) or PD (15).
    fn gains(&self, error: f64) -> Coefficients {
        let (error_1, error_2) = (self.state.error_1(), self.state.error_2());
        let target_pkts = self.params.target.0;
        if (error >= 0.0) == (error_1 >= 0.0) {
            // (11): α·((e_k + e_{k−1})/2)/Q_ref
            let half = self.params.alpha / (2.0 * target_pkts);
            return Coefficients {
                a: half,
                b: -half,
                c: 0.0,
            };
        }
        // (15): α·(e_k + γ̂)/(B − Q_ref), with γ̂ = ratio·(e_k − e_{k−1}).
        // A crossing means e_k ≠ e_{k−1}.
        let change = error - error_1;
        let queue_pkts = error + target_pkts;
        let ratio = self.predicted_change(queue_pkts, change, error_1 - error_2) / change;
        let gain = self.params.alpha / (self.buffer_pkts - target_pkts);
        Coefficients {
            a: gain * (1.0 + ratio),
            b: gain * ratio,
            c: 0.0,
        }
    }
}

impl Controller for PiPd {
    fn interval(&self) -> Span {
        self.params.interval
    }

    fn sample(&mut self, q: &QueueView) -> f64 {
        let error = f64::from(q.packets) - self.params.target.0;
        let gains = self.gains(error);
        self.state.step(gains, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::testing::{site, view};
    use crate::param::Params;

    fn law() -> PiPd {
        PiPd {
            params: PiPdParams::defaults(),
            buffer_pkts: site().buffer_pkts,
            state: Difference::default(),
        }
    }

    fn run(queue_pkts: &[u32]) -> f64 {
        let mut law = law();
        queue_pkts.iter().fold(0.0, |_, &q| law.sample(&view(q)))
    }

    #[test]
    fn on_one_side_it_is_pi() {
        // First sample: e_{k−1} = 0 counts as "not below". α·(100/2)/200 = 2e-4,
        // then α·((200 + 100)/2)/200 = 6e-4 more.
        assert!((run(&[300]) - 2e-4).abs() < 1e-12);
        assert!((run(&[300, 400]) - 8e-4).abs() < 1e-12);
    }

    #[test]
    fn crossing_it_predicts() {
        // 300, 400: p = 8e-4 as above. Then 190: direction changed, so the change of −210 is
        // extrapolated but held to [0, B]: Q̂ = 0, error −200, over B − Q_ref = 600.
        let want = 8e-4 - 8e-4 * 200.0 / 600.0;
        assert!((run(&[300, 400, 190]) - want).abs() < 1e-12);
        // 300, 250 then 190: monotone, ratio 60/50: γ̂ = −72, Q̂ = 118, error −82.
        let before = run(&[300, 250]);
        let want = before - 8e-4 * 82.0 / 600.0;
        assert!((run(&[300, 250, 190]) - want).abs() < 1e-12);
    }

    #[test]
    fn a_flat_stretch_before_a_crossing_does_not_divide_by_zero() {
        // 300, 300, then 150: γ_{k−1} = 0 is "not draining", so linear: Q̂ = 0.
        let want = run(&[300, 300]) - 8e-4 * 200.0 / 600.0;
        assert!((run(&[300, 300, 150]) - want).abs() < 1e-12);
        // 100, 100, then 300: both "building", γ_{k−1} = 0: Q̂ = 500.
        assert!((run(&[100, 100, 300]) - 8e-4 * 300.0 / 600.0).abs() < 1e-12);
    }

    #[test]
    fn the_set_point_needs_room_above() {
        let mut params = PiPdParams::defaults();
        params.target = Packets(800.0);
        assert_eq!(params.check(&site()).unwrap_err().key, "target");
    }
}
