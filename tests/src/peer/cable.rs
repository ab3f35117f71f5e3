//! One cable: frames over the Unix socket of a `stream:listen=` port, in QEMU's framing.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::patience::LONG;

/// Longer than any frame; what says it is longer is not in step.
const MOST: usize = 70_000;

/// The end of a cable that we hold. Dropping it pulls it.
#[derive(Debug)]
pub(super) struct Cable {
    stream: UnixStream,
}

impl Cable {
    /// Connects to the port and passes every frame that comes to `each`, on a thread that ends with the connection.
    pub(super) fn plug(
        socket: &Path,
        mut each: impl FnMut(Vec<u8>) -> bool + Send + 'static,
    ) -> Result<Self> {
        let deadline = Instant::now() + LONG;
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(_) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(e) => return Err(Error::io(format!("connect to {}", socket.display()))(e)),
            }
        };
        stream
            .set_write_timeout(Some(LONG))
            .map_err(Error::io("limit a write"))?;
        let mut reader = stream.try_clone().map_err(Error::io("share a socket"))?;
        std::thread::spawn(move || {
            while let Ok(frame) = read(&mut reader) {
                if !each(frame) {
                    return;
                }
            }
        });
        Ok(Self { stream })
    }

    /// Sends a frame. A cable whose other end is gone loses it.
    pub(super) fn send(&mut self, frame: &[u8]) {
        let Ok(length) = u32::try_from(frame.len()) else {
            return;
        };
        let mut bytes = Vec::with_capacity(4 + frame.len());
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(frame);
        let _ = self.stream.write_all(&bytes);
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

fn read(from: &mut UnixStream) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > MOST {
        return Err(std::io::ErrorKind::InvalidData.into());
    }
    let mut frame = vec![0; length];
    from.read_exact(&mut frame)?;
    Ok(frame)
}
