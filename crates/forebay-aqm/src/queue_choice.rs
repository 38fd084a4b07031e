//! A discipline with its parameters, and a law in it, to be built at any queue.

use std::sync::Arc;

use forebay_linux_tc::{Tc, TcSite};
use forebay_units::{Buffer, ParamError, QueueSite, Value};

use crate::configured_law::ConfiguredLaw;
use crate::discipline::{DisciplineSpec, LawFactory, MakeLaw, Packet};
use crate::disciplines::{self, QueueParams, DISCIPLINES};
use crate::law::Ecn;
use crate::law_spec::LawSpec;
use crate::queue::Queue;

/// A discipline with the parameters given for it.
#[derive(Clone)]
pub struct QueueChoice {
    /// The discipline's entry in the registry.
    pub spec: &'static DisciplineSpec,
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
    /// Returns the discipline with the parameters `given`; the others have their defaults.
    ///
    /// # Errors
    /// A parameter that is unknown or out of range.
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

    /// Returns the discipline with every parameter at its default.
    pub fn with_defaults(spec: &'static DisciplineSpec) -> QueueChoice {
        QueueChoice::new(spec, Vec::new()).expect("every parameter of a queue has a default")
    }

    /// Returns the discipline that `law` has where none is named.
    pub fn of_law(law: &LawSpec) -> QueueChoice {
        QueueChoice::with_defaults(disciplines::of_law(law))
    }

    /// Returns the parameters that were given.
    pub fn given(&self) -> &[(String, Value)] {
        &self.given
    }

    /// Returns the value of every parameter.
    pub fn values(&self) -> Vec<(&'static str, Value)> {
        self.params.values()
    }

    /// Whether it is the discipline that most laws have where none is named.
    pub fn is_default(&self) -> bool {
        self.spec.kind == DISCIPLINES[0].kind
    }

    /// True if each flow has a queue and a law of its own.
    pub fn is_per_flow(&self) -> bool {
        self.params.per_flow()
    }

    /// Returns the queue at `site`: with its own limit in place of the link's buffer, if it has one.
    fn site(&self, site: &QueueSite) -> QueueSite {
        let limit = self.params.own_limit();
        let buffer = limit.map_or(site.buffer, Buffer::Packets);
        QueueSite { buffer, ..*site }
    }

    /// Returns the qdisc of Linux that `law` is in this queue; `None` if there is none.
    ///
    /// # Errors
    /// A parameter that the qdisc does not have.
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

    /// A fresh, empty queue, idle since the start.
    ///
    /// # Errors
    /// A parameter of a law that does not fit the others or the queue.
    pub fn build<P: Packet + Send + 'static>(
        &self,
        site: &QueueSite,
        laws: LawFactory,
    ) -> Result<Queue<P>, ParamError> {
        match &self.params {
            QueueParams::FifoParams(params) => params.fifo(site, laws).map(Queue::Fifo),
            other => other.build(&self.site(site), laws).map(Queue::Other),
        }
    }
}
