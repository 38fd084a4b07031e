//! Connections to a running link: each has a thread, and there is a bound on their number.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Connections that an address or a socket serves at a time; each has a thread.
pub const MOST_CONNECTIONS: usize = 32;
/// Time after which a failed accept(2) is tried again, as where the process has no file left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Answers each connection in a thread of its own, at most [`MOST_CONNECTIONS`] at a time, for as
/// long as the process lives. `refuse` is given the connections beyond, and those for which the
/// machine has no thread; it must not block. A connection that breaks off concerns nobody else.
///
/// # Errors
/// The thread that accepts connections cannot be started.
pub fn serve<S: Send + Sync + 'static>(
    mut accept: impl FnMut() -> io::Result<S> + Send + 'static,
    answer: impl Fn(&S) -> io::Result<()> + Send + Sync + 'static,
    refuse: impl Fn(&S) + Send + 'static,
) -> io::Result<()> {
    let (answer, open) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
    let acceptor = move || loop {
        let Ok(stream) = accept() else {
            thread::sleep(ACCEPT_AGAIN);
            continue;
        };
        let stream = Arc::new(stream);
        let place = Place::taken(&open);
        let started = place.is_some() && {
            let (stream, answer) = (Arc::clone(&stream), Arc::clone(&answer));
            let work = move || {
                let _place = place;
                let _ = answer(&stream);
            };
            thread::Builder::new().spawn(work).is_ok()
        };
        if !started {
            refuse(&stream);
        }
    };
    thread::Builder::new().spawn(acceptor).map(drop)
}

/// One of the [`MOST_CONNECTIONS`]; it is free again when this value is dropped.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn taken(open: &Arc<AtomicUsize>) -> Option<Place> {
        let more = |number| (number < MOST_CONNECTIONS).then_some(number + 1);
        let taken = open.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.ok().map(|_| Place(Arc::clone(open)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
