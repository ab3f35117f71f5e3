//! One function per hostile surface, each fed with bytes that mean a program.
//!
//! The same functions run under libFuzzer (`fuzz/libfuzzer`), under `make fuzz` and `make
//! fuzz-quick`, and as an ordinary test that replays the kept inputs (`src/tests/replay.rs`). They
//! panic where a promise is broken: a crash, more work than a bound allows, an interrupt without a
//! cause or one that is lost, a counter that falls, bytes of an earlier life in a frame.
//!
//! An input is a list of operations of a byte and what belongs to it; behind its end everything
//! is zero. No input is invalid, so every mutation is a new program.
#![forbid(unsafe_code)]

mod config_file;
mod config_space;
mod control_lines;
mod doorbell_pages;
mod frames;
mod http_requests;
mod hub;
mod input;
mod machine;
mod mailbox;
mod messages;
mod mortal;
mod nic;
mod outside;
mod registers;
mod rings;
mod rings_igb;
mod rings_rtl;
mod several_nics;
mod state;
mod stream_framing;
mod taker;
mod tap_headers;
#[cfg(test)]
mod tests;
mod vhost_user;
mod virtqueue;

pub use config_file::config_file;
pub use config_space::config_space;
pub use control_lines::control_lines;
pub use doorbell_pages::doorbell_pages;
pub use frames::frames;
pub use http_requests::http_requests;
pub use hub::hub;
pub use mailbox::mailbox;
pub use messages::messages;
pub use registers::registers;
pub use rings::rings;
pub use rings_igb::rings_igb;
pub use rings_rtl::rings_rtl;
pub use several_nics::several_nics;
pub use state::state;
pub use stream_framing::stream_framing;
pub use tap_headers::tap_headers;
pub use vhost_user::vhost_user;
pub use virtqueue::virtqueue;

/// A function that takes any bytes and panics only where something is broken.
pub type Target = fn(&[u8]);

/// Every target by its name, which is also the name of its corpus.
pub const TARGETS: &[(&str, Target)] = &[
    ("registers", registers),
    ("rings", rings),
    ("rings_igb", rings_igb),
    ("rings_rtl", rings_rtl),
    ("mailbox", mailbox),
    ("hub", hub),
    ("config_space", config_space),
    ("messages", messages),
    ("frames", frames),
    ("state", state),
    ("config_file", config_file),
    ("stream_framing", stream_framing),
    ("tap_headers", tap_headers),
    ("control_lines", control_lines),
    ("doorbell_pages", doorbell_pages),
    ("several_nics", several_nics),
    ("vhost_user", vhost_user),
    ("virtqueue", virtqueue),
    ("http_requests", http_requests),
];
