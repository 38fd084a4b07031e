//! Observers of a run: the live view, the metrics endpoint, and the control socket.

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

/// Time that the live view has to restore the terminal.
const PATIENCE: Duration = Duration::from_secs(2);

/// The observers of a run that [`Attendance::add`] set up: the live view, and the file of the
/// control socket.
pub struct Attendance {
    view: Arc<Mutex<Option<JoinHandle<()>>>>,
    _socket: Option<control::File>,
}

impl Attendance {
    /// Registers observers in `watchers`: the live view if `watch` is set, the metrics endpoint if
    /// there is an `endpoint`, and the control socket if there is a `control`. They start when the
    /// run calls [`Watchers::attend`].
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
            let (changes, change_requests) = channel();
            watchers.changes = Some(change_requests);
            let (settings, view) = (settings.clone(), Arc::clone(&view));
            watchers.attend = Some(Box::new(move || {
                let failed = |observer: &str, error: io::Error| {
                    eprintln!("forebay link: {observer} cannot start: {error}; the link goes on");
                };
                if watch {
                    match watch::start(&settings, Arc::clone(&shared), changes.clone()) {
                        Ok(view_thread) => {
                            *view.lock().unwrap_or_else(PoisonError::into_inner) =
                                Some(view_thread);
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

    /// Waits until the live view has restored the terminal, at most [`PATIENCE`]: a read from a
    /// closed terminal may never return.
    pub fn end(self) {
        let view = self
            .view
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let start = Instant::now();
        while view.as_ref().is_some_and(|thread| !thread.is_finished())
            && start.elapsed() < PATIENCE
        {
            thread::sleep(Duration::from_millis(5));
        }
    }
}
