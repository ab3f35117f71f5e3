//! What tests do with guests on the NIC under test.

use rig::{Guest, Job};

use crate::error::{Error, Result};
use crate::host::{Http, Inbox};
use crate::measure::{self, Ping, iperf3_mbits};
use crate::patience::LONG;

/// The user network's host (libslirp's default).
pub const GATEWAY: &str = "10.0.2.2";

/// A guest's NIC that has an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The interface, such as `eth0`.
    pub interface: String,
    /// Its IPv4 address.
    pub address: String,
}

/// Loads the stock driver and waits for the interface with this MAC.
///
/// # Errors
/// When the driver does not load or bind.
pub fn load_driver(guest: &Guest, mac: &str) -> Result<String> {
    load(guest, "e1000", mac)
}

/// As [`load_driver`], with this stock driver.
///
/// # Errors
/// When it does not load or bind.
pub fn load(guest: &Guest, driver: &str, mac: &str) -> Result<String> {
    guest.run(&format!("mp {driver}"))?;
    Ok(guest.interface(mac, LONG)?)
}

/// Loads the stock driver and gets an address by DHCP.
///
/// # Errors
/// When either fails.
pub fn bring_up(guest: &Guest, mac: &str) -> Result<Link> {
    bring_up_with(guest, "e1000", mac)
}

/// As [`bring_up`], with this stock driver.
///
/// # Errors
/// When either fails.
pub fn bring_up_with(guest: &Guest, driver: &str, mac: &str) -> Result<Link> {
    let interface = load(guest, driver, mac)?;
    let address = dhcp(guest, &interface)?;
    Ok(Link { interface, address })
}

/// Loads the stock driver and sets an address by hand (`10.9.0.2/24`).
///
/// # Errors
/// When the driver does not bind or the link does not come up.
pub fn bring_up_static(guest: &Guest, mac: &str, address: &str) -> Result<Link> {
    bring_up_static_with(guest, "e1000", mac, address)
}

/// As [`bring_up_static`], with this stock driver.
///
/// # Errors
/// As that.
pub fn bring_up_static_with(guest: &Guest, driver: &str, mac: &str, address: &str) -> Result<Link> {
    let interface = load(guest, driver, mac)?;
    guest.run(&format!(
        "ip addr add {address} dev {interface}; ip link set {interface} up"
    ))?;
    wait_carrier(guest, &interface, true)?;
    let address = address.split('/').next().unwrap_or(address).to_owned();
    Ok(Link { interface, address })
}

/// Gets an address by DHCP and returns it.
///
/// # Errors
/// When there is no answer.
pub fn dhcp(guest: &Guest, interface: &str) -> Result<String> {
    let lease = guest.run(&format!("dhcp {interface}"))?;
    let word = lease
        .lines()
        .find_map(|line| line.strip_prefix("lease ")?.split('/').next());
    word.map(str::to_owned)
        .ok_or_else(|| Error::check(format!("no lease in:\n{lease}")))
}

/// Waits until the interface's link is up, or down.
///
/// # Errors
/// When it does not become so.
pub fn wait_carrier(guest: &Guest, interface: &str, up: bool) -> Result<()> {
    let wanted = u8::from(up);
    let condition = format!("[ \"$(cat /sys/class/net/{interface}/carrier)\" = {wanted} ]");
    Ok(guest.wait_for(&condition, LONG)?)
}

/// Sends `count` pings, 20 ms apart, and waits 5 s for the answers.
///
/// With a count alone, ping waits for the last answers no longer than two round trips, and takes those of a
/// guest that has to wait for a processor for lost. With a deadline it waits, but sends further ones meanwhile.
///
/// # Errors
/// When ping cannot run. Loss is in the result.
pub fn ping(guest: &Guest, to: &str, count: u32) -> Result<Ping> {
    let deadline = 5 + count / 50;
    let output = guest.sh(&format!("ping -n -c {count} -i 0.02 -w {deadline} {to}"))?;
    Ok(Ping {
        sent: count,
        received: measure::answered(&output.text, count),
        ..Ping::parse(&output.text)?
    })
}

/// What the driver's own test says (`ethtool -t … offline`). It times its loopback by the guest's clock, 200 ms for all frames
/// (13) and two ticks for looking at them (14), in which a busy machine may not run the guest at all: so it has three tries for that.
///
/// # Errors
/// The guest does not answer.
///
/// # Panics
/// The driver is late with its loopback each time.
pub fn self_test(guest: &Guest, interface: &str) -> Result<String> {
    let test = format!("ethtool -t {interface} offline || true");
    for _ in 0..3 {
        let told = guest.run_within(&test, 4 * LONG)?;
        println!("{told}");
        let late = |code: u32| told.contains(&format!("Loopback test  (offline)\t {code}\n"));
        if !(late(13) || late(14)) {
            return Ok(told);
        }
    }
    panic!("no loopback in time within three tries");
}

/// Sends `count` pings of which none may be lost.
///
/// # Errors
/// When one is.
pub fn ping_all(guest: &Guest, to: &str, count: u32) -> Result<Ping> {
    let result = ping(guest, to, count)?;
    if result.received == count {
        return Ok(result);
    }
    Err(Error::check(format!(
        "{} -> {to}: {} of {count} pings answered",
        guest.name(),
        result.received
    )))
}

/// The TCP direction of an iperf3 run, seen from the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The guest sends.
    Out,
    /// The guest receives.
    In,
}

/// Moves some MiB of TCP between a guest and an iperf3 server; returns Mbit/s.
///
/// # Errors
/// When the run fails.
pub fn tcp(
    guest: &Guest,
    to: &str,
    port: u16,
    mebibytes: u32,
    direction: Direction,
) -> Result<f64> {
    let reverse = if direction == Direction::In { "-R" } else { "" };
    let command = format!("iperf3 -c {to} -p {port} -n {mebibytes}M -J {reverse}");
    let output = guest.sh_within(&command, 2 * LONG)?;
    iperf3_mbits(&output.text)
}

/// Starts an iperf3 server in a guest, on iperf3's usual port, for any number of runs.
///
/// # Errors
/// When it does not listen.
pub fn serve_iperf3(guest: &Guest) -> Result<u16> {
    guest.run("iperf3 -s -D >/dev/null 2>&1")?;
    wait_listening(guest, 5201)?;
    Ok(5201)
}

/// Waits until something in the guest listens on a TCP port.
///
/// # Errors
/// When nothing does.
pub fn wait_listening(guest: &Guest, port: u16) -> Result<()> {
    // State 0A is LISTEN.
    let condition =
        format!("grep -qs ':{port:04X} [0-9A-F]*:0000 0A' /proc/net/tcp /proc/net/tcp6");
    Ok(guest.wait_for(&condition, LONG)?)
}

/// Makes a file of random bytes in a guest and serves its folder by HTTP on port 80; returns its SHA-256.
///
/// # Errors
/// When the server does not start.
pub fn serve_random_file(guest: &Guest, megabytes: u32) -> Result<String> {
    let bytes = u64::from(megabytes) << 20;
    guest.run(&format!(
        "mkdir -p /tmp/www; head -c {bytes} /dev/urandom > /tmp/www/file"
    ))?;
    guest.run("busybox httpd -p 80 -h /tmp/www")?;
    wait_listening(guest, 80)?;
    sha256(guest, "/tmp/www/file")
}

/// The SHA-256 of a file in a guest.
///
/// # Errors
/// When there is no such file.
pub fn sha256(guest: &Guest, path: &str) -> Result<String> {
    let text = guest.run(&format!("sha256sum '{path}'"))?;
    let sum = text.split_whitespace().next().unwrap_or_default();
    Ok(sum.to_owned())
}

/// Sends `content` from the host into a guest and back, through the guest's own user network and two TCP
/// connections, and compares it.
///
/// # Errors
/// When a transfer fails or a byte changed.
pub fn round_trip(guest: &Guest, content: &[u8]) -> Result<()> {
    let http = Http::serve(content)?;
    let inbox = Inbox::open()?;
    guest.run(&format!(
        "wget -q -O /tmp/trip http://{GATEWAY}:{}/",
        http.port
    ))?;
    guest.run(&format!("nc {GATEWAY} {} < /tmp/trip", inbox.port))?;
    let back = inbox.content()?;
    if back == content {
        return Ok(());
    }
    let differs = back.iter().zip(content).position(|(a, b)| a != b);
    Err(Error::check(format!(
        "{} bytes went through {} and {} came back, first difference at {differs:?}",
        content.len(),
        guest.name(),
        back.len()
    )))
}

/// Bytes without a pattern that an error could fit into.
#[must_use]
pub fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..length.div_ceil(8))
        .flat_map(|_| next())
        .take(length)
        .collect()
}

/// What the guest's kernel complained about: lines of its log that speak of trouble with the NIC.
///
/// # Errors
/// When the guest does not answer.
pub fn complaints(guest: &Guest) -> Result<Vec<String>> {
    const TROUBLE: [&str; 8] = [
        "hang",
        "timed out",
        "checksum is not valid",
        "nobody cared",
        "call trace",
        "error",
        "failed",
        "bug:",
    ];
    let log = guest.run("dmesg")?;
    let ours = |line: &&str| {
        let line = line.to_lowercase();
        (line.contains("e1000")
            || line.contains("eth")
            || line.contains("irq")
            || line.contains("trace"))
            && TROUBLE.iter().any(|word| line.contains(word))
            // The rig's kernel starts without its list of keys, to start sooner.
            && !line.contains("module verification failed")
            // Good news in words that look like bad.
            && !line.contains("netdev_change")
    };
    Ok(log.lines().filter(ours).map(str::to_owned).collect())
}

/// Takes the kernel's complaints so far off its log, provided that all of them say this.
///
/// # Errors
/// When there are others, or the guest does not answer.
pub fn forgive(guest: &Guest, what: &str) -> Result<()> {
    let complaints = complaints(guest)?;
    match complaints.iter().find(|line| !line.contains(what)) {
        Some(other) => Err(Error::check(other.clone())),
        None => guest.run("dmesg -C").map(drop).map_err(Into::into),
    }
}

/// Starts pings in the background, 50 ms apart, that go on until [`finish_pings`].
///
/// # Errors
/// When the guest does not answer.
pub fn start_pings(guest: &Guest, to: &str) -> Result<Job> {
    Ok(guest.spawn(&format!("ping -n -i 0.05 -W 5 {to}"))?)
}

/// Ends background pings and returns their outcome. The last may have been under way when they were
/// ended, and is not one that was sent if nothing came back.
///
/// # Errors
/// When ping has no summary.
pub fn finish_pings(guest: &Guest, job: &Job) -> Result<Ping> {
    guest.run("kill -INT $(pidof ping)")?;
    let output = guest.finish(job, LONG)?;
    let mut ping = Ping::parse(&output.text)?;
    let last = format!("icmp_seq={} ", ping.sent);
    if ping.sent == ping.received + 1 && !output.text.contains(&last) {
        ping.sent -= 1;
    }
    Ok(ping)
}
