//! What a frame costs in a switch that learns and in an on-chip switch, receivers left out: batches of
//! 60-byte frames from one port to one other, and to fifteen others in turn.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use eswitch::{Pool, VlanSet};
use frame::{Batch, Caps, MAX_BATCH, Sink, Wake};
use hypernic_vale::{PortConfig, Switch, SwitchConfig, SwitchPort};
use wire::{MacAddr, Offload};

const PORTS: u8 = 16;
/// The best of so many, in turns, so that a busy machine harms both alike.
const ROUNDS: u32 = 300;
const BATCHES: u32 = 50;

struct Drain;

impl Sink for Drain {
    fn deliver(&self, _: &Batch<'_>, picks: &[u16]) -> usize {
        picks.len()
    }
    fn caps(&self) -> Caps {
        Caps::NONE
    }
    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

fn mac(n: u8) -> MacAddr {
    MacAddr([0x52, 0x54, 0, 0, 0, n])
}

fn batch(from: u8, to: impl Iterator<Item = u8>) -> Batch<'static> {
    let mut batch = Batch::new();
    for to in to.take(MAX_BATCH) {
        batch.push_bytes(mac(to).as_bytes());
        batch.push_bytes(mac(from).as_bytes());
        batch.push_bytes(&[8; 48]);
        batch.end(Offload::NONE);
    }
    batch
}

fn ports(switch: &Switch, chip: bool) -> Vec<Arc<SwitchPort>> {
    let mut ports = Vec::new();
    for n in 0..PORTS {
        let name = n.to_string();
        let port = switch.attach(&name, Arc::new(Drain), PortConfig::default());
        let port = port.expect("a free name");
        if chip {
            let pool = Pool {
                enabled: true,
                receives: true,
                sends: true,
                macs: vec![mac(n)],
                broadcast: true,
                vlans: VlanSet::none().with_untagged(),
                ..Pool::default()
            };
            assert!(switch.set_pool(&name, pool));
        } else {
            // Seen, and so learned.
            port.deliver(&batch(n, std::iter::once(0)), &[0]);
        }
        ports.push(port);
    }
    ports
}

fn main() {
    let start = Instant::now();
    let clock = move || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let learning = Switch::new(SwitchConfig::default(), Arc::new(clock));
    let chip = Switch::on_chip(SwitchConfig::default(), Arc::new(clock));
    let both = [ports(&learning, false), ports(&chip, true)];
    let mut picks = Vec::new();
    for (what, batch) in [
        ("to one", batch(0, std::iter::repeat(1))),
        ("to fifteen", batch(0, (1..PORTS).cycle())),
    ] {
        let picks = batch.all_picks(&mut picks);
        let mut best = [Duration::MAX; 2];
        for _ in 0..ROUNDS {
            for (ports, best) in both.iter().zip(&mut best) {
                let from = Instant::now();
                for _ in 0..BATCHES {
                    ports[0].deliver(&batch, picks);
                }
                *best = from.elapsed().min(*best);
            }
        }
        let frames = f64::from(BATCHES) * MAX_BATCH as f64;
        let [learned, pools] = best.map(|time| time.as_secs_f64() * 1e9 / frames);
        println!("{what}: learning {learned:.2} ns a frame, on chip {pools:.2} ns");
    }
}
