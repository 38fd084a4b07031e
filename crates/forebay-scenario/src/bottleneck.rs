//! `[bottleneck]`: the queue under test and its link.

use forebay_core::discipline::Buffer;
use forebay_core::{params, Params, Rate, Span};

use crate::document::{Document, Section};
use crate::error::Fault;
use crate::model::Bottleneck;
use crate::types::BufferSize;

params! {
    /// Keys of `[bottleneck]`.
    pub struct BottleneckKeys {
        /// Rate of the link.
        rate: Rate = Rate::from_bps(45_000_000), 1.0 => 1e12, required;
        /// Propagation delay of the link, one way; what is left of each flow's RTT lies in its
        /// access links.
        delay: Span = Span::ZERO, 0.0 => 1e3;
        /// Most packets, or bytes, that can wait for the link.
        buffer: BufferSize = BufferSize(Buffer::Packets(800)), 0.0 => 0.0, required;
        /// Let the law's signal be a CE mark on an ECN-capable packet instead of a drop.
        ecn: bool = false, 0.0 => 1.0;
    }
}

pub fn read(document: &Document) -> Result<Bottleneck, Fault> {
    let section = Section {
        table: &document.bottleneck,
        name: "bottleneck",
    };
    section.only(&[], &[BottleneckKeys::SPECS])?;
    let keys: BottleneckKeys = section.read()?;
    Ok(Bottleneck {
        rate: keys.rate,
        delay: keys.delay,
        buffer: keys.buffer.0,
        ecn: keys.ecn,
    })
}
