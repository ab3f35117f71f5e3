//! `hypernic pkt-gen` on the command line.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::check::Depth;
use crate::error::Error;
use crate::flows::{Flows, LONGEST, Sizes, Span};
use crate::pace::Rate;
use crate::plan::{Function, Plan};
use crate::run::run;
use crate::stamp::PORT;
use crate::station::Progress;
use crate::{stamp, table};

const EXAMPLES: &str = "Examples (a switch with two NICs: hypernic run --socket-path a --socket-path b --port switch:lan):
  hypernic pkt-gen -f tx --socket-path a --rx-socket-path b -n 10M
      ten million frames of 60 bytes from one NIC to the other; sent and received frames are compared
  hypernic pkt-gen -f rx --socket-path b
      receive and check what another process sends, until Ctrl-C
  hypernic pkt-gen -f tx --socket-path a -l imix -R 100k --flows 64 --src-port 1000-1063 -T 10
      ten seconds of an Internet mix in 64 flows at 100 000 frames per second
  hypernic pkt-gen -f pong --socket-path b  and  hypernic pkt-gen -f ping --socket-path a -R 10k -T 5
      round-trip times
  hypernic pkt-gen -f tx --socket-path a --rx-socket-path b -l 64000 --tso 1448 --check full
      segmentation, every byte compared
Exit codes: 0 success; 1 frames arrived twice, out of order or changed (or, with --no-loss, were lost), or the NIC \
disappeared; 2 a mistake on the command line; 4 there is no NIC at a socket.";

/// Generate and check packets through NICs, as a guest would.
///
/// Connects to the vfio-user sockets of NICs as a VMM does, drives each in poll mode with rings and buffers in
/// shared memory, and checks each frame by its stamp: number of the flow, number of the frame, time of sending, and a
/// checksum over them.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PktGen {
    /// What the NICs do.
    #[arg(short, long, value_enum)]
    pub function: Function,
    /// Socket of a NIC. Repeat the option for several NICs that do the same.
    #[arg(short = 'i', long, value_name = "PATH", required = true)]
    pub socket_path: Vec<PathBuf>,
    /// Socket of a NIC that receives what `-f tx` sends, in this process.
    #[arg(long, value_name = "PATH")]
    pub rx_socket_path: Vec<PathBuf>,
    /// Frames to send per NIC, such as 1M; 0: without end. For rx and pong: frames to receive in total.
    #[arg(short = 'n', long, default_value = "0", value_parser = count)]
    pub count: u64,
    /// Seconds to run.
    #[arg(short = 'T', long, value_name = "SECONDS", value_parser = seconds)]
    pub duration: Option<Duration>,
    /// Bytes of a frame without CRC: 60, a list 60,256,1514, a range 60-1514, or imix.
    #[arg(short = 'l', long, default_value = "60", value_parser = str::parse::<Sizes>)]
    pub size: Sizes,
    /// Frames per burst: one tail register write.
    #[arg(short, long, default_value_t = 256)]
    pub burst: u32,
    /// Frames per second (100k, 1.5M) or bits per second (10Mbit, 1Gbit) per NIC; 0: as fast as possible.
    #[arg(short = 'R', long, default_value = "0", value_parser = str::parse::<Rate>)]
    pub rate: Rate,
    /// Number of flows. Flow n takes the n-th value of every range below; a range repeats at its end.
    #[arg(long, default_value_t = 1)]
    pub flows: u32,
    /// Pick the flow of each frame at random instead of in turn.
    #[arg(long)]
    pub random_flows: bool,
    /// Source MAC, or MAC/COUNT for that many from there on. Default: the NIC's own.
    #[arg(short = 'S', long, value_name = "MAC[/COUNT]", value_parser = str::parse::<Span<[u8; 6]>>)]
    pub src_mac: Option<Span<[u8; 6]>>,
    /// Destination MAC, or MAC/COUNT. Default: the receiving NIC's in the same process, else broadcast.
    #[arg(short = 'D', long, value_name = "MAC[/COUNT]", value_parser = str::parse::<Span<[u8; 6]>>)]
    pub dst_mac: Option<Span<[u8; 6]>>,
    /// Source address or range.
    #[arg(short = 's', long, value_name = "IP[-IP]", default_value = "10.0.0.1",
          value_parser = str::parse::<Span<Ipv4Addr>>)]
    pub src_ip: Span<Ipv4Addr>,
    /// Destination address or range.
    #[arg(short = 'd', long, value_name = "IP[-IP]", default_value = "10.1.0.1",
          value_parser = str::parse::<Span<Ipv4Addr>>)]
    pub dst_ip: Span<Ipv4Addr>,
    /// IPv6, with the addresses above in the low bits of fd68:7970::/64.
    #[arg(short = '6', long)]
    pub ipv6: bool,
    /// Source port or range.
    #[arg(long, value_name = "PORT[-PORT]", default_value = "4096", value_parser = str::parse::<Span<u16>>)]
    pub src_port: Span<u16>,
    /// Destination port or range.
    #[arg(long, value_name = "PORT[-PORT]", default_value_t = PORT.to_string())]
    pub dst_port: String,
    /// 802.1Q tag or range of them.
    #[arg(long, value_name = "TAG[-TAG]", value_parser = str::parse::<Span<u16>>)]
    pub vlan: Option<Span<u16>>,
    /// The NIC inserts tags when sending and strips them when receiving.
    #[arg(long)]
    pub vlan_offload: bool,
    /// The NIC computes IP and UDP checksums (with --ipv6 it always does).
    #[arg(long)]
    pub checksum: bool,
    /// TCP instead of UDP, in frames of up to 65549 bytes that the NIC cuts into segments of MSS bytes.
    #[arg(long, value_name = "MSS", value_parser = clap::value_parser!(u16).range(64..=9000))]
    pub tso: Option<u16>,
    /// What a receiver checks: none, head (the stamp), full (also every byte of the payload, which differs from
    /// frame to frame; sender and receiver must agree).
    #[arg(long, value_enum, default_value_t = Depth::Head)]
    pub check: Depth,
    /// Threads, which share the NICs.
    #[arg(short = 'p', long, default_value_t = 1)]
    pub threads: usize,
    /// Transmit descriptors: 80 to 4096.
    #[arg(long, default_value_t = 1024)]
    pub tx_ring: u32,
    /// Receive descriptors: 80 to 4096.
    #[arg(long, default_value_t = 1024)]
    pub rx_ring: u32,
    /// Longest frame to receive whole; needed for jumbo frames.
    #[arg(long, value_name = "BYTES")]
    pub rx_size: Option<u32>,
    /// When idle, sleep until an interrupt, as a guest would, instead of polling.
    #[arg(long)]
    pub interrupts: bool,
    /// Reclaim transmit descriptors by reading TDH instead of by their status.
    #[arg(long)]
    pub reclaim_by_head: bool,
    /// Use a Communication Status Block instead of tail registers; the NICs must offer one (csb = true).
    #[arg(long)]
    pub csb: bool,
    /// Map and unmap memory continuously while frames move, as firmware does with a guest's RAM.
    #[arg(long)]
    pub remap: bool,
    /// Number of this run; frames of other runs are not checked.
    #[arg(long, default_value_t = stamp::RUN)]
    pub run: u16,
    /// Seed of all random choices.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Count loss as a failure too.
    #[arg(long)]
    pub no_loss: bool,
    /// Print one JSON object at the end instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Print no progress line each second.
    #[arg(short, long)]
    pub quiet: bool,
}

fn count(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.char_indices().last() {
        Some((at, 'k')) => (&text[..at], 1_000),
        Some((at, 'M')) => (&text[..at], 1_000_000),
        Some((at, 'G')) => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    let number = digits
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(factor));
    number.ok_or_else(|| format!("\"{text}\" is not a number: write 1000, 10k or 1M"))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number: Result<f64, _> = text.parse();
    number
        .ok()
        .and_then(|n| Duration::try_from_secs_f64(n).ok())
        .ok_or_else(|| format!("\"{text}\" is not a number of seconds"))
}

impl PktGen {
    /// The plan these words describe.
    ///
    /// # Errors
    /// Where they make no sense.
    pub fn plan(&self) -> Result<Plan, Error> {
        let dst_port = self.dst_port.parse().map_err(Error::Usage)?;
        let flows = Flows {
            count: self.flows,
            random: self.random_flows,
            src_mac: self.src_mac,
            dst_mac: self.dst_mac,
            src_ip: self.src_ip,
            dst_ip: self.dst_ip,
            ipv6: self.ipv6,
            src_port: self.src_port,
            dst_port,
            vlans: self.vlan,
            vlan_offload: self.vlan_offload,
            checksum: self.checksum,
            tso: self.tso,
        };
        let mut plan = Plan::new(self.function, self.socket_path.clone());
        let on_the_wire = match self.tso {
            Some(mss) => u32::from(mss) + flows.headers(),
            None => self.size.longest() + 4,
        };
        plan.longest_received = self.rx_size.unwrap_or(on_the_wire.max(1518)).min(LONGEST);
        plan.receivers = self.rx_socket_path.clone();
        plan.sizes = self.size.clone();
        plan.flows = flows;
        plan.burst = self.burst;
        plan.rate = self.rate;
        plan.count = self.count;
        plan.duration = self.duration;
        plan.threads = self.threads;
        plan.rings = (self.tx_ring, self.rx_ring);
        plan.check = self.check;
        plan.run = self.run;
        plan.interrupts = self.interrupts;
        plan.reclaim_by_head = self.reclaim_by_head;
        plan.csb = self.csb;
        plan.remap = self.remap;
        if let Some(seed) = self.seed {
            plan.seed = seed;
        }
        Ok(plan)
    }

    /// Does it, and prints what came of it.
    ///
    /// # Errors
    /// As [`run`]; and [`Error::Verdict`] when frames were not as they were sent.
    pub fn execute(&self) -> Result<(), Error> {
        let plan = self.plan()?;
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(|source| Error::Os {
                what: "cannot wait for signals",
                source,
            })?;
        }
        let mut before = [0; 4];
        let report = run(&plan, &stop, |progress, time| {
            if !self.quiet {
                show(progress, time, &mut before);
            }
        })?;
        let text = if self.json {
            format!("{}\n", report.json())
        } else {
            report.human()
        };
        let _ = std::io::stdout().write_all(text.as_bytes());
        match report.verdict() {
            Some(v) if !v.in_order() => Err(Error::Verdict(
                "frames arrived twice, out of order or changed: see the line \"checked\"".into(),
            )),
            Some(v) if self.no_loss && !v.clean() => {
                Err(Error::Verdict(format!("{} frames were lost", v.seen.lost)))
            }
            _ => Ok(()),
        }
    }
}

/// A line of progress.
fn show(progress: &[Arc<Progress>], time: Duration, before: &mut [u64; 4]) {
    let mut sum = [0; 4];
    for p in progress {
        let parts = [&p.tx_frames, &p.tx_bytes, &p.rx_frames, &p.rx_bytes];
        for (sum, part) in sum.iter_mut().zip(parts) {
            *sum += part.load(Ordering::Relaxed);
        }
    }
    let [tx, tx_bytes, rx, rx_bytes] = [0, 1, 2, 3].map(|i| sum[i].saturating_sub(before[i]));
    *before = sum;
    let ns = time.as_nanos() as u64;
    let mut parts = Vec::new();
    if sum[0] > 0 {
        parts.push(format!(
            "tx {} ({tx} frames)",
            table::rates(tx, tx_bytes, ns)
        ));
    }
    if sum[2] > 0 || parts.is_empty() {
        parts.push(format!(
            "rx {} ({rx} frames)",
            table::rates(rx, rx_bytes, ns)
        ));
    }
    let _ = writeln!(
        std::io::stderr(),
        "{} in {} us",
        parts.join("  "),
        time.as_micros()
    );
}
