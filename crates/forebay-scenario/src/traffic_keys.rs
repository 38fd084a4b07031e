//! The keys of `[[traffic]]`. Those of a kind are the type with which engines run it, so that a
//! parameter is declared once, with its default, its range and its description.
//!
//! Three types hold keys alone. Those of every kind ([`FlowKeys`]) have defaults that depend on the
//! kind, the links and the duration of the run; those of programs and of recorded packets name
//! files, and the model has the files' contents.

use forebay_packets::Prefix;
use forebay_units::cast::whole_u64;
use forebay_units::{params, Bytes, Rate, Span, Time};

use crate::link_types::Share;
use crate::senders::{Sender, SenderSpec};
use crate::types::{
    Command, EcnChoice, InnerFile, Instant, Label, Maybe, Stack, Text, WholePackets,
};

params! {
    /// Keys of every kind of traffic.
    pub struct FlowKeys {
        /// Name in reports; by default the kind.
        label: Maybe<Label> = Maybe(None);
        /// Number of flows.
        flows: u32 = 100, 1.0 => 5e6, required;
        /// Size on the wire of every data packet, TCP and IP headers of 40 bytes included.
        packet: Bytes = Bytes(1000), 40.0 => 65535.0;
        /// Headers of every data packet, such as the 52 bytes of TCP over IPv4 with timestamps; by
        /// default 40 bytes over TCP, and 28 over UDP. Goodput and the sizes of transfers do not
        /// count them; "0B" counts whole packets, as ns-2 does.
        header: Maybe<Bytes> = Maybe(None), 0.0 => 65534.0;
        /// Nodes that the data passes, such as ["left", "right"]; ACKs come back the same way.
        /// By default the bottleneck's two ends.
        path: Maybe<Vec<Label>> = Maybe(None);
        /// Propagation time both ways, access links and bottleneck together; flows (or pairs)
        /// take a list in turn.
        rtt: Vec<Span> = vec![Span::from_millis(100)], 0.0 => 1e3, required;
        /// Differentiated services code point of every packet, ACKs included (RFC 2474).
        dscp: u32 = 0, 0.0 => 63.0;
        /// Rate of the access links at both ends.
        access: Rate = Rate::from_bps(100_000_000), 1.0 => 1e12;
        /// Number of source and sink pairs that the flows share in turn; by default one for each
        /// flow.
        pairs: Maybe<u32> = Maybe(None), 1.0 => 5e6;
        /// Name of a group; traffic of one group shares its pairs.
        group: Maybe<Label> = Maybe(None);
        /// Name of the host at either end; traffic of one host shares what a queue like `cake` gives
        /// a host. By default each flow has hosts of its own.
        host: Maybe<Label> = Maybe(None);
        /// Start of each flow, or the interval from which each flow draws its start. By default flows
        /// of ftp, cbr, voice, frames and video draw it from the first second, and from the first
        /// tenth of a run, or of a time to `stop`, that is shorter than 10s. Flows of other kinds draw
        /// their times by themselves, and start at "0s".
        start: Maybe<Instant> = Maybe(None), 0.0 => 1e7;
        /// Time at which each flow stops sending new data; by default at the end of the run.
        stop: Maybe<Instant> = Maybe(None), 0.0 => 1e7;
    }
}

params! {
    /// A TCP sender and its receiver. The defaults are those of ns-2.35, except the window, which
    /// ns-2's scripts set; `stack = "linux"` sets those of a present host.
    pub struct Tcp {
        /// Hosts whose behaviour gives the defaults of other keys: "ns2", or "linux" for current
        /// Linux hosts, which is short for `tcp = "linux-cubic"`, `packet = "1500B"`, `header =
        /// "52B"`, `initial_window = "10p"`, `delayed_ack = true`, `ack_delay = "40ms"` and
        /// `quick_acks = 16`. A key that is written takes precedence.
        stack: Stack = Stack::Ns2;
        /// Sender, a stack over a congestion control: "reno", "newreno" and "sack" as in
        /// ns-2.35, "cubic" as in RFC 9438 with the recovery of "sack", "linux-reno" and
        /// "linux-cubic" as in the Linux kernel (RACK, tail loss probes, PRR, F-RTO, HyStart; they
        /// count acknowledged packets, and `min_rto` bounds the deviation's term of the RTO),
        /// and with the recovery of Linux "dctcp" (RFC 8257), "bbr" as in Linux, "bbr3"
        /// (draft-ietf-ccwg-bbr), "prague" and "ledbat++" (their drafts).
        tcp: Sender = Sender::default();
        /// Send ECN-capable packets: with true ECT(0), and marks are echoed (RFC 3168); with "l4s"
        /// ECT(1), and ACKs carry counts of marked packets (RFC 9331, RFC 9768). A sender that does
        /// not use the share of marks reduces its window once per round trip in either case.
        /// "dctcp" requests ECN in any case, as in Linux.
        ecn: EcnChoice = EcnChoice::Off;
        /// Send packets spread over the round trip, as Linux paces them: at 2 times the window
        /// per round trip in slow start, and at 1.2 times it afterwards. Without pacing, packets
        /// leave as ACKs come.
        pacing: bool = false;
        /// Let the senders of Linux make segments of several packets, about a millisecond's, that
        /// leave together (generic segmentation offload).
        gso: bool = true;
        /// Receive window, which is also the initial slow-start threshold; with `quick_acks` it
        /// grows from 55 packets of 1500 bytes to this size, as in Linux.
        window: WholePackets = WholePackets(10_000), 1.0 => 1e6;
        /// Window after the handshake (RFC 5681, section 3.1).
        initial_window: WholePackets = WholePackets(2), 1.0 => 1e3;
        /// Least retransmission timeout (RFC 6298).
        min_rto: Span = Span::from_millis(200), 1e-3 => 60.0;
        /// Acknowledge every second packet, or after `ack_delay` (RFC 5681, section 4.2).
        delayed_ack: bool = false;
        /// Longest wait of a delayed ACK for a second packet. Linux waits 40ms, and with `quick_acks` up
        /// to 200ms for packets that are far apart.
        ack_delay: Span = Span::from_millis(100), 1e-3 => 0.5;
        /// Number of ACKs sent without delay at first, and as in Linux, which sends 16, again after
        /// a silence and after repetitions.
        quick_acks: u32 = 0, 0.0 => 255.0;
        /// Send a new packet on each of the first two duplicate ACKs (RFC 3042); the senders of
        /// Linux always do.
        limited_transmit: bool = true;
    }
}

impl Tcp {
    /// Returns the congestion control and its stack.
    pub fn sender(&self) -> &'static SenderSpec {
        self.tcp.0
    }
}

params! {
    /// TCP connections with endless data that open and close again and again; each flow starts
    /// silent.
    pub struct Mice {
        /// Mean time of sending, exponential.
        on: Span = Span::from_secs(1), 1e-6 => 1e6;
        /// Mean time of silence, exponential.
        off: Span = Span::from_secs(1), 1e-6 => 1e6;
        /// Keep from one connection to the next what ns-2's agents do not reset (window inflation,
        /// the packet being timed), for comparisons with ns-2.
        ns2_reset: bool = false;
    }
}

params! {
    /// Sessions that request objects at Poisson times (bigdeli's web traffic).
    pub struct Web {
        /// Requests per second of each session, at Poisson times; each is answered over a new
        /// connection.
        requests: f64 = 10.0, 1e-6 => 1e6;
        /// Largest number of connections at a time, over all sessions; a request beyond it is lost.
        connections: u32 = 100_000, 1.0 => 5e6;
    }
}

params! {
    /// Sessions that load one page after another, as in ns-2's PagePool/WebTraf with times between
    /// pages counted from the end of a page. The request itself is not sent.
    pub struct Pages {
        /// Pages that each session loads; by default without end.
        pages: Maybe<u32> = Maybe(None), 1.0 => 1e9;
        /// Mean time from the end of a page to the start of the next, exponential.
        page_gap: Span = Span::from_secs(1), 1e-6 => 1e6;
        /// Objects of each page, each sent over a new connection.
        objects: u32 = 1, 1.0 => 1e4;
        /// Mean time between the starts of a page's objects, exponential.
        object_gap: Span = Span::from_millis(10), 1e-6 => 1e6;
    }
}

params! {
    /// The distribution of the sizes of what is sent: Pareto of the second kind (Lomax).
    pub struct Pareto2 {
        /// Shape of the size: P(size > x) = (1 + x/scale)^-shape.
        shape: f64 = 1.2, 0.1 => 100.0;
        /// Scale of the size; the mean is scale/(shape - 1). A transfer has the packets that hold
        /// it.
        scale: Bytes = Bytes(1000), 1.0 => 1e9;
    }
}

params! {
    /// Bursts of packets without congestion control (staqm, simulation 1). Flows that arrive do so
    /// at the rate `arrivals`·(1 + `swing`·cos(2π(t − `peak`)/`period`)).
    pub struct OnOff {
        /// Rate of a flow during a burst, headers included.
        rate: Rate = Rate::from_bps(20_000_000), 1.0 => 1e12, required;
        /// Mean length of a burst.
        on: Span = Span::from_millis(200), 1e-6 => 1e6;
        /// Shape of the bursts' Pareto lengths; by default exponential.
        on_shape: Maybe<f64> = Maybe(None), 1.001 => 100.0;
        /// Mean time between bursts, exponential.
        off: Span = Span::from_millis(200), 1e-6 => 1e6;
        /// Mean number of bursts of a flow, geometric; by default without end.
        bursts: Maybe<f64> = Maybe(None), 1.0 => 1e9;
        /// Flows that arrive per second, at Poisson times; `flows` then bounds their number at one
        /// time, and arrivals beyond it are lost. By default all flows start at `start`.
        arrivals: Maybe<f64> = Maybe(None), 1e-6 => 1e6;
        /// Amplitude of the cosine variation of the arrival rate, as a share of its mean.
        swing: f64 = 0.0, 0.0 => 1.0;
        /// Period of this variation.
        period: Span = Span::from_secs(400), 1e-3 => 1e7;
        /// A time at which arrivals are most frequent.
        peak: Span = Span::ZERO, 0.0 => 1e7;
        /// Send ECN-capable packets; a mark changes nothing.
        ecn: bool = false;
    }
}

params! {
    /// Packets at a constant rate, without congestion control.
    pub struct Cbr {
        /// Rate of each flow, headers included.
        rate: Rate = Rate::from_bps(1_000_000), 1.0 => 1e12, required;
        /// Send ECN-capable packets; a mark changes nothing.
        ecn: bool = false;
    }
}

params! {
    /// A call in one direction. The size of a packet follows: G.711 at 64 kbit/s and 20 ms has 200
    /// bytes.
    pub struct Voice {
        /// Rate of the coder, without the 40 bytes of IP, UDP and RTP headers of each packet.
        rate: Rate = Rate::from_bps(64_000), 1.0 => 1e9;
        /// Playing time of each packet.
        interval: Span = Span::from_millis(20), 1e-3 => 1.0;
        /// Mean length of a talk spurt, exponential; by default a speaker never pauses. ITU-T P.59
        /// has 1.004 s, and pauses of 1.587 s.
        talk: Maybe<Span> = Maybe(None), 1e-3 => 1e6;
        /// Mean length of a pause, exponential; goes with `talk`.
        pause: Maybe<Span> = Maybe(None), 1e-3 => 1e6;
        /// Send ECN-capable packets; a mark changes nothing.
        ecn: bool = false;
    }
}

impl Voice {
    /// The headers of IPv4, UDP and RTP (RFC 3550).
    pub const HEADER: Bytes = Bytes(40);

    /// Returns the size of a packet, headers included.
    pub fn packet(&self) -> Bytes {
        let bits = self.rate.as_bps() as f64 * self.interval.as_secs_f64();
        Bytes(whole_u64((bits / 8.0).round()).max(1) + Voice::HEADER.0)
    }

    /// Returns the mean lengths of a talk spurt and of a pause; `None` if the call never pauses.
    pub fn spurts(&self) -> Option<(Span, Span)> {
        self.talk.0.zip(self.pause.0)
    }
}

params! {
    /// Frames of several packets.
    pub struct Frames {
        /// Number of packets of a frame, which are sent back to back at the rate of the access
        /// link.
        frame: WholePackets = WholePackets(10), 1.0 => 1e6;
        /// Time from one frame to the next.
        interval: Span = Span::from_millis(40), 1e-6 => 1e6;
        /// Send ECN-capable packets; a mark changes nothing.
        ecn: bool = false;
    }
}

params! {
    /// A viewer of adaptive video. Rates are chosen by the buffer, as BBA-0 does (Huang et al., A
    /// Buffer-Based Approach to Rate Adaptation, SIGCOMM 2014, section 4).
    pub struct Video {
        /// Length of a segment in playing time; each is fetched over a new connection.
        segment: Span = Span::from_secs(2), 1e-2 => 100.0;
        /// Bit rates to choose from, from the lowest to the highest.
        ladder: Vec<Rate> = [300, 750, 1200, 1850, 2850, 4300, 6000].map(|k| Rate::from_bps(1000 * k)).to_vec(),
            1.0 => 1e12;
        /// Largest playing time that is buffered; a segment is fetched when the buffer has space
        /// for it.
        buffer: Span = Span::from_secs(30), 1e-1 => 1e4;
        /// Playing time in the buffer up to which segments have the lowest rate. From 90 % of the
        /// buffer on they have the highest rate; in between, the rate rises linearly.
        reservoir: Span = Span::from_secs(5), 0.0 => 1e4;
    }
}

impl Video {
    /// The share of the buffer from which on a viewer fetches the highest rate.
    pub const UPPER: f64 = 0.9;
}

params! {
    /// Keys of programs of yours, which run on a real kernel as they are: in virtual time with
    /// `--engine kernel`, in real time with `--engine link`. Each flow has a client, and a server
    /// if one is named, on hosts of their own; what the server sends crosses the bottleneck. Both are words of a shell, run in the scenario's folder;
    /// `$FOREBAY_SERVER` and `$FOREBAY_CLIENT` are their addresses. The server starts with the run,
    /// the client at `start`; what still runs at `stop`, or at the end, is stopped.
    pub struct ProgramKeys {
        /// Command that runs at the sink, such as "iperf3 -R -c $FOREBAY_SERVER -t 30".
        client: Command = Command(String::new()), 0.0 => 0.0, required;
        /// Command that runs at the source, such as "iperf3 -s".
        server: Maybe<Command> = Maybe(None);
        /// Request ECN (RFC 3168) for connections whose program does not choose it.
        ecn: bool = false;
        /// Files that the programs need, such as "page" or ["bin/server", "page"]. They then run in
        /// a folder that has these alone, and not in the scenario's; what changes in them makes
        /// another run.
        files: Maybe<Vec<InnerFile>> = Maybe(None);
    }
}

params! {
    /// Packets that a program sends, over `forebay-net`, `libforebay` or
    /// `forebay.Network`. Each flow has two ends, and either may send to the other: the source at
    /// the start of the path, and the sink at its end. `packet`, by default 1500B, is the largest
    /// that there may be; `header`, by default 28B as of UDP over IPv4, is added to all that the
    /// program sends. It starts and stops by itself.
    pub struct External {
        /// Share of the packets, either way, that is lost at random behind the last queue, as on
        /// the air: "1%".
        loss: Share = Share(0.0), 0.0 => 1.0;
    }
}

params! {
    /// Keys of packets that came once. Their flows, sizes and traffic classes are the file's.
    pub struct ArrivalsKeys {
        /// Name in reports; by default the kind.
        label: Maybe<Label> = Maybe(None);
        /// File with the packets, named as from this one's folder: a capture (pcap or pcapng), or
        /// CSV with the columns time_s, size_bytes and flow, and ecn (0 to 3) and dscp (0 to 63) if
        /// wanted. In a capture, packets of like addresses, ports and protocol are a flow; frames
        /// without IP are skipped.
        file: Text = Text(String::new()), 0.0 => 0.0, required;
        /// Take packets from these addresses alone, such as "10.0.0.0/8" or a list.
        source: Maybe<Vec<Prefix>> = Maybe(None);
        /// Take packets to these addresses alone. A capture of both directions needs one of both.
        destination: Maybe<Vec<Prefix>> = Maybe(None);
        /// Split a larger packet into packets of this size, which arrive at the same time: captures
        /// on a host show packets before the network card splits them.
        mtu: Bytes = Bytes(1500), 256.0 => 65535.0;
        /// Nodes that the packets pass, such as ["left", "right"]. By default the bottleneck's two
        /// ends.
        path: Maybe<Vec<Label>> = Maybe(None);
        /// Time at which the file's first packet comes to the first queue of the path; the others
        /// follow as in the file.
        start: Instant = Instant::At(Time::ZERO), 0.0 => 1e7;
        /// Time from which no more packets come; by default the end of the run.
        stop: Maybe<Instant> = Maybe(None), 0.0 => 1e7;
        /// Factor on the times between packets: with 0.5 they come twice as fast.
        scale: f64 = 1.0, 1e-6 => 1e6;
        /// Time after which the file starts again, at least the time that its packets take; by
        /// default they come once.
        period: Maybe<Span> = Maybe(None), 1e-6 => 1e7;
    }
}
