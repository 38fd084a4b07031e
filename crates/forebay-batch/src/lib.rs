//! Many runs on many threads: law × point × seed, with progress, cancellation, and
//! faults that name their run.
//!
//! A run depends on its own job alone, so results are the same for any number of threads;
//! only the order in which they finish differs, and [`Finished::job`] puts it right.

#![forbid(unsafe_code)]

mod jobs;

use std::any::Any;
use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use forebay_aqm::Aqm;
use forebay_fluid::Model;
use forebay_scenario::{Link, Scenario};
use forebay_sim::Watch;
pub use forebay_sim::RESULTS_VERSION;
use forebay_trace::{LinkView, Metrics, RunTrace};
use forebay_units::{ParamError, Stop, Time};

pub use jobs::{fluid_jobs, jobs, Key};

/// What makes a run.
#[derive(Clone)]
pub enum Engine {
    Packets,
    /// The scenario as a model, with its law and its seed.
    Fluid(Box<Model>),
}

/// One run to make.
#[derive(Clone)]
pub struct Job {
    pub engine: Engine,
    pub scenario: Arc<Scenario>,
    pub law: Aqm,
    /// What QACD is taken against.
    pub target_pkts: Option<f64>,
    pub seed: u64,
}

/// A hand on one run, from outside and from its law.
#[derive(Default)]
pub struct Control {
    watch: Watch,
    interrupts: Mutex<Vec<Arc<dyn Fn() + Send + Sync>>>,
    started: OnceLock<Instant>,
    late: OnceLock<String>,
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Control>>> = const { RefCell::new(None) };
}

impl Control {
    /// Of the run that this thread makes, while it makes one: its law may keep it.
    pub fn current() -> Option<Arc<Control>> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Whether nobody waits for the run any more.
    pub fn cancelled(&self) -> bool {
        self.watch.cancel.load(Relaxed)
    }

    /// What to call when the run is cancelled, for a law that may take for ever over a packet.
    pub fn on_cancel(&self, interrupt: Arc<dyn Fn() + Send + Sync>) {
        lock(&self.interrupts).push(interrupt);
    }

    /// Ends the run as a failure of ours.
    fn fail(&self, why: String) {
        let _ = self.late.set(why);
        self.cancel();
    }

    fn cancel(&self) {
        self.watch.cancel.store(true, Relaxed);
        // Outside the lock: a call may wait for what the run holds.
        let interrupts = lock(&self.interrupts).clone();
        for interrupt in interrupts {
            interrupt();
        }
    }
}

/// The result of a run.
pub struct Outcome {
    /// What the run observed.
    pub trace: RunTrace,
    /// The metrics of each link's queue, in the order of `trace.links`.
    pub metrics: Vec<Metrics>,
    /// The user CPU time of this run in s; NaN if the system does not count it by thread.
    pub user_cpu_s: f64,
}

/// A run that has ended by itself; a cancelled one leaves nothing.
pub struct Finished {
    /// Index into the jobs.
    pub job: usize,
    pub result: Result<Outcome, Failure>,
}

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub message: String,
    /// Whether its law is at fault, which the caller brought; otherwise it is ours.
    pub of_law: bool,
}

impl Failure {
    fn ours(message: impl ToString) -> Failure {
        Failure {
            message: message.to_string(),
            of_law: false,
        }
    }

    fn of_law(message: impl ToString) -> Failure {
        Failure {
            message: message.to_string(),
            of_law: true,
        }
    }
}

/// Jobs on their way through a pool of threads. Dropping it cancels what is left.
pub struct Batch {
    shared: Arc<Shared>,
    // Kept so that its threads live as long as the batch.
    _pool: rayon::ThreadPool,
}

struct Shared {
    jobs: Vec<Job>,
    controls: Vec<Arc<Control>>,
    finished: Mutex<Vec<Finished>>,
    left: AtomicUsize,
    cancelled: AtomicBool,
}

impl Batch {
    /// Starts `jobs` in their order on `threads` threads, and returns at once.
    ///
    /// # Errors
    /// The operating system refuses the threads.
    pub fn start(jobs: Vec<Job>, threads: usize) -> Result<Batch, String> {
        Batch::start_within(jobs, threads, |run| run())
    }

    /// As [`Batch::start`], with each run made inside of `around`, which calls what it is given: for
    /// laws that need something of their thread.
    ///
    /// # Errors
    /// As there.
    pub fn start_within(
        jobs: Vec<Job>,
        threads: usize,
        around: impl Fn(&mut (dyn FnMut() + Send)) + Send + Sync + 'static,
    ) -> Result<Batch, String> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads.max(1))
            .thread_name(|i| format!("forebay-run-{i}"))
            .build()
            .map_err(|error| error.to_string())?;
        let shared = Arc::new(Shared {
            controls: jobs.iter().map(|_| Arc::default()).collect(),
            finished: Mutex::default(),
            left: AtomicUsize::new(jobs.len()),
            cancelled: AtomicBool::new(false),
            jobs,
        });
        let around = Arc::new(around);
        for job in 0..shared.jobs.len() {
            let (shared, around) = (Arc::clone(&shared), Arc::clone(&around));
            pool.spawn_fifo(move || around(&mut || shared.run(job)));
        }
        Ok(Batch {
            shared,
            _pool: pool,
        })
    }

    /// Simulated time that has passed, over all there is: 0 to 1.
    pub fn progress(&self) -> f64 {
        let (mut passed, mut all) = (0.0, 0.0);
        for (job, control) in self.shared.jobs.iter().zip(&self.shared.controls) {
            let duration = job.scenario.duration;
            let elapsed = control.watch.now().since_start();
            passed += elapsed.min(duration).as_nanos_f64();
            all += duration.as_nanos_f64();
        }
        if all > 0.0 {
            passed / all
        } else {
            1.0
        }
    }

    /// Fails each run that has been under way for longer than `most`. Whoever waits calls it now
    /// and then.
    pub fn fail_longer_than(&self, most: Duration) {
        for control in &self.shared.controls {
            // One that has ended no longer looks at its control.
            if control
                .started
                .get()
                .is_some_and(|since| since.elapsed() > most)
            {
                control.fail(format!("took longer than {} s", most.as_secs_f64()));
            }
        }
    }

    /// Runs that have finished since the last call, in the order in which they did.
    pub fn take(&self) -> Vec<Finished> {
        std::mem::take(&mut lock(&self.shared.finished))
    }

    /// Whether every run has finished or was cancelled.
    pub fn done(&self) -> bool {
        self.shared.left.load(Acquire) == 0
    }

    /// Ends the running runs soon and starts no further one. Calling it again interrupts laws
    /// again that have not ended.
    pub fn cancel(&self) {
        self.shared.cancelled.store(true, Relaxed);
        for control in &self.shared.controls {
            control.cancel();
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl Shared {
    fn run(&self, job: usize) {
        if !self.cancelled.load(Relaxed) {
            let control = &self.controls[job];
            CURRENT.set(Some(Arc::clone(control)));
            // A panic must neither take the pool down nor go unseen.
            let result =
                catch_unwind(AssertUnwindSafe(|| self.simulate(job))).unwrap_or_else(|panic| {
                    match panic.downcast_ref::<Stop>() {
                        Some(Stop::Cancelled) => Ok(None),
                        Some(Stop::Fault(why)) => Err(Failure::of_law(why)),
                        None => {
                            let message = message(panic.as_ref());
                            Err(Failure::ours(format!("panicked: {message}")))
                        }
                    }
                });
            CURRENT.set(None);
            lock(&control.interrupts).clear();
            let result = match (result, control.late.get()) {
                (Ok(None), Some(why)) => Err(Failure::ours(why)),
                (result, _) => result,
            };
            if let Some(result) = result.transpose() {
                lock(&self.finished).push(Finished { job, result });
            }
            let end = Time::ZERO + self.jobs[job].scenario.duration;
            self.controls[job].watch.set_now(end);
        }
        // Last, so that whoever sees `done` finds every result.
        self.left.fetch_sub(1, Release);
    }

    /// `None` where the run was cancelled from outside.
    fn simulate(&self, job: usize) -> Result<Option<Outcome>, Failure> {
        let Job {
            engine,
            scenario,
            law,
            target_pkts,
            seed,
        } = &self.jobs[job];
        let control = &self.controls[job];
        let _ = control.started.set(Instant::now());
        let start_s = user_cpu_s().map_err(Failure::ours)?;
        let trace = match engine {
            Engine::Packets => forebay_sim::run(scenario, law, *seed, &control.watch),
            Engine::Fluid(model) => fluid(scenario, model, &control.watch),
        };
        let Some(trace) = trace.map_err(Failure::of_law)? else {
            return Ok(None);
        };
        Ok(Some(Outcome {
            user_cpu_s: user_cpu_s().map_err(Failure::ours)? - start_s,
            metrics: metrics(scenario, &trace, *target_pkts),
            trace,
        }))
    }
}

/// As `forebay_sim::run` does, by the fluid model.
fn fluid(
    scenario: &Scenario,
    model: &Model,
    watch: &Watch,
) -> Result<Option<RunTrace>, ParamError> {
    let trace = forebay_fluid::run_while(model, |now| {
        watch.set_now(now);
        !watch.cancel.load(Relaxed)
    })?;
    Ok(trace.map(|trace| forebay_fluid::observed(scenario, model, &trace)))
}

/// Returns the metrics of each link. A link with a law of its own has the set-point of that law.
fn metrics(scenario: &Scenario, trace: &RunTrace, target_pkts: Option<f64>) -> Vec<Metrics> {
    let of = |(link, view): (&Link, LinkView)| match &link.law {
        Some(own) => Metrics::of(view, own.target_pkts(&scenario.site_of(link))),
        None => Metrics::of(view, target_pkts),
    };
    scenario.links.iter().zip(trace.views()).map(of).collect()
}

/// User CPU time of the calling thread; NaN where the system counts only that of processes.
#[cfg(not(any(target_os = "linux", target_os = "freebsd")))]
fn user_cpu_s() -> Result<f64, String> {
    Ok(f64::NAN)
}

/// User CPU time of the calling thread.
#[cfg(any(target_os = "linux", target_os = "freebsd"))]
fn user_cpu_s() -> Result<f64, String> {
    use nix::sys::resource::{getrusage, UsageWho};
    use nix::sys::time::TimeValLike;

    let usage = getrusage(UsageWho::RUSAGE_THREAD).map_err(|error| error.to_string())?;
    Ok(usage.user_time().num_microseconds() as f64 / 1e6)
}

fn message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message")
}

/// A panic elsewhere does not make what was stored wrong.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
