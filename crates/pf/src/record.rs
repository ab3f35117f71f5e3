//! What VFs were refused, and why one was shut down.

use std::collections::VecDeque;
use std::fmt;

use eswitch::Nanos;

/// Records kept for each VF; the oldest goes.
const KEPT: usize = 16;

/// Something a VF was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// Another address than the operator gave it.
    MacOverride,
    /// An address that is none of a station.
    BadAddress,
    /// An address that another VF has.
    AddressTaken,
    /// More further addresses than it may have.
    TooManyAddresses,
    /// Another VLAN than the operator gave it.
    VlanOverride,
    /// A longest frame that the chip does not take.
    BadFrameSize,
    /// A promiscuous mode that is never granted.
    Promiscuous,
    /// A message that no driver sends.
    UnknownMessage,
    /// A message before a reset was completed.
    NotReset,
    /// A message while the one before waits for its time.
    Flood,
    /// Frames from addresses or of VLANs that are not its own.
    Spoofed,
    /// Flooded frames beyond its limits.
    Storm,
}

impl What {
    /// All of them.
    pub const ALL: [What; 12] = [
        What::MacOverride,
        What::BadAddress,
        What::AddressTaken,
        What::TooManyAddresses,
        What::VlanOverride,
        What::BadFrameSize,
        What::Promiscuous,
        What::UnknownMessage,
        What::NotReset,
        What::Flood,
        What::Spoofed,
        What::Storm,
    ];

    /// The name of its counter.
    pub const fn name(self) -> &'static str {
        match self {
            What::MacOverride => "vf_refused_mac_override",
            What::BadAddress => "vf_refused_bad_address",
            What::AddressTaken => "vf_refused_address_taken",
            What::TooManyAddresses => "vf_refused_too_many_addresses",
            What::VlanOverride => "vf_refused_vlan_override",
            What::BadFrameSize => "vf_refused_frame_size",
            What::Promiscuous => "vf_refused_promiscuous",
            What::UnknownMessage => "vf_refused_unknown_message",
            What::NotReset => "vf_refused_not_reset",
            What::Flood => "vf_refused_flood",
            What::Spoofed => "vf_refused_spoofed",
            What::Storm => "vf_refused_storm",
        }
    }

    /// Whether it is held against the VF. Linux's own drivers ask for what they cannot have: that
    /// is refused and no more.
    pub(crate) const fn is_misdeed(self) -> bool {
        matches!(
            self,
            What::MacOverride
                | What::BadAddress
                | What::VlanOverride
                | What::BadFrameSize
                | What::UnknownMessage
                | What::Flood
                | What::Spoofed
                | What::Storm
        )
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            What::MacOverride => "asked for an address other than the operator's",
            What::BadAddress => "asked for a multicast or zero address",
            What::AddressTaken => "asked for the address of another VF",
            What::TooManyAddresses => "asked for more addresses than it may have",
            What::VlanOverride => "asked for a VLAN besides the operator's",
            What::BadFrameSize => "asked for a frame size that the chip does not support",
            What::Promiscuous => "asked for promiscuous mode, which VFs do not get",
            What::UnknownMessage => "sent a message that no driver sends",
            What::NotReset => "sent a message before it completed a reset",
            What::Flood => "sent a message while its last one was delayed by the rate limit",
            What::Spoofed => "sent frames from other addresses or VLANs than its own",
            What::Storm => "sent more flooded frames than it may",
        })
    }
}

/// Why a VF does not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Down {
    /// Shut down for misbehaving; the last thing it did.
    Misbehaved(What),
    /// The operator will take it away.
    Leaving,
}

/// Something of one kind that happened to one VF, once or again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it happened first.
    pub first: Nanos,
    /// When it happened last.
    pub last: Nanos,
    /// What it was.
    pub what: What,
    /// How often.
    pub count: u64,
    /// The VF was shut down for it.
    pub shut_down: bool,
}

/// The last records of one VF.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(VecDeque<Record>);

impl Log {
    pub(crate) fn note(&mut self, what: What, count: u64, now: Nanos) {
        if let Some(last) = self.0.back_mut().filter(|r| r.what == what && !r.shut_down) {
            last.last = now;
            last.count = last.count.saturating_add(count);
            return;
        }
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(Record {
            first: now,
            last: now,
            what,
            count,
            shut_down: false,
        });
    }

    /// The last thing noted was the end.
    pub(crate) fn shut_down(&mut self) {
        if let Some(last) = self.0.back_mut() {
            last.shut_down = true;
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Record> {
        self.0.iter()
    }
}
