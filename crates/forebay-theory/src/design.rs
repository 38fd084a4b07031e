//! A law as linear control theory sees it: its model, its design rule, and what that rule is given
//! and gives.

use forebay_units::{ParamError, ParamValues, Params, SetPoint, Site, Value};

use crate::linear::{LoopFilter, OperatingPoint};

/// The linear theory of a law with its parameters.
///
/// The site of every method is one at which the law can be built.
pub trait LinearLaw {
    /// Returns the law near an operating point; `None` where it has no linear model, or no
    /// equilibrium.
    fn linear(&self, _point: &OperatingPoint, _site: &Site) -> Option<LoopFilter> {
        None
    }

    /// Applies the law's design rule, with what the rule does not design left as it is in the law;
    /// `None` where there is no rule.
    ///
    /// # Errors
    /// A goal that is unknown or out of range, or a request that cannot be met.
    fn design(&self, _request: &DesignRequest, _goals: &ParamValues) -> DesignResult {
        Ok(None)
    }

    /// Returns how the law steers the arrival rate, if it acts on rates and not on the queue.
    fn rate_control(&self) -> Option<RateControl> {
        None
    }

    /// Returns k of a law that signals classic flows and those of L4S with two probabilities that it
    /// couples (RFC 9332 section 2.1); `None` of other laws.
    fn coupling(&self) -> Option<f64> {
        None
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
