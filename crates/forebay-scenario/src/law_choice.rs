//! A law with its parameters and its queue: the same for simulated and real packets.

use std::fmt;
use std::sync::Arc;

use forebay_aqm::laws::{find, LAWS};
use forebay_aqm::{Aqm, ConfiguredLaw, LawFactory, LawSpec, QueueChoice};
use forebay_linux_tc::{Tc, TcSite};
use forebay_units::{one_of, unknown_key, ParamError, SetPoint, Site, Value};

/// A law with the parameters given for it, and the queue that holds it.
#[derive(Clone)]
pub struct LawChoice {
    /// Name in reports; by default the kind, with a number if the kind occurs twice.
    pub label: String,
    /// The law's entry in the registry, or the caller's.
    pub spec: &'static LawSpec,
    /// The discipline that holds the law, or several of its kind.
    pub queue: QueueChoice,
    pub(crate) given: Vec<(String, Value)>,
    pub(crate) law: Arc<dyn ConfiguredLaw>,
}

impl fmt::Debug for LawChoice {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} {:?} in {:?}", self.spec.kind, self.given, self.queue)
    }
}

impl LawChoice {
    /// Returns the law `spec` in the queue that it comes in, labelled with its kind. Keys of that
    /// queue among those given go to it.
    ///
    /// # Errors
    /// A parameter of the law or of the queue that is unknown, missing or out of range.
    pub fn of(
        spec: &'static LawSpec,
        given: Vec<(String, Value)>,
    ) -> Result<LawChoice, ParamError> {
        let queue = QueueChoice::of_law(spec);
        let keys = queue.spec.params;
        let known = || spec.params.iter().chain(keys).map(|key| key.name);
        if let Some((name, _)) = given
            .iter()
            .find(|(name, _)| known().all(|key| key != name))
        {
            return Err(unknown_key(name, known()));
        }
        let (for_queue, given) = given
            .into_iter()
            .partition(|(name, _)| keys.iter().any(|key| key.name == name));
        let choice = LawChoice::in_queue(spec, given, queue)?;
        Ok(LawChoice {
            queue: QueueChoice::new(choice.queue.spec, for_queue)?,
            ..choice
        })
    }

    /// Returns the law `spec` in this queue, labelled with its kind.
    ///
    /// # Errors
    /// A parameter of the law that is unknown, missing or out of range.
    pub fn in_queue(
        spec: &'static LawSpec,
        given: Vec<(String, Value)>,
        queue: QueueChoice,
    ) -> Result<LawChoice, ParamError> {
        Ok(LawChoice {
            label: spec.kind.to_owned(),
            spec,
            law: spec.read(&given)?,
            given,
            queue,
        })
    }

    /// Returns the law with another value for a parameter.
    ///
    /// # Errors
    /// A parameter that is unknown or out of range.
    pub fn with(&self, key: &str, value: Value) -> Result<LawChoice, ParamError> {
        let mut given = self.given.clone();
        given.retain(|(name, _)| name != key);
        given.push((key.to_owned(), value));
        Ok(LawChoice {
            law: self.spec.read(&given)?,
            given,
            ..self.clone()
        })
    }

    /// Returns the law in the queue that was named together with it, if there is one.
    ///
    /// # Errors The queue is of another kind than the law's name implies, or a parameter of the
    /// queue is wrong.
    pub fn held_by(mut self, queue: Option<QueueChoice>) -> Result<LawChoice, ParamError> {
        let Some(queue) = queue else {
            return Ok(self);
        };
        if !QueueChoice::of_law(self.spec).is_default() && queue.spec.kind != self.queue.spec.kind {
            let (own, kind) = (self.spec.queue, self.spec.kind);
            let expected = format!("{own}, the queue of {kind}");
            let error = ParamError::new("queue", queue.to_string(), expected);
            return Err(error.because(format!("cannot hold {kind}")));
        }
        let given = [queue.given(), self.queue.given()].concat();
        self.queue = QueueChoice::new(queue.spec, given)?;
        Ok(self)
    }

    /// Returns the parameters that were given; the others have their defaults.
    pub fn given(&self) -> &[(String, Value)] {
        &self.given
    }

    /// Returns the law with a value for each parameter.
    pub fn law(&self) -> &Arc<dyn ConfiguredLaw> {
        &self.law
    }

    /// Checks that the law can be built at `site`.
    ///
    /// # Errors
    /// A parameter that does not fit the others or the queue.
    pub fn check(&self, site: &Site) -> Result<(), ParamError> {
        self.law.build(site, 0).map(drop)
    }

    /// Returns what builds the laws of one queue, each with a random stream and a seed of its own.
    pub fn laws(&self, seed: u64, stream: &str) -> LawFactory {
        LawFactory::new(self.aqm().law, seed, stream)
    }

    /// Returns the law and its queue, to be built at any link.
    pub fn aqm(&self) -> Aqm {
        Aqm::new(Arc::clone(&self.law), self.queue.clone())
    }

    /// Returns the qdisc of Linux that the law is in its queue; `None` where there is none.
    ///
    /// # Errors
    /// A parameter that the qdisc does not have.
    pub fn tc(&self, site: &TcSite) -> Result<Option<Tc>, ParamError> {
        self.queue.tc(&*self.law, site)
    }

    /// Returns the set-point of this law, if it has one.
    pub fn set_point(&self) -> Option<SetPoint> {
        self.law.set_point()
    }

    /// Returns the parameter that the registry declares as the law's set-point, and its value.
    pub fn set_point_param(&self) -> Option<(&'static str, SetPoint)> {
        Some((self.spec.set_point()?.name, self.set_point()?))
    }

    /// Returns the set-point in packets at `site`, if there is one. A delay counts as what the link
    /// sends in that time at its first rate; changes of the rate do not move it.
    pub fn target_pkts(&self, site: &Site) -> Option<f64> {
        self.set_point().map(|set_point| site.pkts(set_point))
    }

    /// Returns the set-point of `other` if the two differ in nothing else.
    pub fn with_another_target(&self, other: &LawChoice) -> Option<SetPoint> {
        fn rest(law: &LawChoice) -> impl Iterator<Item = &(String, Value)> {
            let key = law.spec.set_point().map(|key| key.name);
            law.given
                .iter()
                .filter(move |(name, _)| Some(name.as_str()) != key)
        }
        let same = self.spec.kind == other.spec.kind
            && self.queue == other.queue
            && rest(self).eq(rest(other));
        other.set_point().filter(|_| same)
    }

    /// Returns the given parameters in words: "target=20p, rest default".
    pub fn in_words(&self) -> String {
        let given = self.given.iter().map(|(name, value)| match value {
            Value::Text(text) => format!("{name}={text}"),
            other => format!("{name}={other}"),
        });
        let rest = self.given.len() < self.spec.params.len();
        let queue = (!self.queue.is_default()).then(|| format!("queue={}", self.queue));
        let all: Vec<String> = queue
            .into_iter()
            .chain(given)
            .chain(rest.then(|| "rest default".to_owned()))
            .collect();
        all.join(", ")
    }
}

/// Returns the law of this kind.
///
/// # Errors
/// The kinds there are, with a suggestion.
pub fn law_named(kind: &str) -> Result<&'static LawSpec, String> {
    find(kind).ok_or_else(|| one_of(&law_kinds(), kind))
}

/// Returns the kinds of laws, in the order of the registry.
pub fn law_kinds() -> Vec<&'static str> {
    LAWS.iter().map(|spec| spec.kind).collect()
}
