//! Address prefixes, such as 10.0.0.0/8.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use forebay_units::{ParamType, Shape, Value};

/// A prefix of IPv4 or IPv6 addresses. An IPv4 prefix contains no IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// Returns whether the prefix contains an address in the form of [`crate::ip::Flow`]: IPv4
    /// addresses are IPv4-mapped.
    pub fn holds(&self, address: u128) -> bool {
        let (own, bits) = match self.address {
            IpAddr::V4(own) => (own.to_ipv6_mapped(), 96 + u32::from(self.length)),
            IpAddr::V6(own) => (own, u32::from(self.length)),
        };
        let differ = u128::from(own) ^ address;
        differ.leading_zeros() >= bits
    }
}

impl FromStr for Prefix {
    type Err = ();

    /// Reads a prefix. An address without a length is the prefix that contains only this address.
    fn from_str(text: &str) -> Result<Prefix, ()> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| ())?;
        let max_length = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            Some(length) => length.parse().map_err(|_| ())?,
            None => max_length,
        };
        match length <= max_length {
            true => Ok(Prefix { address, length }),
            false => Err(()),
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl ParamType for Prefix {
    const SHAPE: Shape = Shape::Text;
    const EXPECTED: &'static str =
        "an address or a prefix of addresses, such as \"10.0.0.0/8\" or \"2001:db8::1\"";
    fn from_value(value: &Value) -> Result<Prefix, String> {
        match value {
            Value::Text(text) => text.parse().map_err(|()| Self::EXPECTED.into()),
            _ => Err(Self::EXPECTED.into()),
        }
    }
    fn to_value(&self) -> Value {
        Value::Text(self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    fn address(text: &str) -> u128 {
        match text.parse().unwrap() {
            IpAddr::V4(address) => u128::from(address.to_ipv6_mapped()),
            IpAddr::V6(address) => u128::from(address),
        }
    }

    #[test]
    fn a_prefix_contains_the_addresses_that_begin_with_it() {
        let holds = |prefix: &str, it: &str| prefix.parse::<Prefix>().unwrap().holds(address(it));
        assert!(holds("10.0.0.0/8", "10.200.3.4"));
        assert!(!holds("10.0.0.0/8", "11.0.0.0"));
        assert!(holds("10.0.0.7", "10.0.0.7") && !holds("10.0.0.7", "10.0.0.6"));
        assert!(holds("0.0.0.0/0", "1.2.3.4") && !holds("0.0.0.0/0", "2001:db8::1"));
        assert!(holds("2001:db8::/32", "2001:db8:5::1") && !holds("2001:db8::/32", "2001:db9::1"));
        assert!(holds("::/0", "::1") && u128::from(Ipv6Addr::LOCALHOST) == address("::1"));
    }

    #[test]
    fn texts_that_are_not_prefixes_are_refused() {
        for text in [
            "",
            "10.0.0.0/33",
            "10.0.0/8",
            "::/129",
            "here",
            "10.0.0.1/",
            "1.2.3.4/-1",
        ] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
    }
}
