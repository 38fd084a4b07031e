//! A law's entry in the registry.

use std::marker::PhantomData;

use forebay_linux_tc::fixed_point::{self, Twin};
use forebay_linux_tc::{Tc, TcSite};
use forebay_theory::equilibrium::{settle, Equilibrium, RenoFlows};
use forebay_theory::linear::{LoopFilter, OperatingPoint};
use forebay_theory::search::{Conditions, Search};
use forebay_units::{
    Bytes, ParamError, ParamSpec, ParamType, ParamValues, Rate, SetPoint, Site, Span, Value,
};

use crate::law::Law;
use crate::law_params::{DesignRequest, DesignResult, LawParams, RateControl};

/// A law whose parameters were read: any [`LawParams`], or what the caller brought.
pub trait ConfiguredLaw {
    /// Builds a law. `seed` is for random numbers of the law's own, besides the stream that its
    /// hooks are handed.
    ///
    /// # Errors
    /// A parameter that does not fit the others or the queue.
    fn build(&self, site: &Site, seed: u64) -> Result<Box<dyn Law>, ParamError>;

    /// Every parameter with its value.
    fn values(&self) -> Vec<(&'static str, Value)>;

    /// As [`LawParams::twin`].
    ///
    /// # Errors
    /// As [`build`](ConfiguredLaw::build), and as there.
    fn twin(&self, _site: &Site) -> Result<Option<Twin>, ParamError> {
        Ok(None)
    }

    /// Where the law holds the queue; `None` of a law without a set-point.
    fn set_point(&self) -> Option<SetPoint> {
        let (_, value) = self
            .values()
            .into_iter()
            .find(|(name, _)| *name == "target")?;
        SetPoint::from_value(&value).ok()
    }

    /// The law near an operating point; `None` where it has no linear model, or no equilibrium.
    ///
    /// # Errors
    /// As [`build`](ConfiguredLaw::build).
    fn linear(
        &self,
        _point: &OperatingPoint,
        _site: &Site,
    ) -> Result<Option<LoopFilter>, ParamError> {
        Ok(None)
    }

    /// As [`LawParams::design`].
    ///
    /// # Errors
    /// As there.
    fn design(&self, _request: &DesignRequest, _goals: &ParamValues) -> DesignResult {
        Ok(None)
    }

    /// As [`LawParams::fitted`].
    fn fitted(&self, _rtt: Span, _site: &Site) -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// As [`LawParams::tc`].
    ///
    /// # Errors
    /// As there.
    fn tc(&self, _queue: &str, _site: &TcSite) -> Result<Option<Tc>, ParamError> {
        Ok(None)
    }

    /// As [`LawParams::rate_control`].
    fn rate_control(&self) -> Option<RateControl> {
        None
    }

    /// As [`LawParams::coupling`].
    fn coupling(&self) -> Option<f64> {
        None
    }
}

impl<R: LawParams> ConfiguredLaw for R {
    fn build(&self, site: &Site, _seed: u64) -> Result<Box<dyn Law>, ParamError> {
        self.check(site)?;
        Ok(LawParams::build(self, site))
    }

    fn values(&self) -> Vec<(&'static str, Value)> {
        let value = |spec: &ParamSpec| Some((spec.name, self.get(spec.name)?));
        R::SPECS.iter().filter_map(value).collect()
    }

    fn twin(&self, site: &Site) -> Result<Option<Twin>, ParamError> {
        self.check(site)?;
        let twin = LawParams::twin(self, site)?;
        if twin.is_some() {
            fixed_point::fits(site)?;
        }
        Ok(twin)
    }

    fn set_point(&self) -> Option<SetPoint> {
        LawParams::set_point(self)
    }

    fn linear(
        &self,
        point: &OperatingPoint,
        site: &Site,
    ) -> Result<Option<LoopFilter>, ParamError> {
        self.check(site)?;
        Ok(LawParams::linear(self, point, site))
    }

    fn design(&self, request: &DesignRequest, goals: &ParamValues) -> DesignResult {
        LawParams::design(self, request, goals)
    }

    fn fitted(&self, rtt: Span, site: &Site) -> Vec<(&'static str, Value)> {
        LawParams::fitted(self, rtt, site)
    }

    fn tc(&self, queue: &str, site: &TcSite) -> Result<Option<Tc>, ParamError> {
        LawParams::tc(self, queue, site)
    }

    fn rate_control(&self) -> Option<RateControl> {
        LawParams::rate_control(self)
    }

    fn coupling(&self) -> Option<f64> {
        LawParams::coupling(self)
    }
}

/// A law in several queues: packets meet it as it is, and theory of one loop does not hold.
struct InSeveralQueues(Box<dyn ConfiguredLaw>);

impl ConfiguredLaw for InSeveralQueues {
    fn build(&self, site: &Site, seed: u64) -> Result<Box<dyn Law>, ParamError> {
        self.0.build(site, seed)
    }

    fn values(&self) -> Vec<(&'static str, Value)> {
        self.0.values()
    }

    fn set_point(&self) -> Option<SetPoint> {
        self.0.set_point()
    }

    fn fitted(&self, rtt: Span, site: &Site) -> Vec<(&'static str, Value)> {
        self.0.fitted(rtt, site)
    }

    fn tc(&self, queue: &str, site: &TcSite) -> Result<Option<Tc>, ParamError> {
        self.0.tc(queue, site)
    }
}

/// Reads a law's parameters, and knows how it is tuned.
pub trait LawDefinition: Send + Sync {
    /// The law with `given` on top of the defaults.
    ///
    /// # Errors
    /// A parameter that is unknown or out of range.
    fn read(&'static self, given: &ParamValues) -> Result<Box<dyn ConfiguredLaw>, ParamError>;

    /// As [`LawParams::search`].
    fn search(&self, _conditions: &Conditions) -> Search {
        Search::Nothing
    }
}

/// The definition that parameters of a type are.
struct Declared<R>(PhantomData<fn() -> R>);

impl<R: LawParams> LawDefinition for Declared<R> {
    fn read(&'static self, given: &ParamValues) -> Result<Box<dyn ConfiguredLaw>, ParamError> {
        Ok(Box::new(R::read(given)?))
    }

    fn search(&self, conditions: &Conditions) -> Search {
        R::search(conditions)
    }
}

/// A link with room for any set-point, on which a law has the facts that it has everywhere.
const ROOMY: Site = Site {
    rate: Rate::from_bps(1_000_000_000),
    buffer_pkts: 2e9,
    packet: Bytes(1000),
};

fn roomy_point() -> OperatingPoint {
    OperatingPoint::of_flows(100.0, 0.1, ROOMY.rate.packets_per_sec(ROOMY.packet))
}

/// A law's entry in the registry.
pub struct LawSpec {
    /// Name in scenarios and on the command line.
    pub kind: &'static str,
    pub title: &'static str,
    pub source: &'static str,
    /// The law in a line, in the names of its parameters: q is the queue, C the link's rate, λ that
    /// of arrivals, N the flows; empty where there is none.
    pub equation: &'static str,
    pub params: &'static [ParamSpec],
    /// Kind of the queue discipline that holds the law where none is named.
    pub queue: &'static str,
    /// What a design can be asked for besides the law's own parameters.
    pub goals: &'static [ParamSpec],
    /// Whether this is the queue without any law, beside which others are judged.
    pub baseline: bool,
    /// Why real packets differ from simulated ones under the law, where its kind is a reason.
    pub reality: Option<(&'static str, &'static str)>,
    /// The goal or parameter that makes a designed loop slower where it is smaller.
    pub slowed_by: Option<&'static str>,
    set_point: &'static str,
    definition: &'static dyn LawDefinition,
    /// How the law is tuned where its queue makes several loops of its one.
    search_in_queues: Option<fn(&Conditions) -> Search>,
    is_own: bool,
}

impl LawSpec {
    pub const fn of<R: LawParams>(
        kind: &'static str,
        title: &'static str,
        source: &'static str,
    ) -> LawSpec {
        LawSpec {
            goals: R::GOALS,
            baseline: R::BASELINE,
            reality: R::REALITY,
            slowed_by: R::SLOWED_BY,
            set_point: R::SET_POINT,
            is_own: false,
            ..LawSpec::own(kind, title, source, R::SPECS, &Declared::<R>(PhantomData))
        }
    }

    /// A law that is in no registry, with the facts that packets need: whoever uses the library
    /// brings it.
    pub const fn own(
        kind: &'static str,
        title: &'static str,
        source: &'static str,
        params: &'static [ParamSpec],
        definition: &'static dyn LawDefinition,
    ) -> LawSpec {
        LawSpec {
            kind,
            title,
            source,
            equation: "",
            params,
            queue: "fifo",
            goals: &[],
            baseline: false,
            reality: None,
            slowed_by: None,
            set_point: "target",
            definition,
            search_in_queues: None,
            is_own: true,
        }
    }

    #[must_use]
    pub const fn with_equation(self, equation: &'static str) -> LawSpec {
        LawSpec { equation, ..self }
    }

    /// The same law under the name that it has in another queue.
    #[must_use]
    pub const fn in_queue(
        self,
        queue: &'static str,
        kind: &'static str,
        title: &'static str,
        source: &'static str,
    ) -> LawSpec {
        LawSpec {
            kind,
            title,
            source,
            queue,
            ..self
        }
    }

    /// Of a law in a queue that makes several loops of its one: its linear model and its design
    /// rule hold no more, and a search by them becomes `search`.
    #[must_use]
    pub const fn with_several_loops(self, search: fn(&Conditions) -> Search) -> LawSpec {
        LawSpec {
            goals: &[],
            slowed_by: None,
            search_in_queues: Some(search),
            ..self
        }
    }

    /// Whether the caller brought it.
    pub fn is_own(&self) -> bool {
        self.is_own
    }

    /// What people call the law: the title up to its colon.
    pub fn name(&self) -> &'static str {
        self.title.split(':').next().unwrap_or(self.title)
    }

    /// The parameter that sets where the law holds the queue; `None` for a law without one.
    pub fn set_point(&self) -> Option<&'static ParamSpec> {
        self.params.iter().find(|spec| spec.name == self.set_point)
    }

    /// How the law is tuned for these conditions.
    pub fn search(&self, conditions: &Conditions) -> Search {
        match self.search_in_queues {
            Some(search) => search(conditions),
            None => self.definition.search(conditions),
        }
    }

    /// The law with `given` on top of the defaults.
    ///
    /// # Errors
    /// A parameter that is unknown or out of range.
    pub fn read(&self, given: &ParamValues) -> Result<Box<dyn ConfiguredLaw>, ParamError> {
        let law = self.definition.read(given)?;
        Ok(match self.search_in_queues {
            Some(_) => Box::new(InSeveralQueues(law)),
            None => law,
        })
    }

    /// As [`LawParams::rate_control`].
    ///
    /// # Errors
    /// As [`read`](LawSpec::read).
    pub fn rate_control(&self, given: &ParamValues) -> Result<Option<RateControl>, ParamError> {
        Ok(self.read(given)?.rate_control())
    }

    /// As [`LawParams::coupling`].
    ///
    /// # Errors
    /// As [`read`](LawSpec::read).
    pub fn coupling(&self, given: &ParamValues) -> Result<Option<f64>, ParamError> {
        Ok(self.read(given)?.coupling())
    }

    /// Whether the law integrates the distance to its set-point, by its linear model; false for
    /// parameters that it does not take.
    pub fn integrates(&self, given: &ParamValues) -> bool {
        // Where the law has an integral, it has it on every link: on one with room too.
        let model = self.linear(given, &roomy_point(), &ROOMY);
        matches!(model, Ok(Some(model)) if model.integrates())
    }

    /// Whether the law has a linear model with its defaults.
    pub fn is_modelled(&self) -> bool {
        matches!(self.linear(&[], &roomy_point(), &ROOMY), Ok(Some(_)))
    }

    /// Whether the law has a design rule.
    pub fn has_rule(&self) -> bool {
        let request = DesignRequest {
            point: roomy_point(),
            probability: roomy_point().probability(),
            marked: false,
            set_point: SetPoint::Packets(1000.0),
            site: ROOMY,
        };
        // A rule that cannot meet the request is a rule.
        !matches!(self.design(&[], &request, &[]), Ok(None))
    }

    /// Builds a law with `given` on top of the defaults, and with its seed.
    ///
    /// # Errors
    /// A parameter that is unknown, out of range, or does not fit the others or the queue.
    pub fn build(
        &self,
        given: &ParamValues,
        site: &Site,
        seed: u64,
    ) -> Result<Box<dyn Law>, ParamError> {
        self.read(given)?.build(site, seed)
    }

    /// Checks that a law with `given` on top of the defaults can be built at `site`.
    ///
    /// # Errors
    /// As [`build`](LawSpec::build).
    pub fn check(&self, given: &ParamValues, site: &Site) -> Result<(), ParamError> {
        self.build(given, site, 0).map(drop)
    }

    /// As [`LawParams::twin`], with `given` on top of the defaults.
    ///
    /// # Errors
    /// As [`build`](LawSpec::build), and as there.
    pub fn twin(&self, given: &ParamValues, site: &Site) -> Result<Option<Twin>, ParamError> {
        self.read(given)?.twin(site)
    }

    /// Every parameter's value with `given` on top of the defaults.
    ///
    /// # Errors
    /// As [`read`](LawSpec::read).
    pub fn resolve(&self, given: &ParamValues) -> Result<Vec<(&'static str, Value)>, ParamError> {
        Ok(self.read(given)?.values())
    }

    /// The law near an operating point; `None` where it has no linear model, or no equilibrium.
    ///
    /// # Errors
    /// As [`build`](LawSpec::build).
    pub fn linear(
        &self,
        given: &ParamValues,
        point: &OperatingPoint,
        site: &Site,
    ) -> Result<Option<LoopFilter>, ParamError> {
        self.read(given)?.linear(point, site)
    }

    /// Where `flows` of Reno with this propagation RTT settle under the law, and its model there.
    ///
    /// # Errors
    /// As [`build`](LawSpec::build).
    pub fn operate(
        &self,
        given: &ParamValues,
        flows: f64,
        propagation_s: f64,
        site: &Site,
    ) -> Result<Equilibrium, ParamError> {
        let flows = RenoFlows {
            flows,
            propagation_s,
            capacity_pkts_per_s: site.rate.packets_per_sec(site.packet),
        };
        let law = self.read(given)?;
        settle(&|point, site| law.linear(point, site), &flows, site)
    }

    /// The law's design rule with `given` for what it does not design, and `goals` of
    /// [`goals`](LawSpec::goals); `None` where there is no rule.
    ///
    /// # Errors
    /// A parameter or a goal that is unknown or out of range, or a request that cannot be met.
    pub fn design(
        &self,
        given: &ParamValues,
        request: &DesignRequest,
        goals: &ParamValues,
    ) -> DesignResult {
        self.read(given)?.design(request, goals)
    }

    /// What of `given` and the defaults must be another on this link, by the authors' advice, for
    /// a law without a design rule.
    ///
    /// # Errors
    /// As [`read`](LawSpec::read).
    pub fn fitted(
        &self,
        given: &ParamValues,
        rtt: Span,
        site: &Site,
    ) -> Result<Vec<(&'static str, Value)>, ParamError> {
        Ok(self.read(given)?.fitted(rtt, site))
    }
}
