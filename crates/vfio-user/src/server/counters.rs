//! What happened, by name.

use crate::codec::Command;

const SLOTS: usize = 19;

#[derive(Default)]
pub(super) struct Counters {
    pub commands: [u64; SLOTS],
    pub posted_writes: u64,
    pub multi_writes: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub doorbells: u64,
    pub doorbell_writes: u64,
    pub clients: u64,
    pub clients_gone: u64,
    pub refused_busy: u64,
    pub refused_quota: u64,
    pub accept_errors: u64,
    pub malformed_size: u64,
    pub malformed_payload: u64,
    pub no_version: u64,
    pub bad_version: u64,
    pub unknown_command: u64,
    pub wrong_direction: u64,
    pub unexpected_reply: u64,
    pub unsupported: u64,
    pub bad_range: u64,
    pub beyond_region: u64,
    pub bad_irq: u64,
    pub bad_eventfd: u64,
    pub dma_map_refused: u64,
    pub dma_unmap_refused: u64,
    pub maps_without_fd: u64,
    pub halted_accesses: u64,
    pub bad_move: u64,
    pub state_refused: u64,
    pub moved_out: u64,
    pub moved_in: u64,
    pub surplus_fds: u64,
    pub truncated: u64,
    /// Totals of connections that are over.
    pub recv_calls: u64,
    pub send_calls: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
}

impl Counters {
    pub fn command(&mut self, command: Command) {
        self.commands[command.slot()] += 1;
    }

    pub fn visit(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        let of = |command: Command| self.commands[command.slot()];
        visit("messages", self.commands.iter().sum());
        visit("region_reads", of(Command::RegionRead));
        visit(
            "region_writes",
            of(Command::RegionWrite) + self.multi_writes,
        );
        visit("posted_writes", self.posted_writes);
        visit("write_multi_messages", of(Command::RegionWriteMulti));
        visit("region_read_bytes", self.read_bytes);
        visit("region_write_bytes", self.write_bytes);
        visit("dma_maps", of(Command::DmaMap));
        visit("dma_maps_without_fd", self.maps_without_fd);
        visit("dma_maps_refused", self.dma_map_refused);
        visit("dma_unmaps", of(Command::DmaUnmap));
        visit("dma_unmaps_refused", self.dma_unmap_refused);
        visit("doorbells", self.doorbells);
        visit("doorbell_page_writes", self.doorbell_writes);
        visit("set_irqs", of(Command::SetIrqs));
        visit("resets", of(Command::Reset));
        visit(
            "info_requests",
            of(Command::GetInfo)
                + of(Command::GetRegionInfo)
                + of(Command::GetIrqInfo)
                + of(Command::GetRegionIoFds),
        );
        visit("clients", self.clients);
        visit("clients_gone", self.clients_gone);
        visit("refused_busy", self.refused_busy);
        visit("refused_quota", self.refused_quota);
        visit("accept_errors", self.accept_errors);
        visit("malformed_size", self.malformed_size);
        visit("malformed_payload", self.malformed_payload);
        visit("refused_no_version", self.no_version);
        visit("refused_bad_version", self.bad_version);
        visit("refused_unknown_command", self.unknown_command);
        visit("refused_wrong_direction", self.wrong_direction);
        visit("refused_unsupported", self.unsupported);
        visit("refused_bad_range", self.bad_range);
        visit("beyond_region", self.beyond_region);
        visit("refused_bad_irq", self.bad_irq);
        visit("refused_bad_eventfd", self.bad_eventfd);
        visit("refused_truncated_fds", self.truncated);
        visit("unexpected_replies", self.unexpected_reply);
        visit("accesses_while_halted", self.halted_accesses);
        visit("refused_bad_move", self.bad_move);
        visit("refused_state", self.state_refused);
        visit("states_read", self.moved_out);
        visit("states_loaded", self.moved_in);
    }
}
