//! A peer that breaks the protocol loses its connection at most; the next one is served.

use std::os::fd::AsFd;
use std::time::Duration;

use crate::common::{Rig, Seen};
use hypernic_vfio_user::codec::{
    Command, DmaMap, HEADER_LEN, Header, RegionAccess, RegionInfo, SetIrqs, Version, WriteEntry,
    flags, region,
};
use hypernic_vfio_user::{Client, ClientError, ClientOptions, EventFd, SharedMem};
use proptest::prelude::*;

fn message(command: u16, flags: u32, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        id: 1,
        command,
        size: (HEADER_LEN + payload.len()) as u32,
        flags,
        error: 0,
    };
    [&header.to_bytes()[..], payload].concat()
}

fn sized(command: u16, size: u32) -> Vec<u8> {
    Header {
        id: 1,
        command,
        size,
        flags: 0,
        error: 0,
    }
    .to_bytes()
    .to_vec()
}

/// A message of every kind that is right, for cutting and stretching.
fn good() -> Vec<(Command, Vec<u8>)> {
    let read = RegionAccess {
        offset: 0,
        region: 0,
        count: 4,
    };
    let info = RegionInfo {
        argsz: 32,
        index: 2,
        ..RegionInfo::default()
    };
    let map = DmaMap {
        argsz: 32,
        flags: 3,
        offset: 0,
        iova: 0x1000,
        size: 0x1000,
    };
    let irqs = SetIrqs {
        argsz: 20,
        flags: 1 | 32,
        index: 2,
        start: 0,
        count: 1,
    };
    let entry = WriteEntry {
        offset: 0,
        region: 0,
        count: 4,
        data: 1,
    };
    vec![
        (Command::Version, Version::default().to_bytes()),
        (Command::DmaMap, map.to_bytes().to_vec()),
        (Command::DmaUnmap, map.to_bytes()[..24].to_vec()),
        (Command::GetInfo, 16u32.to_ne_bytes().repeat(4)),
        (Command::GetRegionInfo, info.to_bytes().to_vec()),
        (Command::GetRegionIoFds, info.to_bytes()[..16].to_vec()),
        (Command::GetIrqInfo, {
            [16u32, 0, 1, 0]
                .iter()
                .flat_map(|w| w.to_ne_bytes())
                .collect()
        }),
        (Command::SetIrqs, irqs.to_bytes().to_vec()),
        (Command::RegionRead, read.to_bytes().to_vec()),
        (
            Command::RegionWrite,
            [&read.to_bytes()[..], &[1; 4]].concat(),
        ),
        (Command::DmaRead, vec![0; 16]),
        (Command::DmaWrite, vec![0; 20]),
        (Command::Reset, Vec::new()),
        (
            Command::RegionWriteMulti,
            [&1u64.to_ne_bytes()[..], &entry.to_bytes()].concat(),
        ),
        (Command::DeviceFeature, vec![8, 0, 0, 0, 1, 0, 1, 0]),
        (Command::MigrationRead, vec![0; 8]),
        (Command::MigrationWrite, vec![0; 8]),
    ]
}

fn next_is_served(rig: &Rig) {
    let mut c = rig.client();
    assert_eq!(c.read_u32(region::CONFIG, 0).unwrap(), 0x100e_8086);
}

/// The connection still answers, unless it was closed.
fn still_answers(c: &mut Client) -> bool {
    let probe = RegionAccess {
        offset: 0,
        region: region::CONFIG,
        count: 4,
    };
    let sent = c.send_raw(
        &Header {
            id: 0xbeef,
            ..Header::command(0, Command::RegionRead, 16)
        }
        .to_bytes()
        .iter()
        .chain(&probe.to_bytes())
        .copied()
        .collect::<Vec<u8>>(),
        &[],
    );
    if sent.is_err() {
        return false;
    }
    loop {
        match c.next_reply() {
            Ok(reply) if reply.header.id == 0xbeef => return true,
            Ok(_) => {}
            Err(ClientError::Closed) => return false,
            Err(e) => panic!("{e}"),
        }
    }
}

#[test]
fn every_command_cut_short_is_refused_and_the_connection_goes_on() {
    let rig = Rig::with_mmap();
    let mut c = rig.client();
    for (command, payload) in good() {
        for len in 0..payload.len() {
            c.send_raw(&message(command as u16, 0, &payload[..len]), &[])
                .unwrap();
            let reply = c.next_reply().unwrap();
            assert!(reply.header.is_error(), "{command:?} cut to {len}");
        }
    }
    assert!(still_answers(&mut c));
}

#[test]
fn every_command_stretched_is_answered_and_the_connection_goes_on() {
    let rig = Rig::with_mmap();
    let mut c = rig.client();
    for (command, payload) in good() {
        for extra in [1, 7, 8, 100, 5000] {
            let long = [&payload[..], &vec![0; extra]].concat();
            c.send_raw(&message(command as u16, 0, &long), &[]).unwrap();
            c.next_reply().unwrap();
        }
    }
    assert!(still_answers(&mut c));
}

#[test]
fn impossible_sizes_end_the_connection_and_the_next_client_is_served() {
    let rig = Rig::new();
    for size in [0, 1, 15, (1 << 20) + 4097, u32::MAX] {
        let mut c = rig.client();
        c.send_raw(&sized(9, size), &[]).unwrap();
        assert!(!still_answers(&mut c), "size {size}");
        next_is_served(&rig);
    }
    assert_eq!(rig.stop()("malformed_size"), 5);
}

#[test]
fn unknown_commands_and_types_are_refused() {
    let rig = Rig::new();
    let mut c = rig.client();
    for command in [0, 14, 19, 0x7fff, u16::MAX] {
        c.send_raw(&message(command, 0, &[]), &[]).unwrap();
        assert_eq!(c.next_reply().unwrap().header.error, 22);
    }
    for kind in 2..16 {
        c.send_raw(&message(9, kind, &[0; 16]), &[]).unwrap();
        assert_eq!(c.next_reply().unwrap().header.error, 22);
    }
    // A reply to no request is dropped without an answer.
    c.send_raw(&message(11, flags::REPLY, &[0; 64]), &[])
        .unwrap();
    assert!(still_answers(&mut c));
    let count = rig.stop();
    assert_eq!(count("refused_unknown_command"), 5 + 14);
    assert_eq!(count("unexpected_replies"), 1);
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let rig = Rig::new();
    let mut c = rig.client();
    for (command, errno) in [
        (Command::DeviceFeature, 95),
        (Command::MigrationRead, 95),
        (Command::MigrationWrite, 95),
        (Command::DmaRead, 22),
        (Command::DmaWrite, 22),
    ] {
        c.send_raw(&message(command as u16, 0, &[0; 16]), &[])
            .unwrap();
        assert_eq!(c.next_reply().unwrap().header.error, errno, "{command:?}");
    }
}

#[test]
fn a_write_multi_that_was_not_agreed_upon_is_refused() {
    let rig = Rig::new();
    let options = ClientOptions {
        write_multiple: false,
        ..ClientOptions::default()
    };
    let mut c = Client::connect_with(&rig.path, options).unwrap();
    let entry = WriteEntry {
        offset: 0,
        region: 0,
        count: 4,
        data: u64::MAX,
    };
    let payload = [&1u64.to_ne_bytes()[..], &entry.to_bytes()].concat();
    c.send_raw(&message(15, 0, &payload), &[]).unwrap();
    assert_eq!(c.next_reply().unwrap().header.error, 95);
    assert_eq!(c.read_u64(0, 0).unwrap(), 0);
    assert_eq!(rig.stop()("refused_unsupported"), 1);
}

#[test]
fn a_write_multi_that_is_wrong_in_one_entry_changes_nothing() {
    let rig = Rig::new();
    let mut c = rig.client();
    let entry = |region, count| {
        WriteEntry {
            offset: 0,
            region,
            count,
            data: u64::MAX,
        }
        .to_bytes()
        .to_vec()
    };
    let cases = [
        [2u64.to_ne_bytes().to_vec(), entry(0, 4)].concat(),
        [1u64.to_ne_bytes().to_vec(), entry(0, 4), entry(0, 4)].concat(),
        [u64::MAX.to_ne_bytes().to_vec(), entry(0, 4)].concat(),
        [2u64.to_ne_bytes().to_vec(), entry(0, 4), entry(0, 9)].concat(),
        [2u64.to_ne_bytes().to_vec(), entry(0, 4), entry(9, 4)].concat(),
        [1u64.to_ne_bytes().to_vec(), entry(0, 4)[..23].to_vec()].concat(),
        // More than are made in one turn.
        [257u64.to_ne_bytes().to_vec(), entry(0, 4).repeat(257)].concat(),
    ];
    for payload in &cases {
        c.send_raw(&message(15, 0, payload), &[]).unwrap();
        assert_eq!(c.next_reply().unwrap().header.error, 22);
    }
    assert_eq!(c.read_u64(0, 0).unwrap(), 0);
}

#[test]
fn a_client_that_does_not_begin_with_a_good_version_is_sent_away() {
    let rig = Rig::new();
    let mut wrong_major = Version::default().to_bytes();
    wrong_major[0] = 1;
    let openings = [
        message(4, 0, &[16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        message(1, 0, &[]),
        message(1, 0, &[0, 0, 0]),
        message(1, 0, &wrong_major),
        message(1, 0, b"\0\0\0\0{\"capabilities\":"),
        message(1, 0, b"\0\0\0\0{\"capabilities\":{}}"),
        message(1, 0, b"\0\0\0\0not json\0"),
        message(1, 0, b"\0\0\0\0{\"capabilities\":{\"twin_socket\":7}}\0"),
        message(99, 0, &[]),
    ];
    for (i, opening) in openings.iter().enumerate() {
        // The one before may not have been cleaned up yet.
        let reply = loop {
            let mut c = rig.silent();
            c.send_raw(opening, &[]).unwrap();
            match c.next_reply() {
                Ok(reply) if reply.header.error == 16 => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                other => break other,
            }
        };
        let reply = reply.unwrap();
        assert!(reply.header.is_error(), "opening {i}");
        next_is_served(&rig);
    }
    // A second VERSION is refused without harm.
    let mut c = rig.client();
    assert!(c.negotiate().is_err());
    assert!(still_answers(&mut c));
}

#[test]
fn messages_split_at_every_byte_are_put_together() {
    let rig = Rig::with_mmap();
    for (command, payload) in good() {
        let whole = message(command as u16, 0, &payload);
        let mut c = rig.client();
        for cut in 1..whole.len() {
            c.send_raw(&whole[..cut], &[]).unwrap();
            c.send_raw(&whole[cut..], &[]).unwrap();
            let reply = c.next_reply().unwrap();
            assert_eq!(reply.header.command, command as u16);
        }
        for byte in &whole {
            c.send_raw(&[*byte], &[]).unwrap();
        }
        c.next_reply().unwrap();
        assert!(still_answers(&mut c), "{command:?}");
    }
}

#[test]
fn descriptors_belong_to_the_last_message_of_what_was_read_wherever_it_is_split() {
    let ram = SharedMem::new("ram", 0x10_0000).unwrap();
    for i in 0..16usize {
        ram.store_u32(i * 0x1000, i as u32, std::sync::atomic::Ordering::SeqCst);
    }
    let map = |i: u64| {
        let map = DmaMap {
            argsz: 32,
            flags: 3,
            offset: i * 0x1000,
            iova: i * 0x1000,
            size: 0x1000,
        };
        message(Command::DmaMap as u16, 0, &map.to_bytes())
    };
    let read = message(
        9,
        0,
        &RegionAccess {
            offset: 0,
            region: 7,
            count: 4,
        }
        .to_bytes(),
    );
    let len = map(0).len();
    for cut in 0..len {
        let rig = Rig::new();
        let mut c = rig.client();
        // Pipelined: reads and maps, some with and some without a descriptor, none awaited.
        for i in 0..8 {
            c.send_raw(&read, &[]).unwrap();
            if i % 2 == 0 {
                let whole = map(i);
                c.send_raw(&whole[..cut.max(1)], &[ram.as_fd()]).unwrap();
                if cut > 1 {
                    c.send_raw(&whole[cut..], &[]).unwrap();
                } else {
                    c.send_raw(&whole[1..], &[]).unwrap();
                }
            } else {
                c.send_raw(&map(i), &[]).unwrap();
            }
            c.send_raw(&read, &[]).unwrap();
        }
        for _ in 0..24 {
            assert!(!c.next_reply().unwrap().header.is_error());
        }
        let regions = rig.dma.memory().regions();
        let mapped: Vec<bool> = regions.iter().map(|r| r.mapped).collect();
        assert_eq!(
            mapped,
            [true, false, true, false, true, false, true, false],
            "cut at {cut}"
        );
        for i in [0u64, 2, 4, 6] {
            let mut word = [0; 4];
            rig.dma.memory().view().read(i * 0x1000, &mut word).unwrap();
            assert_eq!(u32::from_le_bytes(word), i as u32);
        }
    }
}

#[test]
fn more_descriptors_than_any_message_may_have_are_closed() {
    let rig = Rig::new();
    let mut c = rig.client();
    let e = EventFd::new().unwrap();
    let fds = [e.as_fd(); 16];
    let set = SetIrqs {
        argsz: 20,
        flags: 4 | 32,
        index: 2,
        start: 0,
        count: 16,
    };
    let whole = message(Command::SetIrqs as u16, 0, &set.to_bytes());
    // Two segments of one message, 16 each.
    c.send_raw(&whole[..20], &fds).unwrap();
    c.send_raw(&whole[20..], &fds).unwrap();
    assert!(!c.next_reply().unwrap().header.is_error());
    assert!(still_answers(&mut c));
    assert_eq!(rig.stop()("surplus_fds"), 16);
}

#[test]
fn descriptors_of_replies_that_nobody_waits_for_are_closed() {
    for twin_socket in [false, true] {
        let rig = Rig::new();
        let mut c = rig.client_with(ClientOptions {
            twin_socket,
            ..ClientOptions::default()
        });
        let (mut reader, writer) = std::io::pipe().unwrap();
        for _ in 0..3 {
            let reply = message(Command::DmaRead as u16, flags::REPLY, &[]);
            if twin_socket {
                c.send_raw_on_twin(&reply, &[writer.as_fd()]).unwrap();
            } else {
                c.send_raw(&reply, &[writer.as_fd()]).unwrap();
            }
        }
        drop(writer);
        assert!(still_answers(&mut c));
        // End of file only when the server has closed its copies, the last with nothing behind it.
        assert_eq!(std::io::Read::read(&mut reader, &mut [0; 1]).unwrap(), 0);
        let counter = rig.stop();
        assert_eq!(
            (counter("surplus_fds"), counter("unexpected_replies")),
            (3, 3)
        );
    }
}

#[test]
fn malformed_dma_replies_fail_the_request_and_nothing_else() {
    use crate::common::{DMA_DONE, DMA_READ};
    use hypernic_vfio_user::guest_mem::Prot;
    let rig = Rig::new();
    let mut c = rig.client_with(ClientOptions {
        serve_while_waiting: false,
        ..ClientOptions::default()
    });
    c.dma_map_without_fd(0, None, 0x1000, Prot::RW).unwrap();
    let access = |iova: u64, count: u64| [iova.to_ne_bytes(), count.to_ne_bytes()].concat();
    let replies: [(u16, u32, Vec<u8>); 6] = [
        (11, flags::REPLY, Vec::new()),
        (11, flags::REPLY, access(0, 64)),
        (11, flags::REPLY, access(0, u64::MAX)),
        (12, flags::REPLY, [access(0, 64), vec![0; 64]].concat()),
        (11, flags::REPLY, [access(0, 64), vec![0; 65]].concat()),
        (11, flags::REPLY | flags::ERROR, Vec::new()),
    ];
    for (i, (command, flags, payload)) in replies.iter().enumerate() {
        c.region_write(0, DMA_READ, &0u64.to_le_bytes()).unwrap();
        // Ids of the server's commands count from 0.
        let mut reply = message(*command, *flags, payload);
        reply[..2].copy_from_slice(&(i as u16).to_ne_bytes());
        c.send_raw(&reply, &[]).unwrap();
        for _ in 0..200 {
            if c.read_u32(0, DMA_DONE).unwrap() == i as u32 + 1 {
                break;
            }
        }
        assert_eq!(c.read_u32(0, DMA_DONE).unwrap(), i as u32 + 1, "reply {i}");
    }
    let failed = rig
        .take_seen()
        .into_iter()
        .filter(|s| matches!(s, Seen::DmaDone(_, Err(_))))
        .count();
    assert_eq!(failed, replies.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_bytes_never_stop_the_next_client(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        negotiated in any::<bool>(),
        fds in 0usize..4,
    ) {
        thread_local! {
            static RIG: Rig = Rig::with_mmap();
        }
        RIG.with(|rig| {
            let e = EventFd::new().unwrap();
            let mut c = if negotiated { rig.client() } else { rig.silent() };
            let _ = c.send_raw(&bytes, &vec![e.as_fd(); fds]);
            drop(c);
            next_is_served(rig);
        });
    }

    #[test]
    fn random_messages_never_stop_the_next_client(
        messages in prop::collection::vec(
            (0u16..22, prop::collection::vec(any::<u8>(), 0..80), 0usize..3, 0usize..17, any::<bool>()),
            1..12,
        ),
    ) {
        thread_local! {
            static RIG: Rig = Rig::with_mmap();
        }
        RIG.with(|rig| {
            let e = EventFd::new().unwrap();
            let mut c = rig.client();
            for (command, payload, fds, pick, noise) in &messages {
                let fds = vec![e.as_fd(); *fds];
                // Either a random payload, or a good message with some bytes changed.
                let (good_command, mut good) = good().swap_remove(*pick);
                let bytes = if *noise {
                    message(*command, 0, payload)
                } else {
                    for pair in payload.chunks_exact(8) {
                        let at = usize::from(pair[0]);
                        if let Some(byte) = good.get_mut(at) {
                            *byte = pair[1];
                        }
                    }
                    message(good_command as u16, 0, &good)
                };
                if c.send_raw(&bytes, &fds).is_err() {
                    break;
                }
            }
            // All of them have a legal size, so the connection itself survives.
            prop_assert!(still_answers(&mut c));
            drop(c);
            next_is_served(rig);
            Ok(())
        })?;
    }
}
