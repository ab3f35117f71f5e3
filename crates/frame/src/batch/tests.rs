use proptest::prelude::*;

use super::*;

#[test]
fn frames_are_what_was_pushed() {
    let (a, b) = ([1u8, 2, 3], [4u8, 5]);
    let mut batch = Batch::new();
    batch.push_slice(ReadSlice::from_bytes(&a));
    batch.push_bytes(&[9]);
    batch.push_slice(ReadSlice::from_bytes(&b));
    assert_eq!(batch.end(Offload::NONE), 0);
    batch.push_bytes(&[7, 7]);
    batch.abandon();
    batch.push_slice(ReadSlice::from_bytes(&b));
    batch.end(Offload {
        csum_valid: true,
        ..Offload::NONE
    });
    let frames: Vec<_> = batch.iter().map(|f| f.to_vec()).collect();
    assert_eq!(frames, [vec![1, 2, 3, 9, 4, 5], vec![4, 5]]);
    let first = batch.get(0).expect("there");
    let mut mid = [0u8; 3];
    assert_eq!(first.copy_to(2, &mut mid), 3);
    assert_eq!(mid, [3, 9, 4]);
    assert_eq!(first.copy_to(5, &mut mid), 1);
    assert!(first.is_plain());
    let second = batch.get(1).expect("there");
    assert!(second.notes().csum_valid && !second.is_plain());
    assert!(batch.get(2).is_none());
}

#[test]
fn recycling_keeps_the_storage_and_drops_the_frames() {
    let mut batch = Batch::new();
    for _ in 0..100 {
        batch.push_bytes(&[1; 100]);
        batch.push_bytes(&[2; 100]);
        batch.end(Offload::NONE);
    }
    let storage = |batch: &Batch<'_>| {
        [
            batch.pieces.capacity(),
            batch.frames.capacity(),
            batch.arena.capacity(),
        ]
    };
    let before = storage(&batch);
    let batch: Batch<'static> = batch.recycle();
    assert!(batch.is_empty());
    assert_eq!(storage(&batch), before);
}

#[test]
fn a_head_stays_what_it_was_when_the_memory_behind_it_changes() {
    let memory = guest_mem::Memory::new();
    memory.map_anon(0, 0x1000).expect("map");
    let view = memory.view();
    view.write(0, &[1; 100]).expect("write");
    let mut batch = Batch::new();
    view.read_slices(0, 100, &mut |s| batch.push_slice(s))
        .expect("slices");
    batch.end(Offload::NONE);
    view.write(0, &[2; 100]).expect("write");
    let frame = batch.get(0).expect("there");
    assert_eq!(frame.head(), [1; HEAD]);
    let rest = frame.single_rest().expect("one run");
    let mut bytes = [0; 100 - HEAD];
    assert_eq!(rest.copy_to(0, &mut bytes), bytes.len());
    assert_eq!(bytes, [2; 100 - HEAD], "not copied");
    assert_eq!(frame.to_vec()[..HEAD], [1; HEAD]);
}

#[derive(Clone, Debug)]
enum Step {
    Bytes(Vec<u8>),
    Slice(Vec<u8>),
    Frame(Vec<u8>),
    End(bool),
    Abandon,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..90);
    prop_oneof![
        bytes().prop_map(Step::Bytes),
        bytes().prop_map(Step::Slice),
        bytes().prop_map(Step::Frame),
        any::<bool>().prop_map(Step::End),
        Just(Step::Abandon),
    ]
}

proptest! {
    #[test]
    fn every_way_to_look_at_a_frame_shows_the_same_bytes(
        steps in proptest::collection::vec(step(), 0..60)
    ) {
        let mut batch = Batch::new();
        let mut want: Vec<(Vec<u8>, bool)> = Vec::new();
        let mut open = Vec::new();
        for step in &steps {
            match step {
                Step::Bytes(bytes) => {
                    batch.push_bytes(bytes);
                    open.extend_from_slice(bytes);
                }
                Step::Slice(bytes) => {
                    batch.push_slice(ReadSlice::from_bytes(bytes));
                    open.extend_from_slice(bytes);
                }
                // Only where no frame is under way.
                Step::Frame(_) if !open.is_empty() => {}
                Step::Frame(bytes) => {
                    batch.push_frame(ReadSlice::from_bytes(bytes));
                    want.push((bytes.clone(), true));
                }
                Step::End(plain) => {
                    let notes = Offload { csum_valid: !plain, ..Offload::NONE };
                    prop_assert_eq!(batch.end(notes), want.len());
                    want.push((std::mem::take(&mut open), *plain));
                }
                Step::Abandon => {
                    batch.abandon();
                    open.clear();
                }
            }
            prop_assert_eq!(batch.open_len(), open.len());
        }
        prop_assert_eq!(batch.len(), want.len());
        for (frame, (bytes, plain)) in batch.iter().zip(&want) {
            prop_assert_eq!(frame.len(), bytes.len());
            prop_assert_eq!(frame.to_vec(), bytes.clone());
            prop_assert_eq!(frame.head(), &bytes[..bytes.len().min(HEAD)]);
            prop_assert_eq!(frame.is_plain(), *plain);
            let whole = |slices: Vec<ReadSlice<'_>>| {
                let mut out = Vec::new();
                for slice in slices {
                    let at = out.len();
                    out.resize(at + slice.len(), 0);
                    slice.copy_to(0, &mut out[at..]);
                }
                out
            };
            let rest = &bytes[bytes.len().min(HEAD)..];
            prop_assert_eq!(whole(frame.slices().collect()), bytes.clone());
            prop_assert_eq!(whole(frame.rest().collect()), rest);
            match frame.single_rest() {
                Some(run) => prop_assert_eq!(whole(vec![run]), rest),
                None => prop_assert!(frame.rest().count() != 1),
            }
        }
    }
}
