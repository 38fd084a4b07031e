//! A law with values for its parameters: how it is built, and its optional capabilities.

use std::sync::Arc;

use forebay_linux_tc::fixed_point::{self, FixedPointLaw, Twin};
use forebay_linux_tc::LinuxQdisc;
use forebay_theory::design::LinearLaw;
use forebay_theory::equilibrium::{settle, Equilibrium, Flows};
use forebay_theory::linear::{LoopFilter, OperatingPoint};
use forebay_units::{Bytes, ParamError, ParamTable, Rate, SetPoint, Site, Span, Value};

use crate::law::Law;

/// A link whose buffer holds any set-point. Properties that a law has on every link are tested
/// here.
pub(crate) const ROOMY: Site = Site {
    rate: Rate::from_bps(1_000_000_000),
    buffer_pkts: 2e9,
    packet: Bytes(1000),
};

/// Returns the operating point of 100 flows with a round trip of 100 ms on [`ROOMY`].
pub(crate) fn roomy_point() -> OperatingPoint {
    OperatingPoint::of_flows(100.0, 0.1, ROOMY.rate.packets_per_sec(ROOMY.packet))
}

/// A law with a value for each of its parameters, from which laws are built at any queue.
///
/// Everything but [`build`](ConfiguredLaw::build) is optional: a law has a linear theory, a
/// counterpart in Linux or a twin in the kernel if it returns one.
pub trait ConfiguredLaw: ParamTable + Send + Sync {
    /// Checks what the ranges of single parameters cannot state: relations between parameters, and
    /// to the queue.
    ///
    /// # Errors
    /// If a relation does not hold; the error names the key.
    fn check(&self, _site: &Site) -> Result<(), ParamError> {
        Ok(())
    }

    /// Builds a law for one queue. `seed` is for a random stream that the law keeps itself; its
    /// hooks receive another one with every call.
    ///
    /// # Errors
    /// If [`check`](ConfiguredLaw::check) fails.
    fn build(&self, site: &Site, seed: u64) -> Result<Box<dyn Law>, ParamError>;

    /// Returns the queue length or delay that the law controls; `None` if it has no set-point.
    fn set_point(&self) -> Option<SetPoint> {
        None
    }

    /// Returns the parameters that the law's authors advise to change on a link with this
    /// round-trip time (without queuing). Only laws without a design rule have such advice.
    fn fitted(&self, _rtt: Span, _site: &Site) -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// Returns the law's linear model and design rule.
    fn theory(&self) -> Option<&dyn LinearLaw> {
        None
    }

    /// Returns the law as a qdisc of Linux.
    fn linux(&self) -> Option<&dyn LinuxQdisc> {
        None
    }

    /// Returns the law in fixed point, as the kernel runs it.
    fn kernel(&self) -> Option<&dyn FixedPointLaw> {
        None
    }
}

impl dyn ConfiguredLaw {
    /// Returns the law's linear model at an operating point; `None` if it has no linear model or no
    /// equilibrium there.
    ///
    /// # Errors
    /// If [`check`](ConfiguredLaw::check) fails.
    pub fn linear(
        &self,
        point: &OperatingPoint,
        site: &Site,
    ) -> Result<Option<LoopFilter>, ParamError> {
        self.check(site)?;
        Ok(self.theory().and_then(|law| law.linear(point, site)))
    }

    /// Returns the equilibrium of these flows under the law.
    ///
    /// # Errors
    /// If [`check`](ConfiguredLaw::check) fails.
    pub fn settle(&self, flows: &dyn Flows, site: &Site) -> Result<Equilibrium, ParamError> {
        self.check(site)?;
        Ok(match self.theory() {
            Some(law) => settle(law, flows, site),
            None => Equilibrium::Unmodelled,
        })
    }

    /// Returns true if the law's linear model integrates the distance to its set-point.
    pub fn integrates(&self) -> bool {
        // A law that integrates does so on every link, and so on this one.
        let model = self.linear(&roomy_point(), &ROOMY);
        matches!(model, Ok(Some(model)) if model.integrates())
    }

    /// Returns the law in fixed point; `None` if the kernel has no header for it.
    ///
    /// # Errors
    /// If [`check`](ConfiguredLaw::check) fails, a parameter would saturate, or the link's rate is
    /// out of the range of the fixed-point arithmetic.
    pub fn twin(&self, site: &Site) -> Result<Option<Twin>, ParamError> {
        self.check(site)?;
        let Some(law) = self.kernel() else {
            return Ok(None);
        };
        let twin = law.twin(site)?;
        fixed_point::fits(site)?;
        Ok(Some(twin))
    }
}

/// A law in a discipline with several queues: the law acts on packets as usual, but the theory of a
/// single loop does not apply.
pub(crate) struct SeveralLoops(pub Arc<dyn ConfiguredLaw>);

impl ParamTable for SeveralLoops {
    fn values(&self) -> Vec<(&'static str, Value)> {
        self.0.values()
    }
}

impl ConfiguredLaw for SeveralLoops {
    fn check(&self, site: &Site) -> Result<(), ParamError> {
        self.0.check(site)
    }

    fn build(&self, site: &Site, seed: u64) -> Result<Box<dyn Law>, ParamError> {
        self.0.build(site, seed)
    }

    fn set_point(&self) -> Option<SetPoint> {
        self.0.set_point()
    }

    fn fitted(&self, rtt: Span, site: &Site) -> Vec<(&'static str, Value)> {
        self.0.fitted(rtt, site)
    }

    fn linux(&self) -> Option<&dyn LinuxQdisc> {
        self.0.linux()
    }
}

/// Refuses a set-point that the buffer cannot hold.
///
/// Laws that exist as Linux qdiscs do not call it: Linux accepts a buffer shorter than their
/// target, and the result of the run carries a warning.
///
/// # Errors
/// If the set-point exceeds the buffer; the error names `key`.
pub fn fits_buffer(key: &str, set_point: SetPoint, site: &Site) -> Result<(), ParamError> {
    let pkts = site.pkts(set_point);
    if pkts <= site.buffer_pkts {
        return Ok(());
    }
    let expected = format!("at most {}", site.buffer_as(set_point));
    Err(ParamError::new(key, format!("\"{set_point}\""), expected))
}

/// Refuses a buffer that is not bounded in packets, for laws that divide by the buffer size.
///
/// # Errors
/// If the buffer has no bound in packets; the error names `key`, the set-point.
pub fn needs_packet_buffer(key: &str, set_point: SetPoint, site: &Site) -> Result<(), ParamError> {
    if site.buffer_pkts.is_finite() {
        return Ok(());
    }
    let expected = "a buffer in packets, by which the law divides its error";
    let error = ParamError::new(key, format!("\"{set_point}\""), expected);
    Err(error.because("cannot be combined with a buffer in bytes"))
}
