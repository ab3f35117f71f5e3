#[path = "../tests/common/mod.rs"]
mod common;
use common::*;
use frame::{Batch, Caps, Sink};
use std::sync::Arc;
use std::time::Instant;
struct Null(Caps);
impl Sink for Null {
    fn deliver(&self, _: &Batch<'_>, p: &[u16]) -> usize {
        p.len()
    }
    fn caps(&self) -> Caps {
        self.0
    }
    fn want_room(&self, _: &Arc<dyn frame::Wake>) {}
}
fn main() {
    for (len, chunk) in [(60usize, 64u32), (1514, 64), (60, 1)] {
        let mut m = Machine::default();
        m.tx_on(256);
        m.poke(TX_BUFFERS, &plain(PEER, len));
        for i in 0..256 {
            m.tx_desc(i, TX_BUFFERS, legacy(len as u16, EOP | IFCS | RS));
        }
        let null = Null(Caps::ALL);
        let n = 2_000_000u32 / if chunk == 1 { 4 } else { 1 };
        let t = Instant::now();
        let mut tail = 0;
        for _ in 0..n / chunk {
            tail = (tail + chunk) % 256;
            m.nic
                .control
                .write(&m.env, 0, reg::TDT, &tail.to_le_bytes());
            m.nic.control.take_work();
            m.nic.transmit.run(&m.env, &null, 256);
        }
        println!(
            "tx {len} x{chunk}: {:.1} ns/frame",
            t.elapsed().as_nanos() as f64 / n as f64
        );
    }
    for (len, chunk, rctl) in [
        (60usize, 64usize, 0x8000u32),
        (60, 64, 0x8000 | 1 << 26),
        (1514, 64, 0x8000),
        (1514, 64, 0x8000 | 1 << 26),
        (60, 1, 0x8000),
    ] {
        let mut m = Machine::default();
        m.rx_on(256, rctl);
        let f = plain(MAC, len);
        let mut b = Batch::new();
        for _ in 0..chunk {
            b.push_bytes(&f);
            b.end(wire::Offload::NONE);
        }
        let mut room = Vec::new();
        let picks = b.all_picks(&mut room).to_vec();
        let n = 2_000_000usize / if chunk == 1 { 4 } else { 1 };
        let t = Instant::now();
        let mut tail = 255u32;
        let mut got = 0;
        for _ in 0..n / chunk {
            got += m.nic.receive.deliver(&m.env, &b, &picks);
            tail = (tail + chunk as u32) % 256;
            m.nic
                .control
                .write(&m.env, 0, reg::RDT, &tail.to_le_bytes());
        }
        println!(
            "rx {len} x{chunk} {rctl:x}: {:.1} ns/frame got {got}",
            t.elapsed().as_nanos() as f64 / n as f64
        );
    }
}
