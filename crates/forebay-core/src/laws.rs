//! The registry of laws. Adding a law: its file in `laws/`, and a line in the list below.

macro_rules! laws {
    ($($module:ident: $($law:ident),+;)*) => {
        $( pub mod $module; )*

        /// Every law, in the order in which tables show them.
        pub const LAWS: &[crate::law::LawSpec] = &[ $( $( $module::$law ),+ ),* ];
    };
}

laws! {
    droptail: LAW;
    red: LAW;
    pi: LAW;
    pid: LAW;
    pi_pd: LAW;
    pid_avg: P, PI, PD, PID;
    ared: LAW;
    pd_red: LAW;
    stpi: LAW;
    stred: LAW;
    blue: LAW;
    rem: LAW;
    avq: LAW;
    e_avq: LAW;
}

/// The law named `kind`.
pub fn find(kind: &str) -> Option<&'static crate::law::LawSpec> {
    LAWS.iter().find(|law| law.kind == kind)
}

/// The queue without any law, beside which others are judged.
pub fn baseline() -> &'static crate::law::LawSpec {
    LAWS.iter().find(|law| law.baseline).unwrap_or(&LAWS[0])
}

#[cfg(test)]
pub(crate) mod testing {
    use crate::law::{Ecn, Law, Others, PacketMeta, QueueView, Signal, Site};
    use crate::periodic::{Controller, Sample};
    use crate::units::{Bytes, Rate, Span, Time};

    /// pi-pd's bottleneck: 30 Mbit/s, 800 packets of 1000 bytes.
    pub fn site() -> Site {
        Site {
            rate: Rate::from_bps(30_000_000),
            buffer_pkts: 800.0,
            packet: Bytes(1000),
        }
    }

    pub fn view(packets: u32) -> QueueView {
        QueueView {
            packets,
            bytes: u64::from(packets) * 1000,
            limit_packets: 800,
            rate: site().rate,
            idle_since: None,
            head_since: None,
            others: Others::default(),
        }
    }

    /// An arriving TCP packet.
    pub const fn packet(bytes: u32) -> PacketMeta {
        PacketMeta {
            bytes,
            ecn: Ecn::NotEct,
            signal: Signal::Drop,
            tcp: true,
            sojourn: Span::ZERO,
        }
    }

    /// What a controller answers to a sample of this queue.
    pub fn sampled(controller: &mut impl Controller, q: &QueueView) -> f64 {
        controller.sample(&Sample {
            now: Time::ZERO,
            q,
            departed_pkts: 0,
            departed_bytes: 0,
        })
    }

    /// The named inner value of a law.
    pub fn probed(law: &dyn Law, name: &str) -> f64 {
        let mut found = None;
        law.probe(&mut |key, value| {
            if key == name {
                found = Some(value);
            }
        });
        found.unwrap_or_else(|| panic!("no probe {name}"))
    }
}
