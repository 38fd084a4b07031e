//! PIE of Pan, Natarajan, Baker and White: proportional-integral control of the queuing delay, with
//! gains that increase with the probability.

use forebay_linux_tc::{LinuxQdisc, StateVariable, Tc, TcSite};
use forebay_theory::design::{Design, DesignRequest, DesignResult, LinearLaw};
use forebay_theory::linear::{LoopFilter, OperatingPoint};
use forebay_theory::search::{pi_on_delay, Conditions, Search, Settings};
use forebay_units::{ParamError, ParamType, ParamValues, Params, SetPoint, Site, Span};

use crate::configured_law::ConfiguredLaw;
use crate::difference::Coefficients;
use crate::law::Law;
use crate::law_spec::LawSpec;

mod arithmetic;
mod params;
mod queue_law;

pub use params::PieGoals;
use params::{Estimator, PieParams};
use queue_law::Pie;

/// The registry entry of PIE.
pub const LAW: LawSpec = LawSpec::of::<PieParams>(
    "pie",
    "PIE: proportional-integral control of the queuing delay, with gains that follow the probability",
    "RFC 8033; arithmetic and defaults of Linux (sch_pie.c)",
)
.with_equation(
    "p += alpha·(d_k − target) + beta·(d_k − d_{k−1}), times a factor that falls with p;  d = queuing delay",
)
.with_goals(PieGoals::SPECS)
.slowed_by("crossover")
.with_search(PieParams::search);

/// The registry entry of FQ-PIE: PIE in the discipline `fq`.
pub const FQ: LawSpec = LAW
    .in_queue(
        "fq",
        "fq-pie",
        "FQ-PIE: PIE on a queue for each flow",
        "RFC 8033; Linux tc-fq_pie(8)",
    )
    .with_several_loops(|_| Search::Listed(Vec::from([5, 30].map(target_of))));

/// Returns the setting of a target in milliseconds. FQ-PIE is tuned by simulation with targets
/// below and above the default, because several queues have no single linear model.
fn target_of(ms: u64) -> Settings {
    let target = SetPoint::Delay(Span::from_millis(ms));
    vec![("target", target.to_value())]
}

impl PieParams {
    fn search(conditions: &Conditions) -> Search {
        pi_on_delay(conditions, PieParams::defaults().interval, 0.05, 10.0)
    }
}

impl ConfiguredLaw for PieParams {
    fn build(&self, site: &Site, _seed: u64) -> Result<Box<dyn Law>, ParamError> {
        Ok(Box::new(Pie::new(self, site)))
    }

    fn set_point(&self) -> Option<SetPoint> {
        Some(self.target)
    }

    fn theory(&self) -> Option<&dyn LinearLaw> {
        Some(self)
    }

    fn linux(&self) -> Option<&dyn LinuxQdisc> {
        Some(self)
    }
}

impl LinearLaw for PieParams {
    /// PI control of a delay, with the gains at this probability. The delay of a departing packet
    /// is that of the queue when the packet arrived.
    fn linear(&self, point: &OperatingPoint, site: &Site) -> Option<LoopFilter> {
        let gains = Coefficients {
            a: self.alpha + self.beta,
            b: self.beta,
            c: 0.0,
        };
        let per_packet = self.gain_at(point.probability()) / site.rate.packets_per_sec(site.packet);
        let filter = gains.sampled(self.interval.as_secs_f64(), per_packet);
        let target_pkts = site.pkts(self.target);
        let age_s = match self.estimator {
            Estimator::Timestamp => target_pkts / site.rate.packets_per_sec(site.packet),
            Estimator::DepartureRate | Estimator::LinuxDepartureRate => 0.0,
        };
        // Without integral action, the equilibrium depends on how the gains changed on the way to
        // it.
        (self.alpha > 0.0).then(|| LoopFilter {
            age_s,
            ..LoopFilter::sampled(target_pkts, filter)
        })
    }

    fn design(&self, request: &DesignRequest, goals: &ParamValues) -> DesignResult {
        let goals = PieGoals::read(goals)?;
        let (alpha, beta) = goals.gains(&request.point, self.interval);
        let factor = self.gain_at(request.probability);
        let designed = PieParams {
            target: request.set_point,
            alpha: (alpha / factor).min(1e3),
            beta: (beta / factor).min(1e3),
            ..self.clone()
        };
        let design = Design::of(
            vec![
                ("alpha", designed.alpha),
                ("beta", designed.beta),
                ("gain_factor", factor),
            ],
            &designed,
            &["target", "alpha", "beta", "interval"],
            vec![
                goals.note(&request.point),
                format!(
                    "At the probability that TCP needs, {:.2e}, PIE multiplies alpha and beta by \
                     {factor:.3e}.",
                    request.probability
                ),
            ],
        );
        if !request.marked {
            return Ok(Some(design));
        }
        let marking = PieParams {
            mark_up_to: 1.0,
            restart_at_mark: true,
            ..designed
        };
        Ok(Some(design.with_settings(
            &marking,
            &["mark_up_to", "restart_at_mark"],
            format!(
                "These flows respond to the number of marks, so PIE marks at any probability instead \
                 of dropping above {} (RFC 8033 section 5.1), and a mark restarts the spacing of \
                 signals, which in Linux only a drop does.",
                self.mark_up_to
            ),
        )))
    }
}

/// `struct tc_pie_xstats`. The probability has 56 bits, and is shifted left by eight.
const XSTATS: &[StateVariable] = &[
    StateVariable {
        name: "p",
        offset: 0,
        size: 8,
        unit: 1.0 / (1u128 << 64) as f64,
    },
    StateVariable {
        name: "delay",
        offset: 8,
        size: 4,
        unit: 1e-6,
    },
];

impl LinuxQdisc for PieParams {
    /// tc-pie(8) and tc-fq_pie(8), whose gains are integer sixteenths.
    fn tc(&self, queue: &str, site: &TcSite) -> Result<Option<Tc>, ParamError> {
        let mut tc = match queue {
            "fifo" => Tc::new("pie").reporting(XSTATS),
            "fq" => Tc::new("fq_pie"),
            _ => return Ok(None),
        };
        tc.defaults(
            self,
            &[
                "first_change",
                "max_burst",
                "burst_by_departures",
                "derandomise",
                "restart_at_mark",
                "bounded",
                "decay",
                "high_delay",
            ],
        )?;
        tc.backlog("least_backlog", self.least_backlog, 2, site)?;
        let target = match (self.estimator, self.target) {
            (Estimator::Timestamp, target) => target,
            // This estimator derives the delay from the backlog, which in a qdisc includes the
            // packet in transmission.
            (Estimator::LinuxDepartureRate, SetPoint::Delay(delay)) => {
                SetPoint::Delay(delay + site.held_time())
            }
            (Estimator::LinuxDepartureRate, SetPoint::Packets(pkts)) => {
                SetPoint::Packets(pkts + f64::from(site.held_packets()))
            }
            (Estimator::DepartureRate, _) => {
                let expected = "timestamp or linux-departure-rate in Linux's pie";
                return Err(ParamError::new("estimator", "departure-rate", expected));
            }
        };
        tc.limit(site);
        tc.delay("target", "target", target, site);
        tc.time("tupdate", "interval", self.interval);
        for (key, gain) in [("alpha", self.alpha), ("beta", self.beta)] {
            let sixteenths = tc.steps(key, gain, 16.0, 2.0)?;
            tc.pair(key, sixteenths);
        }
        tc.ecn(site);
        match tc.qdisc {
            "fq_pie" => {
                let percent = tc.steps("mark_up_to", self.mark_up_to, 100.0, 1.0)?;
                tc.pair("ecn_prob", percent);
            }
            _ => tc.defaults(self, &["mark_up_to"])?,
        }
        tc.word(match self.by_bytes {
            true => "bytemode",
            false => "nobytemode",
        });
        tc.word(match self.estimator {
            Estimator::Timestamp => "no_dq_rate_estimator",
            _ => "dq_rate_estimator",
        });
        Ok(Some(tc))
    }
}
