//! The table of those who misuse a virtio-net.

use crate::villain::Moves::{Counters, Nothing};
use crate::villain::{Program, Villain};

use super::{commands, packed, registers, rings};

macro_rules! net {
    ($($id:ident = $source:ident::$deed:ident: $class:literal, $name:literal, $moves:expr;)*) => {
        pub(crate) const NET: &[Villain] = &[$(
            Villain {
                id: stringify!($id),
                class: $class,
                name: $name,
                moves: $moves,
                program: Program::Net($source::$deed),
            },
        )*];
    };
}

net! {
    net_index_jumps = rings::index_jumps: "virtio 1.4 §2.7.6", "available indices far ahead, in every queue", Counters(&["broken_avail_index"]);
    net_descriptor_loops = rings::descriptor_loops: "CVE-2016-6490", "chains of 1, 2 and all descriptors in circles, in rings and in tables", Counters(&["broken_loop"]);
    net_heads_beyond = rings::heads_beyond: "virtio 1.4 §2.7.5", "chains that begin or go on behind their table", Counters(&["broken_head", "broken_next"]);
    net_tables_in_tables = rings::tables_in_tables: "virtio 1.4 §2.7.5.3", "tables in tables, with a next one, of impossible lengths, at the end of memory and of addresses", Counters(&["broken_nested", "broken_indirect_next", "broken_indirect_length"]);
    net_huge_lengths = rings::huge_lengths: "ours", "buffers of 64 KiB to 4 GiB, 64 of them in a chain", Counters(&["tx_too_long"]);
    net_rings_nowhere = rings::rings_nowhere: "kill table", "each part of each ring in unmapped memory, at its end, at 2^64-16; unaligned rings, of impossible sizes", Counters(&["broken_unmapped", "queue_refused"]);
    net_buffers_nowhere = rings::buffers_nowhere: "CVE-2018-1059", "buffers in unmapped memory, across its end, wrapping", Counters(&["broken_unmapped"]);
    net_wrong_ways = rings::wrong_ways: "virtio 1.4 §2.7.4.2", "parts to read behind parts to write, and in queues of the other direction", Counters(&["broken_order", "broken_direction"]);
    net_endless_parts = rings::endless_parts: "CVE-2022-2132", "64 buffers of 64 parts each, nearly all of them without bytes", Counters(&["broken_parts"]);
    net_headers_lie = rings::headers_lie: "CVE-2024-11614", "headers whose checksum, segmentation and lengths contradict their packet or the features", Counters(&["tx_runt", "tx_bad_csum", "tx_bad_gso", "tx_not_agreed"]);
    net_tiny_segments = rings::tiny_segments: "ours", "64 KiB to be cut into segments of 1 to 300 bytes", Counters(&["tx_bad_gso", "tx_tso_frames"]);
    net_no_buffer_ever = rings::no_buffer_ever: "ours", "a receiver that gives no buffer, or one that is too short, while others send to it", Counters(&["rx_back_pressure"]);
    net_memory_goes = rings::memory_goes: "ours", "rings and buffers unmapped under a device that works", Counters(&["broken_unmapped"]);
    net_rings_on_one_page = rings::rings_on_one_page: "CVE-2021-3416", "all rings on one page, which also holds their buffers", Nothing("a guest may corrupt its own memory");
    net_descriptors_at_random = rings::descriptors_at_random: "ours", "2400 random descriptors in rings of both formats", Counters(&["broken_unmapped", "device_resets"]);
    net_rewritten_underway = rings::rewritten_underway: "class 2, TOCTOU", "rings, tables, headers and packets rewritten while the device reads them", Nothing("the device may see the old or the new data");
    net_wraps_lie = packed::wraps_lie: "CVE-2020-10725", "packed rings full of descriptors of another lap, used, without an end", Counters(&["broken_loop"]);
    net_flags_flip = packed::flags_flip: "class 2, TOCTOU", "packed descriptors taken back or given twice behind their notification", Nothing("the device may see the old or the new data");
    net_packed_tables = packed::tables: "virtio 1.4 §2.8.7", "tables of packed rings in tables, with a next one, of impossible lengths and places", Counters(&["broken_nested", "broken_indirect_next", "broken_indirect_length"]);
    net_events_at_random = packed::events_at_random: "ours", "event indices at random, in rings of both formats", Nothing("a driver says when it wants to be called");
    net_command_flood = commands::flood: "ours", "12,800 commands, a ring of them with each notification, and 4000 notifications of nothing", Counters(&["ctrl_done"]);
    net_commands_cut_short = commands::cut_short: "ours", "every command cut off after each byte, too long, and without room for an answer", Counters(&["ctrl_refused", "broken_direction"]);
    net_tables_that_lie = commands::tables_that_lie: "CVE-2014-0150", "address tables with more entries than they have bytes", Counters(&["ctrl_refused"]);
    net_commands_at_random = commands::at_random: "ours", "1500 random commands", Counters(&["ctrl_refused"]);
    net_filters_and_frames = commands::filters_and_frames: "ours", "every filter changed under traffic", Counters(&["ctrl_done"]);
    net_every_dword = registers::every_dword: "ours", "random bytes of every width into every register", Counters(&["bad_register_access"]);
    net_notices_of_nothing = registers::notices_of_nothing: "ours", "8000 notifications of queues that are not there", Counters(&["bad_notify"]);
    net_resets_underway = registers::resets_underway: "CVE-2023-3301", "300 resets of the device and of its queues between the notification and the work", Counters(&["device_resets", "queue_resets"]);
    net_status_at_random = registers::status_at_random: "ours", "400 random device states, with bus mastering on and off, under notifications", Nothing("a driver may say so; the device does nothing before DRIVER_OK");
}
