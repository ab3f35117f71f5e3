//! The table of those who misuse functions.

use crate::villain::Moves::{Counters, Nothing};
use crate::villain::{Program, VfDeed, Villain};

use super::{capabilities, mailbox, neighbours, port, queues, races};

/// Those that misuse what functions of both kinds have: `pf_…` and `vf_…`.
macro_rules! both {
    ($($pf:ident, $vf:ident = $source:ident::$deed:ident: $class:literal, $name:literal, $moves:expr;)*) => {
        pub(crate) const BOTH: &[Villain] = &[$(
            Villain {
                id: stringify!($pf),
                class: $class,
                name: $name,
                moves: $moves,
                program: Program::Pf($source::$deed),
            },
            Villain {
                id: stringify!($vf),
                class: $class,
                name: $name,
                moves: $moves,
                program: Program::Vf(VfDeed {
                    run: $source::$deed,
                    policy: "",
                    shut_down: false,
                }),
            },
        )*];
    };
}

macro_rules! port {
    ($($id:ident = $source:ident::$deed:ident: $class:literal, $name:literal, $moves:expr;)*) => {
        pub(crate) const PORT: &[Villain] = &[$(
            Villain {
                id: stringify!($id),
                class: $class,
                name: $name,
                moves: $moves,
                program: Program::Pf($source::$deed),
            },
        )*];
    };
}

/// Those of VFs alone: with their operator's words, and whether they are shut down for it.
macro_rules! virtual_ones {
    ($($id:ident = $source:ident::$deed:ident ($policy:literal $(, $ends:ident)?): $class:literal, $name:literal, $moves:expr;)*) => {
        pub(crate) const VIRTUAL: &[Villain] = &[$(
            Villain {
                id: stringify!($id),
                class: $class,
                name: $name,
                moves: $moves,
                program: Program::Vf(VfDeed {
                    run: $source::$deed,
                    policy: $policy,
                    shut_down: false $(|| virtual_ones!(@ $ends))?,
                }),
            },
        )*];
    };
    (@ shut_down) => { true };
}

both! {
    pf_rings_nowhere, vf_rings_nowhere = queues::rings_nowhere: "CVE-2017-9310", "every queue's rings in unmapped memory, at 2^64-1, at 0, at the end of memory", Counters(&["tx_dma_fault", "rx_dma_fault"]);
    pf_buffers_nowhere, vf_buffers_nowhere = queues::buffers_nowhere: "kill table", "buffers that are unmapped, wrapping, at the end of memory, null", Counters(&["tx_dma_fault", "rx_dma_fault"]);
    pf_memory_of_others, vf_memory_of_others = queues::memory_of_others: "isolation", "buffers, rings and heads at addresses of other functions' memory", Counters(&["tx_dma_fault", "rx_dma_fault"]);
    pf_rings_that_are_none, vf_rings_that_are_none = queues::rings_that_are_none: "CVE-2016-1981", "heads and tails beyond every queue's ring, rings of length 0 and of the greatest length", Counters(&["tx_bad_ring", "rx_bad_ring"]);
    pf_queue_storm, vf_queue_storm = queues::queue_storm: "CVE-2020-16092", "every queue switched on, off and flushed, 400 times, among frames", Counters(&["rx_disabled"]);
    pf_rings_are_one, vf_rings_are_one = queues::rings_are_one: "CVE-2021-3416", "every ring on one page, which also holds their buffers and heads", Nothing("a guest may corrupt its own memory");
    pf_heads_written_oddly, vf_heads_written_oddly = queues::heads_written_oddly: "CVE-2021-3416", "heads written to unmapped memory, across its end, into their ring, into a BAR", Counters(&["tx_dma_fault"]);
    pf_contexts_wild, vf_contexts_wild = queues::contexts_wild: "CVE-2021-20257, CVE-2022-23087", "300 contexts with extreme values in every slot, each with an extreme frame", Counters(&["tx_bad_tso", "tx_bad_checksum"]);
    pf_segments_without_sense, vf_segments_without_sense = queues::segments_without_sense: "CVE-2015-6815, CVE-2021-20257", "segmentation with MSS 0 and 1, headers beyond the data, missing payloads", Counters(&["tx_bad_tso"]);
    pf_contexts_in_midst, vf_contexts_in_midst = queues::contexts_in_midst: "VirtualBox E1000 0-day (2018)", "contexts that shrink and grow within one packet", Nothing("a packet keeps the context it began with");
    pf_no_end_of_packet, vf_no_end_of_packet = queues::no_end_of_packet: "CVE-2016-8910, CVE-2020-28916", "descriptors without an end, of 64 KiB and empty, around the ring again and again", Counters(&["tx_too_many_descs"]);
    pf_every_descriptor_type, vf_every_descriptor_type = queues::every_descriptor_type: "CVE-2020-16092", "every descriptor type with every command", Counters(&["tx_bad_desc"]);
    pf_descriptors_at_random, vf_descriptors_at_random = queues::descriptors_at_random: "CVE-2015-7504", "2400 random descriptors", Counters(&["tx_bad_desc", "tx_dma_fault"]);
    pf_frames_too_short, vf_frames_too_short = queues::frames_too_short: "CVE-2015-7504", "frames of 0 to 19 bytes, with checksums beyond their end and missing check sequences", Counters(&["tx_runt"]);
    pf_every_buffer_shape, vf_every_buffer_shape = queues::every_buffer_shape: "CVE-2012-0029", "every type and size of receive buffer, including reserved ones", Counters(&["rx_bad_type"]);
    pf_headers_split_into_nothing, vf_headers_split_into_nothing = queues::headers_split_into_nothing: "CVE-2012-0029", "header buffers that are null, unmapped, wrapping, and on their ring", Counters(&["rx_dma_fault"]);
    pf_rings_go_underway, vf_rings_go_underway = queues::rings_go_underway: "CVE-2021-3748, CVE-2023-3301", "rings that move or are unmapped between the doorbell and the work", Counters(&["dma_faults", "rx_dma_fault"]);
    pf_bells_in_pieces, vf_bells_in_pieces = queues::bells_in_pieces: "ours", "every queue's tail byte by byte, and as part of wider accesses", Counters(&["tx_bad_ring"]);
    pf_largest_rings, vf_largest_rings = queues::largest_rings: "CVE-2016-1981", "65,528 empty descriptors in every queue, for every doorbell", Nothing("the largest ring is legal; each doorbell causes at most one ring's work");
    pf_no_buffer_ever, vf_no_buffer_ever = queues::no_buffer_ever: "ours", "a receiver that never gives a buffer while others send to it", Counters(&["rx_back_pressure"]);
    pf_no_bus_master, vf_no_bus_master = queues::no_bus_master: "CVE-2020-16092", "bus mastering switched on and off under running rings", Counters(&["rx_disabled"]);
    pf_packets_rewritten, vf_packets_rewritten = races::packets_rewritten: "class 7, TOCTOU", "contexts, data and headers rewritten while packets are segmented by them", Nothing("the NIC may see the old or the new data");
    pf_buffers_rewritten, vf_buffers_rewritten = races::buffers_rewritten: "class 3, TOCTOU", "receive descriptors rewritten, and their shape changed, while frames arrive", Nothing("the NIC may see the old or the new data");
    pf_places_rewritten, vf_places_rewritten = races::places_rewritten: "class 2, TOCTOU", "both rings rewritten while bases, lengths, heads and enables change", Nothing("the NIC may see the old or the new data");
    pf_interrupt_nonsense, vf_interrupt_nonsense = port::interrupt_nonsense: "QEMU dd0ef128, b38636b8", "1500 writes to causes, masks, routes and moderation of existing and missing vectors", Nothing("every value is legal; a vector fires once until it is unmasked");
    pf_every_dword, vf_every_dword = port::every_dword: "CVE-2020-16092", "random bytes into every dword of the window", Counters(&["rx_disabled"]);
    pf_registers_at_random, vf_registers_at_random = port::registers_at_random: "CVE-2020-16092", "3000 writes to the registers of queues, with traffic", Counters(&["tx_bad_ring"]);
    pf_wild_accesses, vf_wild_accesses = port::wild_accesses: "CVE-2020-16092", "accesses of every size at every alignment, in, across and beyond every BAR", Counters(&["beyond_region"]);
    pf_resets_in_the_middle, vf_resets_in_the_middle = port::resets_in_the_middle: "CVE-2023-3301", "300 resets between the doorbell and the work", Nothing("a reset is always legal");
    pf_every_place_and_width, vf_every_place_and_width = capabilities::every_place_and_width: "ours", "configuration space written at every offset and width", Nothing("read-only bits stay as they are");
    pf_extended_space, vf_extended_space = capabilities::extended_space: "CVE-2013-4151", "everything beyond the first 256 bytes: AER, and NumVFs and VF enable where SR-IOV would be", Counters(&["beyond_region"]);
    pf_every_capability, vf_every_capability = capabilities::every_capability: "CVE-2024-26327", "every word of PM, MSI, MSI-X and PCI Express at its extremes, under running rings", Nothing("the VMM acts on these capabilities");
    pf_power_and_function_resets, vf_power_and_function_resets = capabilities::power_and_function_resets: "CVE-2023-3301", "power states and function level resets during traffic", Nothing("all of this is legal");
    pf_wild_vectors, vf_wild_vectors = capabilities::wild_vectors: "CVE-2013-4151, CVE-2024-26327", "MSI-X tables and pending bits at random, with interrupts pending", Nothing("the VMM delivers the message");
    pf_bars_on_everything, vf_bars_on_everything = capabilities::bars_on_everything: "CVE-2020-15859", "BARs sized, and on top of rings, buffers and each other", Nothing("the VMM places BARs; DMA reaches memory only");
}

port! {
    pf_spreads_into_nothing = port::spreads_into_nothing: "ours", "RSS in every mode by random keys and tables that change, into queues that are off", Counters(&["rx_disabled"]);
    pf_registers_of_the_vfs = port::registers_of_the_vfs: "isolation", "mailboxes, pools, VLANs and enables of VFs that this port does not control", Nothing("no register of a port without VFs reaches a VF");
    pf_filters_at_random = port::filters_at_random: "ours", "every filter full, empty and at random, under traffic", Counters(&["rx_filtered"]);
    pf_clock_games = port::clock_games: "ours", "the clock of IEEE 1588 at every speed, with frames to stamp", Nothing("every value is legal");
    pf_semaphores_and_pins = port::semaphores_and_pins: "kill table", "semaphores never given back, random levels on the NVM's pins and the management bus", Nothing("a guest that keeps them harms only its own driver");
}

virtual_ones! {
    mailbox_flood = mailbox::flood("", shut_down): "mailbox", "6000 messages without waiting for an answer", Counters(&["vf_refused_flood", "vf_messages_delayed"]);
    mailbox_requests_of_nothing = mailbox::requests_of_nothing("", shut_down): "mailbox", "6000 empty requests, across resets", Counters(&["vf_refused_flood"]);
    mailbox_nonsense = mailbox::nonsense(""): "mailbox", "40 random messages", Counters(&["vf_refused_unknown_message"]);
    mailbox_nonsense_without_end = mailbox::nonsense_without_end("", shut_down): "mailbox", "200 messages that no driver sends", Counters(&["vf_refused_unknown_message"]);
    mailbox_echoes = mailbox::echoes(""): "mailbox", "answers sent back, and unsolicited acknowledgements", Nothing("an answer is not a request");
    mailbox_before_any_reset = mailbox::before_any_reset(""): "mailbox", "every message before a reset is complete, and half a version negotiation", Counters(&["vf_refused_not_reset"]);
    mailbox_reset_in_mid_message = mailbox::reset_in_mid_message(""): "mailbox", "a reset at every step of 150 messages", Nothing("a reset is always legal, and discards its message");
    mailbox_keeps_the_buffer = mailbox::keeps_the_buffer(""): "mailbox", "takes the buffer and never gives it back", Nothing("it gets no answer, and delays no other");
    mailbox_in_pieces = mailbox::in_pieces(""): "mailbox", "words and bits byte by byte, overlapping and beyond both ends", Nothing("the pieces add up to whole words");
    mailbox_words_change = mailbox::words_change(""): "mailbox, TOCTOU", "message words rewritten after the request", Nothing("a message is copied once, at the request");
    mailbox_counts_that_lie = mailbox::counts_that_lie("trust = true"): "mailbox", "more hashes than a message holds, more addresses than a VF may have", Counters(&["vf_refused_too_many_addresses"]);
    mailbox_addresses_of_others = mailbox::addresses_of_others("trust = true"): "isolation", "a trusted VF asks for addresses of other VFs, of groups, and zero", Counters(&["vf_refused_address_taken", "vf_refused_bad_address"]);
    mailbox_another_address = mailbox::another_address(""): "isolation", "an untrusted VF asks for an address other than the operator's", Counters(&["vf_refused_mac_override"]);
    mailbox_vlans_of_others = mailbox::vlans_of_others("vlan = 100"): "isolation", "VLANs besides the operator's", Counters(&["vf_refused_vlan_override"]);
    mailbox_vlans_and_sizes = mailbox::vlans_and_sizes(""): "mailbox", "456 VLANs joined and left, every frame size requested", Counters(&["vf_refused_frame_size"]);
    mailbox_promiscuous_wishes = mailbox::promiscuous_wishes(""): "isolation", "every promiscuous mode requested, under traffic", Counters(&["vf_refused_promiscuous"]);
    vf_forged_senders = neighbours::forged_senders(""): "isolation", "frames from the addresses of its neighbours, of groups, and zero", Counters(&["drop_spoofed"]);
    vf_forged_senders_strictly = neighbours::forged_senders("strict = true", shut_down): "isolation", "the same with `strict`", Counters(&["drop_spoofed", "vf_refused_spoofed"]);
    vf_forged_vlans = neighbours::forged_vlans(""): "isolation", "tags of VLANs it has not joined, once and twice, in frames and in descriptors", Counters(&["drop_vlan"]);
    vf_broadcast_storm = neighbours::broadcast_storm(""): "isolation", "3100 broadcast frames, without a limit", Counters(&["tx_frames"]);
    vf_broadcast_storm_limited = neighbours::broadcast_storm("storm = \"broadcast=100\""): "isolation", "3100 broadcast frames, with a limit of 100 per second", Counters(&["drop_storm"]);
    vf_multicast_storm = neighbours::multicast_storm("storm = \"multicast=100\""): "isolation", "3100 frames for 100 groups, with a limit of 100 per second", Counters(&["drop_storm"]);
    vf_storm_strictly = neighbours::broadcast_storm("storm = \"broadcast=100\"\nstrict = true", shut_down): "isolation", "3100 broadcast frames, with `strict`", Counters(&["drop_storm", "vf_refused_storm"]);
    vf_interrupts_capped = port::interrupt_nonsense("interrupts = 100"): "isolation", "the same writes with a limit of 100 interrupts per second", Nothing("its register settings are accepted, and its PF's limit holds");
    vf_ever_new_receivers = neighbours::ever_new_receivers(""): "switch", "3100 frames for unknown stations", Nothing("the on-chip switch learns nothing: frames for unknown stations leave by the wire");
    vf_to_itself = neighbours::to_itself(""): "switch", "1240 frames from and to itself", Counters(&["drop_hairpin"]);
    vf_bridge_and_pause_frames = neighbours::bridge_and_pause_frames(""): "switch", "frames for bridges, among them pause frames with the longest time", Counters(&["drop_reserved"]);
    vf_jumbo_storm = neighbours::jumbo_storm(""): "switch", "620 frames of 9.7 KB for receivers that take 1522 bytes", Counters(&["tx_frames"]);
    vf_segments_for_everybody = neighbours::segments_for_everybody(""): "switch", "20 packets of 60 KiB, cut into broadcast segments", Counters(&["tx_tso_frames"]);
    vf_takes_one_at_a_time = neighbours::takes_one_at_a_time(""): "switch", "a buffer now and then, for senders that wait", Counters(&["rx_back_pressure"]);
    vf_resets_among_frames = neighbours::resets_among_frames(""): "CVE-2023-3301", "30 starts and resets among frames both ways", Nothing("a reset is always legal");
    vf_sends_before_it_may = neighbours::sends_before_it_may(""): "isolation", "valid, full rings without a completed reset", Nothing("its rings stay unchanged, and it receives nothing");
}
