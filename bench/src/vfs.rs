//! Two virtual functions of one 82576 with poll-mode guests, which send to each other inside the chip.

use std::path::Path;

use drivers::SocketBus;
use drivers::igbvf::{Poll, VfError};

use crate::error::{Error, Result};
use crate::fabric::{Bell, Fabric};
use crate::flow::{self, Stream, Streamed, Way};
use crate::{load, machine};

/// Two guests of one chip with frames ready in their buffers.
pub struct VfEnds {
    /// The daemon.
    pub fabric: Fabric,
    /// The guests.
    pub guests: [VfEnd; 2],
}

/// A guest at a VF, and where it sends.
pub struct VfEnd {
    /// Its driver.
    pub poll: Poll<SocketBus>,
    to: [u8; 6],
    size: u32,
}

/// What the VF's driver said, in this program's words.
pub fn gone(error: VfError) -> Error {
    Error::Tool {
        tool: "the VF's driver",
        what: error.to_string(),
    }
}

impl Way for VfEnd {
    #[inline]
    fn send(&mut self, burst: u32) -> Result<u32> {
        let to = self.to;
        self.poll.send(burst, self.size, |_| to).map_err(gone)
    }

    #[inline]
    fn receive(&mut self, most: u32) -> Result<u32> {
        self.poll.receive(most).map_err(gone)
    }
}

/// The file of a chip with two VFs.
fn file(dir: &Path, bell: Bell) -> String {
    let doorbell = match bell {
        Bell::Page => "page",
        Bell::Trap | Bell::Csb => "trap",
    };
    let path = dir.join("vf{}.sock");
    format!(
        "[[nic]]\nname = \"chip\"\nmodel = \"82576\"\nvfs = 2\nvf-socket-path = {path:?}\nport = \"null\"\n\
         doorbell = \"{doorbell}\"\n"
    )
}

impl VfEnds {
    /// Starts a daemon on the second processor and two guests with frames of `size` bytes.
    ///
    /// # Errors
    /// When they do not come up.
    pub fn start(hypernic: &Path, size: usize, ring: u32, bell: Bell) -> Result<Self> {
        let core = machine::cores().1;
        let fabric = Fabric::serve(hypernic, |dir| file(dir, bell), "vf1.sock", Some(core))?;
        let up = |number: usize| {
            let refused = |what: String| Error::Usage(format!("VF {number}: {what}"));
            let path = fabric.dir().join(format!("vf{number}.sock"));
            let bus = bell.connect(&path).map_err(|e| refused(e.to_string()))?;
            Poll::new(bus, ring).map_err(|e| refused(e.to_string()))
        };
        let mut polls = [up(0)?, up(1)?];
        let macs = polls.each_mut().map(|poll| poll.vf().mac());
        let mut others = [macs[1], macs[0]].into_iter();
        let guests = polls.map(|mut poll| {
            let (from, to) = (poll.vf().mac(), others.next().unwrap_or_default());
            poll.prepare(&load::frame(0, size, false, from, to));
            VfEnd {
                poll,
                to,
                size: size as u32,
            }
        });
        Ok(Self { fabric, guests })
    }

    /// Sends as fast as it goes, from a thread on the first processor.
    ///
    /// # Errors
    /// When a device is gone.
    pub fn run(&mut self, stream: Stream) -> Result<Streamed> {
        flow::run(&mut self.guests, stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_asks_for_pages_only_where_they_are_wanted() {
        let text = |bell| file(Path::new("/tmp"), bell);
        assert!(text(Bell::Page).contains("doorbell = \"page\""));
        assert!(text(Bell::Trap).contains("doorbell = \"trap\""));
        assert!(text(Bell::Page).contains("vf-socket-path = \"/tmp/vf{}.sock\"\n"));
    }
}
