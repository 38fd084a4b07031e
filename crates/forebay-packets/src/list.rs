//! Reading of lists of packets: CSV with the columns time_s, size_bytes and flow, and optionally
//! ecn and dscp.

use csv::{ByteRecord, ReaderBuilder, Trim};
use forebay_aqm::TrafficClass;

use crate::arrivals::{Builder, Built, FilePacket, Selection, Wrong, FORMATS};

/// The first time that is refused, in ns.
const MOST_NANOS: i128 = 1_000_000_000_000_000_000 * 1_000_000_000;
/// The longest name of a flow, in bytes.
const LONGEST_NAME: usize = 200;

const HEADER: &str =
    "the columns time_s, size_bytes and flow and optionally ecn and dscp, each once";
const TIME: &str = "a decimal number of seconds as time_s, such as 12.000345 or 1e-05";
const SIZE: &str = "a whole number from 1 to 65535 as size_bytes";
const FLOW: &str = "a name or number of 1 to 200 characters as flow";
const ECN: &str = "0 (not ECN-capable), 1 (ECT(1)), 2 (ECT(0)) or 3 (CE) as ecn";
const DSCP: &str = "a whole number from 0 to 63 as dscp";

/// The positions of the columns.
struct Columns {
    time: usize,
    size: usize,
    flow: usize,
    ecn: Option<usize>,
    dscp: Option<usize>,
}

impl Columns {
    /// Returns the columns of a first line; `None` where a column is missing, unknown or repeated.
    fn of(header: &ByteRecord) -> Option<Columns> {
        let names = ["time_s", "size_bytes", "flow", "ecn", "dscp"];
        let is_known = |column: &[u8]| names.iter().any(|name| name.as_bytes() == column);
        let place = |name: &str| {
            let mut places = header.iter().enumerate();
            let first = places.find(|(_, column)| *column == name.as_bytes());
            let twice = places.any(|(_, column)| column == name.as_bytes());
            first.map(|(place, _)| place).filter(|_| !twice)
        };
        let columns = Columns {
            time: place("time_s")?,
            size: place("size_bytes")?,
            flow: place("flow")?,
            ecn: place("ecn"),
            dscp: place("dscp"),
        };
        let count = 3 + usize::from(columns.ecn.is_some()) + usize::from(columns.dscp.is_some());
        (header.iter().all(is_known) && header.len() == count).then_some(columns)
    }
}

/// Returns whether the first line looks like that of a list.
pub fn is_list(contents: &[u8]) -> bool {
    let line = contents.split(|byte| *byte == b'\n').next().unwrap_or(&[]);
    line.windows(6).any(|word| word == b"time_s")
}

/// Reads the packets of a list.
///
/// # Errors
/// The first line or a value is wrong, or the packets are not in order of time.
pub fn read(contents: &[u8], selection: &Selection) -> Result<Built, Wrong> {
    let mut reader = ReaderBuilder::new()
        .trim(Trim::All)
        .comment(Some(b'#'))
        .from_reader(contents);
    let header = reader.byte_headers().ok();
    let Some(columns) = header.and_then(Columns::of) else {
        return Err(Wrong {
            reason: "has a first line that is not the header of a list".into(),
            expected: if is_list(contents) { HEADER } else { FORMATS },
        });
    };
    let mut builder: Builder<Vec<u8>> = Builder::new(selection);
    let (mut record, mut zero_ns) = (ByteRecord::new(), None);
    loop {
        match reader.read_byte_record(&mut record) {
            Ok(false) => return Ok(builder.build()),
            Ok(true) => {}
            Err(error) => {
                let line = error.position().map_or(0, csv::Position::line);
                return Err(Wrong {
                    reason: format!("has another number of columns in line {line}"),
                    expected: "as many values in each line as in the first",
                });
            }
        }
        packet(&record, &columns, &mut zero_ns, &mut builder).map_err(|wrong| {
            let line = record.position().map_or(0, csv::Position::line);
            Wrong {
                reason: format!("{} in line {line}", wrong.reason),
                ..wrong
            }
        })?;
    }
}

/// Adds the packet of a line to `builder`.
fn packet(
    record: &ByteRecord,
    columns: &Columns,
    zero_ns: &mut Option<i128>,
    builder: &mut Builder<Vec<u8>>,
) -> Result<(), Wrong> {
    let field = |column: usize| record.get(column).unwrap_or(&[]);
    let number = |column: usize, least: u32, most: u32, expected: &'static str| {
        let text = std::str::from_utf8(field(column)).ok();
        let number = text.and_then(|text| text.parse::<u32>().ok());
        number
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| wrong(field(column), expected))
    };
    let at_ns = nanos(field(columns.time)).ok_or_else(|| wrong(field(columns.time), TIME))?;
    let name = field(columns.flow);
    if name.is_empty() || name.len() > LONGEST_NAME {
        return Err(wrong(name, FLOW));
    }
    let bits = |column: Option<usize>, most, expected| match column {
        Some(column) => number(column, 0, most, expected),
        None => Ok(0),
    };
    let class = bits(columns.dscp, 63, DSCP)? << 2 | bits(columns.ecn, 3, ECN)?;
    let packet = FilePacket {
        at_ns: at_ns - *zero_ns.get_or_insert(at_ns),
        bytes: number(columns.size, 1, 65_535, SIZE)?,
        header_bytes: 0,
        class: TrafficClass(u8::try_from(class).unwrap_or(0)),
        tcp: false,
    };
    let flow = builder.flow(name.to_vec(), None)?;
    builder.push(flow, &packet)
}

/// Returns the error of a field.
fn wrong(field: &[u8], expected: &'static str) -> Wrong {
    let text = String::from_utf8_lossy(field);
    let short: String = text.chars().take(40).collect();
    Wrong {
        reason: format!("has {short:?}"),
        expected,
    }
}

/// Returns a decimal number of seconds in ns; `None` where it is no number. Digits beyond the ninth
/// decimal are cut. The number may have an exponent, as in 1e-05.
fn nanos(text: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(text).ok()?;
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if whole.is_empty() || unsigned.is_empty() || unsigned.len() > 4 {
        return None;
    }
    if !is_number(whole) || !is_number(fraction) || !is_number(unsigned) {
        return None;
    }
    let exponent: i64 = exponent.parse().ok()?;
    // This is the number of digits before the decimal point of the number in ns.
    let before = i64::try_from(whole.len()).ok()? + exponent + 9;
    let digits = whole.bytes().chain(fraction.bytes());
    let mut nanos: i128 = 0;
    let mut place = 0;
    for digit in digits {
        if place < before {
            nanos = nanos
                .checked_mul(10)?
                .checked_add(i128::from(digit - b'0'))?;
        }
        place += 1;
    }
    if nanos > 0 {
        let missing = u32::try_from((before - place).max(0)).ok()?;
        nanos = nanos.checked_mul(10_i128.checked_pow(missing)?)?;
    }
    (nanos < MOST_NANOS).then_some(nanos)
}

#[cfg(test)]
mod tests {
    use super::nanos;

    #[test]
    fn times_are_decimal_numbers_with_or_without_an_exponent() {
        for (text, expected) in [
            ("0", 0),
            ("12.000345", 12_000_345_000),
            ("1600000000.000000001", 1_600_000_000_000_000_001),
            ("1e-05", 10_000),
            ("2.5E-3", 2_500_000),
            ("1.7e+9", 1_700_000_000_000_000_000),
            ("1.2345678901234567", 1_234_567_890),
            ("1e-10", 0),
            ("0e9999", 0),
            ("0.000", 0),
            ("1.", 1_000_000_000),
        ] {
            assert_eq!(nanos(text.as_bytes()), Some(expected), "{text}");
        }
        for text in [
            "", ".5", "-1", "1e", "1e+", "e5", "1e5.5", "1,5", "1e99999", "1e19", "x", "1e-",
        ] {
            assert_eq!(nanos(text.as_bytes()), None, "{text}");
        }
    }
}
