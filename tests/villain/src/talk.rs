//! VMMs that say what the protocol does not allow.

use std::time::Duration;

use drivers::e1000::regs;
use vfio_user::codec::feature::{self, MigrationState};
use vfio_user::codec::{
    Command, DeviceInfo, DmaMap, DmaUnmap, HEADER_LEN, Header, IrqInfo, RegionAccess, RegionInfo,
    RegionIoFds, SetIrqs, WriteEntry, flags, irq, irq_set, region,
};
use vfio_user::{Client, ClientOptions};

use crate::stage::Done;
use crate::vmm::{Vmm, hello, message, own, refused, sized};

/// One good message of every kind, the first excepted.
fn good() -> Vec<(Command, Vec<u8>)> {
    let access = RegionAccess {
        offset: 8,
        region: region::BAR0,
        count: 4,
    };
    let argsz = 64;
    vec![
        (
            Command::DmaMap,
            DmaMap {
                argsz: DmaMap::LEN as u32,
                flags: 3,
                iova: 0x10_0000,
                size: 0x1000,
                ..DmaMap::default()
            }
            .to_bytes()
            .to_vec(),
        ),
        (
            Command::DmaUnmap,
            DmaUnmap {
                argsz: DmaUnmap::LEN as u32,
                iova: 0x10_0000,
                size: 0x1000,
                ..DmaUnmap::default()
            }
            .to_bytes()
            .to_vec(),
        ),
        (
            Command::GetInfo,
            DeviceInfo {
                argsz,
                ..DeviceInfo::default()
            }
            .to_bytes()
            .to_vec(),
        ),
        (
            Command::GetRegionInfo,
            RegionInfo {
                argsz,
                ..RegionInfo::default()
            }
            .to_bytes()
            .to_vec(),
        ),
        (
            Command::GetRegionIoFds,
            RegionIoFds {
                argsz,
                ..RegionIoFds::default()
            }
            .to_bytes()
            .to_vec(),
        ),
        (
            Command::GetIrqInfo,
            IrqInfo {
                argsz,
                ..IrqInfo::default()
            }
            .to_bytes()
            .to_vec(),
        ),
        (
            Command::SetIrqs,
            SetIrqs {
                argsz: SetIrqs::LEN as u32,
                flags: irq_set::DATA_NONE | irq_set::ACTION_UNMASK,
                index: irq::INTX,
                start: 0,
                count: 1,
            }
            .to_bytes()
            .to_vec(),
        ),
        (Command::RegionRead, access.to_bytes().to_vec()),
        (
            Command::RegionWrite,
            [&access.to_bytes()[..], &[0; 4]].concat(),
        ),
        (Command::Reset, Vec::new()),
    ]
}

/// Says it, and hears whatever is answered, be it the end.
fn say(client: &mut Client, bytes: &[u8]) -> Done {
    refused(
        client
            .send_raw(bytes, &[])
            .and_then(|()| client.next_reply()),
    )
}

pub(crate) fn not_a_version(vmm: &mut Vmm) -> Done {
    let json = |text: &[u8]| [&[0, 0, 1, 0][..], text, &[0]].concat();
    let nested = [vec![b'['; 60_000], vec![b']'; 1000]].concat();
    let payloads = [
        vec![],
        vec![0; 3],
        vec![1, 0, 0, 0],
        vec![0xff; 4],
        json(b"{"),
        json(b"\xff\xfe"),
        json(br#"{"capabilities":{"max_msg_fds":-1}}"#),
        json(br#"{"capabilities":{"max_data_xfer_size":1e99}}"#),
        json(br#"{"capabilities":7}"#),
        json(&nested),
        json(&vec![b' '; 200_000]),
        [0, 0, 1, 0, b'{', b'}'].to_vec(),
    ];
    for payload in payloads {
        let mut client = vmm.silent()?;
        say(&mut client, &message(Command::Version as u16, 0, &payload))?;
    }
    Ok(())
}

pub(crate) fn version_again(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    for _ in 0..50 {
        say(&mut client, &hello())?;
    }
    Ok(())
}

pub(crate) fn odd_capabilities(vmm: &mut Vmm) -> Done {
    for (fds, data) in [(0, 0), (0, 1), (u32::MAX, u32::MAX), (1, 7)] {
        let options = ClientOptions {
            max_msg_fds: fds,
            max_data_xfer_size: data,
            ..ClientOptions::default()
        };
        // What it allows for is too little for its own register reads.
        let client = vmm.silent_with(options)?;
        drop(client);
        let mut socket = vmm.client_with(ClientOptions::default())?;
        refused(socket.info())?;
    }
    Ok(())
}

pub(crate) fn no_version(vmm: &mut Vmm) -> Done {
    for (command, payload) in good() {
        let mut client = vmm.silent()?;
        say(&mut client, &message(command as u16, 0, &payload))?;
    }
    Ok(())
}

pub(crate) fn impossible_sizes(vmm: &mut Vmm) -> Done {
    for size in [0, 1, 15, (1 << 20) + 5000, 1 << 30, 1 << 31, u32::MAX] {
        for command in [Command::GetInfo, Command::RegionWrite, Command::DmaMap] {
            let mut client = vmm.client()?;
            say(&mut client, &sized(command as u16, size))?;
        }
    }
    Ok(())
}

pub(crate) fn cut_short(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    for (command, payload) in good() {
        for len in 0..payload.len() {
            say(&mut client, &message(command as u16, 0, &payload[..len]))?;
        }
    }
    Ok(())
}

pub(crate) fn stretched(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    for (command, payload) in good() {
        for extra in [1, 8, 4096, 100_000] {
            let long = [&payload[..], &vec![0xff; extra]].concat();
            say(&mut client, &message(command as u16, 0, &long))?;
        }
    }
    Ok(())
}

pub(crate) fn commands_all_ones(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    for (command, payload) in good() {
        // Each field for itself, and all of them.
        for at in (0..payload.len()).step_by(4) {
            let mut odd = payload.clone();
            let end = (at + 4).min(odd.len());
            odd[at..end].fill(0xff);
            say(&mut client, &message(command as u16, 0, &odd))?;
        }
        let ones = vec![0xff; payload.len()];
        say(&mut client, &message(command as u16, 0, &ones))?;
    }
    Ok(())
}

pub(crate) fn unknown_commands(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    for command in (19..200).chain([0, 14, 0x7fff, 0x8000, 0xffff]) {
        say(&mut client, &message(command, 0, &[0; 32]))?;
    }
    Ok(())
}

pub(crate) fn unknown_types(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    for kind in 2..16 {
        say(
            &mut client,
            &message(Command::GetInfo as u16, kind, &[0; 16]),
        )?;
    }
    Ok(())
}

pub(crate) fn replies_nobody_asked_for(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    for command in 0..20 {
        for flags in [flags::REPLY, flags::REPLY | flags::ERROR, 0xffff_fff1] {
            let bytes = message(command, flags, &[0xff; 64]);
            client.send_raw(&bytes, &[]).map_err(own)?;
        }
    }
    refused(client.info())
}

pub(crate) fn commands_of_the_server(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    for command in [Command::DmaRead, Command::DmaWrite] {
        for len in [0, 8, 16, 4096] {
            say(&mut client, &message(command as u16, 0, &vec![0; len]))?;
        }
    }
    for index in [0, 3, 5, 10, feature::INDEX] {
        for method in [feature::GET, feature::SET, feature::PROBE] {
            refused(client.feature(method | index, &[0xff; 64]))?;
        }
    }
    Ok(())
}

pub(crate) fn moves_out_of_order(vmm: &mut Vmm) -> Done {
    let states = [
        MigrationState::Error,
        MigrationState::Stop,
        MigrationState::Running,
        MigrationState::StopCopy,
        MigrationState::Resuming,
    ];
    let mut client = vmm.client()?;
    for from in states {
        for to in states {
            // An error ends only by this.
            refused(client.reset())?;
            refused(client.set_migration_state(from))?;
            refused(client.write_state(&[0xff; 300], 7))?;
            refused(client.read_state(1 << 20))?;
            refused(client.start_log(4096, &[(0, u64::MAX); 2000]))?;
            refused(client.start_log(1 << 63, &[(u64::MAX, 1), (0, u64::MAX)]))?;
            refused(client.take_log(0, u64::MAX, 1 << 50))?;
            refused(client.take_log(u64::MAX - 1, 7, 3))?;
            refused(client.region_write(0, 0, &[0xff; 64]))?;
            refused(client.region_read(0, 0, &mut [0; 64]))?;
            refused(client.set_migration_state(to))?;
            refused(client.stop_log())?;
        }
    }
    // As much of a state as it takes, twice, and left so.
    for _ in 0..2 {
        refused(client.set_migration_state(MigrationState::Resuming))?;
        for _ in 0..3 {
            refused(client.write_state(&[7; 1 << 19], 1 << 19))?;
        }
    }
    Ok(())
}

pub(crate) fn what_is_not_there(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    for command in [
        Command::DeviceFeature,
        Command::MigrationRead,
        Command::MigrationWrite,
    ] {
        for len in [0, 8, 16, 64, 4096] {
            say(&mut client, &message(command as u16, 0, &vec![0; len]))?;
        }
    }
    // To get, to set, and to ask for.
    for ways in [1_u32 << 16, 1 << 17, (1 << 18) | (1 << 16)] {
        for feature in [0, 3, 99, 0xffff] {
            let words = [64, ways | feature].map(u32::to_le_bytes).concat();
            let payload = [words, vec![0; 56]].concat();
            say(
                &mut client,
                &message(Command::DeviceFeature as u16, 0, &payload),
            )?;
        }
    }
    Ok(())
}

pub(crate) fn no_reply_wanted(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    for _ in 0..200 {
        for (command, payload) in good() {
            let bytes = message(command as u16, flags::NO_REPLY, &payload);
            client.send_raw(&bytes, &[]).map_err(own)?;
            let bytes = message(
                command as u16,
                flags::NO_REPLY,
                &payload[..payload.len() / 2],
            );
            client.send_raw(&bytes, &[]).map_err(own)?;
        }
    }
    refused(client.info())
}

pub(crate) fn regions_that_are_not(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    for index in [region::COUNT, 10, 0x7fff_ffff, u32::MAX] {
        refused(client.region_info(index))?;
        refused(client.region_io_fds(index))?;
        refused(client.region_read(index, 0, &mut [0; 4]))?;
        refused(client.region_write(index, 0, &[0; 4]))?;
    }
    Ok(())
}

pub(crate) fn accesses_beyond_every_region(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    for index in 0..region::COUNT {
        for offset in [0x1_fff8, 0x2_0000, 1 << 40, u64::MAX - 7, u64::MAX] {
            for len in [1, 4, 8, 4096] {
                refused(client.region_read(index, offset, &mut vec![0; len]))?;
                refused(client.region_write(index, offset, &vec![0xff; len]))?;
            }
        }
    }
    Ok(())
}

pub(crate) fn largest_accesses(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    let mut data = vec![0; 1 << 20];
    for index in [region::BAR0, region::ROM, region::CONFIG, region::VGA] {
        for _ in 0..3 {
            refused(client.region_read(index, 0, &mut data))?;
            data.fill(0xff);
            refused(client.region_write(index, 0, &data))?;
        }
    }
    refused(client.reset())
}

pub(crate) fn write_multi_lies(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    let command = Command::RegionWriteMulti as u16;
    for count in [0u64, 1, 2, 1 << 32, u64::MAX] {
        for entries in [0, 1, 3, 1000] {
            let payload = [&count.to_ne_bytes()[..], &vec![0xff; entries * 24]].concat();
            say(&mut client, &message(command, 0, &payload))?;
            say(
                &mut client,
                &message(command, 0, &payload[..payload.len() - 1]),
            )?;
        }
    }
    Ok(())
}

pub(crate) fn write_multi_of_resets(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    let reset = WriteEntry {
        offset: regs::CTRL.into(),
        region: region::BAR0,
        count: 4,
        data: 1 << 26,
    };
    for count in [43_000u64, 256] {
        let payload = [
            &count.to_ne_bytes()[..],
            &reset.to_bytes().repeat(count as usize),
        ]
        .concat();
        for _ in 0..50 {
            refused(client.request(Command::RegionWriteMulti, &payload, &[]))?;
        }
    }
    Ok(())
}

pub(crate) fn one_byte_at_a_time(vmm: &mut Vmm) -> Done {
    let mut client = vmm.silent()?;
    let ask = DeviceInfo {
        argsz: DeviceInfo::LEN as u32,
        ..DeviceInfo::default()
    };
    let talk = [
        hello(),
        message(Command::GetInfo as u16, 0, &ask.to_bytes()),
    ];
    for bytes in talk {
        for byte in bytes {
            client.send_raw(&[byte], &[]).map_err(own)?;
            std::thread::sleep(Duration::from_micros(300));
        }
        refused(client.next_reply())?;
    }
    Ok(())
}

pub(crate) fn half_a_message(vmm: &mut Vmm) -> Done {
    for (command, payload) in good() {
        let whole = message(command as u16, 0, &payload);
        for part in [1, HEADER_LEN - 1, HEADER_LEN, whole.len().saturating_sub(1)] {
            let mut client = vmm.client()?;
            client
                .send_raw(&whole[..part.min(whole.len())], &[])
                .map_err(own)?;
        }
    }
    Ok(())
}

pub(crate) fn never_reads_a_reply(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    let access = RegionAccess {
        offset: 0,
        region: region::BAR0,
        count: 1 << 16,
    };
    let bytes = message(Command::RegionRead as u16, 0, &access.to_bytes());
    let many: Vec<u8> = bytes.repeat(64);
    let socket = rustix::io::fcntl_dupfd_cloexec(&client, 0).map_err(own)?;
    // 64 KiB of answer for 32 bytes of question, until the server stops listening.
    for _ in 0..2000 {
        let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
        if rustix::net::send(&socket, &many, flags).is_err() {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    // A last look at whether it is still there: it is, and waits for us.
    drop(socket);
    client.send_raw(&[], &[]).map_err(own)
}

pub(crate) fn random_messages(vmm: &mut Vmm) -> Done {
    let mut dice = crate::stage::Dice::new(1);
    let mut client = vmm.client()?;
    for round in 0..2000u32 {
        let all = good();
        let (command, mut payload) = all[dice.below(all.len())].clone();
        for _ in 0..dice.below(4) {
            if !payload.is_empty() {
                let at = dice.below(payload.len());
                payload[at] = dice.next() as u8;
            }
        }
        let header = Header {
            flags: if dice.below(8) == 0 {
                dice.next() as u32
            } else {
                0
            },
            ..Header::command(round as u16, command, payload.len())
        };
        let bytes = [&header.to_bytes()[..], &payload].concat();
        refused(client.send_raw(&bytes, &[]))?;
        if round % 50 == 0 && client.info().is_err() {
            drop(client);
            client = vmm.client()?;
        }
    }
    Ok(())
}
