//! The table of those who misuse an RTL8168C.

use crate::villain::Moves::{Counters, Nothing};
use crate::villain::{Program, Villain};

use super::{csb, registers, rings};

macro_rules! rtl {
    ($($id:ident = $source:ident::$deed:ident: $class:literal, $name:literal, $moves:expr;)*) => {
        pub(crate) const RTL: &[Villain] = &[$(
            Villain {
                id: stringify!($id),
                class: $class,
                name: $name,
                moves: $moves,
                program: Program::Rtl($source::$deed),
            },
        )*];
    };
}

rtl! {
    rtl_rings_nowhere = rings::rings_nowhere: "kill table", "rings in unmapped memory, at its end, wrapping", Counters(&["tx_dma_fault", "rx_dma_fault"]);
    rtl_buffers_nowhere = rings::buffers_nowhere: "kill table", "buffers in unmapped memory, across its end, wrapping; in the middle of a packet", Counters(&["tx_dma_fault", "rx_dma_fault"]);
    rtl_packet_without_an_end = rings::packet_without_an_end: "CVE-2016-8910", "a ring that is one packet, or the rest of one, without LS", Counters(&["tx_endless"]);
    rtl_ring_without_an_end = rings::ring_without_an_end: "ours", "1024 descriptors and none of them with EOR", Nothing("no ring has more, so the next one is the first");
    rtl_many_ends = rings::many_ends: "ours", "EOR in every one, second, third and seventh descriptor, some of them behind the position", Nothing("the driver may make its ring shorter at any time");
    rtl_chains_begin_wrongly = rings::chains_begin_wrongly: "CVE-2016-8910", "packets that do not begin with FS, or begin twice", Counters(&["tx_bad_chain"]);
    rtl_lengths_of_no_frame = rings::lengths_of_no_frame: "kill table", "packets of 0, 1, 13, 16289, 65535 bytes and of 2 MB", Counters(&["tx_runt", "tx_too_long"]);
    rtl_checksums_of_nothing = rings::checksums_of_nothing: "CVE-2015-5165", "checksums of what has no headers, or headers that lie", Counters(&["tx_bad_csum"]);
    rtl_segmentation_that_cannot_be = rings::segmentation_that_cannot_be: "CVE-2015-5165", "segmentation by MSS 0, of other protocols, of headers alone, by two kinds at once", Counters(&["tx_bad_gso"]);
    rtl_tiny_segments = rings::tiny_segments: "ours", "60 KiB to be cut into segments of 1 to 300 bytes", Counters(&["tx_tso_frames"]);
    rtl_buffers_without_bytes = rings::buffers_without_bytes: "ours", "receive buffers of no bytes, one byte among a hundred, in rings of up to 1024", Counters(&["rx_empty_buffer"]);
    rtl_no_buffer_ever = rings::no_buffer_ever: "ours", "a receiver that gives no buffer while others send to it", Counters(&["rx_back_pressure"]);
    rtl_memory_goes = rings::memory_goes: "ours", "rings and buffers unmapped under a device that works", Counters(&["tx_dma_fault", "rx_dma_fault"]);
    rtl_ring_is_its_own_buffer = rings::ring_is_its_own_buffer: "CVE-2021-3416", "rings in each other, frames made of rings, and received onto them", Nothing("a guest may corrupt its own memory");
    rtl_descriptors_at_random = rings::descriptors_at_random: "ours", "3840 random descriptors", Counters(&["tx_bad_chain", "tx_dma_fault"]);
    rtl_bases_change_underway = rings::bases_change_underway: "CVE-2016-1981", "200 changes of where a ring is, between the call and the work", Nothing("a driver may say so; the ring begins anew");
    rtl_rewritten_underway = rings::rewritten_underway: "class 2, TOCTOU", "rings and headers rewritten while the device reads them", Nothing("the device may see the old or the new data");
    rtl_every_byte = registers::every_byte: "ours", "random bytes of every width at every place of both windows", Counters(&["locked_writes"]);
    rtl_the_ring_that_is_not_there = registers::the_ring_that_is_not_there: "ours", "calls for the ring of high priority", Counters(&["tx_high_priority"]);
    rtl_statistics_nowhere = registers::statistics_nowhere: "ours", "statistics to unmapped memory, its end, and onto the rings", Counters(&["stats_dma_fault"]);
    rtl_eeprom_at_random = registers::eeprom_at_random: "kill table", "4000 random bits into the EEPROM", Counters(&["eeprom_writes_refused"]);
    rtl_resets_underway = registers::resets_underway: "CVE-2023-3301", "300 resets and stops between the call and the work", Counters(&["device_resets"]);
    rtl_interrupts_at_random = registers::interrupts_at_random: "QEMU dd0ef128, b38636b8", "IntrMitigate, its scale, the timer, IMR and ISR at random, under traffic", Nothing("every value is legal");
    rtl_phy_at_random = registers::phy_at_random: "ours", "1000 random writes to the PHY, under traffic", Nothing("every value is legal; the link goes and comes");
    rtl_csb_places_lie = csb::places_lie: "ours", "places in a CSB that no ring has", Counters(&["csb_bad_tail"]);
    rtl_csb_page_nowhere = csb::page_nowhere: "ours", "a CSB in unmapped memory, across its end, not aligned, unmapped while in use", Counters(&["csb_unmapped"]);
    rtl_csb_page_on_the_rings = csb::page_on_the_rings: "ours", "a CSB on both rings", Nothing("a guest may corrupt its own memory");
    rtl_csb_never_a_rest = csb::never_a_rest: "ours", "a CSB that asks for looks without an end, and says that there is always more", Counters(&["csb_tx_polls"]);
    rtl_csb_rewritten_underway = csb::page_rewritten_underway: "class 2, TOCTOU", "a CSB rewritten while the device reads it", Nothing("the device may see the old or the new data");
}
