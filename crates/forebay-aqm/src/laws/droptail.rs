//! DropTail: no law at all; the buffer alone decides.

use forebay_linux_tc::{Tc, TcSite};
use forebay_units::{params, Buffer, ParamError, Site};

use crate::law::{FluidLaw, Law, QueueView};
use crate::law_params::LawParams;
use crate::law_spec::LawSpec;

pub const LAW: LawSpec = LawSpec::of::<DropTailParams>(
    "droptail",
    "DropTail: drop arrivals when the buffer is full",
    "RFC 7567, section 2.1",
);

params! {
    /// DropTail has no parameters.
    pub struct DropTailParams {}
}

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

impl LawParams for DropTailParams {
    const BASELINE: bool = true;

    fn build(&self, _site: &Site) -> Box<dyn Law> {
        Box::new(DropTail)
    }

    /// tc-pfifo(8), or tc-bfifo(8) under a buffer in bytes.
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
