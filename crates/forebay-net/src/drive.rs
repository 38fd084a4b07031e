//! Event loop for transports that do no input or output of their own.

use forebay_aqm::Ecn;
use forebay_sim::End;
use forebay_units::{ParamError, Time};

use crate::{Event, Network};

/// One end of a transport, without input and output: it receives packets, returns packets to send,
/// and has one timer.
pub trait Endpoint {
    /// Handles a packet that arrived.
    fn receive(&mut self, now: Time, payload: Vec<u8>, ecn: Ecn);
    /// Returns a packet to send now. It is called until it returns `None`.
    fn transmit(&mut self, now: Time) -> Option<(Vec<u8>, Ecn)>;
    /// Returns the time at which [`handle_timeout`](Endpoint::handle_timeout) is due; `None` where
    /// no timer is set.
    fn timeout(&mut self) -> Option<Time>;
    /// Handles the expiration of the timer.
    fn handle_timeout(&mut self, now: Time);
    /// Returns whether the end has nothing more to do. [`drive`] returns when this holds for all
    /// ends.
    fn is_done(&self) -> bool {
        false
    }
}

/// Both ends of a flow.
pub struct Endpoints<'a> {
    /// The end at which the flow's path begins.
    pub source: &'a mut dyn Endpoint,
    /// The end at which the flow's path ends.
    pub sink: &'a mut dyn Endpoint,
}

/// Runs transports over a network until both ends of every flow are done, and at most until `until`
/// or the end of the scenario. Returns the time at which it stopped. `flows` are in the order of
/// their numbers.
///
/// # Errors
/// The network refuses a packet, or the number of flows differs from that of the network.
pub fn drive(
    network: &mut Network,
    flows: &mut [Endpoints],
    until: Time,
) -> Result<Time, ParamError> {
    if u32::try_from(flows.len()) != Ok(network.flows()) {
        let expected = format!("{}, the number of flows in the scenario", network.flows());
        return Err(ParamError::new("flows", flows.len(), expected));
    }
    let until = until.min(network.end());
    let mut due = vec![Time::MAX; 2 * flows.len()];
    for flow in 0..flows.len() {
        for end in [End::Source, End::Sink] {
            let now = network.now();
            send(network, flows, flow, end, now, &mut due)?;
        }
    }
    loop {
        let now = network.now();
        if now >= until
            || flows
                .iter()
                .all(|it| it.source.is_done() && it.sink.is_done())
        {
            return Ok(now);
        }
        let next = (0..).zip(&due).min_by_key(|(_, at)| **at);
        let (first, at) = next.map_or((0, Time::MAX), |(first, at)| (first, *at));
        let (now, flow, end) = match network.poll(at.min(until)) {
            Event::Delivered(packet) => {
                let flow = packet.flow as usize;
                let receiver = endpoint(flows, flow, packet.to);
                receiver.receive(packet.at, packet.payload, packet.ecn);
                (packet.at, flow, packet.to)
            }
            Event::Lost(_) => continue,
            Event::Time(now) | Event::End(now) if at <= now => {
                let end = [End::Source, End::Sink][first % 2];
                endpoint(flows, first / 2, end).handle_timeout(now);
                (now, first / 2, end)
            }
            Event::Time(now) | Event::End(now) => return Ok(now),
        };
        send(network, flows, flow, end, now, &mut due)?;
    }
}

/// Returns an end of a flow.
fn endpoint<'a>(flows: &'a mut [Endpoints], flow: usize, end: End) -> &'a mut dyn Endpoint {
    match end {
        End::Source => &mut *flows[flow].source,
        End::Sink => &mut *flows[flow].sink,
    }
}

/// Sends all packets that an end has to send, and updates the time of its timer in `due`.
fn send(
    network: &mut Network,
    flows: &mut [Endpoints],
    flow: usize,
    end: End,
    now: Time,
    due: &mut [Time],
) -> Result<(), ParamError> {
    let sender = endpoint(flows, flow, end);
    let number = u32::try_from(flow).expect("as many flows as the network has");
    while let Some((payload, ecn)) = sender.transmit(now) {
        network.send(number, end, now, payload, ecn)?;
    }
    due[2 * flow + usize::from(end == End::Sink)] = sender.timeout().unwrap_or(Time::MAX);
    Ok(())
}
