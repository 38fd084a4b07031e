//! Runs of a scenario on the real Linux kernel, in a guest of User-mode Linux.
//!
//! User-mode Linux runs here with time travel: its processor is infinitely fast, so the
//! guest's clock advances only with its timers and packets. A run is therefore deterministic, and
//! does not depend on the speed of the machine.
//!
//! # How a run works
//!
//! 1. The host checks the scenario ([`check()`]) and writes [`Orders`]: the scenario's text, the
//!    law, the seed, and the [`Qdisc`] where the kernel has the law itself ([`qdisc`]).
//! 2. The guest's first process (`guest::init`) reads the orders, makes namespaces, devices and
//!    routes, drives the applications over sockets, and records every packet of the bottleneck.
//!    Where the kernel does not have the law, the queue is one of [`forebay_aqm`] between two TUN
//!    devices.
//! 3. The host makes a [`forebay_trace::RunTrace`] from the files of the guest ([`trace()`]), with
//!    the same code that serves simulations, so the metrics are comparable.
//!
//! # Example
//!
//! A law of the kernel, in the words of tc(8):
//!
//! ```
//! use forebay_scenario::{parse, Options};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let text = r#"
//! duration = "10s"
//! [bottleneck]
//! rate = "20Mbit/s"
//! buffer = "200p"
//! [[traffic]]
//! kind = "ftp"
//! flows = 1
//! rtt = "50ms"
//! packet = "1514B"
//! [[law]]
//! kind = "codel"
//! "#;
//! let experiment = parse(text.as_bytes(), "example.toml", &Options::default())?;
//! let point = &experiment.points[0];
//! let (scenario, law) = (&point.scenario, &point.laws[0]);
//! forebay_guest::check(scenario, law)?;
//! let qdisc = forebay_guest::qdisc(scenario, law).ok_or("Linux has CoDel")?;
//! assert!(qdisc.words.starts_with("codel "));
//! # Ok(())
//! # }
//! ```
//!
//! # Where to start reading
//!
//! `guest.rs` has the order of a run and its main loop. `guest/network.rs` draws the network,
//! `guest/hosts.rs` has the applications, `guest/kernels.rs` and `guest/ours.rs` the two kinds of
//! bottleneck. [`record`] defines the files that the guest writes, and [`mod@trace`] reads them.

#![warn(missing_docs)]
#![deny(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]

pub mod capture;
#[cfg(target_os = "linux")]
pub mod guest;
pub mod limits;
pub mod orders;
pub mod record;
pub mod trace;

use forebay_aqm::Capacity;
use forebay_linux_tc::{Tc, TcSite};
use forebay_scenario::{LawChoice, Link, LinkSetting, Scenario, Setting, Shaper};
use forebay_units::{Buffer, Bytes};

pub use limits::check;
pub use orders::{Orders, Qdisc};
pub use record::RunRecord;
pub use trace::trace;

/// Returns the qdisc of the kernel that is equal to a law in its queue, in the words of tc(8).
///
/// The result is `None` where the guest must run the law of this workspace: the kernel does not
/// have the law, not with these parameters or buffers, or the link follows a recorded rate.
pub fn qdisc(scenario: &Scenario, law: &LawChoice) -> Option<Qdisc> {
    let bottleneck = scenario.tested_link();
    if matches!(bottleneck.capacity(), Capacity::Recorded(_)) {
        return None;
    }
    // The kernel must have the law with every buffer that the scenario changes to.
    let buffers = scenario
        .changes
        .iter()
        .filter_map(|change| buffer_of(&change.what));
    let mut qdiscs = buffers.map(|buffer| qdisc_with(scenario, law, buffer));
    match qdiscs.all(|qdisc| qdisc.is_some()) {
        true => qdisc_with(scenario, law, bottleneck.buffer),
        false => None,
    }
}

/// Returns the buffer that a change gives to the bottleneck; `None` for any other change.
pub(crate) fn buffer_of(setting: &Setting) -> Option<Buffer> {
    match setting {
        Setting::Link {
            link: 0,
            what: LinkSetting::Buffer(buffer),
        } => Some(*buffer),
        _ => None,
    }
}

/// Returns the qdisc of a law, as [`qdisc`] does, at another buffer.
pub(crate) fn qdisc_with(scenario: &Scenario, law: &LawChoice, buffer: Buffer) -> Option<Qdisc> {
    let tc = tc(scenario, law, buffer)?;
    Some(Qdisc {
        words: tc.to_string(),
        shapes: tc.shapes,
    })
}

/// Returns the qdisc of a law with a buffer, and its arguments.
pub(crate) fn tc(scenario: &Scenario, law: &LawChoice, buffer: Buffer) -> Option<Tc> {
    let bottleneck = &Link {
        buffer,
        ..scenario.tested_link().clone()
    };
    let arguments = |held: bool| {
        let site = TcSite {
            queue: scenario.queue_site(bottleneck),
            // The scenario's packet size includes the Ethernet header.
            header: Bytes(0),
            in_packet: Bytes(14),
            held,
        };
        law.tc(&site).ok().flatten()
    };
    // Neither a qdisc that shapes by itself nor htb keeps a packet out of the queue while it waits
    // for tokens, as tbf does.
    match arguments(true)? {
        tc if tc.shapes || scenario.kernel.shaper == Shaper::Htb => arguments(false),
        tc => Some(tc),
    }
}

/// Returns a count as a `u32`, at most `u32::MAX`.
pub(crate) fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
