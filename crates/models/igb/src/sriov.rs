//! What is between a PF and its VFs: channels, mailboxes, the hub that the PF's registers control.

pub(crate) mod channel;
pub(crate) mod hub;
pub(crate) mod mailbox;
