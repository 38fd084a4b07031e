//! A scenario of one link, moved to another: its rates, round trips and buffers follow.

use forebay_units::cast::whole_u64;
use forebay_units::{Buffer, Bytes, Packets, ParamSpec, ParamType, Params, Rate, Span, Value};

use crate::document::Document;
use crate::error::Fault;
use crate::links::LinkKeys;
use crate::path::{link_path, TableId, Target};
use crate::traffic;
use crate::tree::{Data, Node, Section, Table};
use crate::types::BufferSize;

/// Least rate of access links; they are also ten times as fast as the bottleneck.
const LEAST_ACCESS: Rate = Rate::from_bps(100_000_000);
/// Least buffer, for links on which less than a few packets are on their way.
const LEAST_BUFFER_PKTS: f64 = 4.0;

/// A bottleneck: its rate, and the delay to its far end, one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkPlace {
    /// The rate.
    pub rate: Rate,
    /// The propagation delay, one way.
    pub delay: Span,
}

impl LinkPlace {
    fn rtt(self) -> Span {
        self.delay + self.delay
    }
}

/// The adaptation of a scenario to a link other than the one that it is written for.
///
/// Values that are declared to follow the link's rate are scaled with this rate; other values, such
/// as the rate of a call, are unchanged. The usual round trip, twice the delay of the link, becomes
/// that of the new link; other round trips are unchanged. Buffers become the product of the rate
/// and the longest round trip (RFC 7928 section 3.2), in packets of this size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relink {
    /// The link that the scenario is written for.
    pub from: LinkPlace,
    /// The link that it is adapted to.
    pub to: LinkPlace,
    /// The size of a packet.
    pub packet: Bytes,
}

/// The dependence of a key's value on the link.
enum Follows {
    /// The value is proportional to the rate.
    Rate,
    RoundTrip,
    /// The value is at most that of the link.
    Delay,
    Buffer,
}

impl Relink {
    /// Adapts every value that is written in a document.
    ///
    /// # Errors
    /// A value that is none of its key.
    pub fn apply(&self, document: &mut Document) -> Result<(), Fault> {
        if self.from == self.to {
            return Ok(());
        }
        for i in 0..document.traffic.len() {
            let name = format!("traffic.{i}");
            let kind = kind(&document.traffic[i], &name)?;
            let table = &mut document.traffic[i];
            self.table(table, &name, |key| of_traffic(kind, key))?;
            if kind.key("access").is_some() {
                let access = LEAST_ACCESS.max(Rate::from_bps(10 * self.to.rate.as_bps()));
                table.put("access", Node::of(table.origin, access.to_value()));
            }
        }
        self.sweep(document)?;
        self.changes(document)?;
        let rtts = round_trips(document)?;
        for (number, table) in document.links.iter_mut().enumerate() {
            self.table(table, &link_path(number), of_link)?;
            if table.entry("buffer").is_some() {
                let buffer = self.buffer(&rtts);
                table.put("buffer", Node::of(table.origin, buffer));
            }
        }
        Ok(())
    }

    fn table(
        &self,
        table: &mut Table,
        name: &str,
        follows: impl Fn(&str) -> Option<(Follows, &'static ParamSpec)>,
    ) -> Result<(), Fault> {
        for i in 0..table.entries.len() {
            let entry = &table.entries[i];
            let Some((how, spec)) = follows(&entry.name) else {
                continue;
            };
            let section = Section { table, name };
            let moved = self.moved(&how, spec, &entry.node);
            let moved = moved
                .map_err(|expected| section.fault(&entry.name, entry.node.to_value(), expected))?;
            table.entries[i].node = moved;
        }
        Ok(())
    }

    /// # Errors
    /// What is allowed, where the value is none of its key.
    fn moved(&self, how: &Follows, spec: &ParamSpec, node: &Node) -> Result<Node, String> {
        if let Data::List(items) = &node.data {
            let items = items.iter().map(|item| self.moved(how, spec, item));
            let data = Data::List(items.collect::<Result<_, _>>()?);
            return Ok(Node { data, ..*node });
        }
        let value = node.to_value();
        let moved = match how {
            Follows::Rate => self.scaled(spec, &value)?,
            Follows::RoundTrip if Span::from_value(&value)? == self.from.rtt() => {
                self.to.rtt().to_value()
            }
            Follows::Delay => Span::from_value(&value)?.min(self.to.delay).to_value(),
            Follows::RoundTrip => value,
            Follows::Buffer => self.same_share(BufferSize::from_value(&value)?),
        };
        Ok(Node::of(node.origin, moved))
    }

    fn scaled(&self, spec: &ParamSpec, value: &Value) -> Result<Value, String> {
        let factor = self.to.rate.as_bps() as f64 / self.from.rate.as_bps() as f64;
        Ok(match spec.unit {
            "bit/s" => {
                let bps = factor * Rate::from_value(value)?.as_bps() as f64;
                Rate::from_bps(whole_u64(bps.max(1.0).round_ties_even())).to_value()
            }
            "p" => {
                let Packets(packets) = Packets::from_value(value)?;
                Packets((factor * packets).round_ties_even().max(1.0)).to_value()
            }
            _ => Value::Number(factor * f64::from_value(value)?),
        })
    }

    /// Returns a buffer with the same share of the bandwidth-delay product.
    fn same_share(&self, buffer: BufferSize) -> Value {
        let product = |place: LinkPlace| place.rate.as_bps() as f64 * place.rtt().as_secs_f64();
        let factor = product(self.to) / product(self.from);
        let packets = |was: f64| Packets((factor * was).round_ties_even().max(LEAST_BUFFER_PKTS));
        match buffer {
            BufferSize::Room(Buffer::Packets(was)) => packets(f64::from(was)).to_value(),
            BufferSize::Room(Buffer::Bytes(was)) => {
                packets((was / self.packet.0) as f64).to_value()
            }
            time => time.to_value(),
        }
    }

    /// Returns the product of the rate and the longest of these round trips and the link's own.
    fn buffer(&self, rtts: &[Span]) -> Value {
        let longest = rtts.iter().copied().fold(self.to.rtt(), Span::max);
        let bits = self.to.rate.as_bps() as f64 * longest.as_secs_f64();
        let packets = (bits / (8 * self.packet.0) as f64).round_ties_even();
        Packets(packets.max(LEAST_BUFFER_PKTS)).to_value()
    }

    /// Values of a sweep are adapted like those of tables; a buffer that is swept together with
    /// round trips becomes the product of the rate and these round trips.
    fn sweep(&self, document: &mut Document) -> Result<(), Fault> {
        let mut sweep = document.sweep.clone();
        for entry in &mut sweep.entries {
            let names = entry.name.split(',').map(str::trim);
            // Paths that lead nowhere are refused when the sweep is read.
            let targets: Vec<_> = names.map(|name| document.target(name).ok()).collect();
            let Data::List(rows) = &mut entry.node.data else {
                continue;
            };
            for row in rows {
                let single = targets.len() == 1;
                let mut nodes: Vec<&mut Node> = match &mut row.data {
                    _ if single => vec![row],
                    Data::List(row) if row.len() == targets.len() => row.iter_mut().collect(),
                    _ => continue,
                };
                self.row(document, &targets, &mut nodes)
                    .map_err(|(node, expected)| {
                        let key = format!("sweep.{}", entry.name);
                        Fault::new(node.origin, key, node.to_value(), expected)
                    })?;
            }
        }
        document.sweep = sweep;
        Ok(())
    }

    fn row(
        &self,
        document: &Document,
        targets: &[Option<Target>],
        row: &mut [&mut Node],
    ) -> Result<(), (Node, String)> {
        let mut rtts = Vec::new();
        let (mut buffers, mut with_rtt) = (Vec::new(), false);
        for (place, target) in targets.iter().enumerate() {
            let Some(target) = target else { continue };
            let Some((how, spec)) = follows(document, target) else {
                continue;
            };
            let refused = |expected| (row[place].clone(), expected);
            let moved = self.moved(&how, spec, row[place]).map_err(refused)?;
            if matches!(how, Follows::RoundTrip) {
                with_rtt = true;
                rtts.extend(Vec::<Span>::from_value(&moved.to_value()).map_err(refused)?);
            }
            if matches!(how, Follows::Buffer) {
                buffers.push(place);
            }
            *row[place] = moved;
        }
        if !with_rtt {
            rtts = round_trips(document).unwrap_or_default();
        }
        for place in buffers {
            *row[place] = Node::of(row[place].origin, self.buffer(&rtts));
        }
        Ok(())
    }

    fn changes(&self, document: &mut Document) -> Result<(), Fault> {
        let mut changes = document.at.clone();
        for (i, at) in changes.iter_mut().enumerate() {
            let sets = at.entries.iter_mut().filter(|entry| entry.name == "set");
            for set in sets {
                let Data::Table(table) = &mut set.node.data else {
                    continue;
                };
                let name = format!("at.{i}.set");
                self.table(table, &name, |path| {
                    follows(document, &document.target(path).ok()?)
                })?;
            }
        }
        document.at = changes;
        Ok(())
    }
}

/// Returns all round trips that the traffic of a document has.
fn round_trips(document: &Document) -> Result<Vec<Span>, Fault> {
    let mut all = Vec::new();
    for (i, table) in document.traffic.iter().enumerate() {
        let Some(entry) = table.entry("rtt") else {
            continue;
        };
        let name = format!("traffic.{i}");
        let section = Section { table, name: &name };
        let value = entry.node.to_value();
        let rtts = Vec::<Span>::from_value(&value);
        all.extend(rtts.map_err(|expected| section.fault("rtt", value, expected))?);
    }
    Ok(all)
}

fn kind(table: &Table, name: &str) -> Result<&'static traffic::TrafficSpec, Fault> {
    traffic::spec(&Section { table, name })
}

fn follows(document: &Document, target: &Target) -> Option<(Follows, &'static ParamSpec)> {
    match target.table {
        TableId::Link(_) => of_link(&target.key),
        TableId::Traffic(i) => of_traffic(kind(&document.traffic[i], "").ok()?, &target.key),
        TableId::Top | TableId::Law(_) | TableId::Kernel => None,
    }
}

fn of_link(key: &str) -> Option<(Follows, &'static ParamSpec)> {
    let spec = LinkKeys::SPECS.iter().find(|spec| spec.name == key)?;
    let how = match key {
        "rate" => Follows::Rate,
        "delay" => Follows::Delay,
        "buffer" => Follows::Buffer,
        _ => return None,
    };
    Some((how, spec))
}

fn of_traffic(kind: &traffic::TrafficSpec, key: &str) -> Option<(Follows, &'static ParamSpec)> {
    let spec = kind.key(key)?;
    if key == "rtt" {
        return Some((Follows::RoundTrip, spec));
    }
    kind.in_proportion
        .contains(&key)
        .then_some((Follows::Rate, spec))
}
