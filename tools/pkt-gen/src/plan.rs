//! What pkt-gen is to do.

use std::path::PathBuf;
use std::time::Duration;

use drivers::e1000::Config;
use drivers::e1000::poll::PollConfig;

use crate::check::Depth;
use crate::error::Error;
use crate::flows::{Flows, LONGEST, Sizes};
use crate::pace::Rate;
use crate::stamp;
use crate::station::now;

/// What the NICs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Function {
    /// Send.
    Tx,
    /// Receive and check.
    Rx,
    /// Send one frame at a time, wait for its reply, and measure the time.
    Ping,
    /// Send every frame back with its addresses swapped.
    Pong,
    /// Send and receive: each NIC sends to the next one named, the last to the first.
    Txrx,
}

/// Everything there is to say about a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the NICs at `sockets` do.
    pub function: Function,
    /// Their sockets.
    pub sockets: Vec<PathBuf>,
    /// Further NICs that only receive, in this process, so that sent and received are held against
    /// each other. Sender `i` sends to receiver `i`, beginning anew when there are fewer.
    pub receivers: Vec<PathBuf>,
    /// Lengths of frames.
    pub sizes: Sizes,
    /// Flows.
    pub flows: Flows,
    /// Frames per burst, and most received in a turn.
    pub burst: u32,
    /// How fast each NIC sends.
    pub rate: Rate,
    /// Frames each NIC sends (or, of `rx` and `pong`, takes in all); 0: without end.
    pub count: u64,
    /// How long, when not until `count`.
    pub duration: Option<Duration>,
    /// Threads; the NICs are dealt out to them.
    pub threads: usize,
    /// Descriptors of each ring: transmit and receive.
    pub rings: (u32, u32),
    /// What the receiver looks at.
    pub check: Depth,
    /// Which run frames belong to.
    pub run: u16,
    /// The longest frame to be received.
    pub longest_received: u32,
    /// Sleep on interrupts instead of looking again and again.
    pub interrupts: bool,
    /// Take transmit descriptors back by TDH instead of by their status.
    pub reclaim_by_head: bool,
    /// Use a Communication Status Block.
    pub csb: bool,
    /// Map fresh memory and unmap older all the time, as firmware does with a guest's RAM.
    pub remap: bool,
    /// Random choices come from here.
    pub seed: u64,
    /// How long receivers go on after everything was sent and nothing comes any more.
    pub settle: Duration,
}

impl Plan {
    /// A plan for NICs at these sockets: 60 bytes, bursts of 256, one flow, until stopped.
    pub fn new(function: Function, sockets: Vec<PathBuf>) -> Self {
        Self {
            function,
            sockets,
            receivers: Vec::new(),
            sizes: Sizes::List(vec![60]),
            flows: Flows::default(),
            burst: 256,
            rate: Rate::Unlimited,
            count: 0,
            duration: None,
            threads: 1,
            rings: (1024, 1024),
            check: Depth::Head,
            run: stamp::RUN,
            longest_received: 1518,
            interrupts: false,
            reclaim_by_head: false,
            csb: false,
            remap: false,
            seed: now(),
            settle: Duration::from_millis(200),
        }
    }

    /// # Errors
    /// What contradicts itself, with the way out.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let usage = |text: String| Err(Error::Usage(text));
        let (first, last) = (self.sizes.shortest(), self.sizes.longest());
        if first < self.flows.shortest() {
            return usage(format!(
                "a frame of {first} bytes has no room for the headers and the stamp; give \
                 --size {} or more",
                self.flows.shortest()
            ));
        }
        if self.flows.tso.is_none() && last > LONGEST {
            return usage(format!(
                "the chip cannot send a frame of {last} bytes whole; give --size {LONGEST} or less, or \
                 --tso 1448"
            ));
        }
        if self.flows.count == 0 || self.flows.count > 1 << stamp::FLOW_BITS {
            return usage(format!(
                "--flows must be between 1 and {}",
                1u32 << stamp::FLOW_BITS
            ));
        }
        if self.burst == 0 || self.threads == 0 {
            return usage("--burst and --threads must be at least 1".into());
        }
        for (ring, name) in [(self.rings.0, "--tx-ring"), (self.rings.1, "--rx-ring")] {
            if !(80..=4096).contains(&ring) || ring % 8 != 0 {
                return usage(format!(
                    "{name} {ring}: write a multiple of 8 from 80 to 4096"
                ));
            }
        }
        let all: Vec<&PathBuf> = self.sockets.iter().chain(&self.receivers).collect();
        for (i, path) in all.iter().enumerate() {
            if all[..i].contains(path) {
                return usage(format!(
                    "{} appears twice; a NIC has one driver",
                    path.display()
                ));
            }
        }
        if !self.receivers.is_empty() && self.function != Function::Tx {
            return usage(
                "--rx-socket-path is for -f tx only: other functions receive anyway".into(),
            );
        }
        if self.function == Function::Ping && self.flows.tso.is_some() {
            return usage("a request is one frame; leave out --tso".into());
        }
        let per_thread = all.len().div_ceil(self.threads);
        if self.interrupts && per_thread > 1 {
            return usage(format!(
                "with --interrupts each NIC needs a thread; give --threads {}",
                all.len()
            ));
        }
        Ok(())
    }

    /// An answer is as long as its question.
    pub(crate) fn longest_sent(&self) -> u32 {
        match self.function {
            Function::Pong => self.sizes.longest().max(self.longest_received),
            _ => self.sizes.longest(),
        }
    }

    pub(crate) fn device(&self) -> PollConfig {
        let mut config = PollConfig::new()
            .rings(self.rings.0, self.rings.1)
            .frames(self.longest_sent(), self.longest_received);
        config.reclaim_by_head = self.reclaim_by_head;
        config.csb = self.csb;
        config.device = Config {
            // Frames to any address of any flow are for us.
            promiscuous: true,
            all_multicast: true,
            rx_sums: true,
            vlan: self.flows.vlan_offload,
            ..config.device
        };
        config
    }
}
