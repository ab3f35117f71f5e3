//! What runs at both ends of a stream: in the guests and on the host, as a process of its own.
//!
//! Senders and receivers are what the papers had: a loop around one system call for each packet, `netperf`'s streams
//! and its request and response of one byte. A server waits at each end; a client prints one line of JSON.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use serde_json::json;

use crate::error::{Error, Result};

/// Datagrams to this port are counted.
pub const SINK: u16 = 7000;
/// TCP: what is wanted is said by the first byte.
pub const CONTROL: u16 = 7001;
/// Datagrams to this port are sent back.
pub const ECHO: u16 = 7002;

/// Everything sent is read; then the length is answered.
const SWALLOW: u8 = b's';
/// Byte by byte.
const ANSWER: u8 = b'e';
/// The number of datagrams counted so far is answered.
const COUNT: u8 = b'c';

/// How long a peer may be busy with something else before a client gives up.
const PATIENCE: Duration = Duration::from_secs(20);

/// The most round trips that are kept one by one.
const KEPT: usize = 2000;

/// One end of a stream; the modules start it.
#[derive(Debug, Parser)]
pub struct Work {
    #[command(subcommand)]
    kind: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Waits for the others.
    Serve,
    /// Datagrams as fast as they go, or at a rate.
    Blast {
        #[arg(long)]
        to: std::net::IpAddr,
        #[arg(long)]
        payload: usize,
        #[arg(long)]
        seconds: f64,
        #[arg(long)]
        pps: Option<f64>,
    },
    /// TCP in writes of a size.
    Stream {
        #[arg(long)]
        to: std::net::IpAddr,
        #[arg(long)]
        write: usize,
        #[arg(long)]
        seconds: f64,
    },
    /// Requests and responses of one byte over TCP.
    Rr {
        #[arg(long)]
        to: std::net::IpAddr,
        #[arg(long)]
        seconds: f64,
    },
    /// Round trips of datagrams at a rate.
    Echo {
        #[arg(long)]
        to: std::net::IpAddr,
        #[arg(long)]
        pps: f64,
        #[arg(long)]
        seconds: f64,
    },
    /// The number of datagrams a server has counted.
    Count {
        #[arg(long)]
        to: std::net::IpAddr,
    },
}

/// Does it.
///
/// # Errors
/// When a socket fails.
pub fn run(work: &Work) -> Result<()> {
    let answer = match work.kind {
        Role::Serve => return listen(),
        Role::Blast {
            to,
            payload,
            seconds,
            pps,
        } => blast(
            (to, SINK).into(),
            (to, CONTROL).into(),
            payload,
            seconds,
            pps,
        ),
        Role::Stream { to, write, seconds } => stream((to, CONTROL).into(), write, seconds),
        Role::Rr { to, seconds } => request_response((to, CONTROL).into(), seconds),
        Role::Echo { to, pps, seconds } => round_trips((to, ECHO).into(), pps, seconds),
        Role::Count { to } => count((to, CONTROL).into()).map(|n| json!({"received": n})),
    };
    println!("{}", answer.map_err(Error::io("exchange packets"))?);
    Ok(())
}

fn listen() -> Result<()> {
    let make = |port: u16| {
        UdpSocket::bind(("0.0.0.0", port)).map_err(Error::io(format!("bind UDP {port}")))
    };
    let (sink, echo) = (make(SINK)?, make(ECHO)?);
    let control =
        TcpListener::bind(("0.0.0.0", CONTROL)).map_err(Error::io("listen for clients"))?;
    println!("serving");
    serve(sink, echo, &control);
    Ok(())
}

fn serve(sink: UdpSocket, echo: UdpSocket, control: &TcpListener) {
    let counted = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&counted);
    std::thread::spawn(move || {
        let mut room = [0; 2048];
        loop {
            if sink.recv(&mut room).is_ok() {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    std::thread::spawn(move || {
        let mut room = [0; 2048];
        loop {
            if let Ok((length, from)) = echo.recv_from(&mut room) {
                // What its sender has no room for is lost, as on any network.
                let _ = echo.send_to(&room[..length], from);
            }
        }
    });
    for client in control.incoming().flatten() {
        let counted = Arc::clone(&counted);
        // A client that goes away in the middle is its own trouble.
        std::thread::spawn(move || drop(attend(client, &counted)));
    }
}

fn attend(mut client: TcpStream, counted: &AtomicU64) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    let mut wish = [0];
    client.read_exact(&mut wish)?;
    match wish[0] {
        SWALLOW => {
            let (mut room, mut sum) = (vec![0; 65536], 0_u64);
            loop {
                match client.read(&mut room)? {
                    0 => return client.write_all(&sum.to_le_bytes()),
                    n => sum += n as u64,
                }
            }
        }
        ANSWER => {
            let mut byte = [0];
            while client.read(&mut byte)? == 1 {
                client.write_all(&byte)?;
            }
            Ok(())
        }
        COUNT => client.write_all(&counted.load(Ordering::Relaxed).to_le_bytes()),
        _ => Ok(()),
    }
}

fn ask(to: SocketAddr, wish: u8) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&[wish])?;
    Ok(stream)
}

fn number(stream: &mut TcpStream) -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn count(to: SocketAddr) -> std::io::Result<u64> {
    number(&mut ask(to, COUNT)?)
}

/// Waits for the moment of packet `sent`, giving way to others; false when time is up.
fn paced(start: Instant, until: Instant, sent: u64, pps: Option<f64>) -> bool {
    match pps {
        // The clock need not be asked for every packet.
        None => !sent.is_multiple_of(16) || Instant::now() < until,
        Some(pps) => {
            let due = start + Duration::from_secs_f64(sent as f64 / pps);
            while Instant::now() < due.min(until) {
                std::thread::yield_now();
            }
            due < until && Instant::now() < until
        }
    }
}

fn blast(
    to: SocketAddr,
    control: SocketAddr,
    payload: usize,
    seconds: f64,
    pps: Option<f64>,
) -> std::io::Result<serde_json::Value> {
    let before = count(control)?;
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(to)?;
    let content = vec![0x5a; payload];
    let start = Instant::now();
    let until = start + Duration::from_secs_f64(seconds);
    let (mut sent, mut refused) = (0_u64, 0_u64);
    while paced(start, until, sent + refused, pps) {
        match socket.send(&content) {
            Ok(_) => sent += 1,
            Err(_) => refused += 1,
        }
    }
    let took = start.elapsed().as_secs_f64();
    // What is still queued arrives in a moment.
    std::thread::sleep(Duration::from_millis(50));
    let received = count(control)?.saturating_sub(before);
    Ok(json!({"sent": sent, "refused": refused, "seconds": took, "received": received}))
}

fn stream(to: SocketAddr, write: usize, seconds: f64) -> std::io::Result<serde_json::Value> {
    let mut stream = ask(to, SWALLOW)?;
    // As `netperf` leaves it: small writes may wait for company.
    stream.set_nodelay(false)?;
    let content = vec![0x5a; write.max(1)];
    let start = Instant::now();
    let until = start + Duration::from_secs_f64(seconds);
    while Instant::now() < until {
        stream.write_all(&content)?;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    let bytes = number(&mut stream)?;
    Ok(json!({"bytes": bytes, "seconds": start.elapsed().as_secs_f64()}))
}

fn request_response(to: SocketAddr, seconds: f64) -> std::io::Result<serde_json::Value> {
    let mut stream = ask(to, ANSWER)?;
    let start = Instant::now();
    let until = start + Duration::from_secs_f64(seconds);
    let (mut byte, mut done) = ([0x5a], 0_u64);
    while Instant::now() < until {
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)?;
        done += 1;
    }
    Ok(json!({"transactions": done, "seconds": start.elapsed().as_secs_f64()}))
}

fn round_trips(to: SocketAddr, pps: f64, seconds: f64) -> std::io::Result<serde_json::Value> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(Duration::from_millis(200)))?;
    let start = Instant::now();
    let until = start + Duration::from_secs_f64(seconds);
    let late = until + Duration::from_millis(300);
    let times = Mutex::new(Vec::new());
    let mut sent = 0_u64;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut room = [0; 64];
            while Instant::now() < late {
                if socket.recv(&mut room).is_ok_and(|n| n >= 8) {
                    let left = u64::from_le_bytes(room[..8].try_into().unwrap_or_default());
                    let now = start.elapsed().as_nanos() as u64;
                    let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
                    times.push(now.saturating_sub(left) as f64 / 1e3);
                }
            }
        });
        let mut content = [0; 18];
        while paced(start, until, sent, Some(pps)) {
            content[..8].copy_from_slice(&(start.elapsed().as_nanos() as u64).to_le_bytes());
            // A full queue is a frame lost.
            let _ = socket.send(&content);
            sent += 1;
        }
    });
    let times = times.into_inner().unwrap_or_else(PoisonError::into_inner);
    let step = times.len().div_ceil(KEPT).max(1);
    let kept: Vec<f64> = times.iter().copied().step_by(step).collect();
    Ok(json!({"sent": sent, "answered": times.len(), "us": kept, "seconds": seconds}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_gets_its_answer_from_a_server() {
        let here = "127.0.0.1:0";
        let (sink, echo) = (
            UdpSocket::bind(here).unwrap(),
            UdpSocket::bind(here).unwrap(),
        );
        let listener = TcpListener::bind(here).unwrap();
        let (to_sink, to_echo) = (sink.local_addr().unwrap(), echo.local_addr().unwrap());
        let control = listener.local_addr().unwrap();
        std::thread::spawn(move || serve(sink, echo, &listener));
        let sent = blast(to_sink, control, 18, 0.05, Some(2000.0)).unwrap();
        let (packets, came) = (
            sent["sent"].as_u64().unwrap(),
            sent["received"].as_u64().unwrap(),
        );
        assert!((1..=100).contains(&packets), "{sent}");
        assert!((1..=packets).contains(&came), "{sent}");
        let streamed = stream(control, 1460, 0.05).unwrap();
        assert_eq!(streamed["bytes"].as_u64().unwrap() % 1460, 0);
        assert!(streamed["bytes"].as_u64().unwrap() > 0);
        let rr = request_response(control, 0.05).unwrap();
        assert!(rr["transactions"].as_u64().unwrap() > 0);
        let echo = round_trips(to_echo, 500.0, 0.05).unwrap();
        assert!(!echo["us"].as_array().unwrap().is_empty(), "{echo}");
        assert!(echo["answered"].as_u64().unwrap() <= echo["sent"].as_u64().unwrap());
    }
}
