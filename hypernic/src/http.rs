//! HTTP/1 for the programs beside the daemon, `hypernic exporter` and `hypernic web`: few connections at once, none of
//! them for long, one request on each, and small.

mod answer;
mod hear;
mod listen;
mod request;
mod server;

pub(crate) use self::answer::{Answer, Counters};
pub use self::hear::{Request, hear};
pub(crate) use self::listen::{Listening, not_listening};
pub(crate) use self::request::{Asked, Method, Names, Rules};
pub(crate) use self::server::{Site, serve};
