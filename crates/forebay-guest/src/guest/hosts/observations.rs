//! The observations of the hosts: what was sent and delivered within the measurement window.

use std::os::fd::{AsFd, BorrowedFd};

use forebay_scenario::TrafficKind;

use super::super::{programs, sys};
use super::Hosts;
use crate::record::RunRecord;

impl Hosts<'_> {
    /// Begins the measurement window.
    pub fn begin_window(&mut self) {
        for connection in &mut self.connections {
            if let Some(socket) = &connection.socket {
                let info = sys::tcp_info(socket.as_fd());
                connection.sent = (info.sent_pkts, info.resent_pkts);
            }
        }
    }

    /// Ends the measurement window.
    pub fn end_window(&mut self) {
        for connection in &self.connections {
            let class = self.flows[connection.flow as usize].class as usize;
            if let (Some(socket), Some(_)) =
                (&connection.socket, self.scenario.traffic[class].kind.tcp())
            {
                let info = sys::tcp_info(socket.as_fd());
                let sent = &mut self.classes[class].sent;
                sent.0 += u64::from(info.sent_pkts.saturating_sub(connection.sent.0));
                sent.1 += u64::from(info.resent_pkts.saturating_sub(connection.sent.1));
            }
        }
        let (start, end) = self.window;
        for (number, class) in (0..).zip(&self.classes) {
            for seen in class.script.viewers((start, end)) {
                let stalled = seen.stalled.as_nanos();
                let row = (number, seen.segments, seen.rates_bps, seen.stalls, stalled);
                self.outcome.viewers.push(row);
            }
        }
        let calls = self.classes.iter().enumerate();
        let calls = calls.filter_map(|(class, it)| Some((class, it.calls.as_ref()?)));
        for (class, calls) in calls {
            for seen in calls.seen() {
                self.outcome.calls.push((
                    crate::count(class),
                    seen.received,
                    seen.lost,
                    seen.delays.as_nanos(),
                    seen.changes.as_nanos(),
                ));
            }
        }
    }

    /// Adds a row to the goodput.
    pub fn row_of_goodput(&mut self) {
        let totals = self.flows.iter().map(|flow| flow.delivered);
        self.outcome.totals.push(totals.collect());
    }

    /// Returns the mean number of packets in flight over all endless flows.
    pub fn mean_in_flight_pkts(&self) -> f64 {
        let endless = self.flows.iter().filter(|flow| {
            matches!(
                self.scenario.traffic[flow.class as usize].kind,
                TrafficKind::Ftp(_)
            )
        });
        let of = |number: u32| -> Option<BorrowedFd> {
            let socket = self.connections[number as usize].socket.as_ref()?;
            Some(socket.as_fd())
        };
        let (mut sum, mut count) = (0.0, 0.0);
        for fd in endless.filter_map(|flow| of(flow.connection?)) {
            sum += f64::from(sys::tcp_info(fd).unacked_pkts);
            count += 1.0;
        }
        sum / count
    }

    /// Ends the programs and returns the record of the run.
    pub fn finish(mut self) -> RunRecord {
        let flows = self.flows.iter();
        self.outcome.flows = flows.map(|flow| (flow.class, flow.within)).collect();
        self.outcome.sent = self.classes.iter().map(|class| class.sent).collect();
        self.outcome.programs = programs::finish(self.programs);
        self.outcome
    }
}
