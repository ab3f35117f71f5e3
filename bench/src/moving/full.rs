//! NICs whose drivers have sent until the receive ring was full, and more waited.

use std::time::Duration;

use drivers::igb::{self, Igb};
use drivers::{Bus, BusError, SocketBus};
use model_testkit::virtq::{How, VirtQueue};
use vfio_user::Client;
use virtio_net::regs::{common, feature, header, page, status};

use crate::error::{Error, Result};
use crate::fabric::{Bell, Fabric, Traffic, aim, config, driver, mac};
use crate::flow::Way;
use crate::options::Options;
use crate::vfs::VfEnds;
use crate::{load, machine};

/// Descriptors of each ring, and bytes of a frame.
pub(super) const RING: u32 = 256;
pub(super) const SIZE: usize = 1514;
/// Bytes of a buffer.
const BUFFER: u64 = 2048;
/// Times that half a ring is sent.
const SENDS: u32 = 4;
/// What a NIC is given to deal with it.
const MOMENT: Duration = Duration::from_millis(20);
const BROADCAST: [u8; 6] = [0xff; 6];

/// What is in use.
#[derive(Clone, Copy)]
pub(super) enum Nic {
    E1000,
    Igb,
    Vf,
    Realtek,
    Split,
    Packed,
}

fn gone(error: BusError) -> Error {
    Error::Usage(error.to_string())
}

impl Nic {
    pub(super) const ALL: [Nic; 6] = [
        Nic::E1000,
        Nic::Igb,
        Nic::Vf,
        Nic::Realtek,
        Nic::Split,
        Nic::Packed,
    ];

    /// Its row.
    pub(super) fn name(self) -> &'static str {
        match self {
            Nic::E1000 => "82540EM, receive ring and packet buffer full",
            Nic::Igb => "82576, receive ring full",
            Nic::Vf => "VF of an 82576, receive ring full",
            Nic::Realtek => "RTL8168C, receive ring full",
            Nic::Split => "virtio-net, split, receive ring full",
            Nic::Packed => "virtio-net, packed, receive ring full",
        }
    }

    /// Has its ring filled, and shows its VMM's side.
    pub(super) fn use_with<T>(
        self,
        options: &Options,
        show: impl FnOnce(&mut Client) -> Result<T>,
    ) -> Result<T> {
        match self {
            Nic::E1000 => e1000(options, show),
            Nic::Igb => igb(options, show),
            Nic::Vf => vf(options, show),
            Nic::Realtek => realtek(options, show),
            Nic::Split => virtio(options, false, show),
            Nic::Packed => virtio(options, true, show),
        }
    }
}

/// A daemon with one NIC that hears itself.
fn fabric(options: &Options, model: &str) -> Result<Fabric> {
    let words = ["--model".to_owned(), model.to_owned()];
    let core = Some(machine::cores().1);
    Fabric::start(&options.hypernic(), 1, "loopback", &words, core)
}

/// Half a ring is sent again and again; the ring, which had room for so many, is full then.
fn fill(fabric: &Fabric, room: u32, mut send: impl FnMut(u32) -> Result<()>) -> Result<()> {
    for _ in 0..SENDS {
        send(RING / 2)?;
        std::thread::sleep(MOMENT);
    }
    let counters = fabric.counters()?;
    let came = counters.get("rx_frames").copied().unwrap_or(0);
    if came < room.into() {
        let what = format!("a ring of {room} buffers got {came} frames and is not full");
        return Err(Error::tool("hypernic", &what));
    }
    Ok(())
}

fn e1000<T>(options: &Options, show: impl FnOnce(&mut Client) -> Result<T>) -> Result<T> {
    let fabric = fabric(options, "e1000")?;
    let kind = Traffic::Plain(SIZE);
    let mut guest = fabric.guest(0, &config(kind, RING))?;
    aim(&mut guest, kind, mac(0), mac(0))?;
    let frame = kind.frame()?;
    fill(&fabric, RING - 1, |n| {
        guest.send(n, |_, _| frame).map_err(driver)?;
        Ok(())
    })?;
    show(guest.driver().bus_mut().client())
}

fn igb<T>(options: &Options, show: impl FnOnce(&mut Client) -> Result<T>) -> Result<T> {
    const { assert!(igb::RING == RING) };
    let fabric = fabric(options, "82576")?;
    let mut guest = Igb::connect(fabric.socket(0), false).map_err(gone)?;
    let frame = load::frame(0, SIZE, false, mac(0), BROADCAST);
    fill(&fabric, RING - 1, |n| {
        guest.send(&frame, n).map_err(gone)?;
        Ok(())
    })?;
    show(guest.client())
}

/// A VF hears no frames of its own: the other one sends.
fn vf<T>(options: &Options, show: impl FnOnce(&mut Client) -> Result<T>) -> Result<T> {
    let mut ends = VfEnds::start(&options.hypernic(), SIZE, RING, Bell::Trap)?;
    let [from, to] = &mut ends.guests;
    fill(&ends.fabric, RING - 1, |n| {
        from.send(n)?;
        Ok(())
    })?;
    show(to.poll.vf().bus().client())
}

fn bus(fabric: &Fabric) -> Result<SocketBus> {
    let mut bus = SocketBus::connect(fabric.socket(0)).map_err(gone)?;
    // Memory and bus mastering.
    bus.config_write(4, &[6, 0]).map_err(gone)?;
    Ok(bus)
}

fn realtek<T>(options: &Options, show: impl FnOnce(&mut Client) -> Result<T>) -> Result<T> {
    const OWN: u32 = 1 << 31;
    const END: u32 = 1 << 30;
    const WHOLE: u32 = 3 << 28;
    let fabric = fabric(options, "r8168")?;
    let mut bus = bus(&fabric)?;
    let half = u64::from(RING) * BUFFER;
    let buffers = bus.alloc(2 * half).map_err(gone)?.iova;
    let rings = bus.alloc(2 * 4096).map_err(gone)?.iova;
    let (sends, receives) = (rings, rings + 4096);
    let frame = load::frame(0, SIZE, false, mac(0), BROADCAST);
    bus.dma_write(buffers, &frame).map_err(gone)?;
    let desc = |at: u32, word: u32, buffer: u64| {
        let end = if at + 1 == RING { END } else { 0 };
        [u64::from(word | end).to_le_bytes(), buffer.to_le_bytes()].concat()
    };
    for at in 0..RING {
        let buffer = buffers + half + u64::from(at) * BUFFER;
        let receive = desc(at, OWN | (BUFFER as u32 - 8), buffer);
        let to = receives + u64::from(at) * 16;
        bus.dma_write(to, &receive).map_err(gone)?;
    }
    let to = sends + u64::from(RING - 1) * 16;
    bus.dma_write(to, &desc(RING - 1, 0, 0)).map_err(gone)?;
    let write = |bus: &mut SocketBus, at: u64, data: &[u8]| {
        let said = bus.bar_write(r8169::BAR_MMIO, at, data);
        said.map_err(gone)
    };
    // The rings; APM and AB; the longest frame; TE and RE.
    for (at, value) in [
        (0x24, (sends >> 32) as u32),
        (0x20, sends as u32),
        (0xe8, (receives >> 32) as u32),
        (0xe4, receives as u32),
        (0x44, 0xe70a),
    ] {
        write(&mut bus, at, &value.to_le_bytes())?;
    }
    write(&mut bus, 0xda, &0x4000_u16.to_le_bytes())?;
    write(&mut bus, 0x37, &[0x0c])?;
    let mut next = 0;
    fill(&fabric, RING, |n| {
        for _ in 0..n {
            let word = OWN | WHOLE | SIZE as u32;
            let to = sends + u64::from(next) * 16;
            bus.dma_write(to, &desc(next, word, buffers))
                .map_err(gone)?;
            next = (next + 1) % RING;
        }
        write(&mut bus, 0x38, &[0x40])
    })?;
    show(bus.client())
}

fn virtio<T>(
    options: &Options,
    packed: bool,
    show: impl FnOnce(&mut Client) -> Result<T>,
) -> Result<T> {
    let fabric = fabric(options, "virtio-net")?;
    let mut bus = bus(&fabric)?;
    let how = How {
        packed,
        ..How::default()
    };
    let size = RING as u16;
    let mut ring = || {
        let at = bus.alloc(VirtQueue::bytes(size)).map_err(gone)?.iova;
        Ok::<_, Error>(VirtQueue::new(bus.memory(), at, size, how))
    };
    let (mut rx, mut tx) = (ring()?, ring()?);
    let buffers = bus.alloc(u64::from(RING + 1) * BUFFER).map_err(gone)?.iova;
    let frame = load::frame(0, SIZE, false, mac(0), BROADCAST);
    let frame = [&[0; header::LEN][..], &frame].concat();
    bus.dma_write(buffers, &frame).map_err(gone)?;
    let put = |bus: &mut SocketBus, at: u64, bytes: &[u8]| {
        let said = bus.bar_write(0, page::COMMON + at, bytes);
        said.map_err(gone)
    };
    let features = feature::VERSION_1 | if packed { feature::PACKED } else { 0 };
    let drives = status::ACKNOWLEDGE | status::DRIVER;
    put(&mut bus, common::STATUS, &[0])?;
    put(&mut bus, common::STATUS, &[drives])?;
    for half in 0..2_u32 {
        let word = (features >> (32 * half)) as u32;
        put(&mut bus, common::DRIVER_FEATURE_SELECT, &half.to_le_bytes())?;
        put(&mut bus, common::DRIVER_FEATURE, &word.to_le_bytes())?;
    }
    put(&mut bus, common::STATUS, &[drives | status::FEATURES_OK])?;
    for (queue, ring) in [(0_u16, &rx), (1, &tx)] {
        put(&mut bus, common::QUEUE_SELECT, &queue.to_le_bytes())?;
        put(&mut bus, common::QUEUE_SIZE, &size.to_le_bytes())?;
        let to = [
            common::QUEUE_DESC,
            common::QUEUE_DRIVER,
            common::QUEUE_DEVICE,
        ];
        for (to, area) in to.into_iter().zip(ring.areas()) {
            put(&mut bus, to, &(area as u32).to_le_bytes())?;
            put(&mut bus, to + 4, &((area >> 32) as u32).to_le_bytes())?;
        }
        put(&mut bus, common::QUEUE_ENABLE, &1_u16.to_le_bytes())?;
    }
    let ready = drives | status::FEATURES_OK | status::DRIVER_OK;
    put(&mut bus, common::STATUS, &[ready])?;
    for at in 1..=u64::from(RING) {
        let _ = rx.give(&[(buffers + at * BUFFER, BUFFER as u32, true)]);
    }
    let notify = |bus: &mut SocketBus, queue: u16| {
        let at = page::NOTIFY + u64::from(queue) * u64::from(page::NOTIFY_STEP);
        bus.bar_write(0, at, &queue.to_le_bytes()).map_err(gone)
    };
    notify(&mut bus, 0)?;
    fill(&fabric, RING, |n| {
        tx.take();
        for _ in 0..n {
            // What has no room stays away.
            let _ = tx.give(&[(buffers, frame.len() as u32, false)]);
        }
        notify(&mut bus, 1)
    })?;
    show(bus.client())
}
