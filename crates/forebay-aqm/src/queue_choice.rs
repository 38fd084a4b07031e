//! A discipline with its parameters, and a law in it, to be built at any queue.

use std::sync::Arc;

use forebay_linux_tc::{Tc, TcSite};
use forebay_units::{ParamError, Params, QueueSite, Value};

use crate::configured_law::ConfiguredLaw;
use crate::discipline::{DisciplineSpec, LawFactory, MakeLaw, Packet};
use crate::disciplines::{self, fifo, DISCIPLINES};
use crate::law::Ecn;
use crate::law_spec::LawSpec;
use crate::queue::Queue;

/// A discipline with the parameters given for it.
#[derive(Clone)]
pub struct QueueChoice {
    /// The discipline's entry in the registry.
    pub spec: &'static DisciplineSpec,
    /// The parameters that were given; the others have their defaults.
    pub given: Vec<(String, Value)>,
}

impl Default for QueueChoice {
    fn default() -> QueueChoice {
        QueueChoice {
            spec: &DISCIPLINES[0],
            given: Vec::new(),
        }
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

/// As a scenario writes it: `fifo`, or `{ kind = "priority", dscp = 46 }`.
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

/// A law and the discipline that holds it, to be built at any queue.
#[derive(Clone)]
pub struct Aqm {
    /// The discipline.
    pub queue: QueueChoice,
    /// Builds each of its laws.
    pub law: Arc<MakeLaw>,
}

impl Aqm {
    /// Returns `law` in this queue.
    pub fn new(law: Arc<dyn ConfiguredLaw>, queue: QueueChoice) -> Aqm {
        Aqm {
            queue,
            law: Arc::new(move |site, seed| law.build(site, seed)),
        }
    }

    /// The law in the default discipline.
    pub fn in_default_queue(law: Arc<MakeLaw>) -> Aqm {
        Aqm {
            queue: QueueChoice::default(),
            law,
        }
    }

    /// An empty queue whose laws draw from random streams that `seed` and `stream` name.
    ///
    /// # Errors
    /// As [`QueueChoice::build`].
    pub fn build<P: Packet + Send + 'static>(
        &self,
        site: &QueueSite,
        seed: u64,
        stream: &str,
    ) -> Result<Queue<P>, ParamError> {
        let laws = LawFactory::new(Arc::clone(&self.law), seed, stream);
        self.queue.build(site, laws)
    }

    /// Builds it once at `site`, to see that all fits.
    ///
    /// # Errors
    /// As [`build`](Aqm::build).
    pub fn check(&self, site: &QueueSite) -> Result<(), ParamError> {
        self.build::<NoPacket>(site, 0, "").map(|_| ())
    }
}

/// What a queue that is only built carries.
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
    /// The discipline that `law` has where none is named.
    pub fn of_law(law: &LawSpec) -> QueueChoice {
        QueueChoice {
            spec: disciplines::of_law(law),
            given: Vec::new(),
        }
    }

    /// Whether it is the discipline that most laws have where none is named.
    pub fn is_default(&self) -> bool {
        self.spec.kind == DISCIPLINES[0].kind
    }

    /// Whether each flow has a queue and a law of its own; false for parameters that it does not
    /// take.
    pub fn is_per_flow(&self) -> bool {
        self.spec
            .per_flow(&self.given)
            .is_ok_and(|per_flow| per_flow)
    }

    /// Returns the qdisc of Linux that `law` is in this queue; `None` if there is none.
    ///
    /// # Errors
    /// A parameter of the queue that is unknown or out of range, or a parameter that the qdisc does
    /// not have.
    pub fn tc(&self, law: &dyn ConfiguredLaw, site: &TcSite) -> Result<Option<Tc>, ParamError> {
        let Some(law) = law.linux() else {
            return Ok(None);
        };
        let site = &TcSite {
            queue: self.spec.site(&self.given, &site.queue)?,
            ..*site
        };
        let Some(mut tc) = law.tc(self.spec.kind, site)? else {
            return Ok(None);
        };
        self.spec.tc(&self.given, &mut tc, site)?;
        Ok(Some(tc))
    }

    /// A fresh, empty queue, idle since the start.
    ///
    /// # Errors
    /// A parameter of the discipline that is unknown or out of range, or a parameter of a law
    /// that does not fit the others or the queue.
    pub fn build<P: Packet + Send + 'static>(
        &self,
        site: &QueueSite,
        laws: LawFactory,
    ) -> Result<Queue<P>, ParamError> {
        if self.is_default() {
            return fifo::FifoParams::read(&self.given)?
                .fifo(site, laws)
                .map(Queue::Fifo);
        }
        let site = &self.spec.site(&self.given, site)?;
        disciplines::build(self.spec.kind, &self.given, site, laws).map(Queue::Other)
    }
}
