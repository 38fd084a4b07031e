//! What disciplines with a queue for each flow share: bands are made as flows come, and each law has
//! a clock of its own.

use forebay_units::{Buffer, ParamError, QueueSite, Rate, SetPoint, Time};

use crate::band::Band;
use crate::discipline::{LawFactory, Packet};

/// Makes bands, and knows when the laws of those that it made want to be called.
pub struct Bands<P> {
    pub site: QueueSite,
    laws: LawFactory,
    /// The first one, until a flow comes.
    spare: Option<Band<P>>,
    /// No law wants to be called before.
    next_timeout: Option<Time>,
    /// Moved while traffic runs; bands to come take it as well.
    set_point: Option<SetPoint>,
}

impl<P: Packet> Bands<P> {
    /// The first law is built here, which shows that the others can be as flows come.
    ///
    /// # Errors
    /// A parameter of the law that does not fit the others or the queue.
    pub fn new(site: &QueueSite, mut laws: LawFactory) -> Result<Bands<P>, ParamError> {
        let first = Band::new(site, &mut laws)?;
        Ok(Bands {
            site: *site,
            laws,
            next_timeout: first.poll_timeout(),
            spare: Some(first),
            set_point: None,
        })
    }

    /// A band for a new queue, whose law is told of this rate.
    pub fn make(&mut self, rate: Rate) -> Band<P> {
        let mut band = self.spare.take().unwrap_or_else(|| {
            Band::new(&self.site, &mut self.laws).expect("the first law was built alike")
        });
        band.set_rate(rate);
        band.set_buffer(self.site.buffer);
        if let Some(set_point) = self.set_point {
            band.set_point(set_point);
        }
        band
    }

    pub fn is_exceeded(&self, packets: u32, bytes: u64) -> bool {
        self.site.buffer.is_exceeded(packets, bytes)
    }

    pub fn next_timeout(&self) -> Option<Time> {
        self.next_timeout
    }

    /// A law's clock can have moved.
    pub fn note_timeout(&mut self, timeout: Option<Time>) {
        self.next_timeout = match (self.next_timeout, timeout) {
            (Some(next), Some(timeout)) => Some(next.min(timeout)),
            (next, timeout) => next.or(timeout),
        };
    }

    /// Calls the laws that are due; `made` are the bands of all queues.
    pub fn handle_timeout<'a>(&'a mut self, now: Time, made: impl Iterator<Item = &'a mut Band<P>>)
    where
        P: 'a,
    {
        self.next_timeout = None;
        for band in made.chain(&mut self.spare) {
            if band.poll_timeout().is_some_and(|due| due <= now) {
                band.handle_timeout(now);
            }
            let due = band.poll_timeout();
            self.next_timeout = self.next_timeout.into_iter().chain(due).min();
        }
    }

    pub fn set_rate<'a>(&'a mut self, rate: Rate, made: impl Iterator<Item = &'a mut Band<P>>)
    where
        P: 'a,
    {
        self.site.rate = rate;
        let all = made.chain(&mut self.spare);
        all.for_each(|band| band.set_rate(rate));
    }

    pub fn set_buffer<'a>(&'a mut self, buffer: Buffer, made: impl Iterator<Item = &'a mut Band<P>>)
    where
        P: 'a,
    {
        self.site.buffer = buffer;
        let all = made.chain(&mut self.spare);
        all.for_each(|band| band.set_buffer(buffer));
    }

    /// Moves the set-point of every law; whether all of them can.
    pub fn set_point<'a>(
        &'a mut self,
        set_point: SetPoint,
        made: impl Iterator<Item = &'a mut Band<P>>,
    ) -> bool
    where
        P: 'a,
    {
        self.set_point = Some(set_point);
        let all = made.chain(&mut self.spare);
        // Every law is asked, also after one that cannot.
        all.map(|band| band.set_point(set_point))
            .fold(true, |all, can| all & can)
    }
}
