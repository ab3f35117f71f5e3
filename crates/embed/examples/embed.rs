//! A machine with a NIC: 64 KiB of memory, a wire that prints, a driver that sends one frame.
#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex};

struct Machine(Mutex<Vec<u8>>);

impl hypernic_embed::Host for Machine {
    fn send(&self, frame: &[u8]) -> bool {
        println!("on the wire, {} bytes: {frame:02x?}", frame.len());
        true
    }
    fn dma_read(&self, address: u64, out: &mut [u8]) -> bool {
        let ram = self.0.lock().expect("one thread");
        let from = ram.get(address as usize..).and_then(|r| r.get(..out.len()));
        from.map(|from| out.copy_from_slice(from)).is_some()
    }
    fn dma_write(&self, address: u64, bytes: &[u8]) -> bool {
        let mut ram = self.0.lock().expect("one thread");
        let to = ram.get_mut(address as usize..);
        let to = to.and_then(|r| r.get_mut(..bytes.len()));
        to.map(|to| to.copy_from_slice(bytes)).is_some()
    }
    fn interrupt(&self, level: bool) {
        println!("INTA# is {}", if level { "asserted" } else { "released" });
    }
    fn set_timer(&self, _deadline: Option<u64>) {}
    fn now(&self) -> u64 {
        0
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut ram = vec![0; 1 << 16];
    ram[0x2000..0x2014].copy_from_slice(b"\xff\xff\xff\xff\xff\xff\x02\0\0\0\0\x01\x88\xb5 hello");
    // One descriptor: buffer at 2000h, 20 bytes, EOP | IFCS | RS (manual 3.3.3).
    ram[0x1000..0x1008].copy_from_slice(&0x2000u64.to_le_bytes());
    ram[0x1008..0x1010].copy_from_slice(&(0x0b << 24 | 20u64).to_le_bytes());
    let machine = Arc::new(Machine(Mutex::new(ram)));

    let mut nic = hypernic_embed::new("e1000", [2, 0, 0, 0, 0, 1], machine.clone())?;
    nic.config_write(0x04, &[0x06, 0]); // COMMAND: decode memory, master the bus
    for (register, value) in [
        (0x0000, 0x40u32), // CTRL: link up
        (0x00d0, 0x01),    // IMS: interrupt when a descriptor is done
        (0x3800, 0x1000),  // TDBAL
        (0x3808, 128),     // TDLEN
        (0x0400, 0x0a),    // TCTL: enable, pad short packets
        (0x3818, 1),       // TDT: one descriptor for the chip
    ] {
        nic.write(0, register, &value.to_le_bytes());
        nic.run(256);
    }
    let mut cause = [0; 4];
    nic.read(0, 0x00c0, &mut cause); // ICR, which releases the interrupt
    let done = machine.0.lock().expect("one thread")[0x100c] & 1;
    println!("descriptor done: {done}, causes: {cause:02x?}");
    Ok(())
}
