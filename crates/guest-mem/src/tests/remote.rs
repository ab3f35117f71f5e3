//! Memory that is reached by asking a peer, beside memory that is mapped.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use crate::{FaultKind, Memory, Prot, Remote};

/// 64 KiB of a machine that is somewhere else.
struct Elsewhere {
    bytes: Mutex<Vec<u8>>,
    asked: Mutex<Vec<(char, u64, usize)>>,
}

const SIZE: usize = 0x1_0000;

impl Elsewhere {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            bytes: Mutex::new(vec![0; SIZE]),
            asked: Mutex::default(),
        })
    }

    fn asked(&self) -> Vec<(char, u64, usize)> {
        std::mem::take(&mut *self.asked.lock().expect("lock"))
    }
}

impl Remote for Elsewhere {
    fn read(&self, iova: u64, out: &mut [u8]) -> bool {
        let asked = ('r', iova, out.len());
        self.asked.lock().expect("lock").push(asked);
        let bytes = self.bytes.lock().expect("lock");
        let part = bytes.get(iova as usize..).and_then(|b| b.get(..out.len()));
        part.map(|part| out.copy_from_slice(part)).is_some()
    }

    fn write(&self, iova: u64, from: &[u8]) -> bool {
        let asked = ('w', iova, from.len());
        self.asked.lock().expect("lock").push(asked);
        let mut bytes = self.bytes.lock().expect("lock");
        let part = bytes
            .get_mut(iova as usize..)
            .and_then(|b| b.get_mut(..from.len()));
        part.map(|part| part.copy_from_slice(from)).is_some()
    }
}

#[test]
fn what_is_not_mapped_is_asked_for() {
    let there = Elsewhere::new();
    let memory = Memory::new();
    memory.set_remote(Some(there.clone()));
    memory.map_anon(0x2000, 0x1000).expect("map");

    let view = memory.view();
    let bytes: Vec<u8> = (0..=255).collect();
    // Across the start of what is mapped: one part there, one part here.
    view.write(0x1f80, &bytes).expect("write");
    assert_eq!(
        there.bytes.lock().expect("lock")[0x1f80..0x2000],
        bytes[..128]
    );
    let mut back = vec![0; 256];
    view.read(0x1f80, &mut back).expect("read");
    assert_eq!(back, bytes);
    assert_eq!(there.asked(), [('w', 0x1f80, 128), ('r', 0x1f80, 128)]);

    // Slices point to copies that live as long as the view.
    let mut slices = Vec::new();
    for at in [0x1f80, 0x2f80] {
        view.read_slices(at, 256, &mut |s| slices.push(s))
            .expect("slices");
    }
    assert_eq!(slices.len(), 4);
    let mut seen = Vec::new();
    for slice in &slices[..2] {
        let mut part = vec![0; slice.len()];
        slice.copy_to(0, &mut part);
        seen.extend(part);
    }
    assert_eq!(seen, bytes);

    // A word is written with one question.
    there.asked();
    view.write_release(0x100, &[1; 8]).expect("write");
    assert_eq!(there.asked(), [('w', 0x100, 8)]);
}

#[test]
fn a_refusal_is_a_fault() {
    let memory = Memory::new();
    memory.set_remote(Some(Elsewhere::new()));
    let view = memory.view();
    let end = SIZE as u64 - 4;
    let read = view.read(end, &mut [0; 8]);
    let write = view.write(end, &[0; 8]);
    let slices = view.write_slices(end, 8, &mut |to| {
        to.copy_from(0, &[1; 8]);
    });
    for result in [read, write, slices] {
        assert_eq!(result.expect_err("beyond").kind, FaultKind::Refused);
    }
    let wraps = view.read(u64::MAX, &mut [0; 2]).expect_err("wraps");
    assert_eq!(wraps.kind, FaultKind::Wraps);
    drop(view);
    memory.set_remote(None);
    let gone = memory.view().read(0, &mut [0]).expect_err("nobody to ask");
    assert_eq!(gone.kind, FaultKind::Unmapped);
}

#[test]
fn memory_of_the_embedder_is_used_where_it_lies() {
    let ram: Box<[AtomicU8]> = (0..0x1000).map(|_| AtomicU8::new(0)).collect();
    let base = NonNull::from(&*ram).cast();
    let memory = Memory::new();
    // SAFETY: `ram` outlives the region, which is unmapped below, and is made of atomics.
    unsafe { memory.map_raw(0x8000, 0x1000, base, Prot::RW) }.expect("map");
    memory.view().write(0x8010, b"here").expect("write");
    assert_eq!(ram[0x10].load(Ordering::Relaxed), b'h');
    memory.unmap(0x8000, 0x1000).expect("unmap");
    assert!(memory.view().read(0x8000, &mut [0]).is_err());
}
