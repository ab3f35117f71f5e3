//! An independent front end (`vhost`) and an independent driver (`virtio-queue`) against our server.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use hypernic_vhost_user::SharedMem;
use vhost::vhost_user::message::{
    VhostTransferStateDirection as Direction, VhostTransferStatePhase, VhostUserConfigFlags,
    VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures as Protocol,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserDirtyLogRegion, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_queue::desc::{RawDescriptor, split::Descriptor};
use virtio_queue::mock::MockSplitQueue;
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};
use vmm_sys_util::eventfd::EventFd;

use crate::common::{QUEUES, Seen, Serving, WAIT, serve};

const RAM: usize = 2 << 20;
const BASE: u64 = 0x4000_0000;
const SIZE: u16 = 64;

/// A VMM made of other people's crates.
struct Vmm {
    front: Frontend,
    memory: GuestMemoryMmap,
    file: File,
}

impl Vmm {
    fn new(serving: &Serving) -> Self {
        let mut front = Frontend::connect(&serving.path, u64::from(QUEUES)).expect("connected");
        front.set_owner().expect("owner");
        let features = front.get_features().expect("answered");
        front
            .set_features(features & !(1 << 5 | 1 << 34 | 1 << 26))
            .expect("set");
        let protocol = front.get_protocol_features().expect("answered");
        for bit in [
            Protocol::MQ,
            Protocol::LOG_SHMFD,
            Protocol::REPLY_ACK,
            Protocol::CONFIG,
            Protocol::INFLIGHT_SHMFD,
            Protocol::RESET_DEVICE,
            Protocol::CONFIGURE_MEM_SLOTS,
            Protocol::STATUS,
            Protocol::DEVICE_STATE,
        ] {
            assert!(protocol.contains(bit), "{bit:?}");
        }
        front.set_protocol_features(protocol).expect("set");
        front.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        let ram = SharedMem::new("ram", RAM).expect("a memfd");
        let file = File::from(ram.as_fd().try_clone_to_owned().expect("a descriptor"));
        let part = FileOffset::new(file.try_clone().expect("a descriptor"), 0);
        let memory =
            GuestMemoryMmap::from_ranges_with_files([(GuestAddress(BASE), RAM, Some(part))])
                .expect("mapped");
        Self {
            front,
            memory,
            file,
        }
    }

    /// The region as the front end has it: at the address where `vm-memory` has mapped it.
    fn region(&self) -> VhostUserMemoryRegionInfo {
        VhostUserMemoryRegionInfo {
            guest_phys_addr: BASE,
            memory_size: RAM as u64,
            userspace_addr: self.user(BASE),
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        }
    }

    fn user(&self, guest: u64) -> u64 {
        let at = self.memory.get_host_address(GuestAddress(guest));
        at.expect("mapped").addr() as u64
    }

    fn start(&self, queue: usize, ring: &MockSplitQueue<'_, GuestMemoryMmap>) -> [EventFd; 2] {
        let event = || EventFd::new(libc_nonblock()).expect("an eventfd");
        let events = [event(), event()];
        self.front.set_vring_num(queue, SIZE).expect("size");
        self.front.set_vring_base(queue, 0).expect("base");
        let at = VringConfigData {
            queue_max_size: SIZE,
            queue_size: SIZE,
            flags: 0,
            desc_table_addr: self.user(ring.desc_table_addr().0),
            used_ring_addr: self.user(ring.used_addr().0),
            avail_ring_addr: self.user(ring.avail_addr().0),
            log_addr: None,
        };
        self.front.set_vring_addr(queue, &at).expect("address");
        self.front.set_vring_kick(queue, &events[0]).expect("kick");
        self.front.set_vring_call(queue, &events[1]).expect("call");
        self.front.set_vring_err(queue, &events[1]).expect("err");
        events
    }
}

/// `EFD_NONBLOCK`, which is the same as `O_NONBLOCK`.
fn libc_nonblock() -> i32 {
    0o4000
}

fn wait_used(ring: &MockSplitQueue<'_, GuestMemoryMmap>, index: u16) {
    let until = Instant::now() + WAIT;
    while u16::from_le(ring.used().idx().load()) != index {
        assert!(Instant::now() < until, "nothing is used");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_independent_front_end_and_driver_exchange_frames() {
    let serving = serve();
    let mut vmm = Vmm::new(&serving);
    assert_eq!(
        vmm.front.get_queue_num().expect("answered"),
        u64::from(QUEUES)
    );
    vmm.front.set_mem_table(&[vmm.region()]).expect("taken");
    let rx = MockSplitQueue::create(&vmm.memory, GuestAddress(BASE), SIZE);
    let tx = MockSplitQueue::create(&vmm.memory, GuestAddress(BASE + 0x1_0000), SIZE);
    let (to, from) = (BASE + 0x10_0000, BASE + 0x18_0000);
    let [rx_kick, rx_call] = vmm.start(0, &rx);
    let [tx_kick, tx_call] = vmm.start(1, &tx);
    for queue in [0, 1] {
        vmm.front.set_vring_enable(queue, true).expect("enabled");
    }
    // Chains of two parts each way, written by the other crate's driver.
    let next = 1u16;
    rx.add_desc_chains(
        &[
            RawDescriptor::from(Descriptor::new(to, 10, 2 | next, 1)),
            RawDescriptor::from(Descriptor::new(to + 0x1000, 100, 2, 0)),
        ],
        0,
    )
    .expect("added");
    vmm.memory
        .write_slice(b"a frame in two parts", GuestAddress(from))
        .expect("written");
    tx.add_desc_chains(
        &[
            RawDescriptor::from(Descriptor::new(from, 7, next, 1)),
            RawDescriptor::from(Descriptor::new(from + 7, 13, 0, 0)),
        ],
        0,
    )
    .expect("added");
    rx_kick.write(1).expect("kicked");
    tx_kick.write(1).expect("kicked");
    wait_used(&rx, 1);
    wait_used(&tx, 1);
    let element = rx.used().ring().ref_at(0).expect("an element").load();
    assert_eq!((element.id(), element.len()), (0, 20));
    let mut bytes = [0; 20];
    vmm.memory
        .read_slice(&mut bytes[..10], GuestAddress(to))
        .expect("read");
    vmm.memory
        .read_slice(&mut bytes[10..], GuestAddress(to + 0x1000))
        .expect("read");
    assert_eq!(&bytes, b"a frame in two parts");
    for call in [rx_call, tx_call] {
        let until = Instant::now() + WAIT;
        while call.read().is_err() {
            assert!(Instant::now() < until, "no call");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    for queue in [0, 1] {
        assert_eq!(vmm.front.get_vring_base(queue).expect("stopped"), 1);
    }
    let counters = serving.end();
    assert_eq!(
        (counters("refused_violations"), counters("malformed")),
        (0, 0)
    );
}

#[test]
fn an_independent_front_end_reaches_every_optional_part() {
    let serving = serve();
    let mut vmm = Vmm::new(&serving);
    assert!(vmm.front.get_max_mem_slots().expect("answered") >= 32);
    vmm.front.add_mem_region(&vmm.region()).expect("added");
    vmm.front.remove_mem_region(&vmm.region()).expect("removed");
    assert!(serving.memory.regions().is_empty());
    vmm.front
        .add_mem_region(&vmm.region())
        .expect("added again");

    let asked = VhostUserInflight::new(0, 0, QUEUES, SIZE);
    let (given, file) = vmm.front.get_inflight_fd(&asked).expect("given");
    assert_eq!((given.num_queues, given.queue_size), (QUEUES, SIZE));
    vmm.front
        .set_inflight_fd(&given, file.as_raw_fd())
        .expect("taken");

    let log = SharedMem::new("log", 0x1_0000).expect("a memfd");
    let region = VhostUserDirtyLogRegion {
        mmap_size: 0x1_0000,
        mmap_offset: 0,
        mmap_handle: log.as_fd().as_raw_fd(),
    };
    vmm.front.set_log_base(0, Some(region)).expect("answered");
    vmm.front
        .set_features(1 << 32 | 1 << 30 | 1 << 26)
        .expect("set");
    assert!(serving.seen.lock().contains(&Seen::Log(true)));

    let flags = VhostUserConfigFlags::empty();
    let (_, bytes) = vmm.front.get_config(4, 8, flags, &[0; 8]).expect("read");
    assert_eq!(bytes, b"iguratio");
    let live = VhostUserConfigFlags::WRITABLE;
    vmm.front
        .set_config(14, live, b"99")
        .expect("written as migration does");

    let (read, write) = std::io::pipe().expect("a pipe");
    let file = vmm
        .front
        .set_device_state_fd(
            Direction::SAVE,
            VhostTransferStatePhase::STOPPED,
            OwnedFd::from(write),
        )
        .expect("begun");
    assert!(file.is_none());
    let mut state = Vec::new();
    std::io::Read::read_to_end(&mut { read }, &mut state).expect("read");
    assert_eq!(state.len(), 100_000);
    vmm.front.check_device_state().expect("saved");

    vmm.front.reset_device().expect("reset");
    assert!(serving.seen.lock().contains(&Seen::Reset));
    vmm.front.reset_owner().expect("ignored");
    drop(vmm);
    let counters = serving.end();
    assert_eq!(
        (counters("refused_violations"), counters("malformed")),
        (0, 0)
    );
}

#[test]
fn an_independent_front_end_is_told_that_it_lies() {
    let serving = serve();
    let vmm = Vmm::new(&serving);
    vmm.front.set_mem_table(&[vmm.region()]).expect("taken");
    let at = VringConfigData {
        queue_max_size: SIZE,
        queue_size: SIZE,
        flags: 0,
        desc_table_addr: 0x1000,
        used_ring_addr: 0x2000,
        avail_ring_addr: 0x3000,
        log_addr: None,
    };
    vmm.front.set_vring_num(0, SIZE).expect("size");
    vmm.front
        .set_vring_addr(0, &at)
        .expect_err("outside of memory");
    let line = serving.fault();
    assert!(
        line.starts_with("SET_VRING_ADDR: ring 0: its descriptors at 0x1000"),
        "{line}"
    );
    // What is mapped by another process's file that is no memory.
    let disk = File::open("/proc/self/maps").expect("open");
    let vmm = Vmm::new(&serving);
    let region = VhostUserMemoryRegionInfo {
        mmap_handle: disk.as_raw_fd(),
        ..vmm.region()
    };
    vmm.front.set_mem_table(&[region]).expect_err("no memory");
    assert!(
        serving
            .fault()
            .starts_with("SET_MEM_TABLE: guest RAM must be a memfd")
    );
}
