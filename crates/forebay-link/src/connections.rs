//! Server of connections to a running link. Each connection has a thread, and their number is
//! bounded.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The largest number of connections that an address or a socket serves at a time.
pub const MOST_CONNECTIONS: usize = 32;
/// Time after which a failed accept(2) is repeated. It fails where the process has no free file
/// descriptor, for example.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Answers each connection in a thread of its own, at most [`MOST_CONNECTIONS`] at a time, for as
/// long as the process lives. Further connections, and those for which no thread can be started,
/// are passed to `refuse`, which must not block. A failed connection does not affect the others.
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
        let permit = Permit::acquire(&open);
        let started = permit.is_some() && {
            let (stream, answer) = (Arc::clone(&stream), Arc::clone(&answer));
            let work = move || {
                let _permit = permit;
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

/// A permit for one of the [`MOST_CONNECTIONS`] connections. Dropping it frees the connection.
struct Permit(Arc<AtomicUsize>);

impl Permit {
    /// Returns a permit, or `None` where all are in use. `open` counts the permits in use.
    fn acquire(open: &Arc<AtomicUsize>) -> Option<Permit> {
        let more = |number| (number < MOST_CONNECTIONS).then_some(number + 1);
        let update = open.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        update.ok().map(|_| Permit(Arc::clone(open)))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
