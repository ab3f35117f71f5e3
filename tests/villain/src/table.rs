//! The table: every villain, where it comes from, what it does, what it moves.

use crate::Moves::{Counters, Nothing};
use crate::{Program, Villain, history, kill_table};

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
}
