//! DMA by message, with a client of our own that serves it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{DMA_READ, Rig, Seen, WAIT};
use hypernic_vfio_user::guest_mem::{FaultKind, Prot};
use hypernic_vfio_user::{
    Client, ClientOptions, Device, DmaError, DmaToken, EventFd, Listener, ResetCause, Server,
    SharedMem,
};

/// Serves a client's DMA until told to stop.
fn serving<T>(client: &mut Client, work: impl FnOnce() -> T + Send) -> T
where
    T: Send,
{
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        let worker = s.spawn(|| {
            let result = work();
            done.store(true, Ordering::SeqCst);
            result
        });
        while !done.load(Ordering::SeqCst) {
            client.serve_dma(Duration::from_millis(5)).unwrap();
        }
        worker.join().unwrap()
    })
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 / 5) as u8).collect()
}

#[test]
fn long_transfers_are_cut_to_what_the_client_takes() {
    for (twin_socket, max) in [(false, 1 << 20), (false, 1000), (true, 1 << 20), (true, 64)] {
        let rig = Rig::new();
        let mut c = rig.client_with(ClientOptions {
            twin_socket,
            max_data_xfer_size: max,
            ..ClientOptions::default()
        });
        let len = if max == 64 { 10_000 } else { 300_000 };
        let ram = SharedMem::new("ram", 1 << 20).unwrap();
        c.dma_map_without_fd(0x4000_0000, Some((&ram, 0)), 1 << 20, Prot::RW)
            .unwrap();
        let data = pattern(len);
        let back = serving(&mut c, || {
            let mut back = vec![0; len];
            rig.dma.write_blocking(0x4000_1001, &data, WAIT).unwrap();
            rig.dma.read_blocking(0x4000_1001, &mut back, WAIT).unwrap();
            back
        });
        assert!(back == data);
        let mut there = vec![0; len];
        ram.read(0x1001, &mut there);
        assert!(there == data);
        let count = rig.stop();
        let most = (max as usize).min(32 << 10);
        assert_eq!(count("dma_messages"), 2 * len.div_ceil(most) as u64);
        assert_eq!(count("dma_message_bytes"), 2 * len as u64);
    }
}

#[test]
fn mapped_memory_needs_no_message() {
    let rig = Rig::new();
    let mut c = rig.client();
    let ram = SharedMem::new("ram", 0x1000).unwrap();
    ram.write(0, b"mapped");
    c.dma_map(0, &ram, 0, 0x1000, Prot::RW).unwrap();
    let mut got = [0; 6];
    rig.dma.read_blocking(0, &mut got, WAIT).unwrap();
    assert_eq!(&got, b"mapped");
    c.region_write(0, DMA_READ, &0u64.to_le_bytes()).unwrap();
    let done = rig.wait_seen(|s| matches!(s, Seen::DmaDone(..)));
    assert!(matches!(done, Seen::DmaDone(_, Ok(data)) if data.starts_with(b"mapped")));
    assert_eq!(rig.stop()("dma_messages"), 0);
}

#[test]
fn what_is_nowhere_faults_at_once() {
    let rig = Rig::new();
    let mut c = rig.client();
    c.dma_map_without_fd(0x1000, None, 0x1000, Prot::RO)
        .unwrap();
    let fault = |result: Result<(), DmaError>| match result {
        Err(DmaError::Fault(fault)) => fault.kind,
        other => panic!("{other:?}"),
    };
    let mut data = [0; 8];
    assert_eq!(
        fault(rig.dma.read_blocking(0x9000, &mut data, WAIT)),
        FaultKind::Unmapped
    );
    assert_eq!(
        fault(rig.dma.write_blocking(0x1000, &data, WAIT)),
        FaultKind::Protected
    );
    // Known to the client, but it serves nothing there.
    let refused = serving(&mut c, || rig.dma.read_blocking(0x1000, &mut data, WAIT));
    assert_eq!(refused, Err(DmaError::Refused(14)));
}

#[test]
fn a_client_that_does_not_answer_costs_a_time_out() {
    let rig = Rig::new();
    let mut c = rig.client_with(ClientOptions {
        serve_while_waiting: false,
        ..ClientOptions::default()
    });
    let ram = SharedMem::new("ram", 0x1000).unwrap();
    c.dma_map_without_fd(0, Some((&ram, 0)), 0x1000, Prot::RW)
        .unwrap();
    let mut data = [0; 8];
    let result = rig
        .dma
        .read_blocking(0, &mut data, Duration::from_millis(30));
    assert_eq!(result, Err(DmaError::TimedOut));
    // The late answer matches no request and does no harm.
    assert_eq!(c.serve_dma(WAIT).unwrap(), 1);
    let result = serving(&mut c, || rig.dma.read_blocking(0, &mut data, WAIT));
    assert_eq!(result, Ok(()));
}

#[test]
fn an_unmap_does_not_wait_for_messages_and_ends_them() {
    let rig = Rig::new();
    let mut c = rig.client_with(ClientOptions {
        serve_while_waiting: false,
        ..ClientOptions::default()
    });
    let ram = SharedMem::new("ram", 0x1000).unwrap();
    c.dma_map_without_fd(0, Some((&ram, 0)), 0x1000, Prot::RW)
        .unwrap();
    c.dma_map_without_fd(0x1000, Some((&ram, 0)), 0x1000, Prot::RW)
        .unwrap();
    c.region_write(0, DMA_READ, &0u64.to_le_bytes()).unwrap();
    c.region_write(0, DMA_READ, &0x1000u64.to_le_bytes())
        .unwrap();
    // The client waits for the unmap and answers nothing else meanwhile.
    c.dma_unmap(0, 0x1000).unwrap();
    let ended = rig.wait_seen(|s| matches!(s, Seen::DmaDone(..)));
    assert!(matches!(ended, Seen::DmaDone(_, Err(DmaError::Unmapped))));
    // The other request is alive, and the first one's late answer does not confuse it.
    while c.serve_dma(Duration::from_millis(100)).unwrap() > 0 {}
    rig.wait_seen(|s| matches!(s, Seen::DmaDone(_, Ok(_))));
}

#[test]
fn a_client_that_leaves_ends_what_it_was_asked_for() {
    let rig = Rig::new();
    let mut c = rig.client_with(ClientOptions {
        serve_while_waiting: false,
        ..ClientOptions::default()
    });
    c.dma_map_without_fd(0, None, 0x1000, Prot::RW).unwrap();
    c.region_write(0, DMA_READ, &0u64.to_le_bytes()).unwrap();
    let result = std::thread::scope(|s| {
        let waiting = s.spawn(|| rig.dma.read_blocking(8, &mut [0; 8], WAIT));
        // Both requests have been sent before the client goes.
        while c.serve_dma(Duration::from_millis(20)).unwrap() == 0 {}
        drop(c);
        waiting.join().unwrap()
    });
    assert!(
        matches!(result, Err(DmaError::Disconnected | DmaError::Refused(_))),
        "{result:?}"
    );
    assert_eq!(
        rig.dma.read_blocking(8, &mut [0; 8], WAIT),
        Err(DmaError::Disconnected)
    );
    assert_eq!(rig.dma.read(8, 8), Err(DmaError::Disconnected));
}

/// Makes the mistake of waiting for its client while the client waits for it.
struct Careless {
    dma: hypernic_vfio_user::Dma,
    result: Option<Result<(), DmaError>>,
}

impl Device for Careless {
    fn bar_read(&mut self, _: u8, _: u64, data: &mut [u8]) {
        let mut bytes = [0; 4];
        self.result = Some(self.dma.read_blocking(0, &mut bytes, WAIT));
        data.fill(1);
    }
    fn bar_write(&mut self, _: u8, _: u64, _: &[u8]) {}
    fn reset(&mut self, _: ResetCause) {}
    fn dma_done(&mut self, _: DmaToken, _: Result<Vec<u8>, DmaError>) {}
}

#[test]
fn waiting_inside_a_register_access_is_an_error_and_not_a_deadlock() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let description = crate::common::description(&crate::common::page(), false);
    let mut server = Server::new(description, Listener::from_connected(theirs.into())).unwrap();
    let mut device = Careless {
        dma: server.dma().unwrap(),
        result: None,
    };
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut c = Client::open(ours.into(), ClientOptions::default()).unwrap();
            c.negotiate().unwrap();
            c.dma_map_without_fd(0, None, 0x1000, Prot::RW).unwrap();
            assert_eq!(c.read_u32(0, 0).unwrap(), 0x0101_0101);
        });
        server.run(&mut device, &EventFd::new().unwrap()).unwrap();
    });
    assert_eq!(device.result, Some(Err(DmaError::WouldDeadlock)));
}

#[test]
fn a_device_that_asks_for_too_much_is_told() {
    let rig = Rig::new();
    let _c = rig.client();
    assert_eq!(rig.dma.read(0, (64 << 20) + 1), Err(DmaError::Busy));
}
