//! The vfio-user socket: the codec on any bytes, and a server in front of a hostile client.

mod device;
mod peer;
mod words;

use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use vfio_user::codec::{
    DeviceFeature, DeviceInfo, DmaAccess, DmaMap, DmaUnmap, HEADER_LEN, Header, IrqInfo,
    LogControl, LogRange, LogReport, MigrationData, RegionAccess, RegionInfo, RegionIoFds, SetIrqs,
    StateChange, Version, WriteEntry, sparse_areas,
};
use vfio_user::pci::{Bar, Capability, Msi, PowerManagement};
use vfio_user::{DeviceDescription, EventSet, Listener, Server};

use crate::input::Input;
use device::{BAR0, MSIX, Registers};
use peer::Peer;

/// What a VMM that means harm may send; odd first bytes are for the codec alone.
pub fn messages(data: &[u8]) {
    let mut input = Input::new(data);
    let setup = input.u8();
    if setup & 1 == 1 {
        codec(input.rest());
    } else {
        serve(setup, &mut input);
    }
}

/// Whatever parses is written as the same bytes.
fn codec(bytes: &[u8]) {
    macro_rules! round_trip {
        ($($name:ident),*) => {$(
            if let Ok(value) = $name::parse(bytes) {
                assert_eq!(value.to_bytes(), bytes[..$name::LEN]);
            } else {
                assert!(bytes.len() < $name::LEN);
            }
        )*};
    }
    round_trip!(
        DmaMap,
        DmaUnmap,
        DeviceInfo,
        RegionInfo,
        RegionIoFds,
        IrqInfo,
        SetIrqs,
        RegionAccess,
        WriteEntry,
        DmaAccess,
        DeviceFeature,
        MigrationData,
        StateChange,
        LogControl,
        LogRange,
        LogReport
    );
    if let Some(header) = Header::parse(bytes) {
        assert_eq!(header.to_bytes(), bytes[..HEADER_LEN]);
        assert!(!(header.is_reply() && header.is_command()));
        let error = header.error_reply(22);
        assert!(error.is_reply() && error.is_error() && error.id == header.id);
    }
    if let Ok(areas) = sparse_areas(bytes) {
        assert!(areas.len() * 16 <= bytes.len(), "more areas than bytes");
    }
    if let Ok(version) = Version::parse(bytes) {
        let again = Version::parse(&version.to_bytes()).expect("our own words");
        assert_eq!(again, version);
    }
}

fn serve(setup: u8, input: &mut Input<'_>) {
    let description = DeviceDescription::new(0x8086, 0x100e)
        .class(0x02_00_00)
        .bar(0, Bar::memory32(BAR0))
        .bar(1, Bar::io(64))
        .intx(1)
        .capability(Capability::PowerManagement(PowerManagement::default()))
        .msi(Msi::new(2).address64().masking())
        .msix(MSIX)
        .rom(vec![0x55, 0xaa, 1, 2, 3]);
    // Out of descriptors is not what is tested here.
    let Some((ours, theirs)) = PAIR.take().or_else(pair) else {
        return;
    };
    let Ok(end) = theirs.try_clone() else { return };
    let Ok(mut server) = Server::new(description, Listener::from_connected(end)) else {
        return;
    };
    let Ok(set) = EventSet::new() else { return };
    if server.watch(&set).is_err() {
        return;
    }
    let Ok(dma) = server.dma() else { return };
    let device = Registers {
        dma,
        irq: server.interrupts(),
        accesses: 0,
        asked: 0,
        answered: 0,
        halted: false,
    };
    let mut peer = Peer {
        socket: ours,
        server,
        set,
        device,
        out: Vec::new(),
        room: ROOM.take().unwrap_or_else(|| vec![0; 16 << 10]),
        due: VecDeque::new(),
        got: Vec::new(),
        lost: false,
        asked: VecDeque::new(),
        max_data: 1 << 20,
        id: 0,
        sent: 0,
    };
    if setup & 2 == 0 {
        peer.version(setup, input);
    }
    for _ in 0..64 {
        let Some(op) = input.op() else { break };
        peer.step(op, input);
    }
    peer.exchange(&[]);
    assert!(
        peer.lost || peer.due.is_empty(),
        "unanswered: {:?}",
        peer.due
    );
    let Peer {
        socket,
        server,
        lost,
        room,
        ..
    } = peer;
    drop(server);
    let mut end = Some((socket, theirs)).filter(|_| !lost);
    end = end.filter(|(ours, theirs)| is_empty(ours) && is_empty(theirs));
    PAIR.set(end);
    ROOM.set(Some(room));
}

thread_local! {
    /// The sockets of the last run, if both ends are still open: to make and to close them takes
    /// longer than a short run.
    static PAIR: Cell<Option<(OwnedFd, OwnedFd)>> = const { Cell::new(None) };
    static ROOM: Cell<Option<Vec<u8>>> = const { Cell::new(None) };
}

fn pair() -> Option<(OwnedFd, OwnedFd)> {
    let (unix, stream) = (AddressFamily::UNIX, SocketType::STREAM);
    socketpair(unix, stream, SocketFlags::CLOEXEC, None).ok()
}

/// Takes what is left in a socket that is still open at both ends; `false` when it is not.
fn is_empty(socket: &OwnedFd) -> bool {
    let mut rest = [0; 1024];
    loop {
        match recv(socket, &mut rest[..], RecvFlags::DONTWAIT) {
            Ok((1.., _)) => {}
            Err(Errno::AGAIN) => return true,
            _ => return false,
        }
    }
}
