//! A PF that controls its VFs by registers.

mod chip;
mod life;
mod mailbox;
mod policy;
mod queues;
mod script;
