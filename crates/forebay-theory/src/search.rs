//! Search spaces for tuning a law: axes, and the law's parameters at a point on them.
//!
//! The file of each law defines its own space; this file has the axes and types that laws share.

use std::ops::Index;

use forebay_units::{Bytes, Rate, Span, Value};

use crate::linear::OperatingPoint;

/// The smallest window for which the linear model holds. With fewer packets in flight, timeouts
/// cost more than about a tenth of a flow's throughput (Padhye et al. 1998, eq. 30, with an RTO of
/// 1.5 R).
pub const LEAST_WINDOW_PKTS: f64 = 10.0;

/// One link with one load.
#[derive(Clone, Copy, Debug)]
pub struct Condition {
    /// The rate of the link.
    pub rate: Rate,
    /// The round-trip time without queuing.
    pub rtt_s: f64,
    /// The number of flows.
    pub flows: u32,
}

impl Condition {
    /// Creates a condition.
    pub fn new(rate: Rate, rtt_s: f64, flows: u32) -> Condition {
        Condition { rate, rtt_s, flows }
    }
}

/// The conditions over which a law is tuned, and the properties that all of them share.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// The corners of the ranges, and their middle. Never empty.
    pub all: Vec<Condition>,
    /// The middle of the ranges.
    pub middle: Condition,
    /// The size of the usual packet.
    pub packet: Bytes,
    /// The buffer in packets.
    pub buffer_pkts: f64,
}

impl Conditions {
    /// Returns the capacity under a condition, in packets per second.
    pub fn capacity_pkts_per_s(&self, at: &Condition) -> f64 {
        at.rate.packets_per_sec(self.packet)
    }

    /// Returns the capacity of the slowest and of the fastest link, in packets per second.
    pub fn capacities_pkts_per_s(&self) -> (f64, f64) {
        extremes(self.all.iter().map(|at| self.capacity_pkts_per_s(at)))
    }

    /// Returns the shortest and the longest round-trip time, in seconds.
    pub fn rtts_s(&self) -> (f64, f64) {
        extremes(self.all.iter().map(|at| at.rtt_s))
    }

    /// Returns the number of flows that can have a window of [`LEAST_WINDOW_PKTS`] with this queue:
    /// at least one.
    pub fn active_flows(&self, at: &Condition, queue_pkts: f64) -> f64 {
        let pipe_pkts = self.capacity_pkts_per_s(at) * at.rtt_s + queue_pkts;
        f64::from(at.flows).min((pipe_pkts / LEAST_WINDOW_PKTS).max(1.0))
    }

    /// Returns the axis of set-points in packets.
    pub fn target(&self) -> Axis {
        Axis::new("target", 5.0, (0.5 * self.buffer_pkts).max(6.0))
    }

    /// Returns the axis of set-points as queuing delays in seconds: those of
    /// [`target`](Self::target) on the fastest link, for which every link has enough buffer.
    pub fn delay(&self) -> Axis {
        let (target, (_, fastest)) = (self.target(), self.capacities_pkts_per_s());
        Axis::new("delay", target.low / fastest, target.high / fastest)
    }

    /// Returns the operating points with the shortest and the longest queue of
    /// [`target`](Self::target) under all conditions.
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

    /// Returns the axis of proportional gains per packet: those of PI's design rule, extended by an
    /// order of magnitude.
    pub fn k_p(&self) -> Axis {
        let (low, high) = extremes(self.points().map(|point| point.pi_gain(0.5)));
        Axis::new("k_p", 0.1 * low, 3.0 * high)
    }

    /// Returns the axis of zeros of a PI controller, K_I/K_P in rad/s: the plant's poles, and
    /// slower ones.
    pub fn zero(&self) -> Axis {
        let poles = |point: OperatingPoint| [point.tcp_pole(), point.queue_pole()];
        let (low, high) = extremes(self.points().flat_map(poles));
        Axis::new("zero", 0.1 * low, high)
    }

    /// Returns the axis of K_D/K_P in seconds, up to the longest round-trip time.
    pub fn lead(&self) -> Axis {
        let (_, longest_s) = self.rtts_s();
        Axis::new("lead", 1e-3 * longest_s, longest_s)
    }

    /// Returns the axis of weights of an arrival in an average, from an average over ten seconds on
    /// the fastest link to one over half a millisecond on the slowest; at most 0.5.
    pub fn weight(&self) -> Axis {
        let (slowest, fastest) = self.capacities_pkts_per_s();
        Axis::new("w_q", 0.1 / fastest, (2000.0 / slowest).min(0.5))
    }

    /// Returns the axis of round-trip times that a self-tuning law assumes, in seconds: those of
    /// the range, without and with a queue.
    pub fn own_rtt(&self) -> Axis {
        let (shortest_s, longest_s) = self.rtts_s();
        let (_, fastest) = self.capacities_pkts_per_s();
        let queued_s = longest_s + 0.5 * self.buffer_pkts / fastest;
        Axis::new("rtt", shortest_s, queued_s.min(60.0).max(1.01 * shortest_s))
    }
}

/// Returns the smallest and the largest of some numbers.
fn extremes(numbers: impl Iterator<Item = f64>) -> (f64, f64) {
    numbers.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| {
        (low.min(x), high.max(x))
    })
}

/// An axis of a search space, on which values are distributed logarithmically.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    /// The name of the axis.
    pub name: &'static str,
    /// The lower bound, above zero.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
}

impl Axis {
    /// Creates an axis.
    pub fn new(name: &'static str, low: f64, high: f64) -> Axis {
        Axis { name, low, high }
    }
}

/// A point of a search space: a value on each axis, looked up by the axis's name.
#[derive(Clone, Copy)]
pub struct Point<'a> {
    axes: &'a [Axis],
    values: &'a [f64],
}

impl Point<'_> {
    /// Returns the value on an axis; `None` if there is no such axis.
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
    /// If there is no such axis. The axes of a law are declared next to their use.
    fn index(&self, name: &str) -> &f64 {
        let at = self.axes.iter().position(|axis| axis.name == name);
        &self.values[at.unwrap_or_else(|| panic!("an axis {name}"))]
    }
}

/// Parameters of a law, in the notation of a scenario. The others keep their defaults.
pub type Settings = Vec<(&'static str, Value)>;

/// The way in which a law is tuned.
#[derive(Default)]
pub enum Search {
    /// The law has nothing to tune.
    #[default]
    Nothing,
    /// The law has no linear model: these settings are simulated.
    Listed(Vec<Settings>),
    /// The linear model decides which points of this space are stable.
    Space(Space),
}

/// A function of a point.
type At<T> = Box<dyn Fn(&Point) -> T + Send + Sync>;
/// A function of a point, a condition and the number of active flows.
type Adapted = Box<dyn Fn(&Point, &Condition, f64) -> Settings + Send + Sync>;

/// A search space: axes, and functions of a point on them.
pub struct Space {
    /// The axes.
    pub axes: Vec<Axis>,
    settings: At<Settings>,
    queue_pkts: At<f64>,
    adapted: Option<Adapted>,
}

impl Space {
    /// Creates a space. `settings` converts a point to parameters; `queue_pkts` returns the
    /// approximate equilibrium queue.
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

    /// Creates a search space in which the axis `target` is the queue at equilibrium.
    pub fn with_target(
        axes: impl Into<Vec<Axis>>,
        settings: impl Fn(&Point) -> Settings + Send + Sync + 'static,
    ) -> Space {
        Space::new(axes, |x| x["target"], settings)
    }

    /// Adds the parameters that the law adapts by itself, as a function of a point, a condition and
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

    /// Returns the point with these values, in the order of the axes.
    fn point<'a>(&'a self, values: &'a [f64]) -> Point<'a> {
        Point {
            axes: &self.axes,
            values,
        }
    }

    /// Returns the parameters at a point, which has one value for each axis.
    pub fn settings(&self, values: &[f64]) -> Settings {
        (self.settings)(&self.point(values))
    }

    /// Returns the approximate equilibrium queue at a point, in packets.
    pub fn queue_pkts(&self, values: &[f64]) -> f64 {
        (self.queue_pkts)(&self.point(values))
    }

    /// Returns the parameters that the law adapts by itself under a condition with `flows` active
    /// flows.
    pub fn adapted(&self, values: &[f64], at: &Condition, flows: f64) -> Settings {
        self.adapted
            .as_ref()
            .map_or_else(Vec::new, |adapted| adapted(&self.point(values), at, flows))
    }
}

/// Returns a gain, rounded to six digits for readable files.
pub fn number(x: f64) -> Value {
    Value::Number(digits(x, 6))
}

/// Returns the gains `a` and `b` of a law whose integral gain is their difference, rounded so that
/// the difference keeps six digits.
pub fn gains(a: f64, b: f64) -> (Value, Value) {
    let cancelled = ((a / (a - b).abs()).log10().ceil()).clamp(0.0, 9.0);
    let precision = 6 + forebay_units::cast::whole_u32(cancelled) as usize;
    (
        Value::Number(digits(a, precision)),
        Value::Number(digits(b, precision)),
    )
}

/// Returns a queue length, rounded to four digits.
pub fn packets(pkts: f64) -> Value {
    Value::Text(format!("{}p", digits(pkts, 4)))
}

/// Returns a time, rounded to `precision` digits.
pub fn time(seconds: f64, precision: usize) -> Value {
    Value::Text(format!("{}ms", digits(1e3 * seconds, precision)))
}

/// Rounds a number to `precision` significant digits.
fn digits(x: f64, precision: usize) -> f64 {
    let text = format!("{x:.0$e}", precision - 1);
    text.parse().unwrap_or(x)
}

/// Returns the search space of PI control of the queuing delay: its target, its gain `beta` from
/// `low` over the longest to `high` over the shortest round-trip time, and the zero, which gives
/// `alpha`.
pub fn pi_on_delay(conditions: &Conditions, interval: Span, low: f64, high: f64) -> Search {
    let interval_s = interval.as_secs_f64();
    let middle = conditions.capacity_pkts_per_s(&conditions.middle);
    let (shortest_s, longest_s) = conditions.rtts_s();
    let gain = Axis::new("beta", low / longest_s, high / shortest_s);
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
    use crate::assertions::close;

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
        // 1000/s · 20 ms and a queue of 5 packets are 25 packets, enough for 2.5 flows.
        assert_eq!(conditions.active_flows(&conditions.all[0], 5.0), 2.5);
        assert_eq!(conditions.active_flows(&conditions.all[1], 5.0), 200.5);
        assert_eq!(conditions.active_flows(&conditions.all[2], 900.0), 60.0);
    }

    #[test]
    fn a_point_is_read_by_name_and_its_settings_are_rounded() {
        let axes = [Axis::new("target", 1.0, 100.0), Axis::new("k_p", 1e-6, 1.0)];
        let space = Space::with_target(axes, |x| {
            assert_eq!(x.get("zero"), None);
            assert_eq!(x.get("target"), Some(12.34567));
            vec![("target", packets(x["target"])), ("k_p", number(x["k_p"]))]
        });
        let at = [12.34567, 1.234_567_8e-5];
        assert_eq!(space.queue_pkts(&at), 12.34567);
        let expected = vec![
            ("target", Value::Text("12.35p".into())),
            ("k_p", Value::Number(1.234_57e-5)),
        ];
        assert_eq!(space.settings(&at), expected);
        assert_eq!(time(0.012_345_6, 4), Value::Text("12.35ms".into()));
        assert_eq!(packets(0.0), Value::Text("0p".into()));
    }

    /// The operating points of the three links with queues of 5 and 1000 packets, whose extremes
    /// are at 1 Mbyte/s: 2.5 flows at R = 25 ms, and 10 at R = 1.02 s.
    #[test]
    fn the_axes_of_gains_and_zeros_span_those_of_the_design_rules() {
        let conditions = conditions();
        // K_P = 2β√(β² + 1)·N/(RC)² with β = ½ and RC = 25 or 1020 packets.
        let k_p = conditions.k_p();
        assert_eq!(k_p.name, "k_p");
        close(
            k_p.low,
            0.1 * 1.25_f64.sqrt() * 10.0 / (1020.0 * 1020.0),
            1e-12,
        );
        close(k_p.high, 3.0 * 1.25_f64.sqrt() * 2.5 / (25.0 * 25.0), 1e-12);
        // The slowest pole is that of TCP with R = 1.02 s, 2N/(R²C), and the fastest 1/R with 25 ms.
        let zero = conditions.zero();
        assert_eq!(zero.name, "zero");
        close(zero.low, 0.1 * 20.0 / (1.02 * 1.02 * 1000.0), 1e-12);
        close(zero.high, 40.0, 1e-12);
        let lead = conditions.lead();
        assert_eq!((lead.name, lead.high), ("lead", 0.2));
        close(lead.low, 2e-4, 1e-12);
    }

    #[test]
    fn set_points_fill_at_most_half_of_the_buffer_of_the_fastest_link() {
        let delay = conditions().delay();
        assert_eq!(delay.name, "delay");
        close(delay.low, 5e-4, 1e-12);
        close(delay.high, 0.1, 1e-12);
        let small = Conditions {
            buffer_pkts: 8.0,
            ..conditions()
        };
        assert_eq!(small.target(), Axis::new("target", 5.0, 6.0));
    }

    #[test]
    fn the_slowest_weight_averages_over_ten_seconds_and_the_fastest_over_half_a_millisecond() {
        let middle = Condition::new(Rate::from_bps(80_000_000), 0.1, 10);
        let fast = Conditions {
            all: vec![middle],
            middle,
            ..conditions()
        };
        // At 10 000 packets/s these are 100 000 packets and five.
        assert_eq!(fast.weight(), Axis::new("w_q", 1e-5, 0.2));
    }

    #[test]
    fn a_link_has_at_least_one_active_flow() {
        let conditions = conditions();
        let slow = Condition::new(Rate::from_bps(80_000), 0.02, 10);
        assert_eq!(conditions.active_flows(&slow, 5.0), 1.0);
    }

    /// The longest one is 0.2 s and half of the buffer at 10 000 packets/s, 0.1 s; at most a minute,
    /// and always longer than the shortest.
    #[test]
    fn assumed_round_trip_times_span_the_range_with_a_queue() {
        let own_rtt = conditions().own_rtt();
        assert_eq!((own_rtt.name, own_rtt.low), ("rtt", 0.02));
        close(own_rtt.high, 0.3, 1e-12);
        let of = |rtts_s: &[f64], buffer_pkts| {
            let at = |rtt_s: &f64| Condition::new(Rate::from_bps(8_000_000), *rtt_s, 1);
            let conditions = Conditions {
                all: rtts_s.iter().map(at).collect(),
                middle: at(&rtts_s[0]),
                packet: Bytes(1000),
                buffer_pkts,
            };
            conditions.own_rtt()
        };
        assert_eq!(of(&[20.0, 100.0], 10.0), Axis::new("rtt", 20.0, 60.0));
        close(of(&[2.0], 1.0).high, 2.02, 1e-12);
    }

    #[test]
    #[should_panic(expected = "an axis zero")]
    fn a_point_has_no_value_on_an_axis_that_it_lacks() {
        let space = Space::with_target([Axis::new("target", 1.0, 2.0)], |x| {
            vec![("zero", number(x["zero"]))]
        });
        space.settings(&[1.0]);
    }

    #[test]
    fn adapted_parameters_depend_on_the_point_the_condition_and_the_active_flows() {
        let space = || Space::with_target([Axis::new("target", 1.0, 9.0)], |_| Vec::new());
        let at = conditions().middle;
        assert_eq!(space().adapted(&[4.0], &at, 3.0), vec![]);
        let adapting = space().adapting(|x, at, flows| {
            vec![(
                "gain",
                number(x["target"] + 10.0 * at.rtt_s + 100.0 * flows),
            )]
        });
        let expected = vec![("gain", Value::Number(304.6))];
        assert_eq!(adapting.adapted(&[4.0], &at, 3.0), expected);
        assert_eq!(adapting.queue_pkts(&[4.0]), 4.0);
    }

    /// The difference of two gains keeps six digits, and no gain has more digits than that takes.
    #[test]
    fn gains_are_rounded_so_that_their_difference_keeps_six_digits() {
        let rounded = |a, b| match gains(a, b) {
            (Value::Number(a), Value::Number(b)) => (a, b),
            other => panic!("{other:?}"),
        };
        let (a, b) = (1.822_345_678_912_345e-5, 1.816_345_432_198_765e-5);
        let (rounded_a, rounded_b) = rounded(a, b);
        close(rounded_a - rounded_b, a - b, 1e-5);
        // a/(a − b) is about 304, so that a needs three digits more than six.
        assert_eq!(rounded_a, 1.822_345_68e-5);
        assert_eq!(rounded_b, 1.816_345_43e-5);
        // Without cancellation there are six digits.
        assert_eq!(rounded(0.123_456_789, 12.345_678_9), (0.123_457, 12.345_7));
        // Equal gains have no difference; they keep fifteen digits.
        let equal = 1.234_567_890_123_456_7;
        assert_eq!(
            rounded(equal, equal),
            (1.234_567_890_123_46, 1.234_567_890_123_46)
        );
    }

    #[test]
    fn control_of_the_delay_is_searched_over_target_gain_and_zero() {
        let search = pi_on_delay(&conditions(), Span::from_micros(20_000), 0.1, 0.8);
        let Search::Space(space) = search else {
            panic!("a space");
        };
        let [delay, beta, zero] = space.axes[..] else {
            panic!("three axes");
        };
        assert_eq!((delay, zero), (conditions().delay(), conditions().zero()));
        // 0.1 over 0.2 s, and 0.8 over 20 ms.
        assert_eq!(beta.name, "beta");
        close(beta.low, 0.5, 1e-12);
        close(beta.high, 40.0, 1e-12);
        // 25 ms at the middle rate of 3000 packets/s; α is 4·2·20 ms.
        let at = [0.025, 4.0, 2.0];
        close(space.queue_pkts(&at), 75.0, 1e-12);
        let expected = vec![
            ("target", Value::Text("25ms".into())),
            ("alpha", Value::Number(0.16)),
            ("beta", Value::Number(4.0)),
        ];
        assert_eq!(space.settings(&at), expected);
        let largest = space.settings(&[0.025, 1e6, 1e6]);
        assert_eq!(largest[1], ("alpha", Value::Number(1e3)));
        assert_eq!(largest[2], ("beta", Value::Number(1e3)));
    }
}
