//! A paced sender of small UDP datagrams: the offered load of receive measurements.
//!
//! It runs as a process of its own in the bench's namespace and prints one line of JSON.

use std::io::IoSlice;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};
use serde_json::json;

use crate::error::{Error, Result};

/// Datagrams in one system call.
const BATCH: usize = 64;

/// The sender wakes this often; what is due by then goes out at once.
const TICK: Duration = Duration::from_millis(1);

/// Sends datagrams of `payload` bytes to `to` (`ADDRESS:PORT`) at `pps` per second for `seconds`, and prints what
/// was sent. Datagrams the host refuses (its own queues full) count as offered but not as sent.
///
/// # Errors
/// When there is no socket to be had.
pub fn run(to: &str, payload: usize, pps: f64, seconds: f64) -> Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0").map_err(Error::io("make a UDP socket"))?;
    socket
        .connect(to)
        .map_err(Error::io(format!("send to {to}")))?;
    let content = vec![0x5a; payload];
    let start = Instant::now();
    let (mut sent, mut refused) = (0_u64, 0_u64);
    loop {
        let at = start.elapsed().as_secs_f64();
        if at >= seconds {
            break;
        }
        let mut due = (at * pps) as u64 - (sent + refused).min((at * pps) as u64);
        if due == 0 {
            std::thread::sleep(TICK);
            continue;
        }
        // A sender that was not run for a while must not answer with one endless burst.
        while due > 0 && start.elapsed().as_secs_f64() < seconds {
            let count = due.min(BATCH as u64) as usize;
            match burst(&socket, &content, count) {
                Ok(done) => {
                    sent += done as u64;
                    due -= done as u64;
                }
                Err(_) => {
                    refused += 1;
                    due -= 1;
                }
            }
        }
    }
    let line = json!({"sent": sent, "refused": refused, "seconds": start.elapsed().as_secs_f64()});
    println!("{line}");
    Ok(())
}

fn burst(socket: &UdpSocket, content: &[u8], count: usize) -> rustix::io::Result<usize> {
    let parts = [IoSlice::new(content)];
    let mut controls: [SendAncillaryBuffer<'_, '_, '_>; BATCH] =
        std::array::from_fn(|_| SendAncillaryBuffer::default());
    let mut messages: Vec<_> = controls[..count]
        .iter_mut()
        .map(|control| MMsgHdr::new(&parts, control))
        .collect();
    sendmmsg(socket, &mut messages, SendFlags::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_sends_what_is_due_and_no_more() {
        let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
        sink.set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let to = sink.local_addr().unwrap().to_string();
        run(&to, 18, 2_000.0, 0.05).unwrap();
        let mut room = [0; 64];
        assert_eq!(sink.recv(&mut room).unwrap(), 18);
        sink.set_nonblocking(true).unwrap();
        let rest = std::iter::from_fn(|| sink.recv(&mut room).ok()).count();
        assert!(rest < 100, "{rest} more than the 100 due in 50 ms");
    }
}
