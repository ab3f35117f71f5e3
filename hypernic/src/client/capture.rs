//! `hypernic capture`: what passes a NIC, as pcapng.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use clap::Args;
use control::{CaptureList, CaptureStart, Captures, Client};
use program::LogFormat;
use rustix::event::{PollFd, PollFlags, poll};

use super::place::{Place, Printed, with};
use crate::error::Error;

/// `hypernic capture`.
#[derive(Args, Debug)]
pub struct CaptureCommand {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    printed: Printed,
    /// The NIC; with --drops also a port of a switch, as lan/tap:vm0.
    #[arg(required_unless_present = "list")]
    nic: Option<String>,
    /// Where the frames go, as pcapng; - is standard output.
    #[arg(short, long, value_name = "FILE", required_unless_present = "list")]
    write: Option<PathBuf>,
    /// Bytes of each frame; all without.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    snaplen: Option<u32>,
    /// Only frames from and for it that it, its switch or its own port loses, each with the reason as a comment.
    #[arg(long)]
    drops: bool,
    /// Show who captures.
    #[arg(long, conflicts_with_all = ["nic", "write", "snaplen", "drops"])]
    list: bool,
}

impl CaptureCommand {
    /// Captures until it is interrupted, or the reader or the NIC goes. Returns what there is to be read.
    ///
    /// # Errors
    /// A daemon that is not there, or refuses; a file that cannot be written.
    pub fn execute(self, format: LogFormat) -> Result<String, Error> {
        let (Some(nic), Some(file)) = (self.nic, self.write) else {
            let reply = self.place.ask(&CaptureList {})?;
            return Ok(self.printed.show(format, &reply, table));
        };
        let call = CaptureStart {
            nic,
            snaplen: self.snaplen,
            drops: Some(self.drops),
        };
        // The daemon is asked first: a mistyped name makes no file.
        let stream = begin(&self.place, &call)?;
        let output = open(&file)?;
        pass_on(stream, output, &file)?;
        Ok(String::new())
    }
}

/// What has come already, and the rest.
pub(crate) type Begun = (Vec<u8>, UnixStream);

/// Has the daemon begin.
pub(crate) fn begin(place: &Place, call: &CaptureStart) -> Result<Begun, Error> {
    let client: Client = place.connect()?;
    with(client.upgrade(call))
}

fn refused(file: &Path, error: &io::Error) -> Error {
    Error::Host(format!("cannot write {}: {error}", file.display()))
}

/// The file, for its owner alone; a pipe as it is.
pub(crate) fn open(file: &Path) -> Result<File, Error> {
    if file == Path::new("-") {
        let output = io::stdout().as_fd().try_clone_to_owned();
        return output
            .map(File::from)
            .map_err(|error| refused(file, &error));
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(file).map_err(|error| refused(file, &error))
}

/// Writes what comes until one side ends.
pub(crate) fn pass_on((begin, mut stream): Begun, output: File, file: &Path) -> Result<(), Error> {
    let mut part = vec![0; 256 << 10];
    let write = |bytes: &[u8]| match (&output).write_all(bytes) {
        Ok(()) => Ok(true),
        // Its reader has what it wants.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(refused(file, &error)),
    };
    if !write(&begin)? {
        return Ok(());
    }
    loop {
        // While nothing comes, the reader may go.
        let mut fds = [
            PollFd::new(&stream, PollFlags::IN),
            PollFd::new(&output, PollFlags::empty()),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(refused(file, &errno.into())),
        }
        if fds[1].revents().intersects(PollFlags::ERR | PollFlags::HUP) {
            return Ok(());
        }
        if fds[0].revents().is_empty() {
            continue;
        }
        match stream.read(&mut part) {
            Ok(0) => return Ok(()),
            Ok(n) => {
                if !write(&part[..n])? {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Ok(()),
        }
    }
}

fn table(captures: &Captures) -> String {
    let mut text = String::new();
    for one in &captures.captures {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{}: user {}, process {}, {} s; {} frames, {} missed",
            one.nic, one.uid, one.pid, one.seconds, one.frames, one.missed
        );
    }
    text
}
