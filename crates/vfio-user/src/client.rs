//! The client: what a VMM does, as a library. For tests, drivers and benches.

mod calls;
mod connection;
mod error;
mod moving;
mod served;

pub use calls::{Region, Write};
pub use connection::{Client, ClientOptions, Reply};
pub use error::ClientError;
