//! How a law that the caller brings ends its run: at once, and with a reason.

use std::panic::resume_unwind;

/// Why a run ends before its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The law is at fault: a text for its author.
    Fault(String),
    /// Nobody wants the run any more.
    Cancelled,
}

impl Stop {
    /// Unwinds to whoever started the run and catches this. No hook of a law can
    /// answer with an error: the laws of the registry have none, and packets should not pay for it.
    pub fn now(self) -> ! {
        // Unlike `panic_any`, this prints nothing.
        resume_unwind(Box::new(self))
    }
}
