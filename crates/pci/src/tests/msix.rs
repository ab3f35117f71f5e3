//! The MSI-X table of those who send messages themselves.

use crate::{Delivery, Message, Msix, MsixTable};
use proptest::prelude::*;

const LAYOUT: Msix = Msix {
    vectors: 10,
    table_bar: 3,
    table_offset: 0x100,
    pba_bar: 3,
    pba_offset: 0x2000,
};
const TABLE: u64 = 0x100;
const PBA: u64 = 0x2000;

fn nowhere(message: Message) {
    panic!("{message:?} is not due");
}

fn entry(table: &mut MsixTable, vector: u64, masked: u32, send: &mut dyn FnMut(Message)) {
    let at = TABLE + 16 * vector;
    assert!(table.write(3, at, &(0xfee0_0000u64 | vector << 12).to_le_bytes(), send));
    assert!(table.write(3, at + 8, &(0x40 + vector as u32).to_le_bytes(), send));
    assert!(table.write(3, at + 12, &masked.to_le_bytes(), send));
}

fn message(vector: u64) -> Message {
    Message {
        address: 0xfee0_0000 | vector << 12,
        data: 0x40 + vector as u32,
    }
}

fn pending(table: &MsixTable) -> u64 {
    let mut word = [0; 8];
    assert!(table.read(3, PBA, &mut word));
    u64::from_le_bytes(word)
}

#[test]
fn a_vector_fires_when_nothing_masks_it_and_waits_else() {
    let mut table = MsixTable::new(LAYOUT);
    entry(&mut table, 9, 0, &mut nowhere);
    assert_eq!(table.raise(9), None, "MSI-X is off");
    assert_eq!(pending(&table), 0, "and remembers nothing");
    table.route(Delivery::On, &mut nowhere);
    assert_eq!(table.raise(9), Some(message(9)));
    assert_eq!(table.raise(10), None, "there is no such vector");
    // Its own mask, from power-up on.
    assert_eq!(table.raise(2), None);
    assert_eq!(table.raise(2), None);
    assert_eq!(pending(&table), 1 << 2);
    let mut sent = Vec::new();
    entry(&mut table, 2, 0, &mut |m| sent.push(m));
    assert_eq!(sent, [message(2)], "once");
    assert_eq!(pending(&table), 0);
    // The mask of all.
    table.route(Delivery::Masked, &mut nowhere);
    assert_eq!(table.raise(9), None);
    assert_eq!(pending(&table), 1 << 9);
    let mut sent = Vec::new();
    table.route(Delivery::On, &mut |m| sent.push(m));
    assert_eq!(sent, [message(9)]);
    // Turned off, it forgets.
    table.route(Delivery::Masked, &mut nowhere);
    assert_eq!(table.raise(9), None);
    table.route(Delivery::Off, &mut nowhere);
    table.route(Delivery::On, &mut nowhere);
    assert_eq!(pending(&table), 0);
}

#[test]
fn reserved_bits_stay_zero_and_pending_bits_are_read_only() {
    let mut table = MsixTable::new(LAYOUT);
    let mut word = [0; 16];
    assert!(table.read(3, TABLE + 16 * 9, &mut word));
    assert_eq!(word[12..], [1, 0, 0, 0], "masked after a reset");
    assert!(table.write(3, TABLE, &[0xff; 64], &mut nowhere));
    for vector in 0..4 {
        assert!(table.read(3, TABLE + 16 * vector, &mut word));
        assert_eq!((word[0], &word[12..]), (0xfc, &[1, 0, 0, 0][..]));
    }
    assert!(table.write(3, PBA, &[0xff; 8], &mut nowhere));
    assert_eq!(pending(&table), 0);
    // Elsewhere it is not ours; beyond the end there are ones.
    for (bar, at) in [(3, 0), (3, TABLE + 160), (3, PBA + 8), (2, TABLE)] {
        assert!(!table.read(bar, at, &mut word));
        assert!(!table.write(bar, at, &word, &mut nowhere));
    }
    assert!(table.read(3, TABLE + 156, &mut word[..8]));
    assert_eq!(word[..8], [1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
}

#[test]
fn saved_tables_are_checked() {
    let mut table = MsixTable::new(LAYOUT);
    entry(&mut table, 3, 1, &mut nowhere);
    table.route(Delivery::On, &mut nowhere);
    table.raise(3);
    let (entries, bits) = table.save();
    let (entries, bits) = (entries.to_vec(), bits.to_vec());
    let mut other = MsixTable::new(LAYOUT);
    assert!(other.load(&entries, &bits));
    other.route(Delivery::On, &mut nowhere);
    let mut sent = Vec::new();
    other.write(3, TABLE + 16 * 3 + 12, &[0; 4], &mut |m| sent.push(m));
    assert_eq!(sent, [message(3)]);
    let wrong = |at: usize, value| {
        let mut entries = entries.clone();
        entries[at] = value;
        !MsixTable::new(LAYOUT).load(&entries, &bits)
    };
    assert!(wrong(0, 1) && wrong(12, 2) && wrong(13, 1));
    assert!(!MsixTable::new(LAYOUT).load(&entries[16..], &bits));
    assert!(!MsixTable::new(LAYOUT).load(&entries, &[0; 16]));
    assert!(!MsixTable::new(LAYOUT).load(&entries, &[0, 4, 0, 0, 0, 0, 0, 0]));
}

#[derive(Clone, Debug)]
enum Op {
    Raise(u16),
    Write(u64, Vec<u8>),
    Route(bool, bool),
}

fn op() -> impl Strategy<Value = Op> {
    let bytes = prop::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        (0u16..12).prop_map(Op::Raise),
        (0u64..0x2010, bytes).prop_map(|(at, data)| Op::Write(at, data)),
        (0u64..10, any::<bool>())
            .prop_map(|(v, m)| Op::Write(TABLE + 16 * v + 12, vec![m.into(); 1])),
        (any::<bool>(), any::<bool>()).prop_map(|(e, m)| Op::Route(e, m)),
    ]
}

proptest! {
    /// While MSI-X is on, each vector that was raised was either sent or waits, and what waits has a
    /// reason to.
    #[test]
    fn no_message_is_lost_or_invented(ops in prop::collection::vec(op(), 1..80)) {
        let mut table = MsixTable::new(LAYOUT);
        let (mut enabled, mut masked) = (false, false);
        for op in ops {
            let before = pending(&table);
            let mut sent = 0;
            let mut raised = 0;
            match op {
                Op::Raise(vector) => {
                    sent = u32::from(table.raise(vector).is_some());
                    raised = if enabled && vector < 10 { 1u64 << vector } else { 0 };
                }
                Op::Write(at, data) => {
                    table.write(3, at, &data, &mut |_| sent += 1);
                }
                Op::Route(on, all) => {
                    (enabled, masked) = (on, all);
                    let delivery = match (on, all) {
                        (false, _) => Delivery::Off,
                        (true, true) => Delivery::Masked,
                        (true, false) => Delivery::On,
                    };
                    table.route(delivery, &mut |_| sent += 1);
                }
            }
            let after = pending(&table);
            if enabled {
                let due = (before | raised).count_ones() - after.count_ones();
                prop_assert_eq!(sent, due);
            } else {
                prop_assert_eq!((sent, after), (0, 0));
            }
            let (entries, _) = table.save();
            for vector in 0..10 {
                if after >> vector & 1 != 0 {
                    prop_assert!(masked || entries[16 * vector + 12] & 1 != 0);
                }
            }
        }
    }
}
