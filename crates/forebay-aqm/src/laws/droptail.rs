//! DropTail: a queue without a law, which drops arrivals when the buffer is full.

use forebay_linux_tc::{LinuxQdisc, Tc, TcSite};
use forebay_units::{params, Buffer, ParamError, Site};

use crate::configured_law::ConfiguredLaw;
use crate::law::{FluidLaw, Law, QueueView};
use crate::law_spec::LawSpec;

/// The registry entry of DropTail.
pub const LAW: LawSpec = LawSpec::of::<DropTailParams>(
    "droptail",
    "DropTail: drop arrivals when the buffer is full",
    "RFC 7567, section 2.1",
)
.into_baseline();

params! {
    /// DropTail has no parameters.
    pub struct DropTailParams {}
}

/// The law that never signals.
struct DropTail;

impl Law for DropTail {
    fn watches_arrivals(&self) -> bool {
        false
    }

    fn watches_departures(&self) -> bool {
        false
    }
}

impl FluidLaw for DropTail {
    fn intensity(&self, _q: &QueueView) -> Option<f64> {
        Some(0.0)
    }
}

impl ConfiguredLaw for DropTailParams {
    fn build(&self, _site: &Site, _seed: u64) -> Result<Box<dyn Law>, ParamError> {
        Ok(Box::new(DropTail))
    }

    fn linux(&self) -> Option<&dyn LinuxQdisc> {
        Some(self)
    }
}

impl LinuxQdisc for DropTailParams {
    /// tc-pfifo(8), or tc-bfifo(8) if the buffer is bounded in bytes.
    fn tc(&self, queue: &str, site: &TcSite) -> Result<Option<Tc>, ParamError> {
        if queue != "fifo" {
            return Ok(None);
        }
        let tc = match site.queue.buffer {
            Buffer::Packets(_) => {
                let mut tc = Tc::new("pfifo");
                tc.limit(site);
                tc
            }
            Buffer::Bytes(_) => {
                let mut tc = Tc::new("bfifo");
                tc.limit_bytes(site);
                tc
            }
        };
        Ok(Some(tc))
    }
}
