//! Frames finished for sinks of every ability.

use std::sync::Arc;

use crate::{Batch, Caps, Cut, ExpandError, Finisher, Sink, Wake, expand, l4_intact};
use guest_mem::{Memory, ReadSlice};
use parking_lot::Mutex;
use proptest::collection::vec;
use proptest::prelude::*;
use wire::{Csum, Gso, Layers, MAX_HEADERS, NotesError, Offload, SegmentError, Sum};

/// A TCP or UDP frame as a guest hands it over: pseudo-header sum in the field, nothing summed yet.
fn frame(udp: bool, v6: bool, payload: &[u8]) -> (Vec<u8>, Offload) {
    let mut frame = vec![2; 12];
    let ip_len = if v6 { 40 } else { 20 };
    let (protocol, l4_header, field) = if udp { (17, 8, 6) } else { (6, 20, 16) };
    let l4_len = l4_header + payload.len();
    if v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend((l4_len as u16).to_be_bytes());
        frame.extend([protocol, 64]);
        frame.extend([0xfd; 32]);
    } else {
        frame.extend([0x08, 0x00, 0x45, 0]);
        frame.extend(((20 + l4_len) as u16).to_be_bytes());
        frame.extend([0, 9, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = Sum::of(&frame[14..34]).finish();
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    let l4 = 14 + ip_len;
    frame.extend([0, 80, 0, 90]);
    if udp {
        frame.extend((l4_len as u16).to_be_bytes());
        frame.extend([0, 0]);
    } else {
        frame.extend([0, 0, 0, 7, 0, 0, 0, 0, 0x50, 0x19, 1, 0, 0, 0, 0, 0]);
    }
    let layers = Layers::parse(&frame).expect("built");
    let seed = layers.pseudo_sum(&frame, l4_len).expect("built").value();
    frame[l4 + field..l4 + field + 2].copy_from_slice(&seed.to_be_bytes());
    frame.extend(payload);
    let notes = Offload {
        csum: Some(Csum {
            start: l4 as u16,
            offset: field as u16,
        }),
        hdr_len: (l4 + l4_header) as u16,
        gso: match (udp, v6) {
            (false, false) => Gso::Tcp4,
            (false, true) => Gso::Tcp6,
            (true, false) => Gso::Udp4,
            (true, true) => Gso::Udp6,
        },
        ..Offload::NONE
    };
    (frame, notes)
}

fn tcp(v6: bool, payload: &[u8]) -> (Vec<u8>, Offload) {
    frame(false, v6, payload)
}

/// `bytes` as slices cut at `cuts`.
fn push<'v>(batch: &mut Batch<'v>, bytes: &'v [u8], cuts: &[usize], notes: Offload) {
    let mut rest = bytes;
    for (i, cut) in cuts.iter().enumerate() {
        let (head, tail) = rest.split_at(cut % (rest.len() + 1));
        if i % 2 == 0 {
            batch.push_slice(ReadSlice::from_bytes(head));
        } else {
            batch.push_bytes(head);
        }
        rest = tail;
    }
    batch.push_slice(ReadSlice::from_bytes(rest));
    batch.end(notes);
}

/// Takes the frame apart as a receiver would: no tag, payload, whether its checksum is right.
fn receive(bytes: &[u8], notes: &Offload) -> (Option<u16>, Vec<u8>, bool) {
    let mut bytes = bytes.to_vec();
    if let Some(csum) = notes.csum {
        let start = usize::from(csum.start);
        let field = start + usize::from(csum.offset);
        let sum = Sum::of(&bytes[start..]).finish();
        bytes[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    }
    let layers = Layers::parse(&bytes).expect("whole");
    let intact = layers.l4_intact(&bytes) == Some(true);
    let header = wire::ipv4_header_intact(&bytes[layers.l2_len..layers.l2_len + 20]);
    let right = intact && (header || layers.ether_type == wire::EtherType::IPV6);
    let word = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    let end = layers.l2_len
        + match layers.ether_type {
            wire::EtherType::IPV6 => 40 + word(layers.l2_len + 4),
            _ => word(layers.l2_len + 2),
        };
    assert!(bytes[end..].iter().all(|byte| *byte == 0), "padding");
    let payload = bytes[layers.headers_len()..end].to_vec();
    (notes.vlan.or(layers.vlan), payload, right)
}

fn any_caps() -> impl Strategy<Value = Caps> {
    any::<[bool; 7]>().prop_map(|[csum, tso4, tso6, uso4, uso6, ecn, vlan]| Caps {
        csum,
        tso4,
        tso6,
        uso4,
        uso6,
        ecn,
        vlan,
    })
}

proptest! {
    #[test]
    fn what_comes_out_is_accepted_and_says_the_same(
        udp: bool,
        v6: bool,
        payload in vec(any::<u8>(), 0..5000),
        size in proptest::option::of(20u16..2000),
        vlan in proptest::option::of(any::<u16>()),
        ecn: bool,
        cuts in vec(any::<usize>(), 0..6),
        caps in any_caps(),
    ) {
        let (bytes, mut notes) = frame(udp, v6, &payload);
        notes.vlan = vlan;
        match size {
            Some(size) => {
                notes.gso_size = size;
                notes.ecn = ecn && !udp;
            }
            None => notes.gso = Gso::None,
        }
        let mut source = Batch::new();
        push(&mut source, &bytes, &cuts, notes);
        let frame = source.get(0).expect("pushed");
        let mut out = Batch::new();
        let count = expand(&frame, caps, &mut out).expect("good");
        prop_assert_eq!(count, out.len());
        let mut whole = Vec::new();
        for frame in out.iter() {
            let left = *frame.notes();
            prop_assert!(caps.accepts(&left), "{left:?}");
            prop_assert_eq!(left.check(frame.len()), Ok(()));
            let bytes = frame.to_vec();
            prop_assert_eq!(bytes.len(), frame.len());
            let (tag, part, right) = receive(&bytes, &left);
            prop_assert!(right);
            prop_assert_eq!(tag, vlan);
            if left.gso == Gso::None && notes.gso != Gso::None {
                prop_assert!(part.len() <= usize::from(notes.gso_size));
                prop_assert!(bytes.len() >= 60, "the last one may have a byte");
            }
            if left.csum.is_none() {
                prop_assert!(left.csum_valid);
                let layers = Layers::parse(&bytes).expect("whole");
                prop_assert_eq!(l4_intact(&frame, &bytes, &layers), Some(true));
            }
            whole.extend(part);
        }
        prop_assert_eq!(whole, payload);
    }

    #[test]
    fn any_notes_on_any_bytes_are_answered(
        bytes in vec(any::<u8>(), 0..200),
        words: [u16; 4], small: bool, gso in 0..5, vlan: bool, with_csum: bool, caps in any_caps(),
    ) {
        let [start, offset, gso_size, hdr_len] = words.map(|w| if small { w % 100 } else { w });
        let notes = Offload {
            csum: with_csum.then_some(Csum { start, offset }),
            gso: [Gso::None, Gso::Tcp4, Gso::Tcp6, Gso::Udp4, Gso::Udp6][gso as usize],
            gso_size,
            hdr_len,
            vlan: vlan.then_some(1),
            ..Offload::NONE
        };
        let mut source = Batch::new();
        push(&mut source, &bytes, &[3, 5], notes);
        let mut out = Batch::new();
        let result = expand(&source.get(0).expect("pushed"), caps, &mut out);
        prop_assert_eq!(out.len(), result.unwrap_or(0));
        prop_assert_eq!(out.open_len(), 0);
    }
}

#[test]
fn segments_with_ecn_are_cut_for_a_sink_that_does_not_know_it() {
    for v6 in [false, true] {
        let (mut bytes, notes) = tcp(v6, &[1; 3000]);
        let plain = Offload {
            gso_size: 1000,
            ..notes
        };
        let with_ecn = Offload { ecn: true, ..plain };
        let flags = bytes.len() - 3000 - 20 + 13;
        bytes[flags] |= 0x80;
        let ignorant = Caps {
            ecn: false,
            ..Caps::ALL
        };
        for (notes, caps, frames) in [
            (plain, ignorant, 1),
            (with_ecn, ignorant, 3),
            (with_ecn, Caps::ALL, 1),
        ] {
            let mut source = Batch::new();
            push(&mut source, &bytes, &[], notes);
            let mut out = Batch::new();
            let frame = source.get(0).expect("pushed");
            assert_eq!(expand(&frame, caps, &mut out), Ok(frames));
            // Of segments only the first has CWR.
            let cwr = out.iter().map(|frame| frame.to_vec()[flags] & 0x80 != 0);
            assert_eq!(cwr.filter(|cwr| *cwr).count(), 1);
            assert!(out.iter().all(|frame| caps.accepts(frame.notes())));
        }
    }
}

#[test]
fn lies_are_told_apart() {
    let (bytes, notes) = tcp(false, &[1; 3000]);
    let notes = Offload {
        gso_size: 1000,
        ..notes
    };
    let refuse = |bytes: &[u8], notes: Offload| {
        let mut source = Batch::new();
        push(&mut source, bytes, &[], notes);
        let frame = source.get(0).expect("pushed");
        expand(&frame, Caps::NONE, &mut Batch::new()).expect_err("a lie")
    };
    assert_eq!(refuse(&bytes[..13], notes), ExpandError::Runt);
    let outside = Csum {
        start: 3050,
        offset: 16,
    };
    let outside = Offload {
        csum: Some(outside),
        ..notes
    };
    let lie = NotesError::CsumOutside;
    assert_eq!(refuse(&bytes, outside), ExpandError::Notes(lie));
    let far = Offload {
        csum: Some(Csum {
            start: MAX_HEADERS as u16,
            offset: 0,
        }),
        ..Offload::NONE
    };
    assert_eq!(refuse(&bytes, far), ExpandError::HeadersTooLong);
    let no_csum = Offload {
        csum: None,
        ..notes
    };
    let lie = NotesError::GsoWithoutCsum;
    assert_eq!(refuse(&bytes, no_csum), ExpandError::Notes(lie));
    let long = Offload {
        hdr_len: 3055,
        ..notes
    };
    let lie = NotesError::HeaderLength;
    assert_eq!(refuse(&bytes, long), ExpandError::Notes(lie));
    let other = Offload {
        gso: Gso::Tcp6,
        ..notes
    };
    let lie = SegmentError::Headers;
    assert_eq!(refuse(&bytes, other), ExpandError::Segment(lie));
}

/// Takes `room` frames, then no more.
struct Narrow {
    caps: Caps,
    room: Mutex<usize>,
    got: Mutex<Vec<(Vec<u8>, Offload)>>,
}

impl Narrow {
    fn new(caps: Caps, room: usize) -> Self {
        Narrow {
            caps,
            room: Mutex::new(room),
            got: Mutex::default(),
        }
    }
}

impl Sink for Narrow {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let mut room = self.room.lock();
        let n = picks.len().min(*room);
        *room -= n;
        for pick in &picks[..n] {
            let frame = batch.get((*pick).into()).expect("a pick is a frame");
            self.got.lock().push((frame.to_vec(), *frame.notes()));
        }
        n
    }

    fn caps(&self) -> Caps {
        self.caps
    }

    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

#[test]
fn a_half_sent_frame_is_gone_on_with() {
    let payload: Vec<u8> = (0..50u32).flat_map(|i| [i as u8; 100]).collect();
    let (big, notes) = tcp(false, &payload);
    let big_notes = Offload {
        gso_size: 100,
        ..notes
    };
    let plain = [5u8; 60];
    let mut batch = Batch::new();
    push(&mut batch, &plain, &[], Offload::NONE);
    push(&mut batch, &big, &[], big_notes);
    push(&mut batch, &plain, &[], Offload::NONE);
    let sink = Narrow::new(Caps::NONE, 0);
    let mut finisher = Finisher::new();
    let mut left: &[u16] = &[0, 1, 2];
    for _ in 0..8 {
        *sink.room.lock() = 7;
        let n = finisher.deliver(&sink, &batch, left, |_, e| panic!("{e}"));
        left = &left[n..];
    }
    assert!(left.is_empty());
    let got = sink.got.lock();
    assert_eq!(got.len(), 52);
    assert_eq!((&got[0].0[..], &got[51].0[..]), (&plain[..], &plain[..]));
    let whole: Vec<u8> = got[1..51].iter().flat_map(|f| f.0[54..].to_vec()).collect();
    assert_eq!(whole, payload);
}

#[test]
fn a_frame_given_up_half_way_does_not_shorten_the_next() {
    let (big, notes) = tcp(false, &[1; 1000]);
    let (other, _) = tcp(false, &[2; 1000]);
    let notes = Offload {
        gso_size: 100,
        ..notes
    };
    let mut batch = Batch::new();
    push(&mut batch, &big, &[], notes);
    push(&mut batch, &other, &[], notes);
    let sink = Narrow::new(Caps::NONE, 4);
    let mut finisher = Finisher::new();
    assert_eq!(
        finisher.deliver(&sink, &batch, &[0], |_, e| panic!("{e}")),
        0
    );
    *sink.room.lock() = 100;
    assert_eq!(
        finisher.deliver(&sink, &batch, &[1], |_, e| panic!("{e}")),
        1
    );
    assert_eq!(sink.got.lock().len(), 14);
}

#[test]
fn bad_frames_are_dealt_with_and_told_once() {
    let (big, notes) = tcp(false, &[1; 1000]);
    let bad = Offload {
        gso: Gso::Tcp6,
        gso_size: 100,
        ..notes
    };
    let good = Offload {
        gso_size: 100,
        ..notes
    };
    let mut batch = Batch::new();
    push(&mut batch, &big, &[], bad);
    push(&mut batch, &big, &[], good);
    push(&mut batch, &big, &[], bad);
    let sink = Narrow::new(Caps::NONE, 3);
    let mut finisher = Finisher::new();
    let mut told = Vec::new();
    let mut tell = |pick, _| told.push(pick);
    assert_eq!(finisher.deliver(&sink, &batch, &[0, 1, 2], &mut tell), 1);
    *sink.room.lock() = 100;
    assert_eq!(finisher.deliver(&sink, &batch, &[1, 2], &mut tell), 2);
    assert_eq!(told, [0, 2]);
    assert_eq!(sink.got.lock().len(), 10);
}

#[test]
fn a_sink_that_can_gets_the_frame_whole() {
    let (big, notes) = tcp(true, &[1; 5000]);
    let notes = Offload {
        gso_size: 1000,
        vlan: Some(9),
        ..notes
    };
    let mut batch = Batch::new();
    push(&mut batch, &big, &[], notes);
    let sink = Narrow::new(Caps::ALL, 9);
    let n = Finisher::new().deliver(&sink, &batch, &[0], |_, e| panic!("{e}"));
    assert_eq!(n, 1);
    assert_eq!(*sink.got.lock(), [(big.clone(), notes)]);

    let untagged = Caps {
        vlan: false,
        ..Caps::ALL
    };
    let sink = Narrow::new(untagged, 9);
    Finisher::new().deliver(&sink, &batch, &[0], |_, e| panic!("{e}"));
    let got = sink.got.lock();
    assert_eq!(got[0].0[12..16], [0x81, 0, 0, 9]);
    assert_eq!((got[0].0.len(), got[0].1.hdr_len), (big.len() + 4, 78));
}

/// A receiver of buffers, of which it has so many: takes cuts, or expanded frames.
struct Buffers {
    narrow: Narrow,
    cuts: bool,
    /// Cuts are taken up to so many segments at once.
    most: usize,
    /// It sums payloads itself.
    sums: bool,
}

impl Sink for Buffers {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        self.narrow.deliver(batch, picks)
    }

    fn deliver_cut(&self, cut: &Cut<'_>, from: usize) -> Option<usize> {
        if !self.cuts {
            return None;
        }
        let memory = Memory::new();
        memory.map_anon(0, 0x1_0000).expect("map");
        let view = memory.view();
        let window = view.write_window(0).expect("mapped");
        let mut room = self.narrow.room.lock();
        let n = (cut.count() - from).min(self.most).min(*room);
        *room -= n;
        let mut segments = cut.segments(from);
        for index in from..from + n {
            let len = cut.segment_len(index);
            view.write(0x7fe, &[0xee; 0x4000]).expect("mapped");
            let place = window.at(0x801, len + index % 5).expect("inside");
            let written = match self.sums {
                true => segments.write_unsummed(&place),
                false => segments.write(&place),
            };
            assert_eq!(written, len);
            let mut bytes = vec![0; len + 10];
            view.read(0x800, &mut bytes).expect("mapped");
            let (frame, behind) = bytes[1..].split_at(len);
            let (zeros, beyond) = behind.split_at(index % 5);
            assert!(bytes[0] == 0xee && beyond.iter().all(|b| *b == 0xee));
            assert!(zeros.iter().all(|b| *b == 0));
            self.narrow.got.lock().push((frame.to_vec(), Offload::NONE));
        }
        Some(n)
    }

    fn caps(&self) -> Caps {
        self.narrow.caps
    }

    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

proptest! {
    #[test]
    fn a_cut_is_what_an_expanded_frame_is(
        v6: bool,
        payload in vec(any::<u8>(), 0..5000),
        size in 1u16..2000,
        options in 0usize..11,
        flags: u8,
        cuts in vec(any::<usize>(), 0..6),
        most in 1usize..20,
        sums: bool,
        rooms in vec(0usize..60, 1..6),
    ) {
        let (mut bytes, mut notes) = tcp(v6, &payload);
        let l4 = usize::from(notes.hdr_len) - 20;
        let more = options * 4;
        bytes.splice(l4 + 20..l4 + 20, (0..more).map(|i| i as u8));
        bytes[l4 + 12] += (options as u8) << 4;
        bytes[l4 + 13] = flags;
        notes.hdr_len += more as u16;
        notes.gso_size = size;
        let mut batch = Batch::new();
        push(&mut batch, &bytes, &cuts, notes);
        push(&mut batch, &[7; 60], &[], Offload::NONE);
        let [cut, expanded] = [true, false].map(|cuts| {
            let narrow = Narrow::new(Caps { csum: sums, ..Caps::NONE }, 0);
            let sink = Buffers { narrow, cuts, most, sums };
            let mut finisher = Finisher::new();
            let mut seen = Vec::new();
            let mut left: &[u16] = &[0, 1];
            for room in rooms.iter().chain([&usize::MAX]) {
                *sink.narrow.room.lock() = *room;
                let mut refused = Vec::new();
                let n = finisher.deliver(&sink, &batch, left, |_, e| refused.push(e));
                left = &left[n..];
                seen.push((n, finisher.moved(), refused));
            }
            let got = sink.narrow.got.into_inner();
            let got: Vec<_> = got.into_iter().map(|(bytes, _)| bytes).collect();
            (got, seen)
        });
        prop_assert_eq!(cut, expanded);
    }

    #[test]
    fn any_notes_on_any_bytes_are_cut_or_not(
        bytes in vec(any::<u8>(), 0..200), words: [u16; 4], small: bool, v6: bool, place: usize,
    ) {
        let [start, offset, gso_size, hdr_len] = words.map(|w| if small { w % 100 } else { w });
        let (mut frame, good) = tcp(v6, &bytes);
        // Most of them are nearly right.
        let notes = match place % 3 {
            0 => Offload { csum: Some(Csum { start, offset }), gso_size, hdr_len, ..good },
            _ => Offload { gso_size, ..good },
        };
        let at = place / 3 % frame.len();
        frame[at] = start as u8;
        let mut source = Batch::new();
        push(&mut source, &frame, &[3, 5], notes);
        let frame = source.get(0).expect("pushed");
        let mut out = Batch::new();
        let expanded = expand(&frame, Caps::NONE, &mut out);
        match Cut::new(&frame) {
            None => {}
            Some(cut) => {
                let all = expanded.expect("it can be cut");
                prop_assert!(cut.count() == all || cut.count() + 1 == all);
                prop_assert_eq!(&cut.header()[..], &frame.head()[..14]);
            }
        }
    }
}

#[test]
fn what_needs_more_than_a_cut_is_none() {
    let (bytes, notes) = tcp(false, &[1; 3000]);
    let good = Offload {
        gso_size: 1000,
        ..notes
    };
    let cut = |notes: Offload| {
        let mut source = Batch::new();
        push(&mut source, &bytes, &[], notes);
        Cut::new(&source.get(0).expect("pushed")).map(|cut| cut.count())
    };
    assert_eq!(cut(good), Some(3));
    let tagged = Offload {
        vlan: Some(1),
        ..good
    };
    let whole = Offload {
        gso: Gso::None,
        ..good
    };
    let tiny = Offload {
        gso_size: 5,
        ..good
    };
    for none in [tagged, whole, tiny] {
        assert_eq!(cut(none), None, "{none:?}");
    }
    // A last segment of a byte is padded.
    let padded = Offload {
        gso_size: 2999,
        ..good
    };
    assert_eq!(cut(padded), Some(1));
}
