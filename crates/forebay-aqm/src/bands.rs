//! Bands for disciplines with one queue per flow. A band is built when its flow arrives, and its law
//! keeps a clock of its own.

use forebay_units::{Buffer, ParamError, QueueSite, Rate, SetPoint, Time};

use crate::band::Band;
use crate::discipline::{LawFactory, Packet};

/// Builds bands, and keeps track of when the laws of these bands must be called.
pub struct Bands<P> {
    /// The queue that all bands belong to.
    pub site: QueueSite,
    laws: LawFactory,
    /// The first band, until a flow needs one.
    spare: Option<Band<P>>,
    /// The earliest time at which a law must be called.
    next_timeout: Option<Time>,
    /// The set-point, if it was moved while traffic runs. New bands take it as well.
    set_point: Option<SetPoint>,
}

impl<P: Packet> Bands<P> {
    /// Creates the factory and builds the first law, which proves that the later ones can be built.
    ///
    /// # Errors
    /// If a parameter of the law is inconsistent with the others or with the queue.
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

    /// Returns a band for a new queue whose law sees this rate.
    pub fn make(&mut self, rate: Rate) -> Band<P> {
        let mut band = self.spare.take().unwrap_or_else(|| {
            Band::new(&self.site, &mut self.laws).expect("built like the first law")
        });
        band.set_rate(rate);
        band.set_buffer(self.site.buffer);
        if let Some(set_point) = self.set_point {
            band.set_point(set_point);
        }
        band
    }

    /// Returns true if this many packets and bytes exceed the buffer.
    pub fn is_exceeded(&self, packets: u32, bytes: u64) -> bool {
        self.site.buffer.is_exceeded(packets, bytes)
    }

    /// Returns the earliest time at which a law must be called.
    pub fn next_timeout(&self) -> Option<Time> {
        self.next_timeout
    }

    /// Takes note of the time at which a law must be called, after a call that may have changed it.
    pub fn note_timeout(&mut self, timeout: Option<Time>) {
        self.next_timeout = match (self.next_timeout, timeout) {
            (Some(next), Some(timeout)) => Some(next.min(timeout)),
            (next, timeout) => next.or(timeout),
        };
    }

    /// Calls the laws that are due. `bands` are the bands of all queues.
    pub fn handle_timeout<'a>(&'a mut self, now: Time, bands: impl Iterator<Item = &'a mut Band<P>>)
    where
        P: 'a,
    {
        self.next_timeout = None;
        for band in bands.chain(&mut self.spare) {
            if band.poll_timeout().is_some_and(|due| due <= now) {
                band.handle_timeout(now);
            }
            let due = band.poll_timeout();
            self.next_timeout = self.next_timeout.into_iter().chain(due).min();
        }
    }

    /// Sets the rate that every law sees.
    pub fn set_rate<'a>(&'a mut self, rate: Rate, bands: impl Iterator<Item = &'a mut Band<P>>)
    where
        P: 'a,
    {
        self.site.rate = rate;
        let all = bands.chain(&mut self.spare);
        all.for_each(|band| band.set_rate(rate));
    }

    /// Sets the buffer of every band.
    pub fn set_buffer<'a>(
        &'a mut self,
        buffer: Buffer,
        bands: impl Iterator<Item = &'a mut Band<P>>,
    ) where
        P: 'a,
    {
        self.site.buffer = buffer;
        let all = bands.chain(&mut self.spare);
        all.for_each(|band| band.set_buffer(buffer));
    }

    /// Moves the set-point of every law. Returns false if one of them cannot.
    pub fn set_point<'a>(
        &'a mut self,
        set_point: SetPoint,
        bands: impl Iterator<Item = &'a mut Band<P>>,
    ) -> bool
    where
        P: 'a,
    {
        self.set_point = Some(set_point);
        let all = bands.chain(&mut self.spare);
        // `fold` and not `all`, so that every law is asked even after one that cannot.
        all.map(|band| band.set_point(set_point))
            .fold(true, |all, can| all & can)
    }
}
