//! The runs of an experiment: every law at every point with every seed.

use std::sync::Arc;

use forebay_aqm::Aqm;
use forebay_fluid::{from_scenario, Step, Windows};
use forebay_scenario::{Experiment, Point};
use forebay_units::{ParamError, Site};

use crate::{Engine, Job};

/// The identity of a run within an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Index of the point.
    pub point: usize,
    /// Index of the law.
    pub law: usize,
    /// The seed.
    pub seed: u64,
}

/// Returns the runs of an experiment that `selects` chooses, by the packet engine.
///
/// They are ordered seed by seed, so that the results of an interrupted batch compare all laws.
pub fn jobs(experiment: &Experiment, selects: impl Fn(&Key) -> bool) -> Vec<(Key, Job)> {
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
                if !selects(&key) {
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

/// Returns the runs of an experiment that `selects` chooses, by the fluid model.
///
/// # Errors
/// If the fluid model cannot express a scenario, with the key of what it cannot.
pub fn fluid_jobs(
    experiment: &Experiment,
    windows: Windows,
    step: Step,
    selects: impl Fn(&Key) -> bool,
) -> Result<Vec<(Key, Job)>, ParamError> {
    let mut jobs = jobs(experiment, selects);
    for (key, job) in &mut jobs {
        let law = &experiment.points[key.point].laws[key.law];
        let mut model = from_scenario(&job.scenario, law, windows, step)?;
        model.seed = key.seed;
        job.engine = Engine::Fluid(Box::new(model));
    }
    Ok(jobs)
}

/// Returns each law at `point` in its queue, and the set-point in packets for QACD: that of the
/// scenario, or else of the law.
fn laws(point: &Point) -> Vec<(Aqm, Option<f64>)> {
    let site: Site = point.scenario.site();
    let of_all = point.scenario.target_pkts();
    let laws = point.laws.iter();
    laws.map(|choice| (choice.aqm(), of_all.or_else(|| choice.target_pkts(&site))))
        .collect()
}
