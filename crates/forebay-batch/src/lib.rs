//! Many runs on many threads: every law at every point with every seed, with progress and
//! cancellation.
//!
//! [`jobs`] lists the runs of an experiment, each a [`Job`]: a scenario, a law and a seed, for the
//! packet engine or for the fluid model. A [`Batch`] makes them in background threads;
//! [`Batch::take`] returns those that have [`Finished`] since the last call, each with its
//! [`Outcome`] (the trace, and the metrics of each link) or its [`Failure`].
//!
//! A run depends on its job alone, so results are the same for any number of threads. Only the
//! order in which runs finish differs; [`Finished::job`] is the index of the job. A run that panics
//! fails, and the others go on. A law that may never return, such as one in Python, registers with
//! its [`Control`] how it is interrupted.
//!
//! ```
//! use forebay_batch::{jobs, Batch};
//! use forebay_scenario::{parse, Options};
//!
//! let text = r#"
//! duration = "1s"
//! bottleneck = { rate = "10Mbit/s", delay = "5ms", buffer = "100p" }
//! traffic = [{ kind = "ftp", flows = 2, rtt = "40ms" }]
//! law = [{ kind = "droptail" }, { kind = "codel" }]
//! "#;
//! let experiment = parse(text.as_bytes(), "example", &Options::default())?;
//! let (keys, jobs): (Vec<_>, Vec<_>) = jobs(&experiment, |_| true).into_iter().unzip();
//! let batch = Batch::start(jobs, 2)?;
//! while !batch.done() {
//!     std::thread::yield_now();
//! }
//! for run in batch.take() {
//!     let metrics = &run.result.map_err(|failure| failure.message)?.metrics[0];
//!     println!("law {}: {} s", keys[run.job].law, metrics.delay_p95_s);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Start reading at [`Batch::start_within`]; golden results of every law are in `tests/golden`.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

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

/// The engine of a run.
#[derive(Clone)]
pub enum Engine {
    /// The packet engine.
    Packets,
    /// The fluid model of the scenario, with its law and its seed.
    Fluid(Box<Model>),
}

/// The input of one run.
#[derive(Clone)]
pub struct Job {
    /// The engine.
    pub engine: Engine,
    /// The scenario.
    pub scenario: Arc<Scenario>,
    /// The law under test and its queue.
    pub law: Aqm,
    /// The set-point in packets for QACD, if there is one.
    pub target_pkts: Option<f64>,
    /// The seed.
    pub seed: u64,
}

/// The control of one run, which ends the run from outside and interrupts its law.
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
    /// Returns the control of the run that this thread makes; `None` if it makes none. A law may
    /// keep it.
    pub fn current() -> Option<Arc<Control>> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Returns true if the run has been cancelled.
    pub fn cancelled(&self) -> bool {
        self.watch.cancel.load(Relaxed)
    }

    /// Registers a call that interrupts a law when the run is cancelled, for laws that may never
    /// return.
    pub fn on_cancel(&self, interrupt: Arc<dyn Fn() + Send + Sync>) {
        lock(&self.interrupts).push(interrupt);
    }

    /// Ends the run as a failure that is not the law's.
    fn fail(&self, why: String) {
        let _ = self.late.set(why);
        self.cancel();
    }

    fn cancel(&self) {
        self.watch.cancel.store(true, Relaxed);
        // The call is made outside the lock, because it may wait for a lock that the run holds.
        let interrupts = lock(&self.interrupts).clone();
        for interrupt in interrupts {
            interrupt();
        }
    }
}

/// The result of a run.
pub struct Outcome {
    /// The observations of the run.
    pub trace: RunTrace,
    /// The metrics of each link's queue, in the order of `trace.links`.
    pub metrics: Vec<Metrics>,
    /// The user CPU time of this run in s; NaN if the system does not count it by thread.
    pub user_cpu_s: f64,
}

/// A run that has ended by itself. A cancelled run leaves nothing.
pub struct Finished {
    /// Index into the jobs.
    pub job: usize,
    /// The outcome, or the reason of a failure.
    pub result: Result<Outcome, Failure>,
}

/// The reason why a run failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The reason in words.
    pub message: String,
    /// True if the law that the caller supplied is at fault, and not Forebay.
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

/// Jobs that a pool of threads works on. Dropping the batch cancels the runs that are left.
pub struct Batch {
    shared: Arc<Shared>,
    // Its threads live as long as the batch.
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
    /// If the operating system refuses the threads.
    pub fn start(jobs: Vec<Job>, threads: usize) -> Result<Batch, String> {
        Batch::start_within(jobs, threads, |run| run())
    }

    /// Starts `jobs` like [`Batch::start`], each run inside of `around`, which must call its
    /// argument. It prepares the thread for laws that need it, such as laws in Python.
    ///
    /// # Errors
    /// If the operating system refuses the threads.
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

    /// Returns the simulated time that has passed, as a fraction of that of all jobs.
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

    /// Fails each run that has taken longer than `most`. A caller that waits for the batch calls it
    /// repeatedly.
    pub fn fail_longer_than(&self, most: Duration) {
        for control in &self.shared.controls {
            // A run that has ended no longer looks at its control.
            if control
                .started
                .get()
                .is_some_and(|since| since.elapsed() > most)
            {
                control.fail(format!("took longer than {} s", most.as_secs_f64()));
            }
        }
    }

    /// Returns the runs that have finished since the last call, in the order in which they did.
    pub fn take(&self) -> Vec<Finished> {
        std::mem::take(&mut lock(&self.shared.finished))
    }

    /// Returns true if every run has finished or was cancelled.
    pub fn done(&self) -> bool {
        self.shared.left.load(Acquire) == 0
    }

    /// Ends the runs under way soon and starts no other. A second call interrupts laws again that
    /// have not returned.
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
            // A panic must neither end the pool nor go unnoticed.
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
        // This comes last, so that a caller that sees `done` finds every result.
        self.left.fetch_sub(1, Release);
    }

    /// Makes a run; `None` if it was cancelled from outside.
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

/// Makes a run by the fluid model; `None` if it was cancelled.
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

/// Returns NaN: this system counts the user CPU time of processes, but not of threads.
#[cfg(not(any(target_os = "linux", target_os = "freebsd")))]
fn user_cpu_s() -> Result<f64, String> {
    Ok(f64::NAN)
}

/// Returns the user CPU time of the calling thread in s.
#[cfg(any(target_os = "linux", target_os = "freebsd"))]
fn user_cpu_s() -> Result<f64, String> {
    use nix::sys::resource::{getrusage, UsageWho};
    use nix::sys::time::TimeValLike;

    let usage = getrusage(UsageWho::RUSAGE_THREAD).map_err(|error| error.to_string())?;
    Ok(usage.user_time().num_microseconds() as f64 / 1e6)
}

/// Returns the text of a panic.
fn message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message")
}

/// Locks a mutex, also if another thread has panicked while it held the lock: the values stay
/// valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
