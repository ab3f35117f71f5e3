//! Five-tuple filters of a PF (§7.1.1.5, §8.11): they choose queues, and packets that interrupt at once.
//!
//! A packet goes to the queue of the matching filter with the highest priority (IMIR), of equal ones to that
//! with the lowest number. It interrupts at once if any matching filter asks for it. Addresses are those of
//! IPv4: a filter that compares one matches no other packet.

use regs::File;
use wire::{Fragment, L3Kind, L4Kind, tci};

use crate::filter::ether_type;
use crate::filter::headers::Headers;
use crate::regs as r;
use crate::regs::bits::{ftqf, imir, imirext, imirvp, rfctl, synqf};

/// Filters of the chip.
const COUNT: usize = 8;

/// The SYN bit of TCP's flags, and where they are in its header (RFC 9293 §3.1).
const SYN: u8 = 2;
const TCP_FLAGS: usize = 13;
/// Where source and destination are in an IPv4 header (RFC 791 §3.1).
const ADDRESSES_V4: usize = 12;
/// Flags that can be compared: the lower six, of which bit 0 is FIN in the header and URG in the register.
const FLAGS: u32 = 6;

#[derive(Clone, Copy, Debug, Default)]
struct Filter {
    ftqf: u32,
    imir: u32,
    ext: u32,
    source: [u8; 4],
    destination: [u8; 4],
    source_port: [u8; 2],
}

/// The fields of a packet that are compared.
struct Packet<'p> {
    protocol: Option<u8>,
    /// Of IPv4: source, then destination.
    addresses: Option<&'p [u8; 8]>,
    /// Source, then destination.
    ports: Option<&'p [u8; 4]>,
    /// Of TCP.
    flags: Option<u8>,
}

/// The result for a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub queue: Option<u32>,
    /// Its interrupt does not wait for moderation.
    pub immediate: bool,
}

/// The enabled filters, read once per batch.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    /// By priority.
    list: [Filter; COUNT],
    count: usize,
    /// The queue of SYN packets.
    syn: Option<u32>,
    /// The SYN filter has priority over the others (RFCTL.SYNQFP).
    syn_first: bool,
    /// Lowest priority of a tag that interrupts at once (IMIRVP).
    vlan: Option<u8>,
    /// Some filters are by Ethernet type (ETQF).
    types: bool,
}

impl Filter {
    fn of(file: &File, at: u32) -> Option<Filter> {
        let (ftqf, imir) = (file.get_at(r::FTQF, at), file.get_at(r::IMIR, at));
        if ftqf & ftqf::QUEUE_ENABLE == 0 && imir & imir::IMMEDIATE == 0 {
            return None;
        }
        let [a, b, ..] = file.get_at(r::SPQF, at).to_le_bytes();
        Some(Filter {
            ftqf,
            imir,
            ext: file.get_at(r::IMIREXT, at),
            // In the order of the wire, as drivers write them.
            source: file.get_at(r::SAQF, at).to_le_bytes(),
            destination: file.get_at(r::DAQF, at).to_le_bytes(),
            source_port: [a, b],
        })
    }

    fn matches(&self, packet: &Packet<'_>, pool: Option<u32>) -> bool {
        let any = |bit: u32| self.ftqf & bit != 0;
        let [a, b, ..] = self.imir.to_le_bytes();
        let address = |from: usize, bytes: &[u8; 4]| {
            packet
                .addresses
                .is_some_and(|known| known[from..from + 4] == *bytes)
        };
        let port = |from: usize, bytes: [u8; 2]| {
            packet
                .ports
                .is_some_and(|known| known[from..from + 2] == bytes)
        };
        let pools = pool.is_none() || any(ftqf::ANY_POOL);
        let wanted = self.ext >> imirext::FLAGS_SHIFT & imirext::FLAGS;
        let turned = |flags: u8| u32::from(flags.reverse_bits() >> (u8::BITS - FLAGS));
        pools
            && (any(ftqf::ANY_PROTOCOL)
                || packet.protocol == Some((self.ftqf & ftqf::PROTOCOL) as u8))
            && (any(ftqf::ANY_SOURCE) || address(0, &self.source))
            && (any(ftqf::ANY_DESTINATION) || address(4, &self.destination))
            && (any(ftqf::ANY_SOURCE_PORT) || port(0, self.source_port))
            && (self.imir & imir::ANY_PORT != 0 || port(2, [a, b]))
            && (self.ext & imirext::ANY_FLAGS != 0
                || packet
                    .flags
                    .is_some_and(|flags| turned(flags) & wanted != 0))
    }

    fn queue(&self) -> Option<u32> {
        let on = self.ftqf & ftqf::QUEUE_ENABLE != 0;
        on.then_some(self.ftqf >> ftqf::QUEUE_SHIFT & ftqf::QUEUE)
    }

    /// Whether a frame of this length interrupts at once.
    fn is_immediate(&self, len: usize) -> bool {
        let short = self.ext & imirext::ANY_SIZE != 0 || len < (self.ext & imirext::SIZE) as usize;
        self.imir & imir::IMMEDIATE != 0 && short
    }
}

impl<'p> Packet<'p> {
    fn of(headers: &'p Headers, ignored: u32) -> Option<Packet<'p>> {
        let layers = headers.layers?;
        let l3 = layers.l3?;
        if l3.kind == L3Kind::V6 && ignored & rfctl::IPV6_DIS != 0 {
            return None;
        }
        let bytes = headers.bytes();
        let l4 = layers.l4.filter(|_| l3.fragment == Fragment::Whole);
        let at = |from: usize| bytes.get(from..);
        Some(Packet {
            protocol: layers.l4.map(|l4| l4.kind.number()),
            addresses: (l3.kind == L3Kind::V4)
                .then(|| at(l3.offset + ADDRESSES_V4)?.first_chunk())
                .flatten(),
            ports: l4.and_then(|l4| at(l4.offset)?.first_chunk()),
            flags: l4
                .filter(|l4| l4.kind == L4Kind::Tcp)
                .and_then(|l4| bytes.get(l4.offset + TCP_FLAGS).copied()),
        })
    }
}

impl Filters {
    /// The filters that the registers describe now.
    pub(crate) fn of(file: &File, rfctl: u32) -> Filters {
        let mut filters = Filters::default();
        for filter in (0..COUNT as u32).filter_map(|at| Filter::of(file, at)) {
            // After all of the same or a higher priority.
            let priority = |filter: &Filter| filter.imir >> imir::PRIORITY_SHIFT;
            let known = &filters.list[..filters.count];
            let place = known.partition_point(|other| priority(other) >= priority(&filter));
            filters.list.copy_within(place..filters.count, place + 1);
            filters.list[place] = filter;
            filters.count += 1;
        }
        let synqf = file.get(r::SYNQF);
        filters.syn =
            (synqf & synqf::ON != 0).then_some(synqf >> synqf::QUEUE_SHIFT & synqf::QUEUE);
        filters.syn_first = rfctl & rfctl::SYNQFP != 0;
        filters.types = ether_type::filters_types(file);
        let imirvp = file.get(r::IMIRVP);
        filters.vlan = (imirvp & imirvp::ON != 0).then_some((imirvp & imirvp::PRIORITY) as u8);
        filters
    }

    /// Whether no filter can match a frame without a tag.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0 && self.syn.is_none() && !self.types
    }

    /// Whether a tag interrupts at once.
    pub(crate) fn hurries(&self, tag: Option<u16>) -> bool {
        let priority = tag.map(|tag| (tag >> tci::PRIORITY_SHIFT) as u8);
        self.vlan.is_some_and(|least| priority >= Some(least))
    }

    /// The queue of a frame of `len` bytes, and whether it interrupts at once. `pool` is the one it is for, if
    /// there are pools.
    pub(crate) fn find(
        &self,
        headers: &Headers,
        rfctl: u32,
        len: usize,
        pool: Option<u32>,
    ) -> Verdict {
        if self.count == 0 && self.syn.is_none() {
            return Verdict::default();
        }
        let Some(packet) = Packet::of(headers, rfctl) else {
            return Verdict::default();
        };
        let mut verdict = Verdict::default();
        for filter in &self.list[..self.count] {
            if filter.matches(&packet, pool) {
                verdict.queue = verdict.queue.or(filter.queue());
                verdict.immediate |= filter.is_immediate(len);
            }
        }
        let is_syn = packet.flags.is_some_and(|flags| flags & SYN != 0);
        if let Some(queue) = self.syn.filter(|_| is_syn)
            && (self.syn_first || verdict.queue.is_none())
        {
            verdict.queue = Some(queue);
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use frame::Batch;
    use proptest::prelude::*;
    use wire::Offload;

    use super::*;
    use crate::testing::packet;

    const FROM: [u8; 4] = [10, 0, 0, 1];
    const TO: [u8; 4] = [10, 0, 0, 2];
    /// Compares nothing.
    const ANY: u32 = 0xf000_0000 | ftqf::ANY_POOL;
    const ANY_EXT: u32 = imirext::ANY_SIZE | imirext::ANY_FLAGS;

    fn headers(bytes: &[u8]) -> Headers {
        let mut batch = Batch::new();
        batch.push_bytes(bytes);
        batch.end(Offload::NONE);
        Headers::of(&batch.get(0).expect("there"))
    }

    fn tcp(source: u16, destination: u16, flags: u8) -> Vec<u8> {
        let mut bytes = packet::v4(FROM, TO, true, source, destination);
        bytes[47] = flags;
        bytes
    }

    struct Lab(File);

    impl Lab {
        fn new() -> Lab {
            Lab(File::new(r::table()))
        }

        /// Filter `at`: to a queue, comparing what `ftqf` and the ports say.
        fn set(&self, at: u32, queue: u32, ftqf: u32, port: Option<u16>, priority: u32) {
            let ftqf = ftqf | ftqf::QUEUE_ENABLE | queue << ftqf::QUEUE_SHIFT;
            self.0.set_at(r::FTQF, at, ftqf);
            let port = port.map_or(imir::ANY_PORT, |port| port.to_be().into());
            self.0
                .set_at(r::IMIR, at, port | priority << imir::PRIORITY_SHIFT);
            self.0.set_at(r::IMIREXT, at, ANY_EXT);
        }

        fn find(&self, bytes: &[u8]) -> Verdict {
            self.pool(bytes, None)
        }

        fn pool(&self, bytes: &[u8], pool: Option<u32>) -> Verdict {
            let filters = Filters::of(&self.0, self.0.get(r::RFCTL));
            filters.find(&headers(bytes), 0, bytes.len(), pool)
        }

        fn queue(&self, bytes: &[u8]) -> Option<u32> {
            self.find(bytes).queue
        }
    }

    #[test]
    fn each_part_is_compared_unless_masked() {
        let lab = Lab::new();
        let exact = 6 | ftqf::ANY_POOL;
        lab.set(5, 11, exact, Some(80), 0);
        lab.0.set_at(r::SAQF, 5, u32::from_le_bytes(FROM));
        lab.0.set_at(r::DAQF, 5, u32::from_le_bytes(TO));
        lab.0.set_at(r::SPQF, 5, 1000u16.to_be().into());
        assert_eq!(lab.queue(&tcp(1000, 80, 0)), Some(11));
        let others = [
            (tcp(1001, 80, 0), ftqf::ANY_SOURCE_PORT),
            (packet::v4(TO, TO, true, 1000, 80), ftqf::ANY_SOURCE),
            (
                packet::v4(FROM, FROM, true, 1000, 80),
                ftqf::ANY_DESTINATION,
            ),
            (packet::v4(FROM, TO, false, 1000, 80), ftqf::ANY_PROTOCOL),
        ];
        for (bytes, mask) in others {
            assert_eq!(lab.queue(&bytes), None);
            lab.0.set_at(r::FTQF, 5, lab.0.get_at(r::FTQF, 5) | mask);
            assert_eq!(lab.queue(&bytes), Some(11), "{mask:x}");
            lab.0.set_at(r::FTQF, 5, lab.0.get_at(r::FTQF, 5) & !mask);
        }
        assert_eq!(lab.queue(&tcp(1000, 81, 0)), None);
        // Without a port to compare a fragment may match; with one it cannot.
        let mut fragment = tcp(1000, 80, 0);
        fragment[20] = 0x20;
        assert_eq!(lab.queue(&fragment), None);
        lab.set(5, 11, ANY & !ftqf::ANY_PROTOCOL | 6, None, 0);
        assert_eq!(lab.queue(&fragment), Some(11));
        // IPv6 where no address is compared, and nothing that is no IP.
        let v6 = |n: u16| std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n);
        let six = packet::v6_tcp(v6(1), v6(2), 1000, 80);
        assert_eq!(lab.queue(&six), Some(11));
        lab.set(5, 11, ANY & !ftqf::ANY_SOURCE, None, 0);
        assert_eq!(lab.queue(&six), None);
        lab.set(5, 11, ANY, None, 0);
        let mut arp = tcp(1, 2, 0);
        arp[12..14].copy_from_slice(&[8, 6]);
        assert_eq!(lab.find(&arp), Verdict::default());
        // Off.
        lab.0.set_at(r::FTQF, 5, ANY | 11 << ftqf::QUEUE_SHIFT);
        assert_eq!(lab.find(&tcp(1000, 80, 0)), Verdict::default());
    }

    #[test]
    fn priority_decides_then_number_and_syn_before_or_behind() {
        let lab = Lab::new();
        for (at, queue, priority) in [(1, 1, 2), (2, 2, 7), (4, 4, 7), (6, 6, 0)] {
            lab.set(at, queue, ANY, None, priority);
        }
        let syn = tcp(1, 2, SYN);
        assert_eq!(lab.queue(&syn), Some(2));
        lab.set(2, 2, ANY, Some(9), 7);
        assert_eq!(lab.queue(&syn), Some(4));
        lab.set(4, 4, ANY, Some(9), 7);
        assert_eq!(lab.queue(&syn), Some(1));
        lab.0.set(r::SYNQF, 1 | 13 << 1);
        assert_eq!(lab.queue(&syn), Some(1), "behind the others");
        lab.0.set(r::RFCTL, rfctl::SYNQFP);
        assert_eq!(lab.queue(&syn), Some(13));
        assert_eq!(lab.queue(&tcp(1, 2, 0x10)), Some(1));
        lab.0.set(r::RFCTL, 0);
        lab.set(1, 1, ANY, Some(9), 7);
        lab.set(6, 6, ANY, Some(9), 7);
        assert_eq!(lab.queue(&syn), Some(13), "nothing else matches");
    }

    #[test]
    fn flags_lengths_and_tags_choose_what_interrupts_at_once() {
        let lab = Lab::new();
        // Interrupts at once, whatever the queue.
        lab.0.set_at(r::FTQF, 0, ANY);
        lab.0.set_at(r::IMIR, 0, imir::IMMEDIATE | imir::ANY_PORT);
        lab.0.set_at(r::IMIREXT, 0, ANY_EXT);
        let at_once = Verdict {
            queue: None,
            immediate: true,
        };
        assert_eq!(lab.find(&tcp(1, 2, 0)), at_once);
        // PSH or FIN.
        let some = (1 << 2 | 1 << 5) << imirext::FLAGS_SHIFT;
        lab.0.set_at(r::IMIREXT, 0, imirext::ANY_SIZE | some);
        for (flags, immediate) in [(0x08, true), (0x01, true), (0x10, false), (0xc6, false)] {
            assert_eq!(
                lab.find(&tcp(1, 2, flags)).immediate,
                immediate,
                "{flags:x}"
            );
        }
        assert!(!lab.find(&packet::v4(FROM, TO, false, 1, 2)).immediate);
        // Only what is shorter.
        let bytes = tcp(1, 2, 0);
        for (size, immediate) in [(bytes.len(), false), (bytes.len() + 1, true)] {
            lab.0
                .set_at(r::IMIREXT, 0, imirext::ANY_FLAGS | size as u32);
            assert_eq!(lab.find(&bytes).immediate, immediate);
        }
        lab.0.set(r::IMIRVP, 8 | 5);
        let filters = Filters::of(&lab.0, 0);
        let tags = [None, Some(4 << 13 | 9), Some(5 << 13), Some(7 << 13)];
        assert_eq!(
            tags.map(|tag| filters.hurries(tag)),
            [false, false, true, true]
        );
        assert!(!Filters::default().hurries(tags[3]));
    }

    #[test]
    fn where_there_are_pools_only_filters_of_any_match() {
        let lab = Lab::new();
        lab.set(0, 9, ANY, None, 0);
        assert_eq!(lab.pool(&tcp(1, 2, 0), Some(1)).queue, Some(9));
        lab.set(0, 9, ANY & !ftqf::ANY_POOL, None, 0);
        assert_eq!(lab.pool(&tcp(1, 2, 0), Some(1)).queue, None);
        assert_eq!(lab.queue(&tcp(1, 2, 0)), Some(9));
    }

    proptest! {
        #[test]
        fn whatever_registers_and_packets_say_there_is_such_a_queue(
            words in proptest::collection::vec((0..8u32, 0..6usize, any::<u32>()), 0..60),
            synqf: u32,
            bytes in proptest::collection::vec(any::<u8>(), 14..120),
            cut in 14..60usize,
            pool in proptest::option::of(0..8u32),
        ) {
            let lab = Lab::new();
            lab.0.set(r::SYNQF, synqf);
            for (at, which, value) in words {
                let id = [r::FTQF, r::IMIR, r::IMIREXT, r::SAQF, r::DAQF, r::SPQF][which];
                lab.0.set_at(id, at, value);
            }
            let mut whole = tcp(1, 2, 2);
            whole.truncate(cut);
            for bytes in [bytes, whole] {
                let verdict = lab.pool(&bytes, pool);
                prop_assert!(verdict.queue.is_none_or(|queue| queue < 16));
            }
        }
    }
}
