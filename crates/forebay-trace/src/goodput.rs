//! The goodput of flows over time, in bounded memory: a column for each flow of a traffic with few
//! flows, and quantiles over the flows of a traffic with many.

use forebay_units::cast::nearest_f32;
use forebay_units::Span;

use crate::metrics::nearest_rank;

/// The goodput of the flows of a run over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Goodput {
    /// Row i describes (i·interval, (i+1)·interval].
    pub interval: Span,
    /// The goodput of the flows of each traffic.
    pub of: Vec<GoodputOf>,
}

/// The goodput of the flows of one traffic over time.
#[derive(Clone, Debug, PartialEq)]
pub struct GoodputOf {
    /// Index into the scenario's traffic.
    pub traffic: u32,
    /// The number of its flows.
    pub flows: u32,
    /// The quantiles over the flows that the columns are, from 0 to 1; empty if there is a column
    /// for each flow.
    pub quantiles: &'static [f64],
    /// The columns, in bit/s.
    pub columns: Vec<Vec<f32>>,
}

/// A traffic with more flows than this has quantiles in place of columns for each flow.
const MOST_FLOWS: u32 = 20;
const QUANTILES: &[f64] = &[0.05, 0.25, 0.5, 0.75, 0.95];
/// The largest number of rows of a run.
const MOST_ROWS: u64 = 100;

/// Turns the totals of flows into rates.
pub struct GoodputRecorder {
    goodput: Goodput,
    /// The total of each flow at the last row.
    last_bytes: Vec<u64>,
    /// The rates of the flows of one traffic at this row; kept to save allocations.
    rates: Vec<f32>,
}

impl GoodputRecorder {
    /// Returns a recorder of a row for every `interval`; `flows` are the numbers of flows of each
    /// traffic.
    pub fn new(interval: Span, flows: impl Iterator<Item = u32>) -> GoodputRecorder {
        let of: Vec<GoodputOf> = (0..)
            .zip(flows)
            .map(|(traffic, flows)| {
                let quantiles = if flows > MOST_FLOWS { QUANTILES } else { &[] };
                let columns = match flows > MOST_FLOWS {
                    true => QUANTILES.len(),
                    false => flows as usize,
                };
                GoodputOf {
                    traffic,
                    flows,
                    quantiles,
                    columns: vec![Vec::new(); columns],
                }
            })
            .collect();
        let all = of.iter().map(|of| of.flows as usize).sum();
        GoodputRecorder {
            goodput: Goodput { interval, of },
            last_bytes: vec![0; all],
            rates: Vec::new(),
        }
    }

    /// Returns the number of samples for each row in a run of `samples` samples.
    pub fn every(samples: u64) -> u64 {
        samples.div_ceil(MOST_ROWS).max(1)
    }

    /// Ends a row; `bytes` are the totals of every flow since the start.
    pub fn row(&mut self, bytes: &[u64]) {
        let per_second = 8.0 / self.goodput.interval.as_secs_f64();
        let mut bytes = bytes.iter().zip(&mut self.last_bytes);
        for of in &mut self.goodput.of {
            self.rates.clear();
            let flows = bytes.by_ref().take(of.flows as usize);
            self.rates.extend(flows.map(|(&now, last)| {
                let got = now - std::mem::replace(last, now);
                nearest_f32(got as f64 * per_second)
            }));
            if of.quantiles.is_empty() {
                for (column, rate) in of.columns.iter_mut().zip(&self.rates) {
                    column.push(*rate);
                }
                continue;
            }
            self.rates.sort_unstable_by(f32::total_cmp);
            for (column, quantile) in of.columns.iter_mut().zip(of.quantiles) {
                column.push(nearest_rank(&self.rates, *quantile).unwrap_or(f32::NAN));
            }
        }
    }

    /// Returns the rows.
    pub fn finish(self) -> Goodput {
        self.goodput
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_flows_have_a_column_each() {
        let mut recorder = GoodputRecorder::new(Span::from_millis(500), [2, 1].into_iter());
        recorder.row(&[1000, 0, 500]);
        recorder.row(&[1000, 250, 600]);
        let all = recorder.finish();
        assert_eq!(all.of[0].columns, [[16_000.0, 0.0], [0.0, 4000.0]]);
        assert_eq!(all.of[1].columns, [[8000.0, 1600.0]]);
        assert!(all.of[0].quantiles.is_empty());
    }

    #[test]
    fn many_flows_have_quantiles() {
        let mut recorder = GoodputRecorder::new(Span::from_secs(1), [1, 100].into_iter());
        let totals: Vec<u64> = std::iter::once(7).chain((1..=100).rev()).collect();
        recorder.row(&totals);
        let many = &recorder.finish().of[1];
        let row: Vec<f32> = many.columns.iter().map(|column| column[0]).collect();
        assert_eq!(row, [5.0, 25.0, 50.0, 75.0, 95.0].map(|it| 8.0 * it));
    }

    #[test]
    fn a_run_has_no_more_rows_than_that() {
        for samples in [1, 99, 100, 101, 12_345] {
            let rows = samples / GoodputRecorder::every(samples);
            assert!((1..=MOST_ROWS).contains(&rows), "{samples}: {rows}");
        }
    }
}
