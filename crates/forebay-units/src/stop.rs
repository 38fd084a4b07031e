//! The way in which a law supplied by the caller ends a run: immediately, with a reason.

use std::panic::resume_unwind;

/// The reason for which a run ends early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The law failed; the text is for its author.
    Fault(String),
    /// The run was cancelled.
    Cancelled,
}

impl Stop {
    /// Ends the run by unwinding to the function that started it, which catches the reason. The hooks
    /// of a law return no `Result`, because registered laws never fail and packets should not pay for
    /// the check.
    pub fn now(self) -> ! {
        // Unlike `panic_any`, this does not call the panic hook, which would print a message.
        resume_unwind(Box::new(self))
    }
}
