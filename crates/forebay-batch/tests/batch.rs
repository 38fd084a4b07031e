//! Batches of real simulations.

use std::sync::mpsc::channel;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use forebay_aqm::{Aqm, FluidLaw, Law, PacketMeta, QueueView, Verdict};
use forebay_batch::{Batch, Control, Engine, Finished, Job};
use forebay_scenario::{parse, Options};
use forebay_units::{ParamError, Rng, Stop, Time};

/// 20 flows for a second over 10 Mbit/s; longer where a test wants to stop it.
fn jobs(duration: &str, seeds: u32) -> Vec<Job> {
    let text = format!(
        r#"
        duration = "{duration}"
        bottleneck = {{ rate = "10Mbit/s", delay = "5ms", buffer = "100p" }}
        traffic = [{{ kind = "ftp", flows = 20, rtt = "50ms" }}]
        law = [{{ kind = "pi", target = "50p" }}]
        "#
    );
    let options = Options {
        seeds: Some(seeds),
        ..Options::default()
    };
    let experiment = parse(text.as_bytes(), "test", &options).unwrap();
    let point = &experiment.points[0];
    let law = point.laws[0].aqm();
    let job = |seed: &u64| Job {
        engine: Engine::Packets,
        scenario: Arc::new(point.scenario.clone()),
        law: law.clone(),
        target_pkts: Some(50.0),
        seed: *seed,
    };
    experiment.seeds.iter().map(job).collect()
}

fn finish(batch: &Batch) -> Vec<Finished> {
    while !batch.done() {
        sleep(Duration::from_millis(1));
    }
    let mut finished = batch.take();
    finished.sort_by_key(|one| one.job);
    finished
}

fn with_law(mut job: Job, law: impl Law + Clone + Sync + 'static) -> Job {
    let law = Arc::new(law);
    job.law = Aqm::in_default_queue(Arc::new(move |_, _| Ok(Box::new((*law).clone()))));
    job
}

#[test]
fn results_are_the_same_on_any_number_of_threads() {
    let all = |threads| {
        let finished = finish(&Batch::start(jobs("1s", 6), threads).unwrap());
        let outcomes = finished.into_iter().map(|one| one.result.unwrap());
        outcomes
            .map(|outcome| {
                (
                    format!("{:?}", outcome.metrics),
                    outcome.trace.links[0].samples.queue_pkts.clone(),
                )
            })
            .collect::<Vec<_>>()
    };
    let one = all(1);
    assert_eq!(one.len(), 6);
    assert_ne!(one[0], one[1], "seeds differ");
    assert_eq!(one, all(3));
}

#[test]
fn progress_ends_at_one_and_cpu_time_is_each_runs_own() {
    let batch = Batch::start(jobs("5s", 4), 2).unwrap();
    let finished = finish(&batch);
    assert_eq!(batch.progress(), 1.0);
    assert_eq!(finished.len(), 4);
    for one in finished {
        let user_cpu_s = one.result.unwrap().user_cpu_s;
        assert!((0.0..60.0).contains(&user_cpu_s), "{user_cpu_s}");
    }
}

#[derive(Clone)]
struct Panics;

impl Law for Panics {
    fn on_enqueue(&mut self, now: Time, _: &QueueView, _: &PacketMeta, _: &mut Rng) -> Verdict {
        assert!(now.as_secs_f64() < 0.5, "half a second is enough");
        Verdict::Pass
    }
}

impl FluidLaw for Panics {}

#[test]
fn a_panic_is_a_fault_of_its_run_alone() {
    let mut jobs = jobs("1s", 3);
    jobs[1] = with_law(jobs[1].clone(), Panics);
    let finished = finish(&Batch::start(jobs, 1).unwrap());
    let faults: Vec<_> = finished
        .iter()
        .map(|one| one.result.as_ref().err())
        .map(|failure| failure.map(|it| (it.message.as_str(), it.of_law)))
        .collect();
    assert_eq!(
        faults,
        [
            None,
            Some(("panicked: half a second is enough", false)),
            None
        ]
    );
}

#[derive(Clone)]
struct GivesUp {
    calls: u32,
}

impl Law for GivesUp {
    fn on_enqueue(&mut self, _: Time, _: &QueueView, _: &PacketMeta, _: &mut Rng) -> Verdict {
        self.calls += 1;
        if self.calls >= 1000 {
            Stop::Fault(format!("after {} packets", self.calls)).now();
        }
        Verdict::Pass
    }
}

impl FluidLaw for GivesUp {}

#[test]
fn a_law_can_end_its_run_with_a_reason() {
    // Nobody would wait for the end of it.
    let mut jobs = jobs("100h", 1);
    jobs[0] = with_law(jobs[0].clone(), GivesUp { calls: 0 });
    let finished = finish(&Batch::start(jobs, 1).unwrap());
    let why = finished[0].result.as_ref().err().unwrap();
    assert_eq!(
        (why.message.as_str(), why.of_law),
        ("after 1000 packets", true)
    );
}

/// Never comes back from a packet, until its run is cancelled.
#[derive(Clone)]
struct Endless;

impl Law for Endless {
    fn on_enqueue(&mut self, _: Time, _: &QueueView, _: &PacketMeta, _: &mut Rng) -> Verdict {
        let control = Control::current().expect("a batch makes the run");
        let (wake, woken) = channel();
        control.on_cancel(Arc::new(move || wake.send(()).unwrap_or(())));
        woken.recv().unwrap();
        assert!(control.cancelled());
        Stop::Cancelled.now()
    }
}

impl FluidLaw for Endless {}

#[test]
fn a_law_that_never_ends_is_interrupted() {
    let mut jobs = jobs("100h", 2);
    for job in &mut jobs {
        *job = with_law(job.clone(), Endless);
    }
    let batch = Batch::start(jobs, 2).unwrap();
    while !batch.done() {
        batch.cancel();
        sleep(Duration::from_millis(1));
    }
    assert!(batch.take().is_empty());
}

#[test]
fn a_law_that_cannot_be_built_is_a_fault() {
    let mut jobs = jobs("1s", 1);
    jobs[0].law = Aqm::in_default_queue(Arc::new(|_, _| Err(ParamError::missing("law", "a law"))));
    let finished = finish(&Batch::start(jobs, 1).unwrap());
    let why = finished[0].result.as_ref().err().unwrap();
    assert_eq!(why.message, "law: missing; expected a law");
}

#[test]
fn a_run_that_takes_too_long_is_a_fault() {
    let mut jobs = jobs("100000s", 2);
    jobs.truncate(1);
    let batch = Batch::start(jobs, 1).unwrap();
    let finished = loop {
        batch.fail_longer_than(Duration::from_millis(50));
        let finished = batch.take();
        if !finished.is_empty() {
            break finished;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let why = finished[0].result.as_ref().err().unwrap();
    assert_eq!(why.message, "took longer than 0.05 s");
}

#[test]
fn cancelling_keeps_what_has_finished() {
    let mut jobs = jobs("1s", 1);
    jobs.extend(self::jobs("100h", 20));
    let batch = Batch::start(jobs, 2).unwrap();
    let mut kept = Vec::new();
    while kept.is_empty() {
        sleep(Duration::from_millis(1));
        kept = batch.take();
    }
    assert!(!batch.done());
    batch.cancel();
    assert!(finish(&batch).is_empty(), "a cancelled run leaves nothing");
    assert_eq!(kept[0].job, 0);
}
