//! What is refused, with which reason, and that nothing is left of it; what was left undone goes on.

use crate::common::*;
use crate::ops::{Op, op};
use crate::script::Rig;
use frame::Caps;
use hypernic_e1000::state::{self, Phase, State, StateError, Target};
use hypernic_e1000::{Config, Moderation};
use proptest::prelude::*;

/// A NIC in the middle of its work: frames sent and received, causes waiting, timers running, a
/// packet sent in part, commands begun.
fn busy() -> Machine {
    let mut config = Config::new(MAC);
    config.moderation = Moderation::Adaptive;
    let mut m = Machine::with(config, Wire::default());
    m.time
        .now
        .store(5_000_000_000, std::sync::atomic::Ordering::SeqCst);
    m.tx_on(8);
    m.rx_on(8, 0x8000);
    m.w(reg::IMS, 0x1_ffff);
    m.w(reg::ITR, 500);
    m.w(reg::RDTR, 100);
    m.w(reg::RADV, 200);
    m.w(reg::TIDV, 100);
    m.w(reg::TADV, 50);
    m.offer(&[&plain(MAC, 100), &plain(MAC, 1000)]);
    m.sleep(50_000);
    m.offer(&[&plain(MAC, 64)]);
    // More than there are descriptors: the last ones wait in the packet FIFO.
    assert_eq!(m.offer(&[plain(MAC, 80).as_slice(); 6]), 6);
    let packet = plain(PEER, 400);
    m.poke(TX_BUFFERS, &packet);
    let context = Ctx {
        ip: (14, 24, 33),
        tu: (34, 50, 0),
        paylen: 360,
        cmd: TSE,
        hdrlen: 40,
        mss: 100,
    };
    let (low, high) = context.words();
    m.tx_desc(0, low, high);
    m.tx_desc(1, TX_BUFFERS, data(400, EOP | IFCS | RS | IDE | TSE, 0, 0));
    m.wire.set_room(2);
    m.w(reg::TDT, 2);
    // The low half of a pair; an EEPROM command begun; one register named by I/O.
    m.r(0x40c0);
    for levels in [2, 2 | 4, 2 | 4 | 1, 2 | 4, 2 | 4 | 1, 2] {
        m.w(reg::EECD, levels | 0x40);
    }
    m.nic.control.write(&m.env, 1, 0, &0x5400u32.to_le_bytes());
    m.w(0x1_0000, 0xdead_beef);
    // The link goes down for a while; what that gives to do is left.
    let negotiate = 1u32 << 26 | 1 << 21 | 0x1340;
    m.nic
        .control
        .write(&m.env, 0, reg::MDIC, &negotiate.to_le_bytes());
    m
}

fn saved(m: &Machine) -> State {
    state::read(&m.nic.control.save(&m.env)).expect("just saved")
}

#[test]
fn a_busy_nic_has_something_in_every_part_of_its_state() {
    let state = saved(&busy());
    assert_eq!(state.receiver.waiting.len(), 2);
    assert!(!state.statistics.is_empty() && !state.latched.is_empty());
    assert!(!state.packet_buffer.is_empty());
    assert_eq!(state.io_address, 0x5400);
    assert!(state.transmitter.unfinished && state.tx_work && state.rx_work);
    assert_eq!(state.transmitter.taken, 2);
    assert_eq!(state.transmitter.segmenting.mss, 100);
    assert!(matches!(state.eeprom.phase, Phase::Command { .. }));
    assert!(!state.phy.negotiated);
    let irq = &state.interrupts;
    assert!(irq.receive.packet.is_some() && irq.receive.absolute.is_some());
    assert!(irq.negotiation.is_some() && irq.causes != 0 && irq.mask != 0);
    assert!(irq.last.is_some_and(|t| t < 0));
}

/// What a program of version 1 saved, once and for all. If you change the type so that this no
/// longer loads, add a new version, and a conversion from the old one.
#[test]
fn a_state_of_version_1_is_loaded_by_every_later_program() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/golden/state-v1.bin");
    let blob = std::fs::read(path).expect("the golden state");
    assert_eq!(blob[16..20], [1, 0, 0, 0]);
    let mut m = Machine::default();
    m.nic
        .control
        .load(&m.env, &blob)
        .expect("a new version needs a conversion from this one");
    assert_eq!(m.r(0x1_0000), 0xdead_beef);
    assert_eq!(
        m.r(reg::RAL),
        u32::from_le_bytes([MAC[0], MAC[1], MAC[2], MAC[3]])
    );
    assert_eq!((m.r(reg::TDT), m.r(reg::TDH)), (2, 1));
    assert_eq!(m.r(reg::RDH), 7);
    assert_eq!(m.r(0x4074), 7, "GPRC: those in the ring");
    assert_eq!(m.r(reg::IMS), 0x1_ffff);
    assert_eq!(m.phy_read(0), 0x1140);
    // Two of four segments are still to be sent; two frames wait in the packet FIFO.
    m.poke(TX_BUFFERS, &plain(PEER, 400));
    m.tx_desc(1, TX_BUFFERS, data(400, EOP | IFCS | RS | TSE, 0, 0));
    m.sleep(10_000_000);
    m.work();
    assert_eq!(m.wire.take().len(), 2);
    for index in 0..2 {
        m.rx_desc((7 + index) & 7, RX_BUFFERS);
    }
    m.w(reg::RDT, 1);
    assert_eq!(m.r(reg::RDH), 1);
}

/// What is saved now, the release before loads.
#[test]
fn what_is_saved_is_what_was_saved_of_the_same_nic() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/golden/busy-v1.bin");
    let m = busy();
    let blob = model_testkit::golden(path, &m.nic.control.save(&m.env));
    let mut other = Machine::default();
    other.nic.control.load(&other.env, &blob).expect("loads");
}

#[test]
fn a_packet_sent_in_part_is_finished_elsewhere_and_nothing_is_sent_twice() {
    let m = busy();
    let mut sent = m.wire.take();
    let blob = m.nic.control.save(&m.env);
    let mut other = Machine::default();
    other.env.memory = m.env.memory.clone();
    other.nic.control.load(&other.env, &blob).expect("loads");
    // Link comes back when negotiation has ended.
    other.sleep(10_000_000);
    other.work();
    sent.extend(other.wire.take());
    let payload: Vec<u8> = sent.iter().flat_map(|f| f[40..].to_vec()).collect();
    assert_eq!(sent.len(), 4);
    assert_eq!(payload, plain(PEER, 400)[40..]);
    assert_eq!(other.r(reg::TDH), 2);
    assert!(other.tx_done(1));
}

#[test]
fn line_and_timer_are_those_of_the_saved_nic_on_another_clock() {
    let mut m = Machine::default();
    m.time
        .now
        .store(9_000_000_000, std::sync::atomic::Ordering::SeqCst);
    m.w(reg::IMS, 1);
    m.w(reg::ICS, 1);
    m.phy_write(0, 0x1340);
    assert_eq!(m.armed(), Some(9_010_000_000));
    let blob = m.nic.control.save(&m.env);
    let mut other = Machine::default();
    other
        .time
        .now
        .store(1_000_000_000, std::sync::atomic::Ordering::SeqCst);
    other.nic.control.load(&other.env, &blob).expect("loads");
    assert!(other.line());
    assert_eq!(other.armed(), Some(1_010_000_000));
    assert_eq!(other.r(reg::ICR) & 1, 1);
    // And back: a NIC in use becomes one that is idle.
    let idle = Machine::default();
    let blob = idle.nic.control.save(&idle.env);
    m.nic.control.load(&m.env, &blob).expect("loads");
    assert!(!m.line());
    assert_eq!(m.armed(), None);
    assert_eq!(m.r(reg::IMS), 0);
}

#[test]
fn work_that_was_noted_is_done_elsewhere() {
    let mut m = Machine::default();
    m.tx_on(8);
    m.rx_on(8, 0x8000);
    assert_eq!(m.offer(&[plain(MAC, 100).as_slice(); 9]), 9);
    m.rx_desc(7, RX_BUFFERS);
    let out = plain(PEER, 100);
    m.poke(TX_BUFFERS, &out);
    m.tx_desc(0, TX_BUFFERS, legacy(100, EOP | IFCS | RS));
    // The guest has written both tails, and neither ring was polled yet.
    for (at, value) in [(reg::TDT, 1u32), (reg::RDT, 0)] {
        m.nic.control.write(&m.env, 0, at, &value.to_le_bytes());
    }
    let blob = m.nic.control.save(&m.env);
    let mut other = Machine::default();
    other.env.memory = m.env.memory.clone();
    other.nic.control.load(&other.env, &blob).expect("loads");
    assert!(
        other.wire.take().is_empty(),
        "loading does no work by itself"
    );
    assert_eq!(other.r(reg::RDH), 7);
    other.work();
    assert_eq!(other.wire.take(), [out]);
    assert_eq!(other.r(reg::RDH), 0);
    assert_eq!(other.rx_status(7).0, 104);
}

#[test]
fn what_is_spared_a_guest_stays_so() {
    let mut config = Config::new(MAC);
    config.moderation = Moderation::Adaptive;
    let mut m = Machine::with(config, Wire::default());
    m.time
        .now
        .store(5_000_000_000, std::sync::atomic::Ordering::SeqCst);
    m.w(reg::IMS, 0x80);
    m.w(reg::ITR, 1);
    // Interrupts in a row, each of which takes the guest 100 µs.
    for _ in 0..4 {
        m.w(reg::ICS, 0x80);
        assert!(m.line());
        m.sleep(100_000);
        m.r(reg::ICR);
    }
    let blob = m.nic.control.save(&m.env);
    let mut other = Machine::with(config, Wire::default());
    other
        .time
        .now
        .store(2_000_000_000, std::sync::atomic::Ordering::SeqCst);
    other.nic.control.load(&other.env, &blob).expect("loads");
    m.w(reg::ICS, 0x80);
    other.w(reg::ICS, 0x80);
    assert!(!m.line() && !other.line(), "the next one has to wait");
    let left = |m: &Machine| m.armed().map(|t| t - m.env.clock.now());
    assert!(left(&m).is_some_and(|left| left > 100_000));
    assert_eq!(left(&m), left(&other));
}

#[test]
fn whoever_waits_for_room_is_woken_by_a_load() {
    let mut m = Machine::default();
    let bell = std::sync::Arc::new(model_testkit::CountedWake::default());
    let wake: std::sync::Arc<dyn frame::Wake> = bell.clone();
    m.nic.receive.want_room(&wake);
    let blob = m.nic.control.save(&m.env);
    m.nic.control.load(&m.env, &blob).expect("loads");
    assert!(bell.rung() > 0);
}

/// Loads into a busy NIC what must be refused, and returns why.
#[track_caller]
fn refusal(blob: &[u8]) -> StateError {
    let mut m = busy();
    let before = saved(&m);
    let (line, armed) = (m.line(), m.armed());
    let memory = m.peek(RAM, 0x1000);
    let error = m.nic.control.load(&m.env, blob).expect_err("refused");
    assert_eq!(saved(&m), before, "{error}");
    assert_eq!((m.line(), m.armed()), (line, armed), "{error}");
    assert_eq!(m.peek(RAM, 0x1000), memory);
    error
}

#[test]
fn other_devices_and_versions_from_the_future_are_refused_by_name() {
    let mut state = saved(&busy());
    state.device = 0x10d3;
    assert_eq!(
        refusal(&state::write(&state)).to_string(),
        "it was saved by a 8086:10d3, this is a 8086:100e"
    );
    let blob = state::write(&saved(&busy()));
    let payload = &blob[24..blob.len() - 4];
    for version in [0, state::VERSION + 1, u32::MAX] {
        let blob = snapshot::wrap(state::KIND, version, payload);
        let why = refusal(&blob);
        assert!(matches!(why, StateError::Version { .. }), "{why}");
    }
    let blob = snapshot::wrap(snapshot::Kind::new("igb"), 1, payload);
    assert_eq!(
        refusal(&blob).to_string(),
        "this is the state of a igb, not of a e1000"
    );
}

type Spoil = fn(&mut State);

/// What is spoiled, and under which name it is refused.
const IMPOSSIBLE: &[(&str, Spoil)] = &[
    ("registers.offset", |s| s.registers[3].offset += 1),
    ("registers.offset", |s| s.registers[3].offset = 0x5f00_0000),
    ("registers.offset", |s| s.registers[0].offset = 0x8fff),
    ("registers.offset", |s| s.registers.swap(1, 2)),
    ("registers.offset", |s| {
        let twice = s.registers[4].clone();
        s.registers.insert(4, twice);
    }),
    // A second address is no place of its own.
    ("registers.offset", |s| s.registers[1].offset = 4),
    ("registers.values", |s| s.registers[0].values.push(0)),
    ("registers.values", |s| s.registers[7].values.clear()),
    ("RDLEN", |s| register(s, 0x2808)[0] |= 8),
    ("TDLEN", |s| register(s, 0x3808)[0] |= 1 << 31),
    ("TDH", |s| register(s, 0x3810)[0] = 0x1_0000),
    ("RDT", |s| register(s, 0x2818)[0] = u32::MAX),
    ("RCTL", |s| register(s, 0x100)[0] |= 1),
    ("RAH", |s| register(s, 0x5404)[15] |= 1 << 30),
    ("packet_buffer.index", |s| s.packet_buffer[0].index = 64),
    ("packet_buffer.index", |s| s.packet_buffer[0].bytes.push(0)),
    ("packet_buffer.index", |s| {
        let twice = s.packet_buffer[0].clone();
        s.packet_buffer.push(twice);
    }),
    ("statistics.offset", |s| s.statistics[0].offset = 0x4001),
    ("statistics.offset", |s| s.statistics.swap(0, 1)),
    ("latched.offset", |s| s.latched[0].offset = 0x40c4),
    ("latched.value", |s| s.latched[0].value = u64::MAX),
    ("latched.value", |s| s.latched.push(s.latched[0].clone())),
    ("io_address", |s| s.io_address = 1 << 20),
    ("eeprom.words", |s| s.eeprom.words.push(0)),
    ("eeprom.words", |s| s.eeprom.words.clear()),
    ("eeprom.phase", |s| {
        s.eeprom.phase = Phase::Command { bits: 8, value: 0 };
    }),
    ("eeprom.phase", |s| {
        s.eeprom.phase = Phase::Command { bits: 2, value: 4 };
    }),
    ("eeprom.phase", |s| {
        s.eeprom.phase = Phase::Read { at: 64, left: 0 };
    }),
    ("eeprom.phase", |s| {
        s.eeprom.phase = Phase::Read { at: 1, left: 17 };
    }),
    ("eeprom.phase", |s| {
        s.eeprom.phase = Phase::Data {
            bits: 16,
            value: 0,
            target: Target::All,
        };
    }),
    ("eeprom.phase", |s| {
        s.eeprom.phase = Phase::Data {
            bits: 1,
            value: 0,
            target: Target::Word(64),
        };
    }),
    ("eeprom.phase", |s| {
        s.eeprom.phase = Phase::Commit {
            value: 0,
            target: Target::Word(255),
        };
    }),
    ("phy.regs", |s| s.phy.regs.push(0)),
    ("phy.regs", |s| s.phy.regs[2] = 0),
    ("transmitter.paylen", |s| {
        s.transmitter.plain.paylen = 1 << 20;
    }),
    ("transmitter.taken", |s| s.transmitter.taken = u32::MAX),
    ("flow.owed", |s| s.flow.owed = 8),
    ("flow.until", |s| s.flow.until = Some(i64::MAX)),
    ("receiver.waiting", |s| s.receiver.fifo_head = u32::MAX),
    ("receiver.waiting", |s| s.receiver.fifo_size = u32::MAX),
    ("receiver.waiting", |s| s.receiver.fifo_size = 1),
    ("flow.ten_bits", |s| s.flow.ten_bits = u32::MAX),
    ("interrupts.causes", |s| s.interrupts.causes = 1 << 31),
    ("interrupts.mask", |s| s.interrupts.mask = 1 << 17),
    ("interrupts.last", |s| s.interrupts.last = Some(1)),
    ("interrupts.last", |s| s.interrupts.last = Some(i64::MIN)),
    ("interrupts.throttled", |s| {
        s.interrupts.throttled = Some(i64::MAX);
    }),
    ("interrupts.packet", |s| {
        s.interrupts.receive.packet = Some(i64::MAX);
    }),
    ("interrupts.absolute", |s| {
        s.interrupts.transmit.absolute = Some(1 << 40);
    }),
    ("interrupts.negotiation", |s| {
        s.interrupts.negotiation = Some(i64::MAX);
    }),
    ("adaptive.cost", |s| s.interrupts.adaptive.cost = u64::MAX),
    ("adaptive.paid", |s| s.interrupts.adaptive.paid = i64::MAX),
    ("adaptive.raised", |s| {
        s.interrupts.adaptive.raised = Some(1)
    }),
    ("adaptive.waiting", |s| {
        s.interrupts.adaptive.waiting = Some(i64::MIN);
    }),
];

#[test]
fn every_impossible_field_is_refused_by_name() {
    for (name, spoil) in IMPOSSIBLE {
        let mut state = saved(&busy());
        spoil(&mut state);
        match refusal(&state::write(&state)) {
            StateError::Field { field, .. } => assert_eq!(field, *name),
            other => panic!("{name}: {other}"),
        }
    }
}

fn register(state: &mut State, offset: u32) -> &mut Vec<u32> {
    let words = state.registers.iter_mut().find(|w| w.offset == offset);
    &mut words.expect("saved").values
}

#[test]
fn a_damaged_state_is_refused_wherever_it_is_damaged() {
    let blob = busy().nic.control.save(&busy().env);
    let mut m = busy();
    let mut load = |blob: &[u8]| m.nic.control.load(&m.env, blob);
    for len in 0..blob.len() {
        assert!(load(&blob[..len]).is_err(), "{len} bytes of it");
    }
    for at in 0..blob.len() {
        let mut bad = blob.clone();
        bad[at] ^= 0x10;
        assert!(load(&bad).is_err(), "byte {at}");
    }
    let mut longer = blob.clone();
    longer.extend(&blob);
    assert!(load(&longer).is_err());
    assert_eq!(load(&blob), Ok(()));
}

#[test]
fn what_was_left_undone_is_saved_the_same_again() {
    let mut m = Machine::default();
    m.tx_on(8);
    m.wire.set_room(0);
    m.poke(TX_BUFFERS, &plain(PEER, 60));
    m.tx_desc(0, TX_BUFFERS, legacy(60, EOP));
    m.w(reg::TDT, 1);
    // The work was begun, and waits for the wire.
    let blob = m.nic.control.save(&m.env);
    assert!(saved(&m).transmitter.unfinished);
    let mut other = hypernic_e1000::new(Config::new(MAC));
    other.control.load(&m.env, &blob).expect("loads");
    assert_eq!(other.control.save(&m.env), blob);
}

#[test]
fn what_an_older_program_did_not_have_is_as_after_reset() {
    let mut state = saved(&busy());
    state.registers.retain(|words| words.offset != 0x0e00);
    let mut m = busy();
    m.w(0x0e00, 0);
    m.nic
        .control
        .load(&m.env, &state::write(&state))
        .expect("loads");
    assert_eq!(m.r(0x0e00), 0x0706_1302);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 400 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Bytes of a good state changed, with a right checksum: refused without a trace, or a NIC
    /// that does no harm.
    #[test]
    fn no_state_makes_a_nic_that_panics_or_hangs(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::weighted(0.1, any::<prop::sample::Index>()),
        script in prop::collection::vec(op(), 1..30),
    ) {
        let blob = busy().nic.control.save(&busy().env);
        let mut payload = blob[24..blob.len() - 4].to_vec();
        for (at, value) in changes {
            let at = at.index(payload.len());
            payload[at] = value;
        }
        if let Some(cut) = cut {
            payload.truncate(cut.index(payload.len()));
        }
        let blob = snapshot::wrap(state::KIND, state::VERSION, &payload);
        let mut rig = Rig::new(Config::new(MAC), Caps::NONE);
        let before = rig.nic.control.save(&rig.env);
        match rig.nic.control.load(&rig.env, &blob) {
            Err(_) => prop_assert_eq!(rig.nic.control.save(&rig.env), before),
            Ok(()) => {
                let again = rig.nic.control.save(&rig.env);
                prop_assert_eq!(crate::script::difference(&blob, &again), Vec::<String>::new());
                rig.work();
                for op in &script {
                    rig.apply(op);
                }
                rig.everything();
                rig.apply(&Op::Reset);
                rig.apply(&Op::Sleep(4_000_000_000_000));
            }
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut rig = Rig::new(Config::new(MAC), Caps::NONE);
        prop_assert!(rig.nic.control.load(&rig.env, &bytes).is_err());
        let blob = snapshot::wrap(state::KIND, state::VERSION, &bytes);
        prop_assert!(rig.nic.control.load(&rig.env, &blob).is_err());
    }
}
