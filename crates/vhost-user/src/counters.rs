//! What happened, by name.

use crate::answer::Refusal;
use crate::codec::Request;

#[derive(Default)]
pub(crate) struct Counters {
    messages: u64,
    maps: u64,
    ring_messages: u64,
    refused_soft: u64,
    refused_hard: u64,
    pub malformed: u64,
    pub malformed_size: u64,
    pub clients: u64,
    pub clients_gone: u64,
    pub refused_busy: u64,
    pub refused_quota: u64,
    pub accept_errors: u64,
    pub kicks: u64,
    pub rings_started: u64,
    pub rings_stopped: u64,
    pub rings_lost: u64,
    pub bad_eventfd: u64,
    pub surplus_fds: u64,
    pub truncated: u64,
    pub resets: u64,
    pub transfers_failed: u64,
    /// Totals of connections that are over.
    pub recv_calls: u64,
    pub send_calls: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
}

impl Counters {
    pub fn message(&mut self, request: Request) {
        self.messages += 1;
        match request {
            Request::SetMemTable | Request::AddMemReg | Request::RemMemReg => self.maps += 1,
            Request::SetVringNum
            | Request::SetVringAddr
            | Request::SetVringBase
            | Request::GetVringBase
            | Request::SetVringKick
            | Request::SetVringCall
            | Request::SetVringErr
            | Request::SetVringEnable => self.ring_messages += 1,
            _ => {}
        }
    }

    pub fn refused(&mut self, refusal: &Refusal) {
        match refusal {
            Refusal::Soft(_) => self.refused_soft += 1,
            Refusal::Hard(_) => self.refused_hard += 1,
        }
    }

    pub fn visit(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("messages", self.messages);
        visit("memory_messages", self.maps);
        visit("ring_messages", self.ring_messages);
        visit("kicks", self.kicks);
        visit("rings_started", self.rings_started);
        visit("rings_stopped", self.rings_stopped);
        visit("rings_lost", self.rings_lost);
        visit("resets", self.resets);
        visit("clients", self.clients);
        visit("clients_gone", self.clients_gone);
        visit("refused_busy", self.refused_busy);
        visit("refused_quota", self.refused_quota);
        visit("refused_requests", self.refused_soft);
        visit("refused_violations", self.refused_hard);
        visit("refused_bad_eventfd", self.bad_eventfd);
        visit("refused_truncated_fds", self.truncated);
        visit("accept_errors", self.accept_errors);
        visit("malformed", self.malformed);
        visit("malformed_size", self.malformed_size);
        visit("transfers_failed", self.transfers_failed);
    }
}
