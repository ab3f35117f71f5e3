//! A VF's state: what is in it, what is refused with which reason, and what is left to the PF.

use crate::vf_common::*;
use hypernic_igb::vf_state::{self, Granted, Interrupts, Mailbox, Queue, State, StateError};
use hypernic_igb::{Event, Grant};
use proptest::prelude::*;

/// A field, and what changes it.
type Case = (&'static str, fn(&mut State));

/// Every field by name, as text. Without `..`: one that is new has to be here too.
fn fields(state: &State) -> Vec<(&'static str, String)> {
    let State {
        registers,
        statistics,
        timer,
        queues,
        turn,
        interrupts: Interrupts { causes, mask, last },
        mailbox:
            Mailbox {
                memory,
                bits,
                request,
                acknowledged,
                reset,
                interrupt,
            },
        granted,
    } = state;
    let mut contexts = Vec::new();
    let mut skips = Vec::new();
    let mut taken = Vec::new();
    for queue in queues {
        let Queue {
            contexts: c,
            skipping,
            taken: t,
        } = queue;
        contexts.push(c);
        skips.push(skipping);
        taken.push(t);
    }
    vec![
        ("registers", format!("{registers:?}")),
        ("statistics", format!("{statistics:?}")),
        ("timer", format!("{timer:?}")),
        ("contexts", format!("{contexts:?}")),
        ("skipping", format!("{skips:?}")),
        ("taken", format!("{taken:?}")),
        ("turn", format!("{turn:?}")),
        ("causes", format!("{causes:?}")),
        ("mask", format!("{mask:?}")),
        ("last", format!("{last:?}")),
        ("memory", format!("{memory:?}")),
        ("bits", format!("{bits:?}")),
        ("request", format!("{request:?}")),
        ("acknowledged", format!("{acknowledged:?}")),
        ("reset", format!("{reset:?}")),
        ("interrupt", format!("{interrupt:?}")),
        ("granted", format!("{granted:?}")),
    ]
}

/// Every part of it differs from that of an unused VF.
#[test]
fn a_look_at_a_vfs_registers_finds_what_a_read_would_and_has_no_effect() {
    let mut m = busy();
    let registers = model_testkit::a_look_is_a_read_without_effect(&mut m.nic, &m.env);
    assert!(registers > 40, "{registers}");
}

#[test]
fn a_busy_vf_has_something_in_every_part_of_its_state() {
    let mut m = busy();
    // A ring full of a packet without an end, on the other queue.
    m.wire.unlimit();
    m.turns();
    let high = 60 | 3 << 20 | 1 << 29;
    for _ in 1..RING {
        let tail = m.tx_desc(1, 0, TX_DATA, high);
        m.w(reg::TDT + 0x100, tail);
    }
    m.wire.set_room(2);
    m.send_tso(0);
    // A message that the PF has not taken, as a PF with registers would find it.
    let words = 1 << 31 | 1;
    m.channel.mailbox(|mailbox| mailbox.pf_write(words));
    let idle = fields(&Machine::default().saved());
    for ((name, busy), (_, idle)) in fields(&m.saved()).into_iter().zip(idle) {
        let pf_took_it = name == "request";
        assert!(busy != idle || pf_took_it, "{name} is {busy} in both");
    }
}

/// A VF has no ICR: the vector of its mailbox does not signal that frames found no buffer.
#[test]
fn frames_that_find_no_buffer_are_no_message() {
    let mut m = Machine::up();
    m.rx_on(0, 1 << 31 | 1 << 25 | 1);
    m.vectors();
    assert_eq!(m.offer(&frame(100), 20), 20, "it drops what is too much");
    assert_eq!(m.vectors(), [0]);
}

/// VTEITR once kept what is only written there (CNT_INGR) and two reserved bits.
#[test]
fn an_older_state_of_the_throttles_is_loaded() {
    let mut state = busy().saved();
    *register(&mut state, 0x1680) = 0x8000_0003 | 77 << 2;
    let mut m = Machine::default();
    let loaded = m.nic.control.load(&m.env, &vf_state::write(&state));
    loaded.expect("it was right once");
    assert_eq!(m.r(reg::VTEITR), 77 << 2);
    *register(&mut state, 0x1680) = 1 << 20;
    assert!(
        m.nic
            .control
            .load(&m.env, &vf_state::write(&state))
            .is_err()
    );
}

/// Every field that is loaded is what is saved next.
#[test]
fn no_field_is_forgotten() {
    let cases: &[Case] = &[
        ("registers", |s| *register(s, 0x0f0c) = 0x2),
        ("registers", |s| *register(s, 0x2810) = 6),
        ("registers", |s| *register(s, 0x3838) = 0x1000),
        ("registers", |s| *register(s, 0x1680) = 77 << 2),
        ("registers", |s| *register(s, 0x1740) = 0x81),
        ("statistics", |s| s.statistics = [1, 2, 3, 4, u32::MAX]),
        ("timer", |s| s.timer = u64::MAX - 5),
        ("contexts", |s| s.queues[0].contexts[1].mss = 1234),
        ("contexts", |s| s.queues[1].contexts[0].l4t = 2),
        ("skipping", |s| s.queues[1].skipping ^= true),
        ("taken", |s| s.queues[1].taken = 3),
        ("turn", |s| s.turn ^= 1),
        ("causes", |s| s.interrupts.causes ^= 4),
        ("mask", |s| s.interrupts.mask ^= 2),
        ("last", |s| s.interrupts.last[1] = Some(-300_000)),
        ("memory", |s| s.mailbox.memory[15] = 9),
        ("bits", |s| s.mailbox.bits = 0x44),
        ("request", |s| s.mailbox.request ^= true),
        ("acknowledged", |s| s.mailbox.acknowledged ^= true),
        ("reset", |s| s.mailbox.reset ^= true),
    ];
    for (name, change) in cases {
        let mut state = busy().saved();
        let before = fields(&state);
        // Loading would send a pending notification, so none is pending.
        state.mailbox.interrupt = false;
        change(&mut state);
        let changed = fields(&state);
        let mut m = Machine::default();
        m.set_pci(false, false);
        let grant = busy().channel.grant();
        m.channel.set_grant(grant);
        let loaded = m.nic.control.load(&m.env, &vf_state::write(&state));
        loaded.expect("a state");
        assert_eq!(fields(&m.saved()), changed, "{name}");
        let differs = |at: &usize| before[*at].1 != changed[*at].1 && before[*at].0 == *name;
        assert!((0..before.len()).any(|at| differs(&at)), "{name} unchanged");
    }
    // A notification that was pending is sent at loading: the mailbox's cause is set instead.
    let mut state = busy().saved();
    state.interrupts.causes = 0;
    state.mailbox.interrupt = true;
    let mut m = Machine::default();
    m.set_pci(true, false);
    let loaded = m.nic.control.load(&m.env, &vf_state::write(&state));
    loaded.expect("a state");
    assert_eq!(m.r(reg::VTEICR), 4);
}

/// The only element of a register.
fn register(state: &mut State, offset: u32) -> &mut u32 {
    let words = state.registers.iter_mut().find(|w| w.offset == offset);
    &mut words.expect("a register").values[0]
}

#[test]
fn another_goes_on_where_one_was_saved() {
    let m = busy();
    let sent = m.wire.take().len();
    let received = m.offer(&frame(90), 0);
    assert_eq!(received, 0);
    let mut m = m.move_to(99_000_000_000);
    m.wire.unlimit();
    m.turns();
    // Two packets of four segments, none twice.
    assert_eq!(sent + m.wire.take().len(), 8);
    assert_eq!([m.r(reg::TDH), m.r(reg::TDH + 0x100)], [2, 2]);
    assert_eq!([m.r(reg::VFGPRC), m.r(reg::VFGPTC)], [5, 8]);
    // The next frame is in the next buffer.
    let next = frame(95);
    assert_eq!(m.offer(&next, 1), 1);
    assert_eq!(m.peek(RX_DATA + 5 * 0x400, 95), next);
    // The message is where it was, and its flags too.
    assert_eq!(m.r(reg::VMBMEM + 4), 0xdead_beef);
    assert_eq!(m.r(reg::V2PMAILBOX) & 0x10, 0x10);
}

#[test]
fn a_state_of_version_1_is_loaded_by_every_later_program() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/state/golden/vf-v1.bin");
    let m = busy();
    let blob = model_testkit::golden(path, &m.nic.control.save(&m.env));
    let mut m = busy();
    m.nic.control.load(&m.env, &blob).expect("loads");
    assert_eq!(m.r(reg::VMBMEM + 4), 0xdead_beef);
}

/// What a state says of grants is a claim. In force is the channel's word, from the first moment on.
#[test]
fn what_was_granted_elsewhere_is_not_granted_here() {
    let mut state = busy().saved();
    let claimed = Grant {
        enabled: true,
        link: true,
        max_frame: 9728,
        tag: None,
        interrupt_gap: 0,
    };
    state.granted = Granted {
        enabled: true,
        link: true,
        max_frame: 9728,
        tag: None,
        interrupt_gap: 0,
    };
    let mut m = Machine::default();
    let ours = Grant {
        enabled: false,
        link: true,
        max_frame: 1522,
        tag: Some(5),
        interrupt_gap: 2_000_000,
    };
    m.channel.set_grant(ours);
    let loaded = m.nic.control.load(&m.env, &vf_state::write(&state));
    loaded.expect("a state");
    let heard = std::mem::take(&mut *m.clerk.heard.lock().expect("clerk"));
    assert_eq!(heard, [Event::Loaded(claimed)]);
    m.wire.unlimit();
    m.turns();
    assert!(m.wire.take().is_empty(), "it may not send");
    let now = m.saved().granted;
    assert_eq!(
        (now.enabled, now.max_frame, now.tag),
        (false, 1522, Some(5))
    );
    // Nor does it interrupt more often than it may here, whatever its registers say.
    m.w(reg::VTEIAC, 7);
    m.w(reg::VTEICR, 7);
    m.pass(10_000_000);
    m.vectors();
    m.w(reg::VTEICS, 2);
    m.w(reg::VTEICS, 2);
    assert_eq!(m.vectors(), [1]);
    m.pass(1_999_999);
    assert!(m.vectors().is_empty());
    m.pass(1);
    assert_eq!(m.vectors(), [1]);
}

/// An interrupt that was held back comes, when it would have come.
#[test]
fn what_was_held_back_comes_on_another_clock() {
    let mut m = Machine::up();
    m.w(reg::VTEITR + 4, 1000 << 2);
    m.w(reg::VTEIAC, 7);
    m.w(reg::VTEIAM, 4);
    m.w(reg::VTEICS, 2);
    m.pass(400_000);
    m.w(reg::VTEICS, 2);
    assert_eq!(m.vectors(), [1]);
    assert_eq!(m.armed(), Some(600_000));
    let mut m = m.move_to(1_000_000_000);
    assert!(m.vectors().is_empty());
    assert_eq!(m.armed(), Some(600_000));
    m.pass(600_000);
    assert_eq!(m.vectors(), [1]);
    // What masks and what clears itself does so still.
    m.w(reg::VTEICS, 4);
    assert_eq!((m.vectors(), m.r(reg::VTEIMS)), (vec![2], 3));
    assert_eq!(m.r(reg::VTEICR), 0);
    // And into one in use: what it had to do is forgotten.
    let idle = Machine::default();
    let blob = idle.nic.control.save(&idle.env);
    m.w(reg::VTEICS, 2);
    assert!(m.armed().is_some());
    m.nic.control.load(&m.env, &blob).expect("loads");
    assert_eq!((m.armed(), m.r(reg::VTEIMS)), (None, 0));
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

/// Loads into a busy VF what must be refused, and returns why.
#[track_caller]
fn refusal(blob: &[u8]) -> StateError {
    let mut m = busy();
    let (before, hub, armed) = (m.saved(), m.hub(), m.armed());
    let memory = m.peek(RAM, RAM_LEN as usize);
    m.vectors();
    let error = m.nic.control.load(&m.env, blob).expect_err("refused");
    assert_eq!(m.saved(), before, "{error}");
    assert_eq!(m.hub(), hub, "{error}");
    assert_eq!((m.armed(), m.vectors()), (armed, vec![]), "{error}");
    assert!(m.peek(RAM, RAM_LEN as usize) == memory, "{error}");
    error
}

#[test]
fn every_impossible_field_is_refused_by_name() {
    let cases: &[Case] = &[
        ("registers.offset", |s| s.registers[3].offset += 1),
        ("registers.offset", |s| s.registers[0].offset = 0x5f00_0000),
        ("registers.offset", |s| s.registers.swap(1, 2)),
        ("registers.offset", |s| {
            let twice = s.registers[4].clone();
            s.registers.insert(4, twice);
        }),
        // What keeps nothing: VTCTRL, VTSTATUS, VMBMEM, VTEIMS.
        ("registers.offset", |s| s.registers[0].offset = 0),
        ("registers.offset", |s| s.registers[0].offset = 8),
        ("registers.offset", |s| s.registers[0].offset = 0x800),
        ("registers.offset", |s| s.registers[1].offset = 0x1524),
        ("registers.values", |s| s.registers[0].values.push(0)),
        ("registers.values", |s| s.registers[7].values.clear()),
        ("RDLEN", |s| *register(s, 0x2808) |= 8),
        ("TDH", |s| *register(s, 0x3810) = 0x1_0000),
        ("VTEIAC", |s| *register(s, 0x152c) = 8),
        ("VTIVAR", |s| *register(s, 0x1700) = 4),
        ("queues", |s| s.queues.truncate(1)),
        ("queues", |s| s.queues.push(s.queues[0].clone())),
        ("turn", |s| s.turn = 2),
        ("queues.taken", |s| s.queues[0].taken = u32::MAX),
        ("context.maclen", |s| s.queues[1].contexts[1].maclen = 128),
        ("context.iplen", |s| s.queues[0].contexts[0].iplen = 512),
        ("context.l4t", |s| s.queues[0].contexts[1].l4t = 3),
        ("interrupts.causes", |s| s.interrupts.causes = 8),
        ("interrupts.mask", |s| s.interrupts.mask = u32::MAX),
        ("interrupts.last", |s| s.interrupts.last.clear()),
        ("interrupts.last", |s| s.interrupts.last.push(None)),
        ("interrupts.last", |s| s.interrupts.last[0] = Some(1)),
        ("interrupts.last", |s| s.interrupts.last[2] = Some(i64::MIN)),
        ("mailbox.bits", |s| s.mailbox.bits = 1),
        ("mailbox.bits", |s| s.mailbox.bits = 1 << 8),
        ("mailbox.bits", |s| s.mailbox.bits = 0x0c),
        ("mailbox.bits", |s| s.mailbox.bits = 0xc0),
    ];
    for (name, spoil) in cases {
        let mut state = busy().saved();
        spoil(&mut state);
        match refusal(&vf_state::write(&state)) {
            StateError::Field { field, .. } => assert_eq!(field, *name),
            other => panic!("{name}: {other}"),
        }
    }
}

#[test]
fn other_devices_and_versions_from_the_future_are_refused_by_name() {
    let blob = vf_state::write(&busy().saved());
    let payload = &blob[24..blob.len() - 4];
    for version in [0, vf_state::VERSION + 1, u32::MAX] {
        let why = refusal(&snapshot::wrap(vf_state::KIND, version, payload));
        assert!(matches!(why, StateError::Version { .. }), "{why}");
    }
    let pf = <crate::common::Machine as crate::common::MachineExt>::default();
    assert_eq!(
        refusal(&pf.nic.control.save(&pf.env)).to_string(),
        "this is the state of a 82576, not of a 82576vf"
    );
    assert!(matches!(refusal(&[]), StateError::NoState));
}

#[test]
fn a_damaged_state_is_refused_wherever_it_is_damaged() {
    let m = busy();
    let blob = m.nic.control.save(&m.env);
    for at in (0..blob.len()).step_by(if cfg!(miri) { 97 } else { 1 }) {
        let mut bad = blob.clone();
        bad[at] ^= 1 << (at % 8);
        assert!(vf_state::read(&bad).is_err(), "byte {at}");
        assert!(vf_state::read(&blob[..at]).is_err(), "{at} bytes");
    }
    refusal(&blob[..blob.len() / 2]);
}

/// Lengths that promise more than there is allocate nothing for it, and the longest state there may
/// be is a few MiB.
#[test]
fn what_a_state_costs_is_bounded_by_its_length() {
    // A list of registers of 2^32 - 1 elements; one register of as many values.
    let endless: [&[u8]; 2] = [
        &[0xff, 0xff, 0xff, 0xff, 0x0f],
        &[1, 0x80, 0x1e, 0xff, 0xff, 0xff, 0xff, 0x0f, 1, 1, 1],
    ];
    for payload in endless {
        let blob = snapshot::wrap(vf_state::KIND, vf_state::VERSION, payload);
        let read = || assert!(vf_state::read(&blob).is_err());
        let cost = allocation_counter::measure(read);
        assert!(cost.bytes_max < 1 << 21, "{} bytes", cost.bytes_max);
    }
    // Registers without values, as many as fit.
    let mut payload = vec![0xf0, 0xff, 0x1f];
    payload.resize(snapshot::MAX_PAYLOAD, 0);
    let blob = snapshot::wrap(vf_state::KIND, vf_state::VERSION, &payload);
    let cost = allocation_counter::measure(|| assert!(vf_state::read(&blob).is_err()));
    assert!(cost.bytes_max < 64 << 20, "{} bytes", cost.bytes_max);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 200 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// What is taken is what would be saved now, and a VF that has taken it comes to rest.
    #[test]
    fn no_state_makes_a_vf_that_panics_or_hangs(
        spoil in prop::collection::vec((any::<prop::sample::Index>(), any::<u32>(), any::<bool>()), 0..12),
        bytes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..2),
        (taken, skipping) in (0..2048u32, any::<bool>()),
        last in prop::collection::vec(prop::option::of(-2_000_000_000..1i64), 3),
        (causes, mask, mailbox) in (0..16u32, 0..16u32, 0..512u32),
    ) {
        let mut state = busy().saved();
        for (at, value, whole) in spoil {
            let words = at.index(state.registers.len());
            let words = &mut state.registers[words].values;
            let n = words.len();
            let word = &mut words[value as usize % n];
            *word = if whole { value } else { *word ^ 1 << (value % 32) };
        }
        for queue in &mut state.queues {
            (queue.taken, queue.skipping) = (taken, skipping);
        }
        state.interrupts.last = last;
        (state.interrupts.causes, state.interrupts.mask) = (causes, mask);
        state.mailbox.bits = mailbox;
        state.mailbox.interrupt = false;
        let blob = vf_state::write(&state);
        let mut payload = blob[24..blob.len() - 4].to_vec();
        for (at, byte) in bytes {
            *at.get_mut(&mut payload) = byte;
        }
        let blob = snapshot::wrap(vf_state::KIND, vf_state::VERSION, &payload);
        let mut m = Machine::default();
        m.set_pci(false, false);
        m.channel.set_grant(GRANT);
        if m.nic.control.load(&m.env, &blob).is_ok() {
            let mut taken = vf_state::read(&blob).expect("it was");
            let told = taken.mailbox.interrupt;
            taken.mailbox.interrupt = false;
            let mut now = m.saved();
            taken.granted = now.granted.clone();
            if told {
                now.interrupts.causes = taken.interrupts.causes;
            }
            prop_assert_eq!(now, taken);
        }
        m.set_pci(true, true);
        for _ in 0..3 {
            prop_assert!(m.offer(&frame(200), 3) <= 3);
            m.send_tso(1);
            m.pass(10_000_000);
            m.attend();
        }
        m.w(reg::VTCTRL, 1 << 26);
        prop_assert_eq!(m.saved().queues[0].taken, 0);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut m = Machine::default();
        prop_assert!(m.nic.control.load(&m.env, &bytes).is_err());
        let blob = snapshot::wrap(vf_state::KIND, vf_state::VERSION, &bytes);
        prop_assert!(m.nic.control.load(&m.env, &blob).is_err());
    }
}

/// Only BAR 0 has registers; the table of MSI-X behind BAR 3 is the VMM's.
#[test]
fn an_access_to_a_bar_without_registers_reads_zeros_and_is_counted() {
    let mut m = Machine::up();
    let mut bytes = [0xff; 8];
    m.nic.control.read(&m.env, 3, 0, &mut bytes);
    assert_eq!(bytes, [0; 8]);
    m.nic.control.write(&m.env, 2, 0, &[1; 4]);
    let counters = |visit: &mut dyn FnMut(&'static str, u64)| m.nic.control.counters(visit);
    assert_eq!(model_testkit::counter(counters, "reg_bad_bar"), 2);
    // Bytes of a word that a write does not reach stay.
    m.w(0x0800, 0x0403_0201);
    m.nic.control.write(&m.env, 0, 0x0801, &[9]);
    assert_eq!(m.r(0x0800), 0x0403_0901);
}
