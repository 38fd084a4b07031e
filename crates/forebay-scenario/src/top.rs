//! The keys at the top of a scenario.

use forebay_units::{params, SetPoint, Span, Time};

use crate::error::Fault;
use crate::tree::{Section, Table};
use crate::types::{Maybe, Text, Window};

params! {
    /// Keys above the first table.
    pub struct Top {
        /// Title of the experiment.
        title: Text = Text::default();
        /// Source, such as a paper, a section or a figure.
        source: Text = Text::default();
        /// Simulated time.
        duration: Span = Span::from_secs(100), 1e-3 => 1e7, required;
        /// Part of the run that the metrics cover; by default the second half.
        measure: Maybe<Window> = Maybe(None), 0.0 => 1e7;
        /// Time between two samples of the queue.
        sample: Span = Span::from_millis(10), 1e-6 => 1e4;
        /// Number of runs of every law at every point, with seeds 1, 2, and so on.
        seeds: u32 = 1, 1.0 => 1e4;
        /// Set-point for QACD; by default each law's own `target`.
        target: Maybe<SetPoint> = Maybe(None), 0.0 => 1e9;
        /// Record the windows of TCP: with every sample the packets in flight of one flow of `ftp`,
        /// the mean of those over the bottleneck that have data, as `in_flight_pkts`.
        windows: bool = false;
    }
}

impl Top {
    /// # Errors
    /// A key that is wrong or missing; a window outside the run.
    pub fn of(table: &Table) -> Result<Top, Fault> {
        let section = Section { table, name: "" };
        section.only(&[], &[<Top as forebay_units::Params>::SPECS])?;
        let top: Top = section.read()?;
        let quoted = |span: Span| format!("\"{span}\"");
        if let Maybe(Some(Window(start, end))) = top.measure {
            if end > top.duration {
                return Err(section.fault(
                    "measure",
                    format!("\"{start}\" to \"{end}\""),
                    format!(
                        "a part of the run, which lasts from \"0s\" to \"{}\"",
                        top.duration
                    ),
                ));
            }
        }
        let (start, end) = top.window();
        if top.sample > end - start {
            return Err(section.fault(
                "sample",
                quoted(top.sample),
                format!(
                    "at most {}, the length of the measurement",
                    quoted(end - start)
                ),
            ));
        }
        Ok(top)
    }

    /// Returns the window over which metrics are taken.
    pub fn window(&self) -> (Time, Time) {
        let half = Span::from_nanos(self.duration.as_nanos() / 2);
        let Window(start, end) = self.measure.0.unwrap_or(Window(half, self.duration));
        (Time::ZERO + start, Time::ZERO + end)
    }
}
