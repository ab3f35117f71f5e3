//! What a service manager is told (`sd_notify(3)`): that the daemon serves, reads its configuration again, ends.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::time::{ClockId, clock_gettime};

/// Where the manager listens, by the environment.
const SOCKET: &str = "NOTIFY_SOCKET";

/// The manager, if there is one.
#[derive(Debug, Default)]
pub struct Manager(Option<UnixDatagram>);

impl Manager {
    /// The one that the environment names.
    pub fn of_environment() -> Self {
        let Some(name) = std::env::var_os(SOCKET).filter(|name| !name.is_empty()) else {
            return Self(None);
        };
        match Self::connect(name.as_bytes()) {
            Ok(socket) => Self(Some(socket)),
            Err(error) => {
                eprintln!("hypernic: cannot reach the service manager at {SOCKET}: {error}");
                Self(None)
            }
        }
    }

    fn connect(name: &[u8]) -> io::Result<UnixDatagram> {
        let address = match name.strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name))?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        // A manager that does not read holds up nobody.
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    /// The daemon serves, or has read its configuration again.
    pub fn ready(&self) {
        self.tell("READY=1\n");
    }

    /// It reads its configuration again; `ready` ends that.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\n"));
    }

    /// It ends.
    pub fn stopping(&self) {
        self.tell("STOPPING=1\n");
    }

    fn tell(&self, what: &str) {
        if let Some(socket) = &self.0
            && let Err(error) = socket.send(what.as_bytes())
        {
            tracing::warn!(
                "the service manager was not told {}: {error}",
                what.trim_end()
            );
        }
    }
}
