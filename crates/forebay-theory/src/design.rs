//! The interface of a law to linear control theory: its model and its design rule, with the request
//! and the result of a design.

use forebay_units::{ParamError, ParamValues, Params, SetPoint, Site, Value};

use crate::linear::{LoopFilter, OperatingPoint};

/// The linear theory of a law with its parameters.
///
/// Every method requires a site at which the law can be built.
pub trait LinearLaw {
    /// Returns the law's linear model at an operating point; `None` if it has no linear model or no
    /// equilibrium there.
    fn linear(&self, _point: &OperatingPoint, _site: &Site) -> Option<LoopFilter> {
        None
    }

    /// Applies the law's design rule; `None` if it has none. Parameters that the rule does not
    /// design keep the values of this law.
    ///
    /// # Errors
    /// If a goal is unknown or out of range, or the request cannot be met.
    fn design(&self, _request: &DesignRequest, _goals: &ParamValues) -> DesignResult {
        Ok(None)
    }

    /// Returns the controller of a law that acts on the arrival rate and not on the queue.
    fn rate_control(&self) -> Option<RateControl> {
        None
    }

    /// Returns the coupling factor k of a law that signals classic and L4S flows with two coupled
    /// probabilities (RFC 9332 section 2.1); `None` for other laws.
    fn coupling(&self) -> Option<f64> {
        None
    }
}

/// A PID controller from the arrival rate to the capacity of a virtual queue (e-avq eq. 18):
/// δC̃' = −K_I·δλ − K_P·δλ' − K_D·δλ''.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateControl {
    /// The desired utilisation of the link.
    pub utilisation: f64,
    /// K_P.
    pub k_p: f64,
    /// K_I, per second.
    pub k_i: f64,
    /// K_D, in seconds.
    pub k_d: f64,
}

/// The request to a design rule.
#[derive(Clone, Copy, Debug)]
pub struct DesignRequest {
    /// The network at the target, with the number of Reno flows for which the rule designs.
    pub point: OperatingPoint,
    /// The signal probability that the link's flows need there. It differs from that of the point
    /// if the flows are not Reno flows.
    pub probability: f64,
    /// True if the flows respond to the fraction of marks, like DCTCP.
    pub marked: bool,
    /// The set-point of the law.
    pub set_point: SetPoint,
    /// The queue at which the law will work.
    pub site: Site,
}

impl DesignRequest {
    /// Returns the set-point in packets; a delay is converted at the capacity of the point.
    pub fn target_pkts(&self) -> f64 {
        self.set_point.pkts_at(self.point.capacity_pkts_per_s)
    }
}

/// The result of a design rule.
#[derive(Clone, Debug, Default)]
pub struct Design {
    /// The designed gains and intermediate results, with the names of the paper.
    pub gains: Vec<(&'static str, f64)>,
    /// The designed parameters of the law, in the notation of a scenario.
    pub params: Vec<(&'static str, Value)>,
    /// Further parameters that suit the link's flows and are not gains.
    pub settings: Vec<(&'static str, Value)>,
    /// Sentences that explain the design.
    pub notes: Vec<String>,
}

/// A design; `None` if the law has no rule.
pub type DesignResult = Result<Option<Design>, ParamError>;

impl Design {
    /// Creates a design from `params`; `names` are the parameters that were designed.
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

    /// Adds the parameters `names` of `params` as settings, and a sentence that explains them.
    #[must_use]
    pub fn with_settings<R: Params>(
        mut self,
        params: &R,
        names: &[&'static str],
        note: String,
    ) -> Design {
        self.settings = values(params, names);
        self.notes.push(note);
        self
    }
}

/// Returns these parameters with their values.
fn values<R: Params>(params: &R, names: &[&'static str]) -> Vec<(&'static str, Value)> {
    let value = |name: &&'static str| Some((*name, rounded(params.get(name)?)));
    names.iter().filter_map(value).collect()
}

/// Rounds a number to ten digits, for readable files.
fn rounded(value: Value) -> Value {
    match value {
        Value::Number(x) => Value::Number(format!("{x:.9e}").parse().unwrap_or(x)),
        value => value,
    }
}
