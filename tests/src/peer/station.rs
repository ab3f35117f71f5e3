//! A host of its own TCP/IP stack on one network, which echoes what is sent to it.

use std::collections::VecDeque;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr};

/// The port that echoes.
pub const ECHO: u16 = 7;

/// How many connections it may hold at once.
const CONNECTIONS: usize = 4;

/// What it may have on the way to a guest: fewer frames than the smallest ring has buffers.
const WINDOW_OUT: usize = 64 * 1024;

/// What it may hold of what a guest sends.
const WINDOW_IN: usize = 256 * 1024;

/// The longest MTU of a driver for the chip: 16128 bytes less header and check sequence.
const MTU: usize = 16_110;

/// One network's host.
pub(super) struct Station {
    /// Its VLAN.
    pub(super) tag: Option<u16>,
    interface: Interface,
    sockets: SocketSet<'static>,
    connections: Vec<SocketHandle>,
    queues: Queues,
}

impl Station {
    pub(super) fn new(tag: Option<u16>, mac: [u8; 6], addresses: &[IpCidr], now: Instant) -> Self {
        let mut queues = Queues::default();
        let config = Config::new(HardwareAddress::Ethernet(EthernetAddress(mac)));
        let mut interface = Interface::new(config, &mut queues, now);
        interface.update_ip_addrs(|list| {
            for address in addresses {
                // There is room for two, and two is what a network has.
                let _ = list.push(*address);
            }
        });
        let mut sockets = SocketSet::new(Vec::new());
        let connections = (0..CONNECTIONS)
            .map(|_| {
                let buffer = |n| tcp::SocketBuffer::new(vec![0; n]);
                let mut socket = tcp::Socket::new(buffer(WINDOW_IN), buffer(WINDOW_OUT));
                socket.set_ack_delay(None);
                socket.set_nagle_enabled(false);
                sockets.add(socket)
            })
            .collect();
        Self {
            tag,
            interface,
            sockets,
            connections,
            queues,
        }
    }

    /// Takes frames in and returns those that go out.
    pub(super) fn turn(&mut self, frame: Option<Vec<u8>>, now: Instant) -> Vec<Vec<u8>> {
        self.queues.incoming.extend(frame);
        loop {
            self.interface
                .poll(now, &mut self.queues, &mut self.sockets);
            let mut moved = false;
            for handle in &self.connections {
                moved |= echo(self.sockets.get_mut(*handle));
            }
            if !moved && self.queues.incoming.is_empty() {
                return std::mem::take(&mut self.queues.outgoing);
            }
        }
    }

    /// When it wants its next turn.
    pub(super) fn delay(&mut self, now: Instant) -> Option<Duration> {
        self.interface.poll_delay(now, &self.sockets)
    }
}

/// Moves what a connection has received to what it sends. Whether there was anything to do.
fn echo(socket: &mut tcp::Socket<'_>) -> bool {
    if !socket.is_open() {
        return socket.listen(ECHO).is_ok();
    }
    let mut moved = false;
    while socket.can_recv() && socket.can_send() {
        let mut chunk = [0; 16384];
        let room = socket.send_capacity() - socket.send_queue();
        let most = room.min(chunk.len());
        let Ok(n) = socket.recv_slice(&mut chunk[..most]) else {
            break;
        };
        if n == 0 || socket.send_slice(&chunk[..n]) != Ok(n) {
            break;
        }
        moved = true;
    }
    if socket.state() == tcp::State::CloseWait && socket.recv_queue() == 0 {
        socket.close();
        moved = true;
    }
    moved
}

/// The frames in and out of a stack.
#[derive(Default)]
struct Queues {
    incoming: VecDeque<Vec<u8>>,
    outgoing: Vec<Vec<u8>>,
}

struct In(Vec<u8>);

impl RxToken for In {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

struct Out<'a>(&'a mut Vec<Vec<u8>>);

impl TxToken for Out<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, f: F) -> R {
        let mut frame = vec![0; length];
        let result = f(&mut frame);
        self.0.push(frame);
        result
    }
}

impl Device for Queues {
    type RxToken<'a> = In;
    type TxToken<'a> = Out<'a>;

    fn receive(&mut self, _now: Instant) -> Option<(In, Out<'_>)> {
        let frame = self.incoming.pop_front()?;
        Some((In(frame), Out(&mut self.outgoing)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Out<'_>> {
        Some(Out(&mut self.outgoing))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = MTU + 14;
        capabilities
    }
}
