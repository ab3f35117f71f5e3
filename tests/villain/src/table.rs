//! The table: every villain, where it comes from, what it does, what it moves.

use crate::villain::Moves::{Counters, Nothing};
use crate::villain::{Program, Villain};
use crate::{
    config, connections, csb, history, kill_table, maps, races, registers, rings, talk, wire,
};

macro_rules! villains {
    ($($kind:ident $source:ident { $($id:ident: $class:literal, $name:literal, $moves:expr;)* })*) => {
        pub(crate) const ALL: &[Villain] = &[$($(
            Villain {
                id: stringify!($id),
                class: $class,
                name: $name,
                moves: $moves,
                program: Program::$kind($source::$id),
            },
        )*)*];
    };
}

villains! {
    Guest kill_table {
        tail_beyond_ring: "kill table", "TDT beyond the ring's length", Counters(&["tx_bad_ring", "rx_bad_ring"]);
        ring_of_length_zero: "kill table", "TDLEN = 0, then TDT", Counters(&["tx_bad_ring", "rx_bad_ring"]);
        ring_unmapped: "kill table", "descriptor rings in unmapped memory", Counters(&["dma_faults", "tx_dma_fault", "rx_dma_fault"]);
        ring_runs_out_of_memory: "kill table", "rings that begin in memory and end outside", Counters(&["dma_faults", "tx_dma_fault", "rx_dma_fault"]);
        buffer_unmapped: "kill table", "transmit and receive buffers in unmapped memory", Counters(&["dma_faults", "tx_dma_fault", "rx_dma_fault"]);
        buffer_runs_out_of_memory: "kill table", "buffers that begin in memory and end outside", Counters(&["dma_faults", "tx_dma_fault", "rx_dma_fault"]);
        one_byte_frame: "kill table", "a frame of one byte, of none, and of 13", Counters(&["tx_runt"]);
        legacy_checksum_wild: "kill table", "legacy checksum insertion at every odd offset", Counters(&["tx_bad_checksum"]);
        data_without_context: "kill table", "an offload request without a context before it", Counters(&["tx_bad_tso"]);
        tso_mss_zero: "kill table", "segmentation with MSS = 0", Counters(&["tx_bad_tso"]);
        tso_header_beyond_data: "kill table", "segmentation with a header longer than the data", Counters(&["tx_bad_tso"]);
        tso_payload_mismatch: "kill table", "segmentation with a PAYLEN other than the payload", Nothing("the available payload is sent, and TSCTFC counts it (manual 3.3.7.1)");
        checksum_outside_frame: "kill table", "checksum offsets outside the frame", Counters(&["tx_bad_checksum"]);
        eeprom_other_opcodes: "kill table", "every EEPROM opcode, and random levels on its pins", Nothing("a serial memory ignores unknown opcodes");
        frame_larger_than_buffer: "kill table", "frames larger than the receive buffers", Counters(&["rx_too_large"]);
        receive_buffer_null: "kill table", "receive buffers at address 0", Counters(&["rx_too_large"]);
        unmap_then_send: "kill table", "DMA unmap, then transmit and receive", Counters(&["dma_faults", "tx_dma_fault", "rx_dma_fault"]);
        ever_new_buffers: "kill table", "transmit from ever new addresses", Nothing("every address is legal");
    }
    Guest history {
        tso_nothing_at_all: "CVE-2015-6815, CVE-2021-20257", "segmentation with MSS, HDRLEN and PAYLEN all 0, 1 or maximal", Counters(&["tx_bad_tso"]);
        head_beyond_ring: "CVE-2016-1981, CVE-2017-9310", "TDH and RDH beyond their rings", Counters(&["tx_bad_ring", "rx_bad_ring"]);
        length_changes_underway: "CVE-2016-1981", "ring lengths changed while descriptors are in use", Counters(&["tx_bad_ring", "rx_bad_ring"]);
        base_wraps: "CVE-2017-9310", "a ring that wraps around the address space", Counters(&["dma_faults", "tx_dma_fault"]);
        never_end_of_packet: "eepro100 00837731, CVE-2016-8910", "descriptors without end of packet, around the ring again and again", Counters(&["tx_too_many_descs"]);
        huge_descriptors: "CVE-2015-7504, CVE-2015-7512", "data descriptors of 1 MiB that add up", Counters(&["tx_too_long"]);
        context_inside_packet: "VirtualBox E1000 0-day (2018)", "a context descriptor between the data of one frame", Counters(&["tx_bad_tso"]);
        headers_lie: "CVE-2015-5165", "IP and TCP header lengths that lie", Counters(&["tx_bad_checksum"]);
        vlan_on_short_frames: "rtl8139 df8bf7a7, CVE-2015-8744", "VLAN insertion into frames of 1 to 17 bytes", Counters(&["rx_filtered", "tx_bad_checksum"]);
        dma_into_own_registers: "CVE-2021-3416, CVE-2020-15859", "descriptors and buffers at the NIC's own BAR", Counters(&["dma_faults", "tx_dma_fault", "rx_dma_fault"]);
        loopback_into_rings: "CVE-2021-3416", "loopback by RCTL and by PHY, received onto the transmit ring", Nothing("a guest may corrupt its own memory");
        ring_is_its_own_buffer: "CVE-2021-3416", "a receive buffer on the descriptor ring, a frame made of its ring", Nothing("a guest may corrupt its own memory");
        reserved_descriptor_types: "CVE-2020-16092", "descriptors of types that do not exist", Counters(&["tx_bad_desc"]);
        wild_access_sizes: "CVE-2020-16092", "accesses of every size at every alignment, in and beyond the BAR", Counters(&["beyond_region"]);
        io_window_wild: "CVE-2020-16092", "I/O BAR accesses of every size and address", Counters(&["beyond_region"]);
        timers_extreme: "QEMU dd0ef128, b38636b8", "every delay at 0 and at its maximum, then traffic", Nothing("every value is legal");
        all_registers_all_ones: "QEMU 283f0a05, fda43b12", "all ones into every register, then all zeros", Counters(&["rx_disabled"]);
        no_bus_master: "CVE-2020-16092", "doorbells rung with bus mastering off", Counters(&["rx_disabled"]);
        reset_underway: "CVE-2023-3301", "a reset between the doorbell and the work, again and again", Nothing("a reset is always legal; frames that arrive meanwhile are dropped");
    }
    Guest registers {
        every_dword: "CVE-2020-16092", "random bytes into every dword of the BAR", Counters(&["rx_disabled"]);
        registers_at_random: "CVE-2020-16092", "4000 writes to the registers that matter, with traffic", Counters(&["tx_bad_ring"]);
        statistics_written: "ours", "statistics written, and read in halves", Nothing("they are read-only, and reading clears them");
        bells_in_pieces: "ours", "TDT written byte by byte, and as part of wider accesses", Counters(&["tx_bad_ring"]);
        window_walks: "ours", "the I/O window into every register, itself and the reset", Nothing("an address between registers reads 0");
        interrupts_without_end: "QEMU dd0ef128, b38636b8", "9000 interrupt causes set by hand, at every ITR", Nothing("every cause is legal; the line rises once per unmask");
        mask_games: "QEMU 680e60b6, 82342e91", "masks set and cleared around every cause", Nothing("all of this is legal");
        timers_started_over: "QEMU dd0ef128", "the shortest delays, started over and flushed 2000 times", Nothing("all of this is legal");
        pins_forever: "kill table", "clocks, selects and requests of the EEPROM without end or sense", Nothing("a serial memory ignores unknown opcodes");
        eeprom_worn_out: "ours", "one EEPROM word written 200 times", Nothing("writes are legal");
        management_bus_noise: "ours", "every PHY address, register and operation", Nothing("MDIC reports the failure");
        link_flaps: "ours", "PHY resets, power-downs and forced links under traffic", Counters(&["rx_disabled"]);
        resets_in_a_row: "CVE-2023-3301", "3400 resets in a row", Nothing("a reset is always legal");
        reset_in_every_state: "CVE-2023-3301", "a reset in every intermediate state", Nothing("a reset is always legal");
    }
    Guest rings {
        ring_at_the_end_of_all: "CVE-2017-9310", "rings at 2^64-1", Counters(&["dma_faults"]);
        ring_over_two_regions: "kill table", "a ring over two DMA regions, one of which is unmapped", Counters(&["dma_faults", "tx_dma_fault"]);
        rings_on_top_of_each_other: "CVE-2021-3416", "both rings on the same memory, and in the frames sent", Nothing("a guest may corrupt its own memory");
        largest_ring_each_bell: "CVE-2016-1981", "65,528 empty descriptors for every doorbell", Nothing("the largest ring is legal; each doorbell causes at most one ring's work");
        rings_move_underway: "CVE-2016-1981", "ring bases moved between the doorbell and the work", Counters(&["dma_faults"]);
        empty_descriptors: "CVE-2020-28916", "descriptors of length 0, with and without an end", Counters(&["tx_too_many_descs", "tx_bad_tso"]);
        every_type_and_command: "CVE-2020-16092", "every descriptor type with every command", Counters(&["tx_bad_desc"]);
        descriptors_at_random: "CVE-2015-7504", "2400 random descriptors", Counters(&["tx_bad_desc", "tx_dma_fault"]);
        contexts_at_random: "CVE-2021-20257, CVE-2022-23087", "400 contexts with extreme values, each with a frame", Counters(&["tx_bad_tso"]);
        sums_that_end_before_they_start: "CVE-2022-23087, CVE-2019-5609", "checksum ranges that end before they start", Counters(&["tx_bad_checksum"]);
        header_in_crumbs: "VirtualBox E1000 0-day (2018)", "a header to copy, one byte per descriptor, some of them unmapped", Counters(&["tx_dma_fault"]);
        own_check_sequence_on_short_frames: "CVE-2015-7504", "frames too short for the check sequence they claim to carry", Counters(&["tx_runt"]);
        segments_of_one_byte: "CVE-2021-20257", "128 KiB in segments of one byte", Counters(&["tx_bad_tso"]);
        udp_and_nothing_segmented: "CVE-2015-5165", "segmentation of frames that are not TCP", Counters(&["tx_bad_checksum"]);
        tags_on_everything: "rtl8139 df8bf7a7, CVE-2015-8744", "VLAN tags inside, outside and of every type", Counters(&["tx_bad_tso"]);
        status_written_to_nowhere: "CVE-2021-3748", "a ring that is unmapped between a frame and its write-back", Counters(&["dma_faults"]);
        every_buffer_size_and_frame: "CVE-2012-0029, CVE-2012-6075", "every buffer size, LPE, SBP and SECRC with every length of frame", Counters(&["rx_oversize"]);
        every_other_buffer_null: "CVE-2020-28916", "null, unmapped and wrapping buffers among good ones", Counters(&["rx_dma_fault"]);
        frames_rewrite_their_ring: "CVE-2021-3416", "received frames that are the next descriptors", Counters(&["rx_dma_fault"]);
        largest_ring_of_null_buffers: "ours", "65,527 null receive buffers, and frames for them", Counters(&["rx_too_large"]);
        a_buffer_now_and_then: "ours", "one receive buffer for ten frames, again and again", Counters(&["rx_frames"]);
        no_buffer_ever: "ours", "frames, but never a buffer for them", Counters(&["rx_no_buffer"]);
        receiver_on_and_off: "CVE-2020-16092", "the receiver switched on and off among frames", Counters(&["rx_disabled"]);
        looped_frames_are_descriptors: "CVE-2021-3416", "looped frames that are the descriptors they were sent by", Nothing("a guest may corrupt its own memory");
        context_shrinks_and_loops_back: "VirtualBox E1000 0-day (2018)", "a context that shrinks in mid-frame, then loopback", Nothing("a frame keeps the context it began with");
        looped_into_the_bell: "CVE-2021-3416, CVE-2020-15859", "looped frames for the registers of their own NIC", Counters(&["rx_dma_fault"]);
    }
    Guest csb {
        block_tails_wild: "class 2, TOCTOU", "a CSB with tails outside their rings, and without rings", Counters(&["csb_bad_tail"]);
        block_goes_underway: "QEMU csb: mapped once", "a CSB unmapped in the middle of traffic", Counters(&["csb_unmapped"]);
        block_at_nothing: "QEMU csb: mapped once", "a CSB in unmapped memory, in a BAR, at half a page and unaligned", Counters(&["csb_unmapped"]);
        block_on_top_of_rings: "CVE-2021-3416", "a CSB on both rings, and in the frames sent and received", Nothing("a guest may corrupt its own memory");
        block_on_and_off: "ours", "a CSB given, taken, switched on and off among kicks and resets", Nothing("all of this is legal at any time");
        block_never_rests: "ours", "a CSB that asks for endless polling, with tails that go backwards", Nothing("each turn is at most one ring's work, and idle rounds are limited");
    }
    Guest races {
        block_rewritten: "class 2, TOCTOU", "every word of a CSB rewritten while it is read", Nothing("the NIC may see the old or the new data");
        descriptors_rewritten: "class 9, TOCTOU", "transmit descriptors rewritten while they are fetched", Nothing("the NIC may see the old or the new data");
        lengths_rewritten: "class 9, TOCTOU", "lengths and commands rewritten while they are fetched", Nothing("the NIC may see the old or the new data");
        contexts_rewritten: "class 7, TOCTOU", "MSS, HDRLEN and PAYLEN rewritten while frames are segmented by them", Nothing("the NIC may see the old or the new data");
        headers_rewritten: "CVE-2015-5165, TOCTOU", "IP and TCP headers rewritten while they are checksummed and segmented", Nothing("the NIC may see the old or the new data");
        receive_descriptors_rewritten: "class 3, TOCTOU", "receive buffers rewritten while frames arrive", Nothing("the NIC may see the old or the new data");
        rings_and_bases_rewritten: "class 2, TOCTOU", "both rings rewritten while bases and lengths change", Nothing("the NIC may see the old or the new data");
    }
    Guest wire {
        ever_new_senders: "switch", "3000 frames, each from another address", Counters(&["table_full"]);
        in_the_name_of_others: "switch", "2000 frames from the addresses of all its neighbours (their NICs have `mac-lock`)", Counters(&["drop_spoofed"]);
        ever_new_receivers: "switch", "3000 frames, each for another address", Counters(&["rx_unknown_unicast"]);
        broadcast_storm: "switch", "3000 broadcast frames", Counters(&["rx_broadcast"]);
        multicast_storm: "switch", "3000 frames for 3000 groups", Counters(&["rx_multicast"]);
        a_group_as_sender: "switch", "frames from multicast and broadcast addresses", Counters(&["drop_source_is_group"]);
        bridge_and_pause_frames: "switch", "frames for bridges, among them pause frames with the longest time", Counters(&["drop_reserved"]);
        to_itself: "switch", "frames from and to one address", Counters(&["drop_hairpin"]);
        all_zeros_as_address: "switch", "frames from and to 00:00:00:00:00:00", Counters(&["rx_unknown_unicast"]);
        jumbo_storm: "switch", "620 frames of 16 KiB for NICs that take 1522 bytes", Counters(&["rx_broadcast"]);
        noise_storm: "switch", "3000 broadcast frames of random bytes", Counters(&["rx_broadcast"]);
        takes_one_frame_at_a_time: "switch", "a buffer now and then, for a sender that waits", Counters(&["rx_no_buffer"]);
    }
    Guest config {
        every_width_and_place: "ours", "configuration space written at every offset and width", Nothing("read-only bits stay as they are");
        beyond_configuration_space: "CVE-2013-4151", "accesses at and beyond the end of configuration space", Counters(&["beyond_region"]);
        bar_on_top_of_memory: "CVE-2020-15859", "BARs on top of rings and buffers", Nothing("the VMM places BARs; DMA reaches memory only");
        command_flips: "CVE-2020-16092", "bus mastering switched on and off under running rings", Counters(&["rx_disabled"]);
        message_signalled_garbage: "CVE-2024-26327", "random bytes into the MSI capability, switched on and off", Nothing("the VMM delivers the message");
        power_games: "ours", "power states under running rings", Nothing("all of this is legal");
    }
    Vmm talk {
        not_a_version: "ours", "an invalid VERSION: wrong number, broken, nested and endless JSON", Counters(&["refused_bad_version"]);
        version_again: "ours", "VERSION again and again", Counters(&["refused_bad_version"]);
        odd_capabilities: "ours", "capabilities of 0, 1 and 2^32-1", Nothing("a client may announce any capability");
        no_version: "ours", "every command as the first message", Counters(&["refused_no_version"]);
        impossible_sizes: "ours", "headers that announce 0, 15, 2^31 and 2^32-1 bytes", Counters(&["malformed_size"]);
        cut_short: "ours", "every command cut at every byte", Counters(&["malformed_payload"]);
        stretched: "ours", "every command with up to 100,000 bytes too many", Counters(&["malformed_payload"]);
        commands_all_ones: "ours", "every field of every command all ones", Counters(&["malformed_payload", "refused_bad_range", "refused_bad_irq", "dma_maps_refused", "dma_unmaps_refused"]);
        unknown_commands: "ours", "commands that do not exist", Counters(&["refused_unknown_command"]);
        unknown_types: "ours", "messages that are neither command nor reply", Counters(&["refused_unknown_command"]);
        replies_nobody_asked_for: "ours", "replies to DMA messages that were never sent", Counters(&["unexpected_replies"]);
        commands_of_the_server: "ours", "DMA_READ and DMA_WRITE in the wrong direction", Counters(&["refused_wrong_direction"]);
        what_is_not_there: "ours", "features that no device has, and none at all", Counters(&["refused_unsupported", "malformed_payload"]);
        moves_out_of_order: "ours", "migration states, states of NICs and logs, out of order and out of bounds", Counters(&["refused_bad_move", "refused_state", "accesses_while_halted"]);
        no_reply_wanted: "ours", "every command with NO_REPLY, whole and in half", Counters(&["malformed_payload"]);
        regions_that_are_not: "ours", "regions 9, 10 and 2^32-1", Counters(&["refused_bad_range"]);
        accesses_beyond_every_region: "ours", "accesses beyond the end of every region, up to 2^64-1", Counters(&["beyond_region"]);
        largest_accesses: "ours", "reads and writes of 1 MiB to every kind of region", Counters(&["beyond_region"]);
        write_multi_lies: "ours", "REGION_WRITE_MULTI with counts that lie", Counters(&["malformed_payload"]);
        write_multi_of_resets: "ours", "43,000 device resets in one REGION_WRITE_MULTI, and 256", Counters(&["malformed_payload"]);
        one_byte_at_a_time: "slow loris", "messages one byte at a time", Nothing("a slow client is legal and delays no other");
        half_a_message: "ours", "half of every message, then the end", Counters(&["clients_gone"]);
        never_reads_a_reply: "ours", "128,000 reads of 64 KiB, without taking a reply", Counters(&["clients_gone"]);
        random_messages: "ours", "2000 good messages with random bytes changed", Counters(&["malformed_payload"]);
    }
    Vmm maps {
        overlapping_maps: "ours", "overlapping DMA regions", Counters(&["dma_maps_refused"]);
        impossible_ranges: "ours", "DMA regions that are empty, wrap, or pass the end of their file", Counters(&["dma_maps_refused"]);
        odd_flags: "ours", "DMA regions with every flag, and with none", Counters(&["malformed_payload", "dma_faults"]);
        every_region_there_may_be: "ours", "65,536 DMA regions and one more", Counters(&["dma_maps_refused", "dma_faults"]);
        holes_under_copies: "ours", "punches holes of 256 MiB where its frames are copied from", Nothing("reading a hole is legal, and takes time");
        frame_over_all_regions: "ours", "frames that lie in 16,000 DMA regions of one byte", Counters(&["dma_faults", "tx_dma_fault"]);
        ever_more_files: "ours", "600 memory files, each mapped", Counters(&["dma_maps_refused"]);
        largest_files: "ours", "memory files of 100 TiB, more than an address space", Counters(&["dma_maps_refused"]);
        what_is_not_memory: "ours", "devices, pipes, sockets, folders and paths as guest RAM", Counters(&["dma_maps_without_fd", "dma_faults"]);
        sealed_and_read_only_files: "ours", "sealed and read-only memory files", Counters(&["dma_maps_refused", "dma_faults"]);
        truncated_under_the_device: "ours", "memory files truncated once they are mapped", Counters(&["dma_sigbus"]);
        truncated_again_and_again: "ours", "a memory file that a thread truncates and extends continuously", Counters(&["dma_sigbus"]);
        unmaps_of_nothing: "CVE-2021-3748", "unmaps of missing regions, of parts, twice, with wrong flags", Counters(&["dma_unmaps_refused"]);
        one_file_everywhere: "ours", "one page of memory at a thousand addresses: ring, buffer and itself", Nothing("a guest may corrupt its own memory");
        memory_without_a_file: "ours", "RAM without a file descriptor", Counters(&["dma_maps_without_fd", "dma_faults"]);
        read_only_memory: "ours", "rings in memory without write or read permission", Counters(&["dma_faults", "tx_dma_fault"]);
        unmap_in_flight: "kill table, CVE-2023-3301", "the doorbell and the unmap of everything it needs in one send", Counters(&["dma_faults"]);
        maps_come_and_go: "CVE-2023-3301", "twenty files mapped and all unmapped, fifty times, under running rings", Counters(&["dma_faults"]);
        frames_for_memory_that_goes: "CVE-2022-26353, CVE-2023-3301", "looped frames for buffers that are being unmapped", Counters(&["rx_dma_fault"]);
        descriptors_nobody_wants: "ours", "8000 file descriptors without a message that uses them", Counters(&["surplus_fds"]);
        too_many_descriptors_for_a_map: "ours", "DMA_MAP with 2, 3 and 16 descriptors", Counters(&["malformed_payload"]);
    }
    Vmm connections {
        interrupts_that_are_not: "ours", "SET_IRQS with every wrong index, range and flag", Counters(&["refused_bad_irq"]);
        wrong_number_of_eventfds: "ours", "SET_IRQS with more and with fewer eventfds than vectors", Counters(&["refused_bad_irq"]);
        eventfds_that_are_none: "ours", "pipes, sockets, memory, epoll sets and timers as eventfds", Counters(&["refused_bad_eventfd"]);
        epoll_sets_in_epoll_sets: "ours", "the kernel's lock of nested epoll sets held, while eventfds and connections change", Nothing("the daemon nests no epoll sets");
        eventfd_filled_up: "ours", "an eventfd whose count is at its maximum", Nothing("the count stays at its maximum");
        eventfd_that_blocks: "ours", "the same, made blocking behind the server's back", Nothing("the count stays at its maximum, and the server does not block");
        crowd_behind_an_eventfd: "ours", "interrupts by an eventfd that has 40,000 watchers", Counters(&["irq_deferred"]);
        signals_come_and_go: "ours", "eventfds to trigger, mask and unmask, replaced a hundred times", Nothing("all of this is legal");
        connect_storm: "ours", "600 connections, most of them while one is served", Counters(&["refused_busy"]);
        crowd_at_the_door: "ours", "64 connections that stay silent", Counters(&["refused_busy"]);
        slow_to_finish: "slow loris", "a pause at every byte of a register read", Nothing("a slow client is legal and delays no other");
        mute_client: "slow loris", "a client that takes the device and stays silent", Nothing("after a second it loses the device to the next client");
        gone_at_every_step: "CVE-2023-3301", "a client that leaves after, and in the middle of, every message of a start", Counters(&["clients_gone"]);
        gone_in_the_middle_of_work: "CVE-2023-3301", "a client that leaves while its rings are full", Counters(&["clients_gone"]);
        reset_storm: "CVE-2023-3301", "2000 resets in a row with rings running", Counters(&["resets"]);
        twin_socket_abused: "ours", "noise, replies and commands on the twin socket, then its end", Counters(&["malformed_size", "unexpected_replies"]);
    }
}
