//! A scenario on the real Linux kernel: User-mode Linux, whose processor is infinitely fast, so that
//! its time is that of the packets. The host hands over [`Orders`]; the guest's first process sets up
//! the network, drives the applications, and records the bottleneck; the host makes a trace of that.

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
use forebay_linux_tc::TcSite;
use forebay_scenario::{LawChoice, Link, LinkSetting, Scenario, Setting, Shaper};
use forebay_units::{Buffer, Bytes};

pub use limits::check;
pub use orders::{Orders, Qdisc};
pub use record::RunRecord;
pub use trace::trace;

/// The queue of the kernel that a law is in its queue, in the words of tc(8); `None` where a guest
/// runs ours, since the kernel has no such law, not with these parameters, or not on such a link.
pub fn qdisc(scenario: &Scenario, law: &LawChoice) -> Option<Qdisc> {
    let bottleneck = scenario.tested_link();
    if matches!(bottleneck.capacity(), Capacity::Recorded(_)) {
        return None;
    }
    // It must be one with every buffer that is to come.
    let buffers = scenario
        .changes
        .iter()
        .filter_map(|change| buffer_of(&change.what));
    let mut all = buffers.map(|buffer| qdisc_with(scenario, law, buffer));
    match all.all(|later| later.is_some()) {
        true => qdisc_with(scenario, law, bottleneck.buffer),
        false => None,
    }
}

/// The buffer that a change gives to the bottleneck.
pub(crate) fn buffer_of(what: &Setting) -> Option<Buffer> {
    match what {
        Setting::Link {
            link: 0,
            what: LinkSetting::Buffer(buffer),
        } => Some(*buffer),
        _ => None,
    }
}

/// As [`qdisc`], with another buffer.
pub(crate) fn qdisc_with(scenario: &Scenario, law: &LawChoice, buffer: Buffer) -> Option<Qdisc> {
    let bottleneck = &Link {
        buffer,
        ..scenario.tested_link().clone()
    };
    let words = |held: bool| {
        let site = TcSite {
            queue: scenario.queue_site(bottleneck),
            // A packet has the scenario's size with the header of its device.
            header: Bytes(0),
            in_packet: Bytes(14),
            held,
        };
        law.tc(&site).ok().flatten()
    };
    // One that shapes by itself holds no packet back, and neither does htb.
    let words = match words(true)? {
        tc if tc.shapes || scenario.kernel.shaper == Shaper::Htb => words(false)?,
        tc => tc,
    };
    Some(Qdisc {
        words: words.to_string(),
        shapes: words.shapes,
    })
}

/// A count that fits.
pub(crate) fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
