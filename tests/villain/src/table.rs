//! The table: every villain, where it comes from, what it does, what it moves.

use crate::Moves::{Counters, Nothing};
use crate::{Program, Villain, connections, history, kill_table, maps, talk};

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
        ring_unmapped: "kill table", "descriptor rings where nothing is mapped", Counters(&["dma_faults", "tx_dma_fault", "rx_dma_fault"]);
        ring_runs_out_of_memory: "kill table", "rings that begin in memory and end outside", Counters(&["dma_faults", "tx_dma_fault", "rx_dma_fault"]);
        buffer_unmapped: "kill table", "transmit and receive buffers where nothing is mapped", Counters(&["dma_faults", "tx_dma_fault", "rx_dma_fault"]);
        buffer_runs_out_of_memory: "kill table", "buffers that begin in memory and end outside", Counters(&["dma_faults", "tx_dma_fault", "rx_dma_fault"]);
        one_byte_frame: "kill table", "a frame of one byte, of none, and of 13", Counters(&["tx_runt"]);
        legacy_checksum_wild: "kill table", "legacy checksum insertion at every odd place", Counters(&["tx_bad_checksum"]);
        data_without_context: "kill table", "offload asked for with no context before it", Counters(&["tx_bad_tso"]);
        tso_mss_zero: "kill table", "segmentation with MSS = 0", Counters(&["tx_bad_tso"]);
        tso_header_beyond_data: "kill table", "segmentation with a header longer than the data", Counters(&["tx_bad_tso"]);
        tso_payload_mismatch: "kill table", "segmentation with PAYLEN that is not what comes", Nothing("what there is is sent, and TSCTFC tells the guest (manual 3.3.7.1)");
        checksum_outside_frame: "kill table", "checksum offsets outside the frame", Counters(&["tx_bad_checksum"]);
        eeprom_other_opcodes: "kill table", "every EEPROM opcode, and noise on its pins", Nothing("a serial memory ignores what it does not know");
        frame_larger_than_buffer: "kill table", "frames larger than the receive buffers", Counters(&["rx_too_large"]);
        receive_buffer_null: "kill table", "receive buffers at address 0", Counters(&["rx_too_large"]);
        unmap_then_send: "kill table", "DMA unmap, then transmit and receive", Counters(&["dma_faults", "tx_dma_fault", "rx_dma_fault"]);
        ever_new_buffers: "kill table", "transmit from ever new addresses", Nothing("every address is as good as another");
    }
    Guest history {
        tso_nothing_at_all: "CVE-2015-6815, CVE-2021-20257", "segmentation with MSS, HDRLEN and PAYLEN all 0, 1 or most", Counters(&["tx_bad_tso"]);
        head_beyond_ring: "CVE-2016-1981, CVE-2017-9310", "TDH and RDH beyond their rings", Counters(&["tx_bad_ring", "rx_bad_ring"]);
        length_changes_underway: "CVE-2016-1981", "ring lengths changed while descriptors are out", Counters(&["tx_bad_ring", "rx_bad_ring"]);
        base_wraps: "CVE-2017-9310", "a ring that wraps around the address space", Counters(&["dma_faults", "tx_dma_fault"]);
        never_end_of_packet: "eepro100 00837731, CVE-2016-8910", "descriptors without end of packet, round and round", Counters(&["tx_too_many_descs"]);
        huge_descriptors: "CVE-2015-7504, CVE-2015-7512", "data descriptors of 1 MiB that add up", Counters(&["tx_too_long"]);
        context_inside_packet: "VirtualBox E1000 0-day (2018)", "a context descriptor between the data of one frame", Counters(&["tx_bad_tso"]);
        headers_lie: "CVE-2015-5165", "IP and TCP header lengths that lie", Counters(&["tx_bad_checksum"]);
        vlan_on_short_frames: "rtl8139 df8bf7a7, CVE-2015-8744", "VLAN insertion into frames of 1 to 17 bytes", Counters(&["rx_filtered", "tx_bad_checksum"]);
        dma_into_own_registers: "CVE-2021-3416, CVE-2020-15859", "descriptors and buffers at the NIC's own BAR", Counters(&["dma_faults", "tx_dma_fault", "rx_dma_fault"]);
        loopback_into_rings: "CVE-2021-3416", "loopback by RCTL and by PHY, received onto the transmit ring", Nothing("its own memory is its own to spoil");
        ring_is_its_own_buffer: "CVE-2021-3416", "a receive buffer on the descriptor ring, a frame made of its ring", Nothing("its own memory is its own to spoil");
        reserved_descriptor_types: "CVE-2020-16092", "descriptors of types that do not exist", Counters(&["tx_bad_desc"]);
        wild_access_sizes: "CVE-2020-16092", "accesses of every size at every alignment, in and beyond the BAR", Counters(&["beyond_region"]);
        io_window_wild: "CVE-2020-16092", "I/O BAR accesses of every size and address", Counters(&["beyond_region"]);
        timers_extreme: "QEMU dd0ef128, b38636b8", "every delay at 0 and at its most, then traffic", Nothing("every value is legal");
        all_registers_all_ones: "QEMU 283f0a05, fda43b12", "all ones into every register, then all zeros", Counters(&["rx_disabled"]);
        no_bus_master: "CVE-2020-16092", "bells rung with bus mastering off", Counters(&["rx_disabled"]);
        reset_underway: "CVE-2023-3301", "reset between the bell and the work, again and again", Nothing("a reset is always legal; frames that came meanwhile are for nobody");
    }
    Vmm talk {
        not_a_version: "ours", "a VERSION that is none: wrong number, broken, nested and endless JSON", Counters(&["refused_bad_version"]);
        version_again: "ours", "VERSION again and again", Counters(&["refused_bad_version"]);
        odd_capabilities: "ours", "capabilities of 0, 1 and 2^32-1", Nothing("what a client can take is its own affair");
        no_version: "ours", "every command as the first message", Counters(&["refused_no_version"]);
        impossible_sizes: "ours", "headers that announce 0, 15, 2^31 and 2^32-1 bytes", Counters(&["malformed_size"]);
        cut_short: "ours", "every command cut at every byte", Counters(&["malformed_payload"]);
        stretched: "ours", "every command with up to 100,000 bytes too many", Counters(&["malformed_payload"]);
        commands_all_ones: "ours", "every field of every command all ones", Counters(&["malformed_payload", "refused_bad_range", "refused_bad_irq", "dma_maps_refused", "dma_unmaps_refused"]);
        unknown_commands: "ours", "commands that do not exist", Counters(&["refused_unknown_command"]);
        unknown_types: "ours", "messages that are neither command nor reply", Counters(&["refused_unknown_command"]);
        replies_nobody_asked_for: "ours", "replies to DMA messages that were never sent", Counters(&["unexpected_replies"]);
        commands_of_the_server: "ours", "DMA_READ and DMA_WRITE in the wrong direction", Counters(&["refused_wrong_direction"]);
        what_is_not_there: "ours", "device features and migration", Counters(&["refused_unsupported", "malformed_payload"]);
        no_reply_wanted: "ours", "every command with NO_REPLY, whole and in half", Counters(&["malformed_payload"]);
        regions_that_are_not: "ours", "regions 9, 10 and 2^32-1", Counters(&["refused_bad_range"]);
        accesses_beyond_every_region: "ours", "accesses beyond the end of every region, up to 2^64-1", Counters(&["beyond_region"]);
        largest_accesses: "ours", "reads and writes of 1 MiB to every kind of region", Counters(&["beyond_region"]);
        write_multi_lies: "ours", "REGION_WRITE_MULTI with counts that lie", Counters(&["malformed_payload"]);
        one_byte_at_a_time: "slow loris", "messages one byte at a time", Nothing("slow is not wrong; nobody else waits for it");
        half_a_message: "ours", "half of every message, then the end", Counters(&["clients_gone"]);
        never_reads_a_reply: "ours", "128,000 reads of 64 KiB, and no reply taken", Counters(&["clients_gone"]);
        random_messages: "ours", "2000 good messages with random bytes changed", Counters(&["malformed_payload"]);
    }
    Vmm maps {
        overlapping_maps: "ours", "DMA regions on top of each other", Counters(&["dma_maps_refused"]);
        impossible_ranges: "ours", "DMA regions that are empty, wrap, or pass the end of their file", Counters(&["dma_maps_refused"]);
        odd_flags: "ours", "DMA regions with every flag, and with none", Counters(&["malformed_payload", "dma_faults"]);
        every_region_there_may_be: "ours", "65,536 DMA regions and one more", Counters(&["dma_maps_refused", "dma_faults"]);
        ever_more_files: "ours", "600 memory files, each mapped", Counters(&["dma_maps_refused"]);
        largest_files: "ours", "memory files of 100 TiB, more than an address space", Counters(&["dma_maps_refused"]);
        what_is_not_memory: "ours", "devices, pipes, sockets, folders and paths as guest RAM", Counters(&["dma_maps_without_fd", "dma_faults"]);
        sealed_and_read_only_files: "ours", "sealed and read-only memory files", Counters(&["dma_maps_refused", "dma_faults"]);
        truncated_under_the_device: "ours", "memory files truncated once they are mapped", Counters(&["dma_sigbus"]);
        truncated_again_and_again: "ours", "a memory file that a thread truncates and extends all the while", Counters(&["dma_sigbus"]);
        unmaps_of_nothing: "CVE-2021-3748", "unmaps of what is not, of parts, twice, with wrong flags", Counters(&["dma_unmaps_refused"]);
        one_file_everywhere: "ours", "one page of memory at a thousand addresses: ring, buffer and itself", Nothing("its own memory is its own to spoil");
        memory_without_a_file: "ours", "RAM without a file descriptor", Counters(&["dma_maps_without_fd", "dma_faults"]);
        read_only_memory: "ours", "rings in memory that may not be written, or not be read", Counters(&["dma_faults", "tx_dma_fault"]);
        unmap_in_flight: "kill table, CVE-2023-3301", "the bell and the unmap of all it needs in one send", Counters(&["dma_faults"]);
        maps_come_and_go: "CVE-2023-3301", "twenty files mapped and all unmapped, fifty times, under running rings", Counters(&["dma_faults"]);
        frames_for_memory_that_goes: "CVE-2022-26353, CVE-2023-3301", "looped frames for buffers that are unmapped meanwhile", Counters(&["rx_dma_fault"]);
        descriptors_nobody_wants: "ours", "8000 file descriptors that no message asks for", Counters(&["surplus_fds"]);
        too_many_descriptors_for_a_map: "ours", "DMA_MAP with 2, 3 and 16 descriptors", Counters(&["malformed_payload"]);
    }
    Vmm connections {
        interrupts_that_are_not: "ours", "SET_IRQS with every wrong index, range and flag", Counters(&["refused_bad_irq"]);
        wrong_number_of_eventfds: "ours", "SET_IRQS with more and with fewer eventfds than vectors", Counters(&["refused_bad_irq"]);
        eventfds_that_are_none: "ours", "pipes, sockets, memory and epoll sets as eventfds", Counters(&["refused_bad_eventfd"]);
        eventfd_filled_up: "ours", "an eventfd whose count is at its most", Nothing("one more than its most is its most");
        eventfd_that_blocks: "ours", "the same, made blocking behind the server's back", Nothing("one more than its most is its most, and nobody waits");
        signals_come_and_go: "ours", "eventfds to trigger, mask and unmask, replaced a hundred times", Nothing("all of it is legal");
        connect_storm: "ours", "600 connections, most of them while one is served", Counters(&["refused_busy"]);
        crowd_at_the_door: "ours", "64 connections that wait and say nothing", Counters(&["refused_busy"]);
        slow_to_finish: "slow loris", "a pause at every byte of a register read", Nothing("slow is not wrong; nobody else waits for it");
        mute_client: "slow loris", "a client that takes the device and never says a word", Nothing("it gives way to the next after a second");
        gone_at_every_step: "CVE-2023-3301", "a client that leaves after, and in the middle of, every message of a start", Counters(&["clients_gone"]);
        gone_in_the_middle_of_work: "CVE-2023-3301", "a client that leaves while its rings are full", Counters(&["clients_gone"]);
        reset_storm: "CVE-2023-3301", "2000 resets in a row with rings running", Counters(&["resets"]);
        twin_socket_abused: "ours", "noise, replies and commands on the twin socket, then its end", Counters(&["malformed_size", "unexpected_replies"]);
    }
}
