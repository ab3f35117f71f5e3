//! How received frames go into buffers (SRRCTL, §8.10.2).

use crate::regs::bits::srrctl;

/// How received frames go into buffers (SRRCTL, §8.10.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub kind: ShapeKind,
    /// Bytes of a packet buffer.
    pub packet: usize,
    /// Bytes of a header buffer.
    pub header: usize,
    /// When no more descriptors than these are left, an interrupt reports it (RDMTS); 0: none does.
    pub threshold: u32,
    /// A frame that finds no descriptor is dropped, and does not wait (DROP_EN).
    pub drop: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShapeKind {
    Legacy,
    /// Advanced, one buffer.
    Whole,
    /// Advanced, the header split off if PSRTYPE asks for its type.
    Split,
    /// The same, and the header buffer is used for all other packets too.
    SplitAlways,
}

impl Shape {
    /// The shape that SRRCTL sets; buffers of `default` bytes if it leaves the size to RCTL. `None`: the type is
    /// reserved.
    pub(crate) fn of(srrctl: u32, default: usize) -> Option<Shape> {
        let kind = match srrctl >> srrctl::DESCTYPE_SHIFT & srrctl::DESCTYPE {
            0 => ShapeKind::Legacy,
            1 => ShapeKind::Whole,
            2 => ShapeKind::Split,
            5 => ShapeKind::SplitAlways,
            _ => return None,
        };
        let packet = match (srrctl & srrctl::BSIZEPACKET) as usize * 1024 {
            0 => default,
            size => size,
        };
        Some(Shape {
            kind,
            packet,
            // HDR_LEN has ten bits.
            header: ((srrctl >> srrctl::BSIZEHEADER_SHIFT & srrctl::BSIZEHEADER) as usize * 64)
                .min(1023),
            threshold: (srrctl >> srrctl::RDMTS_SHIFT & srrctl::RDMTS) * 16,
            drop: srrctl & srrctl::DROP_EN != 0,
        })
    }

    /// Whether there is a header buffer.
    pub(crate) fn splits(&self) -> bool {
        matches!(self.kind, ShapeKind::Split | ShapeKind::SplitAlways)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes() {
        let of = |srrctl| Shape::of(srrctl, 2048);
        // As igb and igbvf write it: 2 KiB, header 256, always split, drop.
        let shape = of(0x8a00_0402).expect("known");
        assert_eq!(shape.kind, ShapeKind::SplitAlways);
        assert_eq!((shape.packet, shape.header, shape.drop), (2048, 256, true));
        assert_eq!(of(0).map(|s| s.packet), Some(2048));
        assert_eq!(
            of(0x0210_0010).map(|s| (s.packet, s.threshold)),
            Some((16384, 16))
        );
        for kind in [3, 4, 6, 7] {
            assert_eq!(of(kind << 25), None);
        }
    }
}
