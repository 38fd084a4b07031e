//! The runs of an experiment: every law at every point with every seed.

use std::sync::Arc;

use forebay_core::{SetPoint, Site};
use forebay_scenario::{Experiment, Point};

use crate::{Build, Job};

/// Which run: the numbers of its point and its law, and its seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub point: usize,
    pub law: usize,
    pub seed: u64,
}

/// A law that the caller brings, the same at every point. Its number follows those of the
/// experiment's laws.
#[derive(Clone)]
pub struct OwnLaw {
    pub build: Build,
    pub set_point: Option<SetPoint>,
}

/// The runs that are `wanted`, seed by seed: what is there after an interruption compares all laws.
pub fn jobs(
    experiment: &Experiment,
    own: &[OwnLaw],
    wanted: impl Fn(&Key) -> bool,
) -> Vec<(Key, Job)> {
    let points: Vec<_> = experiment
        .points
        .iter()
        .map(|point| (Arc::new(point.scenario.clone()), laws(point, own)))
        .collect();
    let mut jobs = Vec::new();
    for &seed in &experiment.seeds {
        for (point, (scenario, laws)) in points.iter().enumerate() {
            for (law, (build, target_pkts)) in laws.iter().enumerate() {
                let key = Key { point, law, seed };
                if !wanted(&key) {
                    continue;
                }
                let job = Job {
                    scenario: Arc::clone(scenario),
                    law: Arc::clone(build),
                    target_pkts: *target_pkts,
                    seed,
                };
                jobs.push((key, job));
            }
        }
    }
    jobs
}

/// How to make each law at `point`, and what QACD is taken against: the scenario's set-point, or
/// else the law's.
fn laws(point: &Point, own: &[OwnLaw]) -> Vec<(Build, Option<f64>)> {
    let site: Site = point.scenario.site();
    let of_scenario = point.laws.iter().cloned().map(|choice| {
        let target_pkts = choice.target_pkts(&site);
        let build: Build = Arc::new(move |_| choice.aqm());
        (build, target_pkts)
    });
    let of_caller = own.iter().map(|law| {
        let target_pkts = law.set_point.map(|set_point| site.pkts(set_point));
        (Arc::clone(&law.build), target_pkts)
    });
    of_scenario
        .chain(of_caller)
        .map(|(build, own)| (build, point.scenario.target_pkts().or(own)))
        .collect()
}
