//! Services on the host that guests reach through their network.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use rig::Rig;

use crate::LONG;
use crate::error::{Error, Result};

/// An HTTP server on the host's loopback address that answers every GET with one content and keeps what is
/// POSTed. It lives as long as the process.
#[derive(Debug)]
pub struct Http {
    /// Its TCP port.
    pub port: u16,
    posted: std::sync::mpsc::Receiver<Vec<u8>>,
}

impl Http {
    /// Starts serving `content`.
    ///
    /// # Errors
    /// When no port is to be had.
    pub fn serve(content: impl Into<Vec<u8>>) -> Result<Self> {
        let content = content.into();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::io("listen on 127.0.0.1"))?;
        let port = listener.local_addr().map_err(Error::io("listen on 127.0.0.1"))?.port();
        let (keep, posted) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that gives up is no concern of the next one.
                if let Ok(Some(body)) = answer(stream, &content) {
                    let _ = keep.send(body);
                }
            }
        });
        Ok(Self { port, posted })
    }

    /// The next body that was POSTed.
    ///
    /// # Errors
    /// When none comes.
    pub fn posted(&self) -> Result<Vec<u8>> {
        self.posted.recv_timeout(LONG).map_err(|_| Error::check("nothing was POSTed to the host"))
    }
}

/// Serves one request; returns the body of a POST.
fn answer(mut stream: TcpStream, content: &[u8]) -> std::io::Result<Option<Vec<u8>>> {
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.set_write_timeout(Some(Duration::from_secs(60)))?;
    let mut request = Vec::new();
    let mut chunk = [0; 65536];
    let head = loop {
        let end = request.windows(4).position(|w| w == b"\r\n\r\n");
        if let Some(end) = end {
            break end + 4;
        }
        match stream.read(&mut chunk)? {
            0 => return Ok(None),
            n => request.extend_from_slice(&chunk[..n]),
        }
    };
    let text = String::from_utf8_lossy(&request[..head]).into_owned();
    let mut body = None;
    if text.starts_with("POST") {
        let length = text.lines().find_map(|l| {
            let (name, value) = l.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
        });
        let length = length.unwrap_or(0);
        while request.len() < head + length {
            match stream.read(&mut chunk)? {
                0 => return Ok(None),
                n => request.extend_from_slice(&chunk[..n]),
            }
        }
        body = Some(request[head..head + length].to_vec());
    }
    let content: &[u8] = if body.is_some() { b"" } else { content };
    let length = content.len();
    write!(stream, "HTTP/1.0 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")?;
    stream.write_all(content)?;
    stream.shutdown(std::net::Shutdown::Write)?;
    Ok(body)
}

/// An iperf3 server on a free port of the host's loopback address, taken from the rig's root. Dropping it kills it.
///
/// # Errors
/// When it does not start.
pub fn iperf3_server(rig: &Rig, log: &Path) -> Result<(rig::Daemon, u16)> {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::io("find a free port"))?;
    let port = free.local_addr().map_err(Error::io("find a free port"))?.port();
    drop(free);
    let words = rig.root().program("iperf3")?;
    let mut command = rig::Daemon::command(&words[0]);
    command.args(&words[1..]);
    command.args(["--server", "--bind", "127.0.0.1", "--forceflush", "--port", &port.to_string()]);
    let mut server = rig::Daemon::start("iperf3", command, log)?;
    server.expect("listening", LONG)?;
    Ok((server, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_served_and_posts_are_kept() {
        let http = Http::serve("content").unwrap();
        let ask = |request: &str| {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, http.port)).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        assert!(ask("GET / HTTP/1.0\r\n\r\n").ends_with("\r\n\r\ncontent"));
        assert!(ask("POST / HTTP/1.0\r\nContent-length: 4\r\n\r\nbody").contains("200 OK"));
        assert_eq!(http.posted().unwrap(), b"body");
    }
}
