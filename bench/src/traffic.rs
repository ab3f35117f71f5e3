//! What a real guest sends and receives, and what it finds.

use std::ffi::OsStr;
use std::process::Command;
use std::time::Duration;

use rig::Guest;
use serde_json::Value;

use crate::error::{Error, Result};

/// The UDP port that small packets for the guest go to.
const SINK_PORT: u16 = 67;

/// Payload of a small datagram: with all headers the smallest Ethernet frame, 60 bytes without its checksum.
pub const SMALL: usize = 18;

/// The round trips that `ping` prints, in microseconds.
///
/// # Errors
/// More than a tenth of `count` is missing.
pub fn round_trips(text: &str, count: usize) -> Result<Vec<f64>> {
    let times = text.lines().filter_map(|line| {
        let (_, time) = line.split_once("time=")?;
        time.split(' ').next()?.parse::<f64>().ok()
    });
    let times: Vec<f64> = times.map(|ms| (ms * 1000.0).round()).collect();
    if times.len() < count * 9 / 10 {
        return Err(Error::tool("ping", text));
    }
    Ok(times)
}

/// Has the guest ping `host` every 10 ms; gives what `ping` prints.
///
/// # Errors
/// The guest does not answer.
pub fn ping(guest: &Guest, host: &str, count: usize) -> Result<String> {
    // By way of a file: the command port is a device too.
    Ok(guest.run(&format!(
        "ping -n -c {count} -i 0.01 {host} >/tmp/ping; cat /tmp/ping"
    ))?)
}

/// Runs iperf3 in the guest; gives its answer. `begins` is called before each try.
///
/// # Errors
/// iperf3 fails, or the server is not free in time.
pub fn iperf(guest: &Guest, host: &str, options: &str, mut begins: impl FnMut()) -> Result<Value> {
    let command = format!("iperf3 -c {host} {options} -J >/tmp/iperf; cat /tmp/iperf");
    let mut text = String::new();
    // The server takes a moment to be free again after the last client.
    for _ in 0..5 {
        begins();
        text = guest.run(&command)?;
        if let Ok(answer) = serde_json::from_str::<Value>(&text)
            && answer["error"].is_null()
        {
            return Ok(answer);
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    Err(Error::tool("iperf3", &text))
}

/// Frames of 60 bytes that the kernel's packet generator sends in a second: what the driver and the NIC do without sockets.
/// They go to an address that no host has, so that the host drops them at once.
///
/// # Errors
/// pktgen fails.
pub fn pktgen(guest: &Guest, interface: &str, host: &str, count: u64) -> Result<f64> {
    let text = guest.run(&format!(
        "p() {{ echo \"$2\" >/proc/net/pktgen/$1; }}\n\
         p kpktgend_0 rem_device_all; p kpktgend_0 'add_device {interface}'; p {interface} 'count {count}'\n\
         p {interface} 'clone_skb 0'; p {interface} 'pkt_size 60'; p {interface} 'delay 0'\n\
         p {interface} 'dst {host}'; p {interface} 'dst_mac 02:00:00:00:00:77'; p pgctrl start\n\
         cat /proc/net/pktgen/{interface}"
    ))?;
    let rate = text
        .split_whitespace()
        .find_map(|word| word.strip_suffix("pps")?.parse().ok());
    rate.ok_or_else(|| Error::tool("pktgen", &text))
}

/// Offers small datagrams to the guest at `to`; gives how many per second its UDP saw, and how many were really offered.
/// `command` runs a program where the guest's network is.
///
/// # Errors
/// The sender fails.
pub fn flood(
    guest: &Guest,
    command: impl FnOnce(&OsStr) -> Command,
    to: &str,
    (pps, seconds): (f64, f64),
) -> Result<(f64, f64)> {
    // Delivered, no such port, and refused by the full socket of the sink: all came up through the NIC.
    let seen = || -> Result<u64> {
        let text = guest.run("grep Udp: /proc/net/snmp | tail -1")?;
        let values = text
            .split_whitespace()
            .filter_map(|v| v.parse::<u64>().ok());
        Ok(values.take(3).sum())
    };
    let before = seen()?;
    let program = std::env::current_exe().map_err(Error::io("find this program"))?;
    let out = command(program.as_os_str())
        .args(["send", "--to", &format!("{to}:{SINK_PORT}")])
        .args(["--payload", &SMALL.to_string()])
        .args(["--pps", &pps.to_string()])
        .args(["--seconds", &seconds.to_string()])
        .output()
        .map_err(Error::io("run the sender"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    let answer: Value = serde_json::from_str(&text).map_err(|_| {
        let words = format!("{text}{}", String::from_utf8_lossy(&out.stderr));
        Error::tool("send", &words)
    })?;
    // What is still queued arrives in a moment.
    std::thread::sleep(Duration::from_millis(100));
    let received = seen()? - before;
    let took = answer["seconds"].as_f64().unwrap_or(seconds);
    let sent = answer["sent"].as_f64().unwrap_or(0.0);
    Ok((received as f64 / took, sent / took))
}
