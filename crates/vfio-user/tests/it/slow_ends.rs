//! A descriptor from a peer may take for ever to close. The server does not wait for that: it serves
//! others too.

use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::common::Rig;
use hypernic_vfio_user::Client;
use hypernic_vfio_user::codec::{Command, DmaMap, Header, SetIrqs, dma_flags, irq, irq_set};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

/// How long the kernel waits in `close` for a peer that does not read.
const LINGER: Duration = Duration::from_secs(120);

/// Sockets whose last close lasts for [`LINGER`].
struct Lingering {
    listener: TcpListener,
    ends: Vec<TcpStream>,
}

impl Lingering {
    fn new() -> Self {
        Self {
            listener: TcpListener::bind("127.0.0.1:0").expect("listen"),
            ends: Vec::new(),
        }
    }

    fn one(&mut self) -> OwnedFd {
        let address = self.listener.local_addr().expect("address");
        let mut stream = TcpStream::connect(address).expect("connect");
        self.ends.push(self.listener.accept().expect("accept").0);
        stream.set_nonblocking(true).expect("non-blocking");
        while stream.write(&[0; 65536]).is_ok() {}
        rustix::net::sockopt::set_socket_linger(&stream, Some(LINGER)).expect("linger");
        stream.into()
    }
}

fn message(command: Command, payload: &[u8]) -> Vec<u8> {
    let header = Header::command(7, command, payload.len());
    [&header.to_bytes()[..], payload].concat()
}

/// Sends a message with descriptors, and keeps none. The end of the message goes last: until then
/// the server keeps what it was given, so that the last to close it is the server.
fn send(client: &Client, message: &[u8], given: Vec<OwnedFd>) {
    let (end, most) = message.split_last().expect("a message");
    let fds: Vec<BorrowedFd<'_>> = given.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let bytes = [IoSlice::new(most)];
    rustix::net::sendmsg(client, &bytes, &mut control, SendFlags::empty()).expect("send");
    drop(given);
    rustix::net::send(client, &[*end], SendFlags::empty()).expect("send");
}

#[test]
fn a_descriptor_that_will_not_close_holds_up_nobody() {
    let rig = Rig::new();
    let mut lingering = Lingering::new();
    let start = Instant::now();
    let arm = SetIrqs {
        argsz: SetIrqs::LEN as u32 + 4,
        flags: irq_set::DATA_EVENTFD | irq_set::ACTION_TRIGGER,
        index: irq::INTX,
        start: 0,
        count: 1,
    };
    let map = DmaMap {
        argsz: DmaMap::LEN as u32,
        flags: dma_flags::READ | dma_flags::WRITE,
        offset: 0,
        iova: 0,
        size: 4096,
    };
    let ways = [
        ("an eventfd", message(Command::SetIrqs, &arm.to_bytes()), 1),
        ("guest RAM", message(Command::DmaMap, &map.to_bytes()), 1),
        ("nothing", message(Command::Reset, &[]), 1),
        ("more than fit", message(Command::Reset, &[]), 40),
    ];
    for (what, message, count) in ways {
        let mut client = rig.client();
        let fds: Vec<_> = (0..count).map(|_| lingering.one()).collect();
        send(&client, &message, fds);
        let reply = client.next_reply().expect("a reply");
        println!("{what}: {:?}", reply.header);
        client.info().expect("the next answer");
        assert!(start.elapsed() < LINGER / 4, "{what}");
    }
    // In the queue of a connection that ends.
    let client = rig.client();
    let reset = message(Command::Reset, &[]);
    for _ in 0..20 {
        send(&client, &reset, vec![lingering.one()]);
    }
    drop(client);
    rig.client().info().expect("the next client's answer");
    assert!(start.elapsed() < LINGER / 4);
}
