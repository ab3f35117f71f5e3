//! The villains of the 82540EM, by name.

use super::{Villain, history, kill_table};

macro_rules! villains {
    ($($source:ident $id:ident: $name:literal,)*) => {
        pub(super) const ALL: &[Villain] = &[$(
            Villain { id: stringify!($id), name: $name, run: $source::$id },
        )*];
    };
}

villains! {
    kill_table tail_beyond_ring: "TDT beyond the ring's length",
    kill_table ring_of_length_zero: "TDLEN = 0, then TDT",
    kill_table ring_unmapped: "descriptor rings where nothing is mapped",
    kill_table ring_runs_out_of_memory: "rings that begin in memory and end outside",
    kill_table buffer_unmapped: "transmit and receive buffers where nothing is mapped",
    kill_table buffer_runs_out_of_memory: "buffers that begin in memory and end outside",
    kill_table one_byte_frame: "a frame of one byte, of none, and of 13",
    kill_table legacy_checksum_wild: "legacy checksum insertion at every odd place",
    kill_table data_without_context: "offload asked for with no context before it",
    kill_table tso_mss_zero: "segmentation with MSS = 0",
    kill_table tso_header_beyond_data: "segmentation with a header longer than the data",
    kill_table tso_payload_mismatch: "segmentation with PAYLEN that is not what comes",
    kill_table checksum_outside_frame: "checksum offsets outside the frame",
    kill_table eeprom_other_opcodes: "every EEPROM opcode, and noise on its pins",
    kill_table frame_larger_than_buffer: "frames larger than the receive buffers",
    kill_table receive_buffer_null: "receive buffers at address 0",
    kill_table unmap_then_send: "DMA unmap, then transmit and receive",
    kill_table ever_new_buffers: "transmit from ever new addresses",
    history tso_nothing_at_all: "segmentation with MSS, HDRLEN and PAYLEN all 0, 1 or most",
    history head_beyond_ring: "TDH and RDH beyond their rings",
    history length_changes_underway: "ring lengths changed while descriptors are out",
    history base_wraps: "a ring that wraps around the address space",
    history never_end_of_packet: "descriptors without end of packet, round and round",
    history huge_descriptors: "data descriptors of 1 MiB that add up",
    history context_inside_packet: "a context descriptor between the data of one frame",
    history headers_lie: "IP and TCP header lengths that lie",
    history vlan_on_short_frames: "VLAN insertion into frames of 1 to 17 bytes",
    history dma_into_own_registers: "descriptors and buffers at the NIC's own BAR",
    history loopback_into_rings: "loopback by RCTL and by PHY, received onto the transmit ring",
    history ring_is_its_own_buffer: "a receive buffer on the descriptor ring, a frame made of its ring",
    history reserved_descriptor_types: "descriptors of types that do not exist",
    history wild_access_sizes: "accesses of every size at every alignment, in and beyond the BAR",
    history io_window_wild: "I/O BAR accesses of every size and address",
    history timers_extreme: "every delay at 0 and at its most, then traffic",
    history all_registers_all_ones: "all ones into every register, then all zeros",
    history no_bus_master: "bells rung with bus mastering off",
    history reset_underway: "reset between the bell and the work, again and again",
}
