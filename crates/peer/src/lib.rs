//! What a server of local sockets needs whose peers are not trusted: their descriptors, their
//! eventfds, their streams.
//!
//! A worker serves many peers with one thread, so nothing here ever waits for one of them:
//!
//! - [`stream`]: messages on a non-blocking Unix stream, each with the descriptors that came with it.
//! - [`deferred_closer`]: what a peer handed over is closed by a thread that has nothing else to do.
//! - [`event`], [`poke`], [`signal`]: a peer's eventfd is proven to be one, and written to without
//!   waiting for the peer.
//! - [`Listener`], [`dial`], [`EventSet`]: where peers come from, and where their descriptors are watched.
//! - [`SharedMem`]: memory that both ends map.
//! - [`Noted`]: bytes of a stream that are moved once, though the process that moves them dies.
//!
//! `unsafe` lives in four modules, `apart`, `shared_mem`, `noted` and `poke`; each block says what keeps it sound.
#![deny(unsafe_code)]

mod apart;
pub mod deferred_closer;
pub mod dial;
pub mod event;
mod event_set;
mod listener;
mod noted;
pub mod poke;
mod shared_mem;
pub mod signal;
pub mod stream;

pub use apart::asked;
pub use deferred_closer::{DeferredCloser, PeerFd};
pub use event::EventFd;
pub use event_set::EventSet;
pub use listener::{ListenError, Listener, MAX_SOCKET_PATH, leave_paths};
pub use noted::{Noted, Piece};
pub use shared_mem::{Area, SharedMem};
