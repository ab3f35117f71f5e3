//! Services on the host that guests reach through their network.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;

use rig::Rig;

use crate::error::{Error, Result};
use crate::patience::LONG;

/// An HTTP server on the host's loopback address that answers every request with one content. It lives as long as
/// the process.
#[derive(Debug)]
pub struct Http {
    /// Its TCP port.
    pub port: u16,
}

impl Http {
    /// Starts serving `content`.
    ///
    /// # Errors
    /// When no port is to be had.
    pub fn serve(content: impl Into<Vec<u8>>) -> Result<Self> {
        let content = content.into();
        let (listener, port) = listen()?;
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that gives up is no concern of the next one.
                let _ = answer(stream, &content);
            }
        });
        Ok(Self { port })
    }
}

fn listen() -> Result<(TcpListener, u16)> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::io("listen on 127.0.0.1"))?;
    let port = listener
        .local_addr()
        .map_err(Error::io("listen on 127.0.0.1"))?
        .port();
    Ok((listener, port))
}

/// Serves one request.
fn answer(mut stream: TcpStream, content: &[u8]) -> std::io::Result<()> {
    stream.set_read_timeout(Some(LONG))?;
    stream.set_write_timeout(Some(LONG))?;
    let mut request = Vec::new();
    let mut chunk = [0; 4096];
    while !request.windows(4).any(|w| w == b"\r\n\r\n") {
        match stream.read(&mut chunk)? {
            0 => return Ok(()),
            n => request.extend_from_slice(&chunk[..n]),
        }
    }
    let length = content.len();
    write!(
        stream,
        "HTTP/1.0 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )?;
    stream.write_all(content)?;
    stream.shutdown(std::net::Shutdown::Write)
}

/// Takes one TCP connection on the host's loopback address and keeps what comes over it.
#[derive(Debug)]
pub struct Inbox {
    /// Its TCP port.
    pub port: u16,
    content: std::sync::mpsc::Receiver<Vec<u8>>,
}

impl Inbox {
    /// Starts listening.
    ///
    /// # Errors
    /// When no port is to be had.
    pub fn open() -> Result<Self> {
        let (listener, port) = listen()?;
        let (keep, content) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let read = listener
                .accept()
                .and_then(|(mut stream, _)| stream.read_to_end(&mut bytes));
            if read.is_ok() {
                let _ = keep.send(bytes);
            }
        });
        Ok(Self { port, content })
    }

    /// All that came, once the sender has closed the connection.
    ///
    /// # Errors
    /// When no client connects, or the connection breaks.
    pub fn content(&self) -> Result<Vec<u8>> {
        self.content
            .recv_timeout(LONG)
            .map_err(|_| Error::check("the host did not get a whole transfer"))
    }
}

/// Endless TCP on the host's loopback address, for any number of clients. A client of `source` receives bytes for as
/// long as it takes them, and `sink` takes all that a client sends. No client can hold up the next one by dying.
#[derive(Debug)]
pub struct Pump {
    /// The port that sends.
    pub source: u16,
    /// The port that receives.
    pub sink: u16,
}

impl Pump {
    /// Starts both.
    ///
    /// # Errors
    /// When no port is to be had.
    pub fn start() -> Result<Self> {
        fn each(with: impl Fn(TcpStream) + Copy + Send + 'static) -> Result<u16> {
            let (listener, port) = listen()?;
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    std::thread::spawn(move || with(stream));
                }
            });
            Ok(port)
        }
        let source = each(|mut stream| while stream.write_all(&[0x5a; 65536]).is_ok() {})?;
        let sink = each(|mut stream| while matches!(stream.read(&mut [0; 65536]), Ok(1..)) {})?;
        Ok(Self { source, sink })
    }
}

/// An iperf3 server on a free port of the host's loopback address, taken from the rig's root. Dropping it kills it.
///
/// # Errors
/// When it does not start.
pub fn serve_iperf3(rig: &Rig, log: &Path) -> Result<(rig::Daemon, u16)> {
    let (_, port) = listen()?;
    let words = rig.root().program("iperf3")?;
    let mut command = rig::Daemon::command(&words[0]);
    command.args(&words[1..]);
    command.args([
        "--server",
        "--bind",
        "127.0.0.1",
        "--forceflush",
        "--port",
        &port.to_string(),
    ]);
    let mut server = rig::Daemon::start("iperf3", command, log)?;
    server.expect("listening", LONG)?;
    Ok((server, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_goes_out_and_comes_in() {
        let connect = |port| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let http = Http::serve("content").unwrap();
        for _ in 0..2 {
            let mut stream = connect(http.port);
            stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.ends_with("\r\n\r\ncontent"));
        }
        let inbox = Inbox::open().unwrap();
        connect(inbox.port).write_all(b"\0bytes").unwrap();
        assert_eq!(inbox.content().unwrap(), b"\0bytes");
        let pump = Pump::start().unwrap();
        connect(pump.sink).write_all(&[1; 200_000]).unwrap();
        let (mut one, mut other) = (connect(pump.source), connect(pump.source));
        let mut bytes = [0; 200_000];
        one.read_exact(&mut bytes).unwrap();
        other.read_exact(&mut bytes).unwrap();
    }
}
