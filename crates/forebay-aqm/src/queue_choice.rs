//! A discipline with its parameters, and a law in it: the recipe from which queues are built.

use std::sync::Arc;

use forebay_linux_tc::{Tc, TcSite};
use forebay_units::{Buffer, ParamError, QueueSite, Value};

use crate::configured_law::ConfiguredLaw;
use crate::discipline::{DisciplineSpec, LawFactory, MakeLaw, Packet};
use crate::disciplines::{self, QueueParams, DISCIPLINES};
use crate::law::Ecn;
use crate::law_spec::LawSpec;
use crate::queue::Queue;

/// A discipline and values for its parameters.
#[derive(Clone)]
pub struct QueueChoice {
    /// The discipline's entry in the registry.
    pub spec: &'static DisciplineSpec,
    /// The parameters that were set; the others have their defaults.
    given: Vec<(String, Value)>,
    params: QueueParams,
}

impl Default for QueueChoice {
    fn default() -> QueueChoice {
        QueueChoice::with_defaults(&DISCIPLINES[0])
    }
}

impl PartialEq for QueueChoice {
    fn eq(&self, other: &QueueChoice) -> bool {
        self.spec.kind == other.spec.kind && self.given == other.given
    }
}

impl std::fmt::Debug for QueueChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{} {:?}", self.spec.kind, self.given)
    }
}

/// Formats the choice as a scenario writes it: `fifo`, or `{ kind = "priority", dscp = 46 }`.
impl std::fmt::Display for QueueChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        if self.given.is_empty() {
            return f.write_str(self.spec.kind);
        }
        let mut fields = vec![("kind".to_owned(), Value::Text(self.spec.kind.into()))];
        fields.extend(self.given.iter().cloned());
        Value::Table(fields).fmt(f)
    }
}

/// A law and the discipline that holds it: the recipe from which queues are built.
#[derive(Clone)]
pub struct Aqm {
    /// The discipline.
    pub queue: QueueChoice,
    /// The function that builds each of its laws.
    pub law: Arc<MakeLaw>,
}

impl Aqm {
    /// Returns `law` in the discipline `queue`.
    pub fn new(law: Arc<dyn ConfiguredLaw>, queue: QueueChoice) -> Aqm {
        Aqm {
            queue,
            law: Arc::new(move |site, seed| law.build(site, seed)),
        }
    }

    /// Returns the law in the default discipline, a FIFO.
    pub fn in_default_queue(law: Arc<MakeLaw>) -> Aqm {
        Aqm {
            queue: QueueChoice::default(),
            law,
        }
    }

    /// Builds an empty queue. The random streams of its laws are determined by `seed` and `stream`.
    ///
    /// # Errors
    /// If [`QueueChoice::build`] fails.
    pub fn build<P: Packet + Send + 'static>(
        &self,
        site: &QueueSite,
        seed: u64,
        stream: &str,
    ) -> Result<Queue<P>, ParamError> {
        let laws = LawFactory::new(Arc::clone(&self.law), seed, stream);
        self.queue.build(site, laws)
    }

    /// Checks that the queue can be built at `site`, by building it.
    ///
    /// # Errors
    /// If [`build`](Aqm::build) fails.
    pub fn check(&self, site: &QueueSite) -> Result<(), ParamError> {
        self.build::<NoPacket>(site, 0, "").map(|_| ())
    }
}

/// The packet type of a queue that is built only to be checked: it has no values.
#[derive(Clone, Copy)]
enum NoPacket {}

impl Packet for NoPacket {
    fn bytes(&self) -> u32 {
        match *self {}
    }
    fn flow(&self) -> u64 {
        match *self {}
    }
    fn ecn(&self) -> Ecn {
        match *self {}
    }
    fn dscp(&self) -> u8 {
        match *self {}
    }
    fn set_ce(&mut self) {
        match *self {}
    }
}

impl QueueChoice {
    /// Returns the discipline `spec` with the parameters `given`; the others have their defaults.
    ///
    /// # Errors
    /// If a parameter is unknown or out of range.
    pub fn new(
        spec: &'static DisciplineSpec,
        given: Vec<(String, Value)>,
    ) -> Result<QueueChoice, ParamError> {
        Ok(QueueChoice {
            spec,
            params: QueueParams::read(spec, &given)?,
            given,
        })
    }

    /// Returns the discipline `spec` with every parameter at its default.
    pub fn with_defaults(spec: &'static DisciplineSpec) -> QueueChoice {
        QueueChoice::new(spec, Vec::new()).expect("every parameter of a queue has a default")
    }

    /// Returns the discipline that holds `law` by default.
    pub fn of_law(law: &LawSpec) -> QueueChoice {
        QueueChoice::with_defaults(disciplines::of_law(law))
    }

    /// Returns the parameters that were set.
    pub fn given(&self) -> &[(String, Value)] {
        &self.given
    }

    /// Returns the value of every parameter.
    pub fn values(&self) -> Vec<(&'static str, Value)> {
        self.params.values()
    }

    /// Returns true if the discipline is a FIFO, the default of most laws.
    pub fn is_default(&self) -> bool {
        self.spec.kind == DISCIPLINES[0].kind
    }

    /// Returns true if every flow has a queue and a law of its own.
    pub fn is_per_flow(&self) -> bool {
        self.params.per_flow()
    }

    /// Returns `site` with the buffer limit that the parameters set, if they set one.
    fn site(&self, site: &QueueSite) -> QueueSite {
        let limit = self.params.own_limit();
        let buffer = limit.map_or(site.buffer, Buffer::Packets);
        QueueSite { buffer, ..*site }
    }

    /// Returns the Linux qdisc that corresponds to `law` in this discipline; `None` if there is none.
    ///
    /// # Errors
    /// If the qdisc does not have a parameter.
    pub fn tc(&self, law: &dyn ConfiguredLaw, site: &TcSite) -> Result<Option<Tc>, ParamError> {
        let Some(law) = law.linux() else {
            return Ok(None);
        };
        let site = &TcSite {
            queue: self.site(&site.queue),
            ..*site
        };
        let Some(mut tc) = law.tc(self.spec.kind, site)? else {
            return Ok(None);
        };
        self.params.tc(&mut tc, site)?;
        Ok(Some(tc))
    }

    /// Builds an empty queue, idle since time zero.
    ///
    /// # Errors
    /// If a parameter of a law is inconsistent with the others or with the queue.
    pub fn build<P: Packet + Send + 'static>(
        &self,
        site: &QueueSite,
        laws: LawFactory,
    ) -> Result<Queue<P>, ParamError> {
        match &self.params {
            QueueParams::FifoParams(params) => params.fifo(site, laws).map(Queue::Fifo),
            params => params.build(&self.site(site), laws).map(Queue::Other),
        }
    }
}
