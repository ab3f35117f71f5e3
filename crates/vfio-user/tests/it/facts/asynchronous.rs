//! 6.2: an asynchronous device.

use std::io::Read;
use std::os::fd::AsFd;
use std::time::Duration;

use super::Patient;
use crate::common::{DMA_DONE, DMA_READ, Rig, Seen, WAIT};
use hypernic_vfio_user::guest_mem::Prot;
use hypernic_vfio_user::{Client, ClientOptions, EventFd, Listener, Server, SharedMem};

#[test]
fn fact_6_2_a_register_is_answered_while_message_dma_waits_for_the_client() {
    let rig = Rig::new();
    // As QEMU does, this client serves no DMA while a vCPU waits for a register.
    let mut c = rig.client_with(ClientOptions {
        serve_while_waiting: false,
        ..ClientOptions::default()
    });
    let ram = SharedMem::new("ram", 0x1000).unwrap();
    ram.write(0x40, b"hello");
    c.dma_map_without_fd(0x10_0000, Some((&ram, 0)), 0x1000, Prot::RW)
        .unwrap();
    c.region_write(0, DMA_READ, &0x10_0040u64.to_le_bytes())
        .unwrap();
    assert_eq!(c.read_u32(0, DMA_DONE).unwrap(), 0);
    assert_eq!(c.serve_dma(WAIT).unwrap(), 1);
    let done = rig.wait_seen(|s| matches!(s, Seen::DmaDone(..)));
    let Seen::DmaDone(_, Ok(data)) = done else {
        panic!("{done:?}");
    };
    assert_eq!((&data[..5], data.len()), (&b"hello"[..], 64));
    assert_eq!(c.read_u32(0, DMA_DONE).unwrap(), 1);
}

#[test]
fn fact_6_2_the_twin_socket_is_used_when_offered() {
    let rig = Rig::new();
    let mut c = rig.client_with(ClientOptions {
        twin_socket: true,
        serve_while_waiting: false,
        ..ClientOptions::default()
    });
    let ram = SharedMem::new("ram", 0x1000).unwrap();
    ram.write(0, b"twin");
    c.dma_map_without_fd(0, Some((&ram, 0)), 0x1000, Prot::RW)
        .unwrap();
    c.region_write(0, DMA_READ, &0u64.to_le_bytes()).unwrap();
    // Nothing but replies may come on the main socket, so the whole answer can be read raw.
    let mut main = std::os::unix::net::UnixStream::from(c.as_fd().try_clone_to_owned().unwrap());
    main.set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    assert!(main.read(&mut [0; 1]).is_err());
    assert_eq!(c.serve_dma(WAIT).unwrap(), 1);
    let done = rig.wait_seen(|s| matches!(s, Seen::DmaDone(..)));
    assert!(matches!(done, Seen::DmaDone(_, Ok(data)) if data.starts_with(b"twin")));
}

#[test]
fn fact_6_2_work_is_done_after_the_reply() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let description = crate::common::description(&crate::common::page(), false);
    let mut server = Server::new(description, Listener::from_connected(theirs.into())).unwrap();
    let (tell, answered) = std::sync::mpsc::channel();
    let mut device = Patient {
        kicked: false,
        answered,
        in_time: false,
    };
    let stop = EventFd::new().unwrap();
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut c = Client::open(ours.into(), ClientOptions::default()).unwrap();
            c.negotiate().unwrap();
            assert_eq!(c.read_u32(0, 0).unwrap(), 0x0101_0101);
            tell.send(()).unwrap();
        });
        server.run(&mut device, &stop).unwrap();
    });
    assert!(device.in_time);
}
