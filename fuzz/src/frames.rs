//! Incoming frames: parsing, checksums, finishing of offloads, the e1000's receiver, the switch.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use frame::{Batch, Caps, Frame, Sink, Wake, expand};
use guest_mem::ReadSlice;
use vale::{PortConfig, Switch, SwitchConfig};
use wire::{Ethernet, Gso, Layers, Offload, Sum, ipv4_header_intact};

use crate::input::Input;
use crate::machine::{Machine, reg, some_frame, some_notes};

/// Frames from a hostile wire or guest, with notes that may contradict them.
///
/// The first byte chooses who gets them: bit 0 an e1000, bit 1 a switch; always the parsers and
/// what finishes offloads.
pub fn frames(data: &[u8]) {
    let mut input = Input::new(data);
    let setup = input.u8();
    let caps = Caps {
        csum: setup & 4 != 0,
        tso4: setup & 8 != 0,
        tso6: setup & 16 != 0,
        uso4: setup & 8 != 0,
        uso6: setup & 16 != 0,
        ecn: setup & 128 != 0,
        vlan: setup & 32 != 0,
    };
    let raw = setup & 64 != 0;
    let count = if raw {
        1
    } else {
        usize::from(input.u8() % 8) + 1
    };
    let e1000 = (setup & 1 != 0).then(|| (input.u32(), input.u8()));
    let mut kept = Vec::new();
    for _ in 0..count {
        let mut room = Vec::new();
        let (notes, cut) = if raw {
            let notes = some_notes(&mut input);
            let cut = input.u8();
            room.extend_from_slice(input.rest());
            (notes, cut)
        } else {
            (some_frame(&mut input, &mut room), input.u8())
        };
        kept.push((room, notes, cut));
    }
    let mut batch = Batch::new();
    for (bytes, notes, cut) in &kept {
        parse(bytes);
        // Our own header, then pieces of any length, 64 or so at most: where a frame is cut must not
        // matter.
        let (head, rest) = bytes.split_at(usize::from(*cut).min(bytes.len()));
        batch.push_bytes(head);
        let piece = (usize::from(*cut) * 3 + 7).max(rest.len() / 64);
        for piece in rest.chunks(piece) {
            batch.push_slice(ReadSlice::from_bytes(piece));
        }
        batch.end(*notes);
    }
    for (frame, (bytes, ..)) in batch.iter().zip(&kept) {
        assert_eq!(frame.to_vec(), *bytes, "pieces make the whole");
        finish(&frame, bytes, caps);
    }
    if let Some((rctl, switches)) = e1000 {
        receive(&batch, rctl, switches);
    }
    if setup & 2 != 0 {
        switch(&batch, caps, setup);
    }
}

/// What is parsed lies within the bytes, and sums are those of RFC 1071.
fn parse(bytes: &[u8]) {
    if let Ok(ethernet) = Ethernet::new_checked(bytes) {
        assert!(ethernet.payload().len() <= bytes.len() - 14);
        let tagged = ethernet.vlan().is_some();
        assert!(tagged || ethernet.outer_type() == ethernet.ether_type());
    }
    let sum = bytes.chunks(2).fold(0u64, |sum, pair| {
        sum + u64::from(pair[0]) * 256 + pair.get(1).map_or(0, |b| u64::from(*b))
    });
    let of = u64::from(Sum::of(bytes).value());
    assert_eq!(of % 0xffff, sum % 0xffff, "the sum");
    assert_eq!(of == 0, sum == 0, "zero is only the sum of zeros");
    ipv4_header_intact(bytes);
    let Some(layers) = Layers::parse(bytes) else {
        return;
    };
    assert!(
        layers.headers_len() <= bytes.len(),
        "headers beyond the end"
    );
    if let Some(l3) = layers.l3 {
        assert!(l3.offset + l3.len <= bytes.len());
    }
    if let Some(l4) = layers.l4 {
        assert!(l4.offset + l4.len <= bytes.len());
    }
    if let Some(span) = layers.l4_span(bytes.len()) {
        let start = layers.l4.map_or(0, |l4| l4.offset);
        assert!(start + span <= bytes.len(), "a datagram beyond the end");
    }
    layers.l4_intact(bytes);
    layers.l4_has_checksum(bytes);
    layers.pseudo_sum(bytes, bytes.len());
}

/// Finishes a frame for a sink with `caps`: all of it or nothing, and nothing else.
fn finish(frame: &Frame<'_>, bytes: &[u8], caps: Caps) {
    let notes = *frame.notes();
    let mut out = Batch::new();
    let Ok(made) = expand(frame, caps, &mut out) else {
        assert!(out.is_empty() && out.open_len() == 0, "half a frame");
        return;
    };
    assert_eq!(made, out.len());
    assert!((1..=wire::MAX_SEGMENTS).contains(&made), "{made} frames");
    let cut = out.get(0).is_some_and(|f| f.notes().gso != notes.gso);
    let tag = if notes.vlan.is_some() && !caps.vlan {
        4
    } else {
        0
    };
    let mut payload = Vec::new();
    let headers = Layers::parse(bytes).map_or(0, |l| l.headers_len());
    for part in out.iter() {
        assert!(caps.accepts(part.notes()), "{:?}", part.notes());
        part.notes()
            .check(part.len())
            .expect("notes that make sense");
        let whole = part.to_vec();
        assert_eq!(whole.len(), part.len());
        if !cut {
            assert_eq!(whole.len(), bytes.len() + tag, "a frame grows by its tag");
            continue;
        }
        let size = usize::from(notes.gso_size);
        let layers = Layers::parse(&whole).expect("headers like those of the whole");
        let l4 = layers.l4.expect("headers like those of the whole");
        // What is shorter than a frame can be is padded.
        let span = layers.l4_span(whole.len()).expect("its own lengths");
        let end = l4.offset + span;
        assert!(end <= headers + tag + size, "more than the MSS");
        assert!(
            end == whole.len() || whole.len() == 60,
            "padded beyond the least"
        );
        payload.extend_from_slice(&whole[headers + tag..end]);
        if !caps.csum {
            assert_eq!(layers.l4_intact(&whole), Some(true), "its checksum");
        }
        if matches!(notes.gso, Gso::Tcp4 | Gso::Udp4) {
            let l3 = layers.l3.expect("IPv4");
            assert!(ipv4_header_intact(&whole[l3.offset..l3.offset + l3.len]));
        }
    }
    if cut {
        assert_eq!(payload, bytes[headers..], "segments carry the payload");
    }
}

/// The frames arrive at an e1000 set up in any way.
fn receive(batch: &Batch<'_>, rctl: u32, switches: u8) {
    let mut m = Machine::new(false);
    let vme = u32::from(switches & 1) << 30;
    m.write(reg::CTRL, 0x40 | vme);
    m.write(reg::RXCSUM, u32::from(switches & 6) << 7);
    if switches & 8 != 0 {
        m.write(reg::VET, rctl >> 8);
    }
    m.write(reg::IMS, 0x1_ffff);
    m.rx_on([8, 16, 64, 128][usize::from(switches >> 4 & 3)], rctl);
    for _ in 0..3 {
        m.receive_batch(batch);
        m.write(reg::RDT, u32::from(switches >> 6) + 1);
        m.sleep(1_000_000);
    }
}

/// Takes some frames and looks at them.
struct Port {
    caps: Caps,
    room: AtomicUsize,
    got: AtomicUsize,
}

impl Sink for Port {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let n = picks.len().min(self.room.load(Ordering::Relaxed));
        self.room.fetch_sub(n, Ordering::Relaxed);
        for pick in &picks[..n] {
            let frame = batch.get((*pick).into()).expect("a pick is a frame");
            assert!(self.caps.accepts(frame.notes()), "{:?}", frame.notes());
            let mut ends = [0; 64];
            frame.copy_to(0, &mut ends);
            frame.copy_to(frame.len().saturating_sub(64), &mut ends);
        }
        self.got.fetch_add(n, Ordering::Relaxed);
        n
    }

    fn caps(&self) -> Caps {
        self.caps
    }

    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

/// The frames enter a switch of three ports, one of which has little room.
fn switch(batch: &Batch<'_>, caps: Caps, setup: u8) {
    const MACS: usize = 16;
    let config = SwitchConfig {
        max_macs: MACS,
        guaranteed_macs: 2,
        max_ports: 4,
        backpressure: setup & 128 != 0,
        ..SwitchConfig::default()
    };
    let switch = Switch::new(config, Arc::new(|| 0));
    let all = Offload::NONE;
    let sinks =
        [(caps, 2), (Caps::NONE, usize::MAX), (Caps::ALL, usize::MAX)].map(|(caps, room)| {
            Arc::new(Port {
                caps,
                room: AtomicUsize::new(room),
                got: AtomicUsize::new(0),
            })
        });
    let ports: Vec<_> = ["a", "b", "c"]
        .into_iter()
        .zip(&sinks)
        .map(|(name, sink)| switch.attach(name, sink.clone(), PortConfig::default()))
        .map(|port| port.expect("a free name"))
        .collect();
    let mut room = Vec::new();
    let picks = batch.all_picks(&mut room);
    for port in &ports {
        let mut rest = picks;
        // What is left with the sender is offered again, and in the end dropped by it.
        for _ in 0..3 {
            let dealt = port.deliver(batch, rest);
            assert!(dealt <= rest.len(), "{dealt} of {}", rest.len());
            rest = &rest[dealt..];
        }
        switch.tick();
    }
    assert!(switch.macs().len() <= MACS, "the table is bounded");
    // Every frame goes to a port at most once, however it is offered.
    let plain = batch.iter().all(|f| *f.notes() == all);
    for sink in &sinks {
        let got = sink.got.load(Ordering::Relaxed);
        assert!(!plain || got <= 2 * picks.len(), "{got} of {}", picks.len());
    }
}
