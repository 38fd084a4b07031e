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

#[cfg(test)]
mod tests {
    use forebay_units::{params, Bytes, Rate, Span};

    use super::*;

    params! {
        /// Parameters for the tests.
        struct TestParams {
            /// A number with more than ten digits.
            gain: f64 = 0.123_456_789_012_345, 0.0 => 1.0;
            /// A number of three digits.
            weight: f64 = 0.125, 0.0 => 1.0;
            /// A parameter that is not a number.
            bytes: bool = true;
        }
    }

    struct Unmodelled;

    impl LinearLaw for Unmodelled {}

    fn request() -> DesignRequest {
        let point = OperatingPoint::of_flows(60.0, 0.2, 4000.0);
        DesignRequest {
            point,
            probability: point.probability(),
            marked: false,
            set_point: SetPoint::Packets(150.0),
            site: Site {
                rate: Rate::from_bps(32_000_000),
                buffer_pkts: 300.0,
                packet: Bytes(1000),
            },
        }
    }

    #[test]
    fn a_law_without_a_theory_has_no_model_no_rule_no_rate_control_and_no_coupling() {
        let request = request();
        let linear = Unmodelled.linear(&request.point, &request.site);
        assert_eq!(linear, None);
        assert!(Unmodelled.design(&request, &[]).unwrap().is_none());
        assert_eq!(Unmodelled.rate_control(), None);
        assert_eq!(Unmodelled.coupling(), None);
    }

    /// The capacity of the point, 4000 packets per second, converts a delay; the number of packets
    /// of a set-point in packets is its own.
    #[test]
    fn the_target_of_a_request_is_in_packets() {
        assert_eq!(request().target_pkts(), 150.0);
        let delayed = DesignRequest {
            set_point: SetPoint::Delay(Span::from_micros(25_000)),
            ..request()
        };
        assert_eq!(delayed.target_pkts(), 100.0);
    }

    #[test]
    fn a_design_contains_the_named_parameters_with_ten_digits() {
        let params = TestParams::defaults();
        let design = Design::of(
            vec![("K", 2.0)],
            &params,
            &["gain", "bytes", "no such parameter"],
            vec!["A note.".to_owned()],
        );
        let expected = vec![
            ("gain", Value::Number(0.123_456_789)),
            ("bytes", Value::Flag(true)),
        ];
        assert_eq!(design.params, expected);
        assert_eq!(design.gains, [("K", 2.0)]);
        assert!(design.settings.is_empty());
        let with_settings = design.with_settings(&params, &["weight"], "Another.".to_owned());
        let settings = [("weight", Value::Number(0.125))];
        assert_eq!(with_settings.settings, settings);
        assert_eq!(with_settings.params, expected);
        assert_eq!(with_settings.notes, ["A note.", "Another."]);
    }
}
