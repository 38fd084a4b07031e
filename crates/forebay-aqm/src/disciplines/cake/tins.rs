//! The mapping of DSCPs to tins, and each tin's share of the link.

use forebay_units::{words, Rate};

words! {
    /// The mapping of DSCPs to tins.
    pub enum Tins {
        Diffserv3 = "diffserv3",
        BestEffort = "besteffort",
        Diffserv4 = "diffserv4",
        Precedence = "precedence",
    }
}

/// A tin's share of the link.
pub struct Share {
    /// Numerator of the fraction of the rate within which the tin has priority over the others.
    pub numerator: u64,
    /// Denominator of that fraction.
    pub denominator: u64,
    /// The bytes of the tin's turn, without a shaper.
    pub quantum: i64,
}

impl Share {
    /// Returns this share of a rate: at least 64 bytes per second (`cake_set_rate`).
    pub fn of(&self, rate: Rate) -> Rate {
        let part = u128::from(rate.as_bps()) * u128::from(self.numerator);
        let bps = u64::try_from(part / u128::from(self.denominator)).unwrap_or(u64::MAX);
        Rate::from_bps(bps.max(512))
    }

    /// Returns the bytes of a queue's turn when the tins share this rate: those of 1/4096 second,
    /// between 300 and 1514 (`cake_set_rate`).
    pub fn quantum_of(&self, rate: Rate) -> u32 {
        let bytes = self.of(rate).as_bps() / 8 / 4096;
        u32::try_from(bytes).map_or(1514, |bytes| bytes.clamp(300, 1514))
    }
}

/// Returns the share numerator/denominator with this quantum.
const fn share(numerator: u64, denominator: u64, quantum: i64) -> Share {
    Share {
        numerator,
        denominator,
        quantum,
    }
}

/// The tins of `besteffort` (`cake_config_besteffort`).
const BEST_EFFORT: [Share; 1] = [share(1, 1, 65535)];
/// The tins of `diffserv3` (`cake_config_diffserv3`).
const DIFFSERV3: [Share; 3] = [share(1, 1, 1024), share(1, 16, 64), share(1, 4, 256)];
/// The tins of `diffserv4` (`cake_config_diffserv4`).
const DIFFSERV4: [Share; 4] = [
    share(1, 1, 1024),
    share(1, 16, 64),
    share(1, 2, 512),
    share(1, 4, 256),
];
/// The tins of `precedence` (`cake_config_precedence`): each has 7/8 of the quantum of the one before,
/// rounded down.
const PRECEDENCE: [Share; 8] = [
    share(1, 1, 256),
    share(7, 8, 224),
    share(49, 64, 196),
    share(343, 512, 171),
    share(2401, 4096, 149),
    share(16_807, 32_768, 130),
    share(117_649, 262_144, 113),
    share(823_543, 2_097_152, 98),
];

impl Tins {
    /// Returns the shares of all tins.
    pub fn shares(self) -> &'static [Share] {
        match self {
            Tins::BestEffort => &BEST_EFFORT,
            Tins::Diffserv3 => &DIFFSERV3,
            Tins::Diffserv4 => &DIFFSERV4,
            Tins::Precedence => &PRECEDENCE,
        }
    }

    /// Returns the names of the tins as classes; empty if there is only one tin.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Tins::BestEffort => &[],
            Tins::Diffserv3 => &["best-effort", "background", "voice"],
            Tins::Diffserv4 => &["best-effort", "background", "video", "voice"],
            Tins::Precedence => &[
                "precedence-0",
                "precedence-1",
                "precedence-2",
                "precedence-3",
                "precedence-4",
                "precedence-5",
                "precedence-6",
                "precedence-7",
            ],
        }
    }

    /// Returns the tin of a code point: 0 is best effort, 1 background, then video and voice.
    pub fn of(self, dscp: u8) -> usize {
        match (self, dscp) {
            (Tins::BestEffort, _) => 0,
            (Tins::Precedence, _) => usize::from(dscp >> 3),
            // LE and CS1.
            (_, 1 | 8) => 1,
            // VA, EF, CS6 and CS7.
            (Tins::Diffserv3, 4 | 44 | 46 | 48 | 56) => 2,
            // In addition CS4 and CS5.
            (Tins::Diffserv4, 32 | 40 | 44 | 46 | 48 | 56) => 3,
            // "Low delay" of RFC 1349, CS2, CS3, and AF2x to AF4x.
            (Tins::Diffserv4, 4 | 16 | 18 | 20 | 22 | 24 | 26 | 28 | 30 | 34 | 36 | 38) => 2,
            _ => 0,
        }
    }
}

/// Returns the class of departures from a tin.
pub fn class_of(tin: usize) -> u8 {
    u8::try_from(tin).unwrap_or(u8::MAX)
}
