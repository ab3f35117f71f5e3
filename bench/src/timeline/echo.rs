//! The host's pings, each with the time at which it was sent and its answer came: `ping` prints differences only.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrV4, SocketType, ipproto, recv, sendto, socket,
};
use rustix::time::{ClockId, clock_gettime};

use crate::error::{Error, Result};

/// The command's name: the bench starts itself in the namespace.
pub const WORD: &str = "echoes";

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_millis(500);

/// ICMP's types.
const REQUEST: u8 = 8;
const REPLY: u8 = 0;
/// Bytes of an echo request here: its header, and as many as `ping` sends.
const LEN: usize = 64;

/// What it is told.
#[derive(Debug, clap::Parser)]
pub struct Echoes {
    /// The guest.
    #[arg(long)]
    to: Ipv4Addr,
    #[arg(long)]
    count: u16,
    /// Milliseconds between two requests.
    #[arg(long)]
    pause: u64,
}

/// Nanoseconds of the clock that the daemon's stamps are of.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Pings, and prints when each request left and its answer came.
///
/// # Errors
/// The kernel allows no such socket, or sends nothing.
pub fn run(told: &Echoes) -> Result<()> {
    let what = || format!("ping {}", told.to);
    let icmp = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP));
    let icmp = icmp.map_err(|e| Error::io(what())(e.into()))?;
    let patience = set_socket_timeout(&icmp, Timeout::Recv, Some(PATIENCE));
    patience.map_err(|e| Error::io(what())(e.into()))?;
    let to = SocketAddrV4::new(told.to, 0);
    let id = std::process::id() as u16;
    let mut pairs = Vec::new();
    for sequence in 0..told.count {
        let due = Instant::now() + Duration::from_millis(told.pause);
        let request = request(id, sequence);
        let sent = now();
        sendto(&icmp, &request, SendFlags::empty(), &to)
            .map_err(|e| Error::io(what())(e.into()))?;
        if let Some(came) = answer(&icmp, id, sequence) {
            pairs.push((sent, came));
        }
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    for (sent, came) in pairs {
        println!("{sent} {came}");
    }
    Ok(())
}

/// When the answer came, if it did.
fn answer(icmp: &OwnedFd, id: u16, sequence: u16) -> Option<u64> {
    let until = Instant::now() + PATIENCE;
    let mut room = [0; 256];
    while Instant::now() < until {
        let (length, _) = recv(icmp.as_fd(), &mut room[..], RecvFlags::empty()).ok()?;
        let came = now();
        // It comes with its IP header.
        let head = usize::from(room[0] & 15) * 4;
        let echo = room[..length].get(head..head + 8);
        let is_ours = |e: &[u8]| {
            let number = |at: usize| u16::from_be_bytes([e[at], e[at + 1]]);
            e[0] == REPLY && number(4) == id && number(6) == sequence
        };
        if echo.is_some_and(is_ours) {
            return Some(came);
        }
    }
    None
}

fn request(id: u16, sequence: u16) -> [u8; LEN] {
    let mut echo = [0; LEN];
    echo[0] = REQUEST;
    echo[4..6].copy_from_slice(&id.to_be_bytes());
    echo[6..8].copy_from_slice(&sequence.to_be_bytes());
    let words = echo.chunks_exact(2);
    let sum: u32 = words
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    echo[2..4].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    echo
}

/// The pairs that were printed.
pub fn parse(text: &str) -> Vec<(u64, u64)> {
    let pair = |line: &str| {
        let (sent, came) = line.split_once(' ')?;
        Some((sent.parse().ok()?, came.parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_checksum_that_makes_its_words_all_ones() {
        let words = request(0xabcd, 7);
        let sum = words.chunks_exact(2).fold(0_u32, |sum, w| {
            let sum = sum + u32::from(u16::from_be_bytes([w[0], w[1]]));
            (sum & 0xffff) + (sum >> 16)
        });
        assert_eq!(sum, 0xffff);
    }

    #[test]
    fn pairs_are_read_back() {
        assert_eq!(parse("1 20\n30 41\nbad\n"), [(1, 20), (30, 41)]);
    }
}
