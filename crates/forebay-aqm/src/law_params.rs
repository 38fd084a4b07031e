//! What a law's parameters say of it: how it is built, its linear model, its design rule, its tuning.

use forebay_linux_tc::fixed_point::Twin;
use forebay_linux_tc::{Tc, TcSite};
use forebay_theory::linear::{LoopFilter, OperatingPoint};
use forebay_theory::search::{Conditions, Search};
use forebay_units::{
    ParamError, ParamSpec, ParamType, ParamValues, Params, SetPoint, Site, Span, Value,
};

use crate::law::Law;

/// Parameters that a law is built from.
pub trait LawParams: Params + 'static {
    /// Relations between parameters, or to the queue, that ranges cannot say.
    ///
    /// # Errors
    /// The key at fault.
    fn check(&self, _site: &Site) -> Result<(), ParamError> {
        Ok(())
    }

    fn build(&self, site: &Site) -> Box<dyn Law>;

    /// The law in fixed point, where the kernel can run it: its header is `laws/<kind>.h` in
    /// `python/forebay/linux/bpf`. `None` of others.
    ///
    /// # Errors
    /// A parameter that would saturate, or that the kernel's header does not have.
    fn twin(&self, _site: &Site) -> Result<Option<Twin>, ParamError> {
        Ok(None)
    }

    /// The law near an operating point; `None` where it has no linear model, or no equilibrium.
    fn linear(&self, _point: &OperatingPoint, _site: &Site) -> Option<LoopFilter> {
        None
    }

    /// The key of the set-point, among the parameters of a law that has one.
    const SET_POINT: &'static str = "target";

    /// Where the law holds the queue: that parameter, unless others make it say nothing.
    fn set_point(&self) -> Option<SetPoint> {
        SetPoint::from_value(&self.get(Self::SET_POINT)?).ok()
    }

    /// Whether this is the queue without any law, beside which others are judged.
    const BASELINE: bool = false;

    /// Why real packets differ from simulated ones under the law, where its kind is a reason: a
    /// noun, and sentences.
    const REALITY: Option<(&'static str, &'static str)> = None;

    /// The goal or parameter that makes a designed loop slower where it is smaller.
    const SLOWED_BY: Option<&'static str> = None;

    /// How the law steers the arrival rate, where it acts on rates and not on the queue.
    fn rate_control(&self) -> Option<RateControl> {
        None
    }

    /// k of a law that signals classic flows and those of L4S with two probabilities that it
    /// couples (RFC 9332 section 2.1); `None` of others.
    fn coupling(&self) -> Option<f64> {
        None
    }

    /// How the law is tuned for a range of links and loads.
    fn search(_conditions: &Conditions) -> Search {
        Search::Nothing
    }

    /// What the design rule can be asked for besides the law's own parameters.
    const GOALS: &'static [ParamSpec] = &[];

    /// The law's design rule, with what it does not design left as it is in `self`; `None` where
    /// there is no rule.
    ///
    /// # Errors
    /// A goal that is unknown or out of range, or a request that cannot be met.
    fn design(&self, _wish: &DesignRequest, _goals: &ParamValues) -> DesignResult {
        Ok(None)
    }

    /// Parameters that must be others on this link, with a round trip of `rtt` without queueing:
    /// of a law without a design rule, by its authors' advice.
    fn fitted(&self, _rtt: Span, _site: &Site) -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// The qdisc that the law is in a queue of the kind `queue`, with the words that are the law's;
    /// `None` where Linux has none.
    ///
    /// # Errors
    /// A parameter that the qdisc does not have.
    fn tc(&self, _queue: &str, _site: &TcSite) -> Result<Option<Tc>, ParamError> {
        Ok(None)
    }
}

/// A PID controller of the capacity of a virtual queue by the arrival rate (e-avq eq. 18):
/// δC̃' = −K_I·δλ − K_P·δλ' − K_D·δλ''.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateControl {
    /// Wanted utilisation of the link.
    pub utilisation: f64,
    pub k_p: f64,
    /// Per second.
    pub k_i: f64,
    /// In seconds.
    pub k_d: f64,
}

/// What a design rule is given.
#[derive(Clone, Copy, Debug)]
pub struct DesignRequest {
    /// The network at the wanted queue length, with as many flows of Reno as the rule is to know.
    pub point: OperatingPoint,
    /// The probability that the link's flows need there, which is the point's own unless they are
    /// others than Reno's.
    pub probability: f64,
    /// Whether the flows live on marks, and answer how many there are.
    pub marked: bool,
    /// What to hold the queue at.
    pub set_point: SetPoint,
    pub site: Site,
}

impl DesignRequest {
    /// The set-point in packets, a delay at the point's capacity.
    pub fn target_pkts(&self) -> f64 {
        self.set_point.pkts_at(self.point.capacity_pkts_per_s)
    }
}

/// What a design rule gives.
#[derive(Clone, Debug, Default)]
pub struct Design {
    /// The designed numbers under the paper's names, with those on the way to them.
    pub gains: Vec<(&'static str, f64)>,
    /// The law's parameters, as a scenario takes them.
    pub params: Vec<(&'static str, Value)>,
    /// Further parameters that the link's flows ask for, which are no gains.
    pub settings: Vec<(&'static str, Value)>,
    /// Why these: sentences.
    pub notes: Vec<String>,
}

/// A design; `None` where there is no rule.
pub type DesignResult = Result<Option<Design>, ParamError>;

impl Design {
    /// `names` of the params that carry the designed values.
    pub fn of<R: Params>(
        gains: Vec<(&'static str, f64)>,
        params: &R,
        names: &[&'static str],
        notes: Vec<String>,
    ) -> Design {
        Design {
            gains,
            params: values(params, names),
            settings: Vec::new(),
            notes,
        }
    }

    /// With `names` of the params as settings, and why.
    #[must_use]
    pub fn with_settings<R: Params>(
        mut self,
        params: &R,
        names: &[&'static str],
        why: String,
    ) -> Design {
        self.settings = values(params, names);
        self.notes.push(why);
        self
    }
}

fn values<R: Params>(params: &R, names: &[&'static str]) -> Vec<(&'static str, Value)> {
    let value = |name: &&'static str| Some((*name, rounded(params.get(name)?)));
    names.iter().filter_map(value).collect()
}

/// Ten digits are enough for a gain, and bearable in a file.
fn rounded(value: Value) -> Value {
    match value {
        Value::Number(x) => Value::Number(format!("{x:.9e}").parse().unwrap_or(x)),
        other => other,
    }
}

/// Refuses a set-point that the buffer cannot hold.
///
/// The laws that are qdiscs of Linux do not call it: Linux accepts a buffer shorter than their target,
/// and the result of the run warns of it.
///
/// # Errors
/// Where it exceeds the buffer; `key` is blamed.
pub fn fits_buffer(key: &str, set_point: SetPoint, site: &Site) -> Result<(), ParamError> {
    let pkts = site.pkts(set_point);
    if pkts <= site.buffer_pkts {
        return Ok(());
    }
    let allowed = format!("at most {}", site.buffer_as(set_point));
    Err(ParamError::new(key, format!("\"{set_point}\""), allowed))
}

/// Refuses a buffer that is not bounded in packets, for laws that divide by it.
///
/// # Errors
/// Where the buffer is infinite; the set-point `key` is blamed.
pub fn needs_packet_buffer(key: &str, set_point: SetPoint, site: &Site) -> Result<(), ParamError> {
    if site.buffer_pkts.is_finite() {
        return Ok(());
    }
    Err(ParamError::new(
        key,
        format!("\"{set_point}\" under a buffer in bytes"),
        "a buffer in packets, since the law relates its error to it",
    ))
}
