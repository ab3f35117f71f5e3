//! A wire that checks what it gets.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crc32fast::Hasher;
use frame::{Batch, Caps, Sink, Wake};
use wire::Offload;

/// The longest frame the chip sends in one piece, and the longest packet it cuts: 20 bits of
/// payload behind 8 bits of header.
pub(crate) const MAX_FRAME: u64 = 16288;
pub(crate) const MAX_PACKET: u64 = 0xf_ffff + 0xff;

/// Takes what is sent, looks at both ends of it, and keeps a hash.
#[derive(Default)]
pub(crate) struct Wire {
    pub caps: Mutex<Caps>,
    pub room: AtomicUsize,
    pub frames: AtomicU64,
    pub bytes: AtomicU64,
    pub hash: Mutex<Hasher>,
    /// A hash of each frame, where processes die.
    pub log: Mutex<Option<Vec<u32>>>,
}

impl Wire {
    /// Keeps a hash of each frame from now on.
    pub fn keep(&self) {
        *self.log.lock().unwrap_or_else(|e| e.into_inner()) = Some(Vec::new());
    }

    /// Those.
    pub fn kept(&self) -> Vec<u32> {
        let log = self.log.lock().unwrap_or_else(|e| e.into_inner()).take();
        log.unwrap_or_default()
    }
}

/// Bytes of each end of a frame that are hashed; all of shorter ones.
const ENDS: usize = 1024;

impl Sink for Wire {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let mut log = self.log.lock().unwrap_or_else(|e| e.into_inner());
        let room = match &*log {
            // What finds no room may be under way when the NIC's process dies.
            Some(_) => usize::MAX,
            None => self.room.load(Ordering::Relaxed),
        };
        let n = room.min(picks.len());
        self.room.store(room - n, Ordering::Relaxed);
        let caps = self.caps();
        let mut hash = self.hash.lock().unwrap_or_else(|e| e.into_inner());
        for &pick in &picks[..n] {
            let frame = batch.get(pick.into()).expect("a pick is a frame");
            let notes = frame.notes();
            assert!(caps.accepts(notes), "{notes:?} for a sink with {caps:?}");
            notes.check(frame.len()).expect("notes that make sense");
            assert!(frame.len() >= 14, "a runt of {} bytes", frame.len());
            let longest = if notes.gso == wire::Gso::None {
                MAX_FRAME
            } else {
                MAX_PACKET
            };
            assert!(frame.len() as u64 <= longest + 4, "{} bytes", frame.len());
            if let Some(log) = &mut *log {
                let mut whole = vec![0; frame.len()];
                frame.copy_to(0, &mut whole);
                whole.extend(notes_word(notes));
                log.push(crc32fast::hash(&whole));
            }
            let mut end = [0; ENDS];
            let got = frame.copy_to(0, &mut end);
            assert_eq!(got, frame.len().min(ENDS));
            hash.update(&end[..got]);
            let got = frame.copy_to(frame.len().saturating_sub(ENDS), &mut end);
            hash.update(&end[..got]);
            hash.update(&notes_word(notes));
            self.bytes.fetch_add(frame.len() as u64, Ordering::Relaxed);
        }
        self.frames.fetch_add(n as u64, Ordering::Relaxed);
        n
    }

    fn caps(&self) -> Caps {
        *self.caps.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

fn notes_word(notes: &Offload) -> [u8; 12] {
    let csum = notes.csum.map_or([0xff; 4], |c| {
        let ([a, b], [c, d]) = (c.start.to_le_bytes(), c.offset.to_le_bytes());
        [a, b, c, d]
    });
    let [a, b, c, d] = csum;
    let ([e, f], [g, h]) = (notes.gso_size.to_le_bytes(), notes.hdr_len.to_le_bytes());
    let [i, j] = notes.vlan.unwrap_or(0).to_le_bytes();
    let bits = [notes.ecn, notes.csum_valid, notes.vlan.is_some()];
    let bits = bits
        .iter()
        .fold(notes.gso as u8, |w, b| w << 1 | u8::from(*b));
    [a, b, c, d, e, f, g, h, i, j, bits, 0]
}
