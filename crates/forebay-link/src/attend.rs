//! Observers of a run: the live view, an address that serves metrics, and a socket for changes.

use std::io;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::control::{self, Control};
use crate::driver::Watchers;
use crate::live::Shared;
use crate::prometheus::Endpoint;
use crate::settings::Settings;
use crate::watch;

/// Time the view has to give the terminal back.
const PATIENCE: Duration = Duration::from_secs(2);

/// The view of a run, if it has one.
pub struct Attendance {
    view: Arc<Mutex<Option<JoinHandle<()>>>>,
    _socket: Option<control::File>,
}

impl Attendance {
    /// Lets `watchers` start the view if `watch` is set, and serve metrics on `endpoint`
    /// and changes by `control`.
    pub fn add(
        watchers: &mut Watchers,
        settings: &Settings,
        watch: bool,
        endpoint: Option<Endpoint>,
        control: Option<Control>,
    ) -> Attendance {
        let view: Arc<Mutex<Option<JoinHandle<()>>>> = Arc::default();
        let socket = control.as_ref().map(Control::file);
        if watch || endpoint.is_some() || control.is_some() {
            let shared = Shared::default();
            watchers.picture = Some(Arc::clone(&shared));
            let (changes, asked) = channel();
            watchers.changes = Some(asked);
            let (settings, view) = (settings.clone(), Arc::clone(&view));
            watchers.attend = Some(Box::new(move || {
                let failed = |what: &str, error: io::Error| {
                    eprintln!("forebay link: {what} cannot start: {error}; the link goes on");
                };
                if watch {
                    match watch::start(&settings, Arc::clone(&shared), changes.clone()) {
                        Ok(started) => {
                            *view.lock().unwrap_or_else(PoisonError::into_inner) = Some(started);
                        }
                        Err(error) => failed("the live view", error),
                    }
                }
                if let Some(control) = control {
                    if let Err(error) = control.serve(&settings, Arc::clone(&shared), changes) {
                        failed("the socket for changes", error);
                    }
                }
                if let Some(endpoint) = endpoint {
                    if let Err(error) = endpoint.serve(shared) {
                        failed("the metrics' address", error);
                    }
                }
            }));
        }
        Attendance {
            view,
            _socket: socket,
        }
    }

    /// Waits until the view has given the terminal back. Reading from a closed terminal may never
    /// end.
    pub fn end(self) {
        let view = self
            .view
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let start = Instant::now();
        while view.as_ref().is_some_and(|it| !it.is_finished()) && start.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(5));
        }
    }
}
