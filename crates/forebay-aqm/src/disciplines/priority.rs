//! Two bands in strict priority, chosen by the DSCP: the low band sends only while the high band is
//! empty.

use forebay_units::{params, Buffer, ParamError, QueueSite, Rate, SetPoint, Time};

use crate::band::Band;
use crate::discipline::{
    Dequeued, Discipline, DisciplineParams, DropReason, LawFactory, Packet, Sink,
};

params! {
    /// The bands share the buffer. An arrival for the high band that finds it full pushes the
    /// newest packets of the low band out. Each band has a law of its own, which sees its band.
    pub struct PriorityParams {
        /// Least DSCP of the high band: 40 is CS5, 46 is EF (RFC 2474, RFC 3246).
        dscp: u32 = 40, 1.0 => 63.0;
    }
}

impl DisciplineParams for PriorityParams {
    const KIND: &'static str = "priority";
    const TITLE: &'static str = "Two bands in strict priority, by the DSCP, each under a law";
    const SOURCE: &'static str = "RFC 2475, section 2.3.3.3; Linux tc-prio(8)";

    fn build<P: Packet + Send + 'static>(
        &self,
        site: &QueueSite,
        mut laws: LawFactory,
    ) -> Result<Box<dyn Discipline<P>>, ParamError> {
        Ok(Box::new(Priority {
            dscp: self.dscp,
            buffer: site.buffer,
            bands: [Band::new(site, &mut laws)?, Band::new(site, &mut laws)?],
        }))
    }
}

/// The discipline. The high band is class 0, the low band class 1.
struct Priority<P> {
    dscp: u32,
    buffer: Buffer,
    bands: [Band<P>; 2],
}

impl<P: Packet> Priority<P> {
    /// Returns true if a packet of this size fits into the buffer that the bands share.
    fn has_room(&self, bytes: u32) -> bool {
        let packets = self.bands.iter().map(Band::len_packets).sum();
        let queued = self.bands.iter().map(Band::len_bytes).sum();
        self.buffer.has_room(packets, queued, bytes)
    }
}

impl<P: Packet + Send> Discipline<P> for Priority<P> {
    fn enqueue(&mut self, now: Time, packet: P, sink: &mut dyn Sink<P>) {
        let high = u32::from(packet.dscp()) >= self.dscp;
        let bytes = packet.bytes();
        while high && !self.has_room(bytes) {
            let Some(pushed_out) = self.bands[1].pop_newest() else {
                break;
            };
            sink.dropped(now, pushed_out, DropReason::Overflow, 1);
        }
        let has_room = self.has_room(bytes);
        let class = u8::from(!high);
        self.bands[usize::from(class)].offer(now, packet, has_room, class, sink);
    }

    fn dequeue(&mut self, now: Time, sink: &mut dyn Sink<P>) -> Dequeued<P> {
        for (band, class) in self.bands.iter_mut().zip(0..) {
            if let Some(departure) = band.take(now, class, sink) {
                return Dequeued::Packet(departure);
            }
            band.idle_once(now);
        }
        Dequeued::Idle
    }

    fn drain(&mut self, give: &mut dyn FnMut(P)) {
        self.bands.iter_mut().for_each(|band| band.drain(give));
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.bands.iter().filter_map(Band::poll_timeout).min()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.bands
            .iter_mut()
            .for_each(|band| band.handle_timeout(now));
    }

    fn len_packets(&self) -> u32 {
        self.bands.iter().map(Band::len_packets).sum()
    }

    fn len_bytes(&self) -> u64 {
        self.bands.iter().map(Band::len_bytes).sum()
    }

    fn set_rate(&mut self, rate: Rate) {
        self.bands.iter_mut().for_each(|band| band.set_rate(rate));
    }

    fn set_buffer(&mut self, buffer: Buffer) {
        self.buffer = buffer;
        self.bands
            .iter_mut()
            .for_each(|band| band.set_buffer(buffer));
    }

    fn set_point(&mut self, set_point: SetPoint) -> bool {
        let results = self.bands.iter_mut().map(|band| band.set_point(set_point));
        // `fold` and not `all`, so that every band is asked even after one that cannot.
        results.fold(true, |all, can| all & can)
    }

    /// Reports the backlog of the high band, and the state of the low band's law.
    fn probe(&self, out: &mut dyn FnMut(&'static str, f64)) {
        out("high_packets", f64::from(self.bands[0].len_packets()));
        self.bands[1].probe(out);
    }

    fn classes(&self) -> &'static [&'static str] {
        &["high", "low"]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discipline::testing::{buffer_of, packet, Drops};
    use crate::discipline::Departure;

    fn queue(packets: u32) -> Box<dyn Discipline<crate::discipline::testing::Packet>> {
        let (site, laws) = buffer_of(packets);
        PriorityParams { dscp: 40 }.build(&site, laws).unwrap()
    }

    #[test]
    fn the_high_band_goes_first_and_packets_keep_their_order() {
        let (mut queue, mut drops) = (queue(10), Drops::default());
        for (id, dscp) in [(0, 0), (1, 46), (2, 39), (3, 40)] {
            queue.enqueue(Time::ZERO, packet(id, dscp), &mut drops);
        }
        let mut departures = Vec::new();
        while let Dequeued::Packet(Departure { packet, class, .. }) =
            queue.dequeue(Time::ZERO, &mut drops)
        {
            departures.push((packet.id, class));
        }
        assert_eq!(departures, [(1, 0), (3, 0), (0, 1), (2, 1)]);
    }

    #[test]
    fn the_high_band_pushes_the_newest_of_the_low_one_out() {
        let (mut queue, mut drops) = (queue(3), Drops::default());
        for (id, dscp) in [(0, 0), (1, 0), (2, 46), (3, 46), (4, 0), (5, 46), (6, 46)] {
            queue.enqueue(Time::ZERO, packet(id, dscp), &mut drops);
        }
        // 3 pushes 1 out, 4 finds the buffer full, 5 pushes 0 out, and 6 has nothing to push out.
        assert_eq!(drops.dropped, [1, 4, 0, 6]);
        assert_eq!(queue.len_packets(), 3);
    }
}
