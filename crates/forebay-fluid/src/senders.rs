//! The senders of the fluid model: how windows grow, and how a signal changes them.
//!
//! Each has the equations that were published, and a closer description of the same packets
//! ([`Windows`]). Senders without a published fluid model are not included.

mod cubic;
mod reno;
mod scalable;

pub use reno::SPREAD;

/// The detail in which the windows of a class are described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Windows {
    /// The published equations: every flow has the mean window, and grows with any number of ACKs.
    Smooth,
    /// The equations with six effects that the published ones leave out.
    ///
    /// A sender sends as ACKs arrive: the rate is n/R + dn/dt, where n are the packets in flight,
    /// so the packets in flight are conserved (Jacobsson, Andrew, Tang, Low and Hjalmarsson, IEEE
    /// Trans. Automatic Control 54(3), 2009). After a reduction, some ACKs release no packet
    /// ([`Reduction`]).
    ///
    /// A sender sends the whole packets of its window, half a packet less than W on average. Its
    /// window grows only with ACKs that carry no signal. Flows of one class are at different points
    /// of their sawtooth, and signals mostly hit large windows: see [`SPREAD`], and
    /// `senders/cubic.rs`. For a round trip after a signal, a flow does not grow and does not
    /// answer another signal.
    Sawtooth,
}

impl Windows {
    pub(crate) fn in_flight(self, window_pkts: f64) -> f64 {
        match self {
            Windows::Smooth => window_pkts,
            Windows::Sawtooth => window_pkts - 0.5,
        }
    }

    /// Returns the smallest window: a sender keeps a packet in flight.
    pub(crate) fn least(self) -> f64 {
        match self {
            Windows::Smooth => 0.0,
            Windows::Sawtooth => 1.0,
        }
    }
}

/// The rule by which a window grows and is reduced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WindowControl {
    /// Grows by a packet per round trip, and is halved for a signal (RFC 5681).
    Reno,
    /// RFC 9438. `above` is α of the Reno-friendly window once it is past the window before the
    /// last reduction: 1 in the RFC, and in Linux as below it, 8/15.
    Cubic {
        /// α of the Reno-friendly window once it exceeds the one before the last reduction.
        above: f64,
    },
    /// RFC 8257.
    Dctcp,
    /// draft-briscoe-iccrg-prague-congestion-control.
    Prague,
}

/// The way in which the packets in flight follow a reduction of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Nothing is sent until as many ACKs have come.
    Pause,
    /// Over a round trip, in proportion to what arrives (RFC 9937).
    Proportional,
}

/// A sender of TCP.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sender {
    /// The rule of its window.
    pub control: WindowControl,
    /// The way in which its packets in flight follow a reduction.
    pub reduction: Reduction,
}

impl Sender {
    /// Reno (RFC 5681).
    pub const RENO: Sender = Sender {
        control: WindowControl::Reno,
        reduction: Reduction::Pause,
    };

    /// Returns the sender that a scenario names so.
    ///
    /// # Errors
    /// If no sender has this name. The text describes those that there are.
    pub fn named(name: &str) -> Result<Sender, String> {
        let sender = SENDERS.iter().find(|(known, _)| *known == name);
        sender.map(|(_, sender)| *sender).ok_or_else(|| {
            let names: Vec<String> = (SENDERS.iter())
                .map(|(name, _)| (*name).to_owned())
                .collect();
            format!(
                "a sender with a published fluid model, one of {}",
                names.join(", ")
            )
        })
    }
}

const fn sender(control: WindowControl, reduction: Reduction) -> Sender {
    Sender { control, reduction }
}

/// The senders of a scenario that the fluid model has, by the name of `tcp`.
const SENDERS: &[(&str, Sender)] = &[
    ("reno", Sender::RENO),
    ("newreno", Sender::RENO),
    ("sack", Sender::RENO),
    (
        "linux-reno",
        sender(WindowControl::Reno, Reduction::Proportional),
    ),
    (
        "cubic",
        sender(WindowControl::Cubic { above: 1.0 }, Reduction::Pause),
    ),
    (
        "linux-cubic",
        sender(
            WindowControl::Cubic {
                above: cubic::LINUX_ALPHA,
            },
            Reduction::Proportional,
        ),
    ),
    (
        "dctcp",
        sender(WindowControl::Dctcp, Reduction::Proportional),
    ),
    ("prague", sender(WindowControl::Prague, Reduction::Pause)),
];

/// A class as its sender's equations see it at one moment.
pub(crate) struct Flow<'a> {
    /// W, mean over the flows.
    pub window: f64,
    /// R and 1/R.
    pub rtt_s: f64,
    pub per_rtt: f64,
    /// Growth of Reno in a round trip; half of it with delayed ACKs.
    pub growth_pkts_per_rtt: f64,
    /// x and p one round trip ago, which the ACKs of this moment report.
    pub sent: f64,
    pub probability: f64,
    /// The sender's state variables other than its window.
    pub states: &'a [f64],
}

/// A sender in one description: its equations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Equations {
    Reno,
    RenoSawtooth,
    Cubic,
    CubicSawtooth(cubic::Response),
    Dctcp,
    DctcpSawtooth,
    Prague,
    PragueSawtooth,
}

impl Equations {
    /// A sender that answers the share of marks halves its window for a loss, as Reno does.
    pub fn of(control: WindowControl, windows: Windows, marks: bool) -> Equations {
        let control = match control {
            WindowControl::Dctcp | WindowControl::Prague if !marks => WindowControl::Reno,
            control => control,
        };
        match (control, windows) {
            (WindowControl::Reno, Windows::Smooth) => Equations::Reno,
            (WindowControl::Reno, Windows::Sawtooth) => Equations::RenoSawtooth,
            (WindowControl::Cubic { .. }, Windows::Smooth) => Equations::Cubic,
            (WindowControl::Cubic { above }, Windows::Sawtooth) => {
                Equations::CubicSawtooth(cubic::Response::new(above))
            }
            (WindowControl::Dctcp, Windows::Smooth) => Equations::Dctcp,
            (WindowControl::Dctcp, Windows::Sawtooth) => Equations::DctcpSawtooth,
            (WindowControl::Prague, Windows::Smooth) => Equations::Prague,
            (WindowControl::Prague, Windows::Sawtooth) => Equations::PragueSawtooth,
        }
    }

    /// Returns the states of a flow that starts with this window.
    pub fn start(&self, window: f64) -> Vec<f64> {
        match self {
            Equations::Reno | Equations::RenoSawtooth => Vec::new(),
            Equations::Cubic => cubic::start(window),
            Equations::CubicSawtooth(_) => vec![0.0, 0.0],
            // The first mark halves the window.
            _ => vec![1.0],
        }
    }

    /// Returns the greatest value of a state.
    pub fn most(&self) -> f64 {
        match self {
            Equations::Dctcp
            | Equations::DctcpSawtooth
            | Equations::Prague
            | Equations::PragueSawtooth => 1.0,
            _ => f64::INFINITY,
        }
    }

    /// Returns the window, where it follows from the other states.
    pub fn window(&self, states: &[f64]) -> Option<f64> {
        match self {
            Equations::Cubic => Some(cubic::window(states)),
            _ => None,
        }
    }

    /// dW/dt; the slopes of the other states go to `out`.
    #[inline]
    pub fn slopes(&self, flow: &Flow, out: &mut [f64]) -> f64 {
        match self {
            Equations::Reno => reno::published(flow),
            Equations::RenoSawtooth => reno::sawtooth(flow),
            Equations::Cubic => cubic::published(flow, out),
            Equations::CubicSawtooth(response) => response.slopes(flow, out),
            Equations::Dctcp => scalable::dctcp(flow, out),
            Equations::DctcpSawtooth => scalable::dctcp_sawtooth(flow, out),
            Equations::Prague => scalable::prague(flow, out),
            Equations::PragueSawtooth => scalable::prague_sawtooth(flow, out),
        }
    }
}

/// Returns the time from a packet until its signal changes the packets in flight, in round trips.
/// (Growth has no such delay; but growth and reductions balance, so only the delay of the
/// probability matters.)
pub(crate) fn feedback_rtts(sender: Sender, windows: Windows) -> f64 {
    match (windows, sender.reduction, sender.control) {
        (Windows::Smooth, ..) => 1.0,
        // A sender that halves its window waits until W/2 ACKs have come: over the half round
        // trip that this takes, the effect is a quarter late on average.
        (_, Reduction::Pause, WindowControl::Reno) => 1.25,
        (_, Reduction::Pause, WindowControl::Cubic { .. }) => 1.0 + (1.0 - cubic::BETA) / 2.0,
        // Of a packet or two.
        (_, Reduction::Pause, _) => 1.0,
        (_, Reduction::Proportional, _) => 1.5,
    }
}
