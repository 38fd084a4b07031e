//! A law's entry in the registry.

use std::sync::Arc;

use forebay_theory::design::DesignRequest;
use forebay_theory::search::{Conditions, Search};
use forebay_units::{ParamError, ParamSpec, ParamValues, Params, SetPoint, Site};

use crate::configured_law::{roomy_point, ConfiguredLaw, SeveralLoops, ROOMY};
use crate::law::Law;

/// A function that reads the parameters of a law.
pub type ReadLaw = dyn Fn(&ParamValues) -> Result<Arc<dyn ConfiguredLaw>, ParamError> + Send + Sync;

/// A law's entry in the registry: the facts that do not depend on its parameters.
pub struct LawSpec {
    /// Name in scenarios and on the command line.
    pub kind: &'static str,
    /// The law in a sentence that begins with its name and a colon.
    pub title: &'static str,
    /// The publication that describes the law.
    pub source: &'static str,
    /// The law's equation in one line, with the names of its parameters. q is the queue, C the
    /// link's rate, λ the arrival rate and N the number of flows. Empty if the law has no equation.
    pub equation: &'static str,
    /// The declared parameters.
    pub params: &'static [ParamSpec],
    /// The kind of the queue discipline that holds the law by default.
    pub queue: &'static str,
    /// The goals of the law's design rule, in addition to its parameters.
    pub goals: &'static [ParamSpec],
    /// True for the queue without a law, with which the laws are compared.
    pub baseline: bool,
    /// The reason for which results with real packets can differ from simulated ones under this
    /// law: a noun that names the cause, and sentences that explain it. `None` if the law is no
    /// reason.
    pub reality: Option<(&'static str, &'static str)>,
    /// The goal or parameter whose smaller values make a designed loop slower.
    pub slowed_by: Option<&'static str>,
    set_point: &'static str,
    read: &'static ReadLaw,
    search: fn(&Conditions) -> Search,
    /// True if the discipline has several queues, so that there are several control loops.
    several_loops: bool,
    /// True if the law is not in the registry.
    is_custom: bool,
}

impl LawSpec {
    /// Returns the entry of a law in a FIFO whose parameters are of type `P`, without a search
    /// space.
    pub(crate) const fn of<P: Params + ConfiguredLaw + 'static>(
        kind: &'static str,
        title: &'static str,
        source: &'static str,
    ) -> LawSpec {
        LawSpec {
            is_custom: false,
            ..LawSpec::custom(kind, title, source, P::SPECS, &|values| {
                Ok(Arc::new(P::read(values)?))
            })
        }
    }

    /// Returns the entry of a law that is not in the registry: the user of the library supplies it.
    pub const fn custom(
        kind: &'static str,
        title: &'static str,
        source: &'static str,
        params: &'static [ParamSpec],
        read: &'static ReadLaw,
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
            read,
            search: |_| Search::Nothing,
            several_loops: false,
            is_custom: true,
        }
    }

    /// Adds the law's equation.
    #[must_use]
    pub(crate) const fn with_equation(self, equation: &'static str) -> LawSpec {
        LawSpec { equation, ..self }
    }

    /// Adds the goals of the law's design rule.
    #[must_use]
    pub(crate) const fn with_goals(self, goals: &'static [ParamSpec]) -> LawSpec {
        LawSpec { goals, ..self }
    }

    /// Names the goal or parameter whose smaller values make a designed loop slower.
    #[must_use]
    pub(crate) const fn slowed_by(self, name: &'static str) -> LawSpec {
        LawSpec {
            slowed_by: Some(name),
            ..self
        }
    }

    /// Adds the settings among which the law is tuned for a range of links and loads.
    #[must_use]
    pub(crate) const fn with_search(self, search: fn(&Conditions) -> Search) -> LawSpec {
        LawSpec { search, ..self }
    }

    /// Names the parameter that is the set-point, if it is not `target`.
    #[must_use]
    pub(crate) const fn with_set_point(self, set_point: &'static str) -> LawSpec {
        LawSpec { set_point, ..self }
    }

    /// Adds the reason for which results with real packets can differ from simulated ones.
    #[must_use]
    pub(crate) const fn with_reality(
        self,
        (noun, sentences): (&'static str, &'static str),
    ) -> LawSpec {
        LawSpec {
            reality: Some((noun, sentences)),
            ..self
        }
    }

    /// Marks this as the queue without a law, with which the laws are compared.
    #[must_use]
    pub(crate) const fn into_baseline(self) -> LawSpec {
        LawSpec {
            baseline: true,
            ..self
        }
    }

    /// Returns the entry of this law in another discipline, under the name of the combination.
    #[must_use]
    pub(crate) const fn in_queue(
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

    /// Returns the entry of this law in a discipline with several queues. Its linear model, design
    /// rule and fixed-point twin do not apply there, and it is tuned among the settings of
    /// `search`.
    #[must_use]
    pub(crate) const fn with_several_loops(self, search: fn(&Conditions) -> Search) -> LawSpec {
        LawSpec {
            goals: &[],
            slowed_by: None,
            search,
            several_loops: true,
            ..self
        }
    }

    /// Returns true if the law is not in the registry: the user of the library supplied it.
    pub fn is_custom(&self) -> bool {
        self.is_custom
    }

    /// Returns the law's name: the title up to the colon.
    pub fn name(&self) -> &'static str {
        self.title.split(':').next().unwrap_or(self.title)
    }

    /// Returns the parameter that is the law's set-point; `None` if it has none.
    pub fn set_point(&self) -> Option<&'static ParamSpec> {
        self.params.iter().find(|spec| spec.name == self.set_point)
    }

    /// Returns the settings among which the law is tuned for these conditions.
    pub fn search(&self, conditions: &Conditions) -> Search {
        (self.search)(conditions)
    }

    /// Reads the law's parameters: those in `values`, and defaults for the rest.
    ///
    /// # Errors
    /// If a parameter is unknown, missing or out of range.
    pub fn read(&self, values: &ParamValues) -> Result<Arc<dyn ConfiguredLaw>, ParamError> {
        let law = (self.read)(values)?;
        Ok(match self.several_loops {
            true => Arc::new(SeveralLoops(law)),
            false => law,
        })
    }

    /// Builds a law with the parameters in `values`, and defaults for the rest.
    ///
    /// # Errors
    /// If a parameter is unknown, out of range, or inconsistent with the others or with the queue.
    pub fn build(
        &self,
        values: &ParamValues,
        site: &Site,
        seed: u64,
    ) -> Result<Box<dyn Law>, ParamError> {
        self.read(values)?.build(site, seed)
    }

    /// Returns true if the law has a linear model with its defaults.
    pub fn is_modelled(&self) -> bool {
        let model = |law: Arc<dyn ConfiguredLaw>| law.linear(&roomy_point(), &ROOMY);
        matches!(self.read(&[]).and_then(model), Ok(Some(_)))
    }

    /// Returns true if the law has a design rule.
    pub fn has_rule(&self) -> bool {
        let request = DesignRequest {
            point: roomy_point(),
            probability: roomy_point().probability(),
            marked: false,
            set_point: SetPoint::Packets(1000.0),
            site: ROOMY,
        };
        // A rule that refuses this request is still a rule.
        self.read(&[]).is_ok_and(|law| {
            law.theory()
                .is_some_and(|theory| !matches!(theory.design(&request, &[]), Ok(None)))
        })
    }
}
