//! NICs on a switch, each with a driver: what benches and tests start from.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use drivers::SocketBus;
use drivers::e1000::poll::{Poll, PollConfig};

use crate::config::HostConfig;
use crate::error::Error;
use crate::host::Host;
use crate::pktgen;

/// How long a daemon may take to make its sockets.
const STARTING: Duration = Duration::from_secs(30);

/// NICs on a switch, in this process or in one of their own. All ends with it.
pub struct Fabric {
    sockets: Vec<PathBuf>,
    host: Option<Host>,
    child: Option<Child>,
    dir: PathBuf,
}

fn folder() -> Result<PathBuf, Error> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("hypernic-fabric-{}-{next}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    std::fs::create_dir(&dir).map_err(|source| Error::Os {
        what: "cannot make a folder for sockets",
        source,
    })?;
    Ok(dir)
}

impl Fabric {
    fn empty(nics: usize) -> Result<Self, Error> {
        let dir = folder()?;
        Ok(Self {
            sockets: (0..nics).map(|n| dir.join(format!("n{n}"))).collect(),
            host: None,
            child: None,
            dir,
        })
    }

    /// `nics` NICs in this process: what a profiler sees whole.
    ///
    /// # Errors
    /// What the system does not give.
    pub fn in_process(nics: usize) -> Result<Self, Error> {
        let mut fabric = Self::empty(nics)?;
        let mut text = String::from("[[switch]]\nname = \"lan\"\n");
        for (n, socket) in fabric.sockets.iter().enumerate() {
            text += &format!(
                "[[nic]]\nname = \"n{n}\"\nsocket-path = {socket:?}\nport = \"switch:lan\"\n"
            );
        }
        let config = HostConfig::parse("fabric".as_ref(), &text)?;
        fabric.host = Some(Host::start(&config)?);
        Ok(fabric)
    }

    /// `nics` NICs in a daemon of their own: `daemon run`, with `more` arguments.
    ///
    /// # Errors
    /// The daemon cannot be started, or does not make its sockets.
    pub fn process(daemon: &Path, nics: usize, more: &[&str]) -> Result<Self, Error> {
        let failed = |source| Error::Os {
            what: "cannot start the daemon",
            source,
        };
        let mut fabric = Self::empty(nics)?;
        let mut command = Command::new(daemon);
        command.args(["run", "--port", "switch:lan"]).args(more);
        for socket in &fabric.sockets {
            command.arg("--socket-path").arg(socket);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = fabric.child.insert(command.spawn().map_err(failed)?);
        let until = Instant::now() + STARTING;
        while !fabric.sockets.iter().all(|socket| socket.exists()) {
            if child.try_wait().map_err(failed)?.is_some() || Instant::now() > until {
                return Err(failed(std::io::ErrorKind::TimedOut.into()));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(fabric)
    }

    /// The NICs' sockets.
    pub fn sockets(&self) -> &[PathBuf] {
        &self.sockets
    }

    /// The process that serves them.
    pub fn id(&self) -> u32 {
        self.child.as_ref().map_or_else(std::process::id, Child::id)
    }

    /// The host, when it is in this process.
    pub fn host(&self) -> Option<&Host> {
        self.host.as_ref()
    }

    /// A driver for each NIC.
    ///
    /// # Errors
    /// One does not come up.
    pub fn drivers(&self, config: &PollConfig) -> Result<Vec<Poll<SocketBus>>, Error> {
        let connect = |path: &PathBuf| pktgen::connect(path, config);
        self.sockets.iter().map(connect).collect()
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        if let Some(host) = self.host.take() {
            host.stop();
        }
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivers::e1000::poll::TxFrame;

    #[test]
    fn every_driver_of_a_fabric_reaches_the_others() {
        let fabric = Fabric::in_process(3).expect("a fabric");
        assert_eq!(fabric.id(), std::process::id());
        let mut nics = fabric.drivers(&PollConfig::new()).expect("drivers");
        let from = nics[0].mac();
        let sent = nics[0].send(1, |_, buffer| {
            let mut frame = [0x55; 60];
            frame[..6].fill(0xff);
            frame[6..12].copy_from_slice(&from);
            buffer.write(0, &frame);
            TxFrame::plain(60)
        });
        assert_eq!(sent.expect("sent"), 1);
        let until = Instant::now() + STARTING;
        for nic in &mut nics[1..] {
            let mut got = 0;
            while got == 0 {
                assert!(Instant::now() < until, "the broadcast did not come");
                got = nic
                    .receive(8, |frame| assert_eq!(frame.get::<2>(12), [0x55; 2]))
                    .expect("received");
                std::thread::yield_now();
            }
            assert_eq!(got, 1);
        }
        let host = fabric.host().expect("it is in this process");
        assert!(
            host.counters()
                .iter()
                .any(|s| s.name == "n2" && s.get("rx_frames") == 1)
        );
    }
}
