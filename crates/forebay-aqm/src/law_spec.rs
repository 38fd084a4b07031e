//! A law's entry in the registry.

use std::sync::Arc;

use forebay_theory::design::DesignRequest;
use forebay_theory::search::{Conditions, Search};
use forebay_units::{ParamError, ParamSpec, ParamValues, Params, SetPoint, Site};

use crate::configured_law::{roomy_point, ConfiguredLaw, SeveralLoops, ROOMY};
use crate::law::Law;

/// Reads the parameters of a law.
pub type ReadLaw = dyn Fn(&ParamValues) -> Result<Arc<dyn ConfiguredLaw>, ParamError> + Send + Sync;

/// A law's entry in the registry: what is known of the law whatever its parameters.
pub struct LawSpec {
    /// Name in scenarios and on the command line.
    pub kind: &'static str,
    /// The law in a sentence that begins with its name and a colon.
    pub title: &'static str,
    /// Where the law was published.
    pub source: &'static str,
    /// The law in a line, in the names of its parameters: q is the queue, C the link's rate, λ that
    /// of arrivals, N the flows; empty where there is none.
    pub equation: &'static str,
    /// The declared parameters.
    pub params: &'static [ParamSpec],
    /// Kind of the queue discipline that holds the law where none is named.
    pub queue: &'static str,
    /// What a design can be asked for besides the law's own parameters.
    pub goals: &'static [ParamSpec],
    /// True for the queue without any law, with which others are compared.
    pub baseline: bool,
    /// Why real packets differ from simulated ones under the law, where its kind is a reason: a
    /// noun, and sentences.
    pub reality: Option<(&'static str, &'static str)>,
    /// The goal or parameter that makes a designed loop slower where it is smaller.
    pub slowed_by: Option<&'static str>,
    set_point: &'static str,
    read: &'static ReadLaw,
    search: fn(&Conditions) -> Search,
    /// True if the law's queue makes several loops of its one.
    several_loops: bool,
    is_own: bool,
}

impl LawSpec {
    /// Returns the entry of a law whose parameters are of type `P`, in a FIFO, with nothing to tune.
    pub(crate) const fn of<P: Params + ConfiguredLaw + 'static>(
        kind: &'static str,
        title: &'static str,
        source: &'static str,
    ) -> LawSpec {
        LawSpec {
            is_own: false,
            ..LawSpec::own(kind, title, source, P::SPECS, &|given| {
                Ok(Arc::new(P::read(given)?))
            })
        }
    }

    /// Returns the entry of a law that is in no registry: the user of the library brings it.
    pub const fn own(
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
            is_own: true,
        }
    }

    /// Adds the law in a line.
    #[must_use]
    pub(crate) const fn with_equation(self, equation: &'static str) -> LawSpec {
        LawSpec { equation, ..self }
    }

    /// Adds the goals of the law's design rule.
    #[must_use]
    pub(crate) const fn with_goals(self, goals: &'static [ParamSpec]) -> LawSpec {
        LawSpec { goals, ..self }
    }

    /// Names the goal or parameter that makes a designed loop slower where it is smaller.
    #[must_use]
    pub(crate) const fn slowed_by(self, name: &'static str) -> LawSpec {
        LawSpec {
            slowed_by: Some(name),
            ..self
        }
    }

    /// Adds how the law is tuned for a range of links and loads.
    #[must_use]
    pub(crate) const fn with_search(self, search: fn(&Conditions) -> Search) -> LawSpec {
        LawSpec { search, ..self }
    }

    /// Names the parameter that is the set-point, where that is not `target`.
    #[must_use]
    pub(crate) const fn with_set_point(self, set_point: &'static str) -> LawSpec {
        LawSpec { set_point, ..self }
    }

    /// Adds why real packets differ from simulated ones under the law.
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

    /// Makes this the queue without any law, with which others are compared.
    #[must_use]
    pub(crate) const fn into_baseline(self) -> LawSpec {
        LawSpec {
            baseline: true,
            ..self
        }
    }

    /// Returns the same law under the name that it has in another queue.
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

    /// Returns the same law in a queue that makes several loops of its one: its linear model, its
    /// design rule and its fixed point do not hold there, and it is tuned by `search`.
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

    /// Returns true if the user of the library brought the law.
    pub fn is_own(&self) -> bool {
        self.is_own
    }

    /// Returns what people call the law: the title up to its colon.
    pub fn name(&self) -> &'static str {
        self.title.split(':').next().unwrap_or(self.title)
    }

    /// Returns the parameter that sets where the law holds the queue; `None` if there is none.
    pub fn set_point(&self) -> Option<&'static ParamSpec> {
        self.params.iter().find(|spec| spec.name == self.set_point)
    }

    /// Returns how the law is tuned for these conditions.
    pub fn search(&self, conditions: &Conditions) -> Search {
        (self.search)(conditions)
    }

    /// Reads the law's parameters: `given` on top of the defaults.
    ///
    /// # Errors
    /// A parameter that is unknown, missing or out of range.
    pub fn read(&self, given: &ParamValues) -> Result<Arc<dyn ConfiguredLaw>, ParamError> {
        let law = (self.read)(given)?;
        Ok(match self.several_loops {
            true => Arc::new(SeveralLoops(law)),
            false => law,
        })
    }

    /// Builds a law with `given` on top of the defaults.
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
        // A rule that cannot meet the request is a rule.
        self.read(&[]).is_ok_and(|law| {
            law.theory()
                .is_some_and(|theory| !matches!(theory.design(&request, &[]), Ok(None)))
        })
    }
}
