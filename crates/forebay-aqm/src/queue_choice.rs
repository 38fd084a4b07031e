//! A discipline with its parameters, and a law in it: the recipe from which queues are built.

use std::sync::Arc;

use forebay_linux_tc::{Tc, TcSite};
use forebay_units::{ParamError, Params, QueueSite, Value};

use crate::configured_law::ConfiguredLaw;
use crate::discipline::{DisciplineSpec, LawFactory, MakeLaw, Packet};
use crate::disciplines::{self, fifo, DISCIPLINES};
use crate::law::Ecn;
use crate::law_spec::LawSpec;
use crate::queue::Queue;

/// A discipline and values for its parameters.
#[derive(Clone)]
pub struct QueueChoice {
    /// The discipline's entry in the registry.
    pub spec: &'static DisciplineSpec,
    /// Values of parameters. A parameter without one has its default.
    pub params: Vec<(String, Value)>,
}

impl Default for QueueChoice {
    fn default() -> QueueChoice {
        QueueChoice {
            spec: &DISCIPLINES[0],
            params: Vec::new(),
        }
    }
}

impl PartialEq for QueueChoice {
    fn eq(&self, other: &QueueChoice) -> bool {
        self.spec.kind == other.spec.kind && self.params == other.params
    }
}

impl std::fmt::Debug for QueueChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{} {:?}", self.spec.kind, self.params)
    }
}

/// Formats the choice as a scenario writes it: `fifo`, or `{ kind = "priority", dscp = 46 }`.
impl std::fmt::Display for QueueChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        if self.params.is_empty() {
            return f.write_str(self.spec.kind);
        }
        let mut fields = vec![("kind".to_owned(), Value::Text(self.spec.kind.into()))];
        fields.extend(self.params.iter().cloned());
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
    /// Returns the discipline that holds `law` by default.
    pub fn of_law(law: &LawSpec) -> QueueChoice {
        QueueChoice {
            spec: disciplines::of_law(law),
            params: Vec::new(),
        }
    }

    /// Returns true if the discipline is a FIFO, the default of most laws.
    pub fn is_default(&self) -> bool {
        self.spec.kind == DISCIPLINES[0].kind
    }

    /// Returns true if every flow has a queue and a law of its own. False if the parameters are
    /// invalid.
    pub fn is_per_flow(&self) -> bool {
        self.spec
            .per_flow(&self.params)
            .is_ok_and(|per_flow| per_flow)
    }

    /// Returns the Linux qdisc that corresponds to `law` in this discipline; `None` if there is none.
    ///
    /// # Errors
    /// If a parameter of the discipline is unknown or out of range, or if the qdisc does not have a
    /// parameter.
    pub fn tc(&self, law: &dyn ConfiguredLaw, site: &TcSite) -> Result<Option<Tc>, ParamError> {
        let Some(law) = law.linux() else {
            return Ok(None);
        };
        let site = &TcSite {
            queue: self.spec.site(&self.params, &site.queue)?,
            ..*site
        };
        let Some(mut tc) = law.tc(self.spec.kind, site)? else {
            return Ok(None);
        };
        self.spec.tc(&self.params, &mut tc, site)?;
        Ok(Some(tc))
    }

    /// Builds an empty queue, idle since time zero.
    ///
    /// # Errors
    /// If a parameter of the discipline is unknown or out of range, or a parameter of a law is
    /// inconsistent with the others or with the queue.
    pub fn build<P: Packet + Send + 'static>(
        &self,
        site: &QueueSite,
        laws: LawFactory,
    ) -> Result<Queue<P>, ParamError> {
        if self.is_default() {
            return fifo::FifoParams::read(&self.params)?
                .fifo(site, laws)
                .map(Queue::Fifo);
        }
        let site = &self.spec.site(&self.params, site)?;
        disciplines::build(self.spec.kind, &self.params, site, laws).map(Queue::Other)
    }
}
