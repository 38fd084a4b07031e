//! The runs of an experiment: every law at every point with every seed.

use std::sync::Arc;

use forebay_aqm::Aqm;
use forebay_fluid::{from_scenario, Step, Windows};
use forebay_scenario::{Experiment, Point};
use forebay_units::{ParamError, Site};

use crate::{Engine, Job};

/// Which run: the numbers of its point and its law, and its seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub point: usize,
    pub law: usize,
    pub seed: u64,
}

/// The runs that are `wanted`, seed by seed: what is there after an interruption compares all laws.
pub fn jobs(experiment: &Experiment, wanted: impl Fn(&Key) -> bool) -> Vec<(Key, Job)> {
    let points: Vec<_> = experiment
        .points
        .iter()
        .map(|point| (Arc::new(point.scenario.clone()), laws(point)))
        .collect();
    let mut jobs = Vec::new();
    for &seed in &experiment.seeds {
        for (point, (scenario, laws)) in points.iter().enumerate() {
            for (law, (law_and_queue, target_pkts)) in laws.iter().enumerate() {
                let key = Key { point, law, seed };
                if !wanted(&key) {
                    continue;
                }
                let job = Job {
                    engine: Engine::Packets,
                    scenario: Arc::clone(scenario),
                    law: law_and_queue.clone(),
                    target_pkts: *target_pkts,
                    seed,
                };
                jobs.push((key, job));
            }
        }
    }
    jobs
}

/// As [`jobs`], by the fluid model.
///
/// # Errors
/// What the model cannot express.
pub fn fluid_jobs(
    experiment: &Experiment,
    windows: Windows,
    step: Step,
    wanted: impl Fn(&Key) -> bool,
) -> Result<Vec<(Key, Job)>, ParamError> {
    let mut jobs = jobs(experiment, wanted);
    for (key, job) in &mut jobs {
        let law = &experiment.points[key.point].laws[key.law];
        let mut model = from_scenario(&job.scenario, law, windows, step)?;
        model.seed = key.seed;
        job.engine = Engine::Fluid(Box::new(model));
    }
    Ok(jobs)
}

/// Each law at `point` with its queue, and what QACD is taken against: the scenario's set-point,
/// or else the law's.
fn laws(point: &Point) -> Vec<(Aqm, Option<f64>)> {
    let site: Site = point.scenario.site();
    let of_all = point.scenario.target_pkts();
    let laws = point.laws.iter();
    laws.map(|choice| (choice.aqm(), of_all.or_else(|| choice.target_pkts(&site))))
        .collect()
}
