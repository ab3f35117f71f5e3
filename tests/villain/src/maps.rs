//! VMMs that map what is not memory, not theirs, not there, or not for long.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use drivers::e1000::desc::{self, Legacy, cmd};
use drivers::e1000::regs::{self, ctrl, rctl, tctl};
use drivers::{Bus, BusError};
use rustix::fs::{Mode, OFlags, SealFlags};
use vfio_user::Client;
use vfio_user::codec::{Command, DmaMap, DmaUnmap, dma_flags, region};

use crate::stage::{Done, RING, Stage, tcp_frame};
use crate::vmm::{Vmm, memfd, message, own, refused};

const PAGE: u64 = 0x1000;

/// Asks for a region of `size` bytes at `iova`, of the file behind `fd`.
fn map(
    client: &mut Client,
    (iova, size, offset): (u64, u64, u64),
    prot: u32,
    fd: Option<BorrowedFd<'_>>,
) -> Done {
    let map = DmaMap {
        argsz: DmaMap::LEN as u32,
        flags: prot,
        offset,
        iova,
        size,
    };
    let fds: Vec<_> = fd.into_iter().collect();
    refused(client.request(Command::DmaMap, &map.to_bytes(), &fds))
}

const RW: u32 = dma_flags::READ | dma_flags::WRITE;

fn register(client: &mut Client, offset: u32, value: u32) -> Done {
    client
        .region_post(region::BAR0, offset.into(), &value.to_le_bytes())
        .map_err(own)
}

/// Switches the device on with both rings at `base` and lets it run into whatever is there.
fn run_into(client: &mut Client, base: u64) -> Done {
    client
        .region_write(region::CONFIG, 4, &7u16.to_le_bytes())
        .map_err(own)?;
    for (low, high, len, tail) in [
        (regs::TDBAL, regs::TDBAH, regs::TDLEN, regs::TDT),
        (regs::RDBAL, regs::RDBAH, regs::RDLEN, regs::RDT),
    ] {
        register(client, low, base as u32)?;
        register(client, high, (base >> 32) as u32)?;
        register(client, len, RING * 16)?;
        register(client, tail, 0)?;
    }
    register(client, regs::RCTL, rctl::EN | rctl::UPE | rctl::BAM)?;
    register(client, regs::TCTL, tctl::EN | tctl::PSP)?;
    for tail in [RING - 1, 1, RING / 2] {
        register(client, regs::RDT, tail)?;
        register(client, regs::TDT, tail)?;
        for _ in 0..3 {
            client
                .region_read(region::BAR0, regs::TDH.into(), &mut [0; 4])
                .map_err(own)?;
        }
    }
    Ok(())
}

pub(crate) fn overlapping_maps(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    let file = memfd(16 * PAGE)?;
    let fd = Some(file.as_fd());
    map(&mut client, (0x10_0000, 4 * PAGE, 0), RW, fd)?;
    for (iova, size) in [
        (0x10_0000, 4 * PAGE),
        (0x10_0000, PAGE),
        (0x0f_f000, 2 * PAGE),
        (0x10_3000, 2 * PAGE),
        (0x0f_f000, 16 * PAGE),
        (0x10_0001, 1),
    ] {
        map(&mut client, (iova, size, 0), RW, fd)?;
        map(&mut client, (iova, size, 0), RW, None)?;
    }
    Ok(())
}

pub(crate) fn impossible_ranges(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    let file = memfd(16 * PAGE)?;
    for fd in [Some(file.as_fd()), None] {
        for range in [
            (0, 0, 0),
            (u64::MAX, 2, 0),
            (u64::MAX - 0xfff, 0x2000, 0),
            (1, u64::MAX, 0),
            (0, u64::MAX, 1),
            (0x1000, PAGE, u64::MAX),
            (0x1000, PAGE, 16 * PAGE),
            (0x1000, 17 * PAGE, 0),
            (0x1000, 1 << 62, 1 << 62),
        ] {
            map(&mut client, range, RW, fd)?;
            refused(client.dma_unmap_all())?;
        }
    }
    Ok(())
}

pub(crate) fn odd_flags(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    let file = memfd(16 * PAGE)?;
    for bit in 0..32u64 {
        map(&mut client, (bit * PAGE, PAGE, 0), 1 << bit, None)?;
    }
    map(
        &mut client,
        (1 << 30, PAGE, 0),
        u32::MAX,
        Some(file.as_fd()),
    )?;
    // Neither to be read nor to be written.
    map(&mut client, (1 << 31, PAGE, 0), 0, Some(file.as_fd()))?;
    run_into(&mut client, 1 << 31)
}

pub(crate) fn every_region_there_may_be(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    for n in 0..=65_536u64 {
        let map = DmaMap {
            argsz: DmaMap::LEN as u32,
            flags: RW,
            iova: n * 2 * PAGE,
            size: PAGE,
            ..DmaMap::default()
        };
        client
            .start(Command::DmaMap, &map.to_bytes(), &[])
            .map_err(own)?;
        if n % 256 == 0 {
            client.flush().map_err(own)?;
            for _ in 0..if n == 0 { 1 } else { 256 } {
                client.next_reply().map_err(own)?;
            }
        }
    }
    run_into(&mut client, 77 * 2 * PAGE)?;
    refused(client.dma_unmap_all())
}

pub(crate) fn frame_over_all_regions(vmm: &mut Vmm) -> Done {
    /// As long as a frame of the 82540EM can be.
    const BYTES: u64 = 16_000;
    const FRAME: u64 = 1 << 20;
    let mut client = vmm.client()?;
    let file = memfd(PAGE)?;
    map(&mut client, (0, PAGE, 0), RW, Some(file.as_fd()))?;
    let raw = Legacy {
        addr: FRAME,
        len: BYTES as u16,
        cmd: cmd::EOP | cmd::IFCS | cmd::RS,
        ..Legacy::default()
    };
    let ring = [raw.raw(); RING as usize].concat();
    rustix::io::pwrite(&file, &ring, 0).map_err(own)?;
    let crumbs = memfd(PAGE)?;
    for n in 0..BYTES {
        map(
            &mut client,
            (FRAME + n, 1, n % PAGE),
            RW,
            Some(crumbs.as_fd()),
        )?;
    }
    link_up(&mut client)?;
    for _ in 0..5 {
        run_into(&mut client, 0)?;
    }
    refused(client.dma_unmap_all())
}

/// Nothing is sent before.
fn link_up(client: &mut Client) -> Done {
    register(client, regs::CTRL, ctrl::SLU | ctrl::ASDE | ctrl::FD)?;
    let mut status = [0; 4];
    for _ in 0..500 {
        client
            .region_read(region::BAR0, regs::STATUS.into(), &mut status)
            .map_err(own)?;
        if u32::from_le_bytes(status) & regs::status::LU != 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Ok(())
}

pub(crate) fn holes_under_copies(vmm: &mut Vmm) -> Done {
    /// The longer a hole, the longer the kernel holds up who comes into it.
    const HOLE: u64 = 256 << 20;
    const HOLES: u32 = 10;
    const FRAMES: u64 = 1 << 32;
    let mut client = vmm.client()?;
    let file = memfd(PAGE)?;
    map(&mut client, (0, PAGE, 0), RW, Some(file.as_fd()))?;
    let raw = |n: u64| {
        let frame = Legacy {
            addr: FRAMES + n * (HOLE / u64::from(RING)),
            len: 1514,
            cmd: cmd::EOP | cmd::IFCS | cmd::RS,
            ..Legacy::default()
        };
        frame.raw()
    };
    let ring: Vec<_> = (0..u64::from(RING)).map(raw).collect();
    rustix::io::pwrite(&file, &ring.concat(), 0).map_err(own)?;
    let holes = memfd(HOLE)?;
    map(&mut client, (FRAMES, HOLE, 0), RW, Some(holes.as_fd()))?;
    link_up(&mut client)?;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let punch = || {
            use rustix::fs::{FallocateFlags, fallocate};
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // To all stations: what is read from a hole is zeros.
            for _ in 0..HOLES {
                fallocate(&holes, FallocateFlags::empty(), 0, HOLE).map_err(own)?;
                for n in 0..u64::from(RING) {
                    let at = n * (HOLE / u64::from(RING));
                    rustix::io::pwrite(&holes, &tcp_frame(1514)[..64], at).map_err(own)?;
                }
                fallocate(&holes, hole, 0, HOLE).map_err(own)?;
            }
            Done::Ok(())
        };
        let done = &done;
        let punch_all = move || {
            let punched = punch();
            done.store(true, Ordering::Relaxed);
            punched
        };
        let puncher = scope.spawn(punch_all);
        let mut sent = Ok(());
        while sent.is_ok() && !done.load(Ordering::Relaxed) {
            sent = run_into(&mut client, 0);
        }
        puncher.join().map_err(|_| own("its thread panicked"))??;
        sent
    })?;
    refused(client.dma_unmap_all())
}

pub(crate) fn ever_more_files(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    for n in 0..600u64 {
        let file = memfd(PAGE)?;
        map(&mut client, (n * PAGE, PAGE, 0), RW, Some(file.as_fd()))?;
    }
    run_into(&mut client, 0)
}

pub(crate) fn largest_files(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    // The address space of a process has 128 TiB.
    for n in 0..8u64 {
        let file = memfd(100 << 40)?;
        map(&mut client, (n << 48, 100 << 40, 0), RW, Some(file.as_fd()))?;
        map(
            &mut client,
            ((n << 48) + (1 << 47), PAGE, 0),
            RW,
            Some(file.as_fd()),
        )?;
    }
    run_into(&mut client, 1 << 47)
}

fn open(path: &str, flags: OFlags) -> Option<OwnedFd> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).ok()
}

pub(crate) fn what_is_not_memory(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    let (read, write) = rustix::pipe::pipe().map_err(own)?;
    let event = crate::vmm::event()?;
    let socket = vmm.socket()?;
    let mut files: Vec<OwnedFd> = [
        "/dev/zero",
        "/dev/null",
        "/dev/full",
        "/proc/self/maps",
        "/",
        "/etc/passwd",
    ]
    .iter()
    .filter_map(|path| open(path, OFlags::RDONLY))
    .collect();
    files.extend(open("/proc/self/exe", OFlags::PATH));
    files.extend(open("/dev/zero", OFlags::RDWR));
    files.extend([read, write, socket]);
    files.push(rustix::io::fcntl_dupfd_cloexec(&event, 0).map_err(own)?);
    for (n, file) in (1..).zip(&files) {
        map(&mut client, (n << 32, PAGE, 0), RW, Some(file.as_fd()))?;
        map(
            &mut client,
            (n << 32, PAGE, 0),
            dma_flags::READ,
            Some(file.as_fd()),
        )?;
    }
    run_into(&mut client, 1 << 32)
}

pub(crate) fn sealed_and_read_only_files(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    for (n, seals) in (1u64..).zip([
        SealFlags::WRITE,
        SealFlags::FUTURE_WRITE,
        SealFlags::SHRINK | SealFlags::GROW,
        SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
    ]) {
        let file = memfd(16 * PAGE)?;
        rustix::fs::fcntl_add_seals(&file, seals).map_err(own)?;
        let fd = Some(file.as_fd());
        map(&mut client, (n << 32, 16 * PAGE, 0), RW, fd)?;
        map(
            &mut client,
            ((n + 8) << 32, 16 * PAGE, 0),
            dma_flags::READ,
            fd,
        )?;
        run_into(&mut client, n << 32)?;
        run_into(&mut client, (n + 8) << 32)?;
    }
    let file = memfd(16 * PAGE)?;
    let path = format!(
        "/proc/self/fd/{}",
        std::os::fd::AsRawFd::as_raw_fd(&file.as_fd())
    );
    if let Some(read_only) = open(&path, OFlags::RDONLY) {
        map(
            &mut client,
            (1 << 40, 16 * PAGE, 0),
            RW,
            Some(read_only.as_fd()),
        )?;
        map(
            &mut client,
            (2 << 40, 16 * PAGE, 0),
            dma_flags::READ,
            Some(read_only.as_fd()),
        )?;
        run_into(&mut client, 2 << 40)?;
    }
    Ok(())
}

pub(crate) fn truncated_under_the_device(vmm: &mut Vmm) -> Done {
    for left in [0, PAGE, 8 * PAGE] {
        let mut client = vmm.client()?;
        let file = memfd(64 * PAGE)?;
        map(&mut client, (0, 64 * PAGE, 0), RW, Some(file.as_fd()))?;
        rustix::fs::ftruncate(&file, left).map_err(own)?;
        run_into(&mut client, 63 * PAGE)?;
        run_into(&mut client, 4 * PAGE)?;
        rustix::fs::ftruncate(&file, 64 * PAGE).map_err(own)?;
        run_into(&mut client, 0)?;
    }
    Ok(())
}

pub(crate) fn truncated_again_and_again(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    let file = memfd(64 * PAGE)?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut long = false;
            while !over.load(Ordering::Relaxed) {
                long = !long;
                let len = if long { 64 * PAGE } else { 0 };
                let _ = rustix::fs::ftruncate(&file, len);
                std::thread::yield_now();
            }
        });
        let mut work = || {
            for _ in 0..100 {
                // A file that is short just now is refused.
                map(&mut client, (0, 64 * PAGE, 0), RW, Some(file.as_fd()))?;
                run_into(&mut client, 63 * PAGE)?;
                refused(client.dma_unmap_all())?;
            }
            Ok(())
        };
        let result = work();
        over.store(true, Ordering::Relaxed);
        result
    })
}

pub(crate) fn unmaps_of_nothing(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    let file = memfd(16 * PAGE)?;
    map(
        &mut client,
        (0x10_0000, 4 * PAGE, 0),
        RW,
        Some(file.as_fd()),
    )?;
    for (iova, size) in [
        (0x10_0000, PAGE),
        (0x10_0000, 8 * PAGE),
        (0x10_1000, 3 * PAGE),
        (0, u64::MAX),
        (0, 0),
        (u64::MAX, u64::MAX),
    ] {
        refused(client.dma_unmap(iova, size))?;
    }
    refused(client.dma_unmap_all())?;
    refused(client.dma_unmap_all())?;
    refused(client.dma_unmap(0x10_0000, 4 * PAGE))?;
    for flags in [1, 4, 8, 3, u32::MAX] {
        let unmap = DmaUnmap {
            argsz: DmaUnmap::LEN as u32,
            flags,
            iova: 0x10_0000,
            size: 4 * PAGE,
        };
        refused(client.request(Command::DmaUnmap, &unmap.to_bytes(), &[]))?;
    }
    Ok(())
}

pub(crate) fn one_file_everywhere(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    let file = memfd(PAGE)?;
    let raw = Legacy {
        addr: 5 * PAGE,
        len: 4096,
        cmd: cmd::EOP | cmd::RS,
        ..Legacy::default()
    }
    .raw();
    // Ring, buffers and what is written back are one and the same page, at a thousand addresses.
    rustix::io::pwrite(&file, &raw.repeat(256), 0).map_err(own)?;
    for n in 0..1000 {
        map(&mut client, (n * PAGE, PAGE, 0), RW, Some(file.as_fd()))?;
    }
    for n in [0, 1, 999] {
        run_into(&mut client, n * PAGE)?;
    }
    Ok(())
}

pub(crate) fn memory_without_a_file(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    map(&mut client, (0, 1 << 30, 0), RW, None)?;
    run_into(&mut client, 0)?;
    run_into(&mut client, (1 << 30) - 64)
}

pub(crate) fn read_only_memory(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    let file = memfd(16 * PAGE)?;
    let raw = Legacy {
        addr: 0,
        len: 60,
        cmd: cmd::EOP | cmd::RS,
        ..Legacy::default()
    }
    .raw();
    rustix::io::pwrite(&file, &raw.repeat(256), 0).map_err(own)?;
    map(
        &mut client,
        (0, 16 * PAGE, 0),
        dma_flags::READ,
        Some(file.as_fd()),
    )?;
    run_into(&mut client, 0)?;
    refused(client.dma_unmap_all())?;
    map(
        &mut client,
        (0, 16 * PAGE, 0),
        dma_flags::WRITE,
        Some(file.as_fd()),
    )?;
    run_into(&mut client, 0)
}

pub(crate) fn unmap_in_flight(vmm: &mut Vmm) -> Done {
    let mut bus = vmm.machine()?;
    // Often enough that some are in flight also where the device is quick.
    for _ in 0..400 {
        let mut stage = Stage::new(&mut bus)?;
        let raw = stage.legacy(1400).raw();
        stage.post(stage.buffer.iova + 0x1_0000)?;
        // The bells and what takes their memory away are in one send.
        stage.send_on(&[raw; RING as usize - 1])?;
        for dma in [stage.buffer, stage.tx, stage.rx] {
            stage.bus.free(dma)?;
        }
        bus.read32(regs::TDH)?;
    }
    Ok(())
}

pub(crate) fn maps_come_and_go(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    let files = (0..20)
        .map(|_| memfd(16 * PAGE))
        .collect::<Result<Vec<_>, BusError>>()?;
    for round in 0..50u64 {
        for (n, file) in (0..).zip(&files) {
            map(
                &mut client,
                (n * 16 * PAGE, 16 * PAGE, 0),
                RW,
                Some(file.as_fd()),
            )?;
        }
        run_into(&mut client, round % 20 * 16 * PAGE)?;
        refused(client.dma_unmap_all())?;
        run_into(&mut client, 0)?;
    }
    Ok(())
}

pub(crate) fn descriptors_nobody_wants(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    let file = memfd(PAGE)?;
    let fds = [file.as_fd(); 16];
    let ask = message(
        Command::GetInfo as u16,
        0,
        &[16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    );
    for _ in 0..500 {
        client.send_raw(&ask, &fds).map_err(own)?;
        refused(client.next_reply())?;
    }
    // With every byte of a message that is never finished.
    for byte in &ask[..12] {
        client.send_raw(&[*byte], &fds).map_err(own)?;
    }
    Ok(())
}

pub(crate) fn too_many_descriptors_for_a_map(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    let file = memfd(PAGE)?;
    for count in [2, 3, 16] {
        let map = DmaMap {
            argsz: DmaMap::LEN as u32,
            flags: RW,
            iova: 0,
            size: PAGE,
            ..DmaMap::default()
        };
        let fds = vec![file.as_fd(); count];
        refused(client.request(Command::DmaMap, &map.to_bytes(), &fds))?;
    }
    Ok(())
}

pub(crate) fn frames_for_memory_that_goes(vmm: &mut Vmm) -> Done {
    let mut bus = vmm.machine()?;
    let mut stage = Stage::new(&mut bus)?;
    let frame = tcp_frame(1400);
    stage.bus.dma_write(stage.buffer.iova, &frame)?;
    stage.receive_control(rctl::LBM)?;
    let raws = [stage.legacy(1400).raw(); 16];
    // The receiver's buffers are a region of their own, which comes and goes under its copies.
    for _ in 0..100 {
        let there = stage.bus.alloc_at(1 << 40, 0x1_0000)?;
        let rx = stage.rx.iova;
        stage.rx_ring(rx, RING * desc::SIZE as u32)?;
        stage.post(there.iova)?;
        stage.send_on(&raws)?;
        stage.bus.free(there)?;
    }
    stage.leave()
}
