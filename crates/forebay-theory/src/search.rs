//! The spaces that `forebay tune` searches: axes, and the parameters at a point on them.
//!
//! Each law's file has its own space; this file has the parts that laws share.

use std::ops::Index;

use forebay_units::{Bytes, Rate, Span, Value};

use crate::linear::OperatingPoint;

/// With fewer packets in flight, timeouts take more than about a tenth of a flow's throughput
/// (Padhye et al. 1998, eq. 30, with an RTO of 1.5 R), which the linear model leaves out.
pub const LEAST_WINDOW_PKTS: f64 = 10.0;

/// One link with one load.
#[derive(Clone, Copy, Debug)]
pub struct Condition {
    pub rate: Rate,
    /// Propagation both ways, without queueing.
    pub rtt_s: f64,
    pub flows: u32,
}

impl Condition {
    pub fn new(rate: Rate, rtt_s: f64, flows: u32) -> Condition {
        Condition { rate, rtt_s, flows }
    }
}

/// The conditions over which a law is tuned, and what is the same in all of them.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// The corners of the ranges, and their middle. Not empty.
    pub all: Vec<Condition>,
    pub middle: Condition,
    pub packet: Bytes,
    pub buffer_pkts: f64,
}

impl Conditions {
    pub fn capacity_pkts_per_s(&self, at: &Condition) -> f64 {
        at.rate.packets_per_sec(self.packet)
    }

    /// Capacity of the slowest and of the fastest link, in packets per second.
    pub fn capacities_pkts_per_s(&self) -> (f64, f64) {
        extremes(self.all.iter().map(|at| self.capacity_pkts_per_s(at)))
    }

    /// The shortest and the longest round-trip time, in seconds.
    pub fn rtts_s(&self) -> (f64, f64) {
        extremes(self.all.iter().map(|at| at.rtt_s))
    }

    /// Flows that have room for [`LEAST_WINDOW_PKTS`] each with this queue: at least one.
    pub fn active_flows(&self, at: &Condition, queue_pkts: f64) -> f64 {
        let room_pkts = self.capacity_pkts_per_s(at) * at.rtt_s + queue_pkts;
        f64::from(at.flows).min((room_pkts / LEAST_WINDOW_PKTS).max(1.0))
    }

    /// Set-points, in packets.
    pub fn target(&self) -> Axis {
        Axis::new("target", 5.0, (0.5 * self.buffer_pkts).max(6.0))
    }

    /// Set-points as a queuing delay in seconds: those of [`target`](Self::target) on the fastest
    /// link, which any other holds too.
    pub fn delay(&self) -> Axis {
        let (target, (_, fastest)) = (self.target(), self.capacities_pkts_per_s());
        Axis::new("delay", target.low / fastest, target.high / fastest)
    }

    /// Where flows settle with the shortest and the longest queue of [`target`](Self::target).
    fn points(&self) -> impl Iterator<Item = OperatingPoint> + '_ {
        let target = self.target();
        let at = move |at: &Condition| {
            let (at, capacity) = (*at, self.capacity_pkts_per_s(at));
            [target.low, target.high].map(|queue_pkts| {
                let rtt_s = at.rtt_s + queue_pkts / capacity;
                OperatingPoint::of_flows(self.active_flows(&at, queue_pkts), rtt_s, capacity)
            })
        };
        self.all.iter().flat_map(at)
    }

    /// Proportional gains per packet: those of PI's design rule, an order of magnitude further.
    pub fn k_p(&self) -> Axis {
        let (low, high) = extremes(self.points().map(|point| point.pi_gain(0.5)));
        Axis::new("k_p", 0.1 * low, 3.0 * high)
    }

    /// Zeros of a PI controller, K_I/K_P in rad/s: the plant's poles, and slower ones.
    pub fn zero(&self) -> Axis {
        let poles = |point: OperatingPoint| [point.tcp_pole(), point.queue_pole()];
        let (low, high) = extremes(self.points().flat_map(poles));
        Axis::new("zero", 0.1 * low, high)
    }

    /// K_D/K_P in seconds, up to the longest round-trip time.
    pub fn lead(&self) -> Axis {
        let (_, longest_s) = self.rtts_s();
        Axis::new("lead", 1e-3 * longest_s, longest_s)
    }

    /// Weights of an arrival in an average, from an average over ten seconds on the fastest link
    /// to one over half a millisecond on the slowest; at most half.
    pub fn weight(&self) -> Axis {
        let (slowest, fastest) = self.capacities_pkts_per_s();
        Axis::new("w_q", 0.1 / fastest, (2000.0 / slowest).min(0.5))
    }

    /// Round-trip times that a self-tuning law takes for its own, in seconds: those of the range,
    /// and with a queue.
    pub fn own_rtt(&self) -> Axis {
        let (shortest_s, longest_s) = self.rtts_s();
        let (_, fastest) = self.capacities_pkts_per_s();
        let queued_s = longest_s + 0.5 * self.buffer_pkts / fastest;
        Axis::new("rtt", shortest_s, queued_s.min(60.0).max(1.01 * shortest_s))
    }
}

/// Least and largest of some numbers.
fn extremes(numbers: impl Iterator<Item = f64>) -> (f64, f64) {
    numbers.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| {
        (low.min(x), high.max(x))
    })
}

/// What is searched between two bounds, in the logarithm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    pub name: &'static str,
    pub low: f64,
    pub high: f64,
}

impl Axis {
    pub fn new(name: &'static str, low: f64, high: f64) -> Axis {
        Axis { name, low, high }
    }
}

/// A value on each axis, found by the axis's name.
#[derive(Clone, Copy)]
pub struct Point<'a> {
    axes: &'a [Axis],
    values: &'a [f64],
}

impl Point<'_> {
    /// The value on an axis that may be absent.
    pub fn get(&self, name: &str) -> Option<f64> {
        let at = self.axes.iter().position(|axis| axis.name == name)?;
        self.values.get(at).copied()
    }
}

impl Index<&str> for Point<'_> {
    type Output = f64;
    /// Returns the value on the axis of this name.
    ///
    /// # Panics
    /// If there is no such axis: the law's file has declared it a few lines above.
    fn index(&self, name: &str) -> &f64 {
        let at = self.axes.iter().position(|axis| axis.name == name);
        &self.values[at.unwrap_or_else(|| panic!("an axis {name}"))]
    }
}

/// Parameters of a law, as a scenario takes them; the others keep their defaults.
pub type Settings = Vec<(&'static str, Value)>;

/// How a law is tuned.
#[derive(Default)]
pub enum Search {
    /// It has nothing to tune.
    #[default]
    Nothing,
    /// It has no linear model: these settings are tried with packets.
    Listed(Vec<Settings>),
    /// The linear model says which points hold.
    Space(Space),
}

type At<T> = Box<dyn Fn(&Point) -> T + Send + Sync>;
type Adapted = Box<dyn Fn(&Point, &Condition, f64) -> Settings + Send + Sync>;

/// Axes, and what a point on them means.
pub struct Space {
    pub axes: Vec<Axis>,
    settings: At<Settings>,
    queue_pkts: At<f64>,
    adapted: Option<Adapted>,
}

impl Space {
    /// `settings` turns a point into parameters; `queue_pkts` says about where the queue settles.
    pub fn new(
        axes: impl Into<Vec<Axis>>,
        queue_pkts: impl Fn(&Point) -> f64 + Send + Sync + 'static,
        settings: impl Fn(&Point) -> Settings + Send + Sync + 'static,
    ) -> Space {
        Space {
            axes: axes.into(),
            settings: Box::new(settings),
            queue_pkts: Box::new(queue_pkts),
            adapted: None,
        }
    }

    /// Of a law that holds the queue at the axis `target`.
    pub fn with_target(
        axes: impl Into<Vec<Axis>>,
        settings: impl Fn(&Point) -> Settings + Send + Sync + 'static,
    ) -> Space {
        Space::new(axes, |x| x["target"], settings)
    }

    /// `adapted` gives the parameters that the law sets by itself, from a point, a condition and
    /// the number of active flows.
    #[must_use]
    pub fn adapting(
        self,
        adapted: impl Fn(&Point, &Condition, f64) -> Settings + Send + Sync + 'static,
    ) -> Space {
        Space {
            adapted: Some(Box::new(adapted)),
            ..self
        }
    }

    fn point<'a>(&'a self, values: &'a [f64]) -> Point<'a> {
        Point {
            axes: &self.axes,
            values,
        }
    }

    /// The parameters at a point: one value for each axis.
    pub fn settings(&self, values: &[f64]) -> Settings {
        (self.settings)(&self.point(values))
    }

    /// About where the queue settles, in packets.
    pub fn queue_pkts(&self, values: &[f64]) -> f64 {
        (self.queue_pkts)(&self.point(values))
    }

    /// The parameters that the law sets by itself under a condition with `flows` active flows.
    pub fn adapted(&self, values: &[f64], at: &Condition, flows: f64) -> Settings {
        self.adapted
            .as_ref()
            .map_or_else(Vec::new, |adapted| adapted(&self.point(values), at, flows))
    }
}

/// A gain, to the six digits that a file shows.
pub fn number(x: f64) -> Value {
    Value::Number(digits(x, 6))
}

/// Gains `a` and `b` of a law whose integral is their difference: with as many digits more as
/// that is smaller than they are, so that it keeps six of its own.
pub fn gains(a: f64, b: f64) -> (Value, Value) {
    let smaller = ((a / (a - b).abs()).log10().ceil()).clamp(0.0, 9.0);
    let precision = 6 + forebay_units::cast::whole_u32(smaller) as usize;
    (
        Value::Number(digits(a, precision)),
        Value::Number(digits(b, precision)),
    )
}

/// A queue length, to four digits.
pub fn packets(pkts: f64) -> Value {
    Value::Text(format!("{}p", digits(pkts, 4)))
}

/// A time, to `precision` digits.
pub fn time(seconds: f64, precision: usize) -> Value {
    Value::Text(format!("{}ms", digits(1e3 * seconds, precision)))
}

fn digits(x: f64, precision: usize) -> f64 {
    let text = format!("{x:.0$e}", precision - 1);
    text.parse().unwrap_or(x)
}

/// A PI on the queuing delay: its target, its gain `beta` between these over the longest and the
/// shortest round trip, and `alpha` by the zero of the loop.
pub fn pi_on_delay(conditions: &Conditions, interval: Span, least: f64, most: f64) -> Search {
    let interval_s = interval.as_secs_f64();
    let middle = conditions.capacity_pkts_per_s(&conditions.middle);
    let (shortest_s, longest_s) = conditions.rtts_s();
    let gain = Axis::new("beta", least / longest_s, most / shortest_s);
    let axes = [conditions.delay(), gain, conditions.zero()];
    Search::Space(Space::new(
        axes,
        move |x| x["delay"] * middle,
        move |x| {
            let alpha = x["beta"] * x["zero"] * interval_s;
            vec![
                ("target", time(x["delay"], 4)),
                ("alpha", number(alpha.min(1e3))),
                ("beta", number(x["beta"].min(1e3))),
            ]
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions() -> Conditions {
        let at = |mbps: u64, rtt_s, flows| {
            Condition::new(Rate::from_bps(1_000_000 * mbps), rtt_s, flows)
        };
        Conditions {
            all: vec![at(8, 0.02, 10), at(80, 0.2, 400), at(24, 0.06, 60)],
            middle: at(24, 0.06, 60),
            packet: Bytes(1000),
            buffer_pkts: 2000.0,
        }
    }

    #[test]
    fn the_axes_span_the_conditions() {
        let conditions = conditions();
        assert_eq!(conditions.capacities_pkts_per_s(), (1000.0, 10_000.0));
        assert_eq!(conditions.rtts_s(), (0.02, 0.2));
        assert_eq!(conditions.target(), Axis::new("target", 5.0, 1000.0));
        assert_eq!(conditions.weight(), Axis::new("w_q", 1e-5, 0.5));
        // 1000/s · 20 ms and 5 packets of queue: 25 packets, room for two flows and a half.
        assert_eq!(conditions.active_flows(&conditions.all[0], 5.0), 2.5);
        assert_eq!(conditions.active_flows(&conditions.all[1], 5.0), 200.5);
        assert_eq!(conditions.active_flows(&conditions.all[2], 900.0), 60.0);
    }

    #[test]
    fn a_point_is_read_by_name_and_written_short() {
        let axes = [Axis::new("target", 1.0, 100.0), Axis::new("k_p", 1e-6, 1.0)];
        let space = Space::with_target(axes, |x| {
            assert_eq!(x.get("zero"), None);
            vec![("target", packets(x["target"])), ("k_p", number(x["k_p"]))]
        });
        let at = [12.34567, 1.234_567_8e-5];
        assert_eq!(space.queue_pkts(&at), 12.34567);
        let want = vec![
            ("target", Value::Text("12.35p".into())),
            ("k_p", Value::Number(1.234_57e-5)),
        ];
        assert_eq!(space.settings(&at), want);
        assert_eq!(time(0.012_345_6, 4), Value::Text("12.35ms".into()));
        assert_eq!(packets(0.0), Value::Text("0p".into()));
    }
}
