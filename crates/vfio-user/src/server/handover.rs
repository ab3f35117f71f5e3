//! A client handed over from one server to the next, in this process or another one with the same descriptors, in the middle
//! of its conversation: it notices nothing.
//!
//! What is handed over is plain data and a list of files, which the data names by their places in it. What the device is, the
//! next server knows; how the device is, its owner saves and loads.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Instant;

use guest_mem::Prot;
use pci::ConfigEvent;
use serde::{Deserialize, Serialize};
use snapshot::{Kind, State as _, StateError};

use super::kept_maps::KeptMap;
use super::session::{Signal, SignalChange};
use super::state::{Connection, MAX_SIGNALS, Server, Twin};
use crate::codec::dma_flags;
use crate::device::{ClientEvent, Device, DmaChange, GoneReason};
use crate::doorbell::Registers;
use crate::interrupts::saved::Vector;
use crate::stream::{MAX_FDS, Receiver, Sender, message};
use peer::deferred_closer::PeerFd;
use peer::event;

/// A client, ready to be taken over.
#[derive(Debug)]
pub struct Handover {
    /// What it has agreed on and asked for.
    pub state: Vec<u8>,
    /// Its files, in the order the state names them.
    pub files: Vec<OwnedFd>,
}

/// Why a client cannot be handed over, or not taken.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// There is none that has negotiated.
    #[error("no client is connected")]
    NoClient,
    /// Something of it is under way that only this server can end; later it may be done.
    #[error("{0} is under way")]
    Busy(&'static str),
    /// It has something that cannot be handed over.
    #[error("a client with {0} cannot be handed over")]
    Cannot(&'static str),
    /// The state is damaged, of another device or impossible.
    #[error("the state of the client is refused: {0}")]
    State(#[from] StateError),
    /// The files are not those that the state names.
    #[error("the client's files are not there: {0}")]
    Files(#[from] io::Error),
    /// The device cannot go on.
    #[error("its device cannot go on: {0}")]
    Device(String),
}

#[derive(Serialize, Deserialize)]
struct Map {
    iova: u64,
    len: u64,
    offset: u64,
    flags: u32,
    file: Option<u32>,
}

#[derive(Serialize, Deserialize)]
struct Watched {
    index: u32,
    vector: u32,
    mask: bool,
    file: u32,
}

/// A client as it is handed over. Its socket is file 0.
#[derive(Serialize, Deserialize)]
struct V1 {
    max_data: u32,
    write_multiple: bool,
    config: Vec<u8>,
    table: Vec<u8>,
    pme: [bool; 2],
    maps: Vec<Map>,
    vectors: Vec<(Vector, Option<u32>)>,
    signals: Vec<Watched>,
    /// Received and not answered; with the files that came along, by the start of their message.
    unread: Vec<u8>,
    unread_files: Vec<(u32, u32)>,
    /// Answered and not sent.
    unsent: Vec<u8>,
    /// Its second socket, if it has one.
    twin: Option<SecondSocket>,
    /// The memory its doorbells are in, and what was last seen there.
    doorbells: Option<(u32, Vec<u32>)>,
}

#[derive(Serialize, Deserialize)]
struct SecondSocket {
    file: u32,
    unread: Vec<u8>,
    unsent: Vec<u8>,
}

impl snapshot::State for V1 {
    const KIND: Kind = Kind::new("vfiouser");
    const VERSION: u32 = 1;
}

fn refuse(field: &'static str, value: u64, why: &'static str) -> StateError {
    StateError::Field { field, value, why }
}

/// The files of a handover, as they are found; or only how many they are.
#[derive(Default)]
pub(super) struct Files {
    count: u32,
    duplicates: Option<Vec<OwnedFd>>,
    numbers: Option<Vec<RawFd>>,
}

impl Files {
    /// Their numbers alone.
    pub(super) fn numbers() -> Self {
        Self {
            numbers: Some(Vec::new()),
            ..Self::default()
        }
    }

    /// See [`Self::numbers`].
    pub(super) fn into_numbers(self) -> Vec<RawFd> {
        self.numbers.unwrap_or_default()
    }

    fn add(&mut self, fd: BorrowedFd<'_>) -> io::Result<u32> {
        if let Some(duplicates) = &mut self.duplicates {
            duplicates.push(fd.try_clone_to_owned()?);
        }
        if let Some(numbers) = &mut self.numbers {
            numbers.push(fd.as_raw_fd());
        }
        self.count += 1;
        Ok(self.count - 1)
    }
}

/// Whether a client's state is one that this program could take over, as far as that can be said without its device and files.
///
/// # Errors
/// Why not.
pub fn check_state(state: &[u8]) -> Result<(), StateError> {
    snapshot::open(V1::KIND, state)?.decode::<V1>().map(drop)
}

impl Server {
    /// Keeps the files of guest memory, so that clients can be handed over. For those who come from now on.
    pub fn keep_files(&mut self) {
        self.session.kept_maps.begin();
    }

    /// What keeps the client from being handed over now, and will end.
    pub fn under_way(&self) -> Option<&'static str> {
        let connection = self.connection.as_ref()?;
        let twin = connection.twin.as_ref();
        if self.session.is_moving() {
            Some("a migration")
        } else if self.session.pending_map.is_some() {
            Some("the mapping of a file")
        } else if !self.session.engine.is_idle() {
            Some("DMA by message")
        } else if connection.tx.unsent().is_none() || twin.is_some_and(|t| t.tx.unsent().is_none())
        {
            Some("the sending of a file")
        } else if connection.rx.lacks_descriptors() {
            Some("a message whose files found no room")
        } else {
            None
        }
    }

    /// Copies the client out, with duplicates of its files. The caller stops calling this server first, and lets go of it
    /// afterwards without a word to the client.
    ///
    /// # Errors
    /// There is none, or it cannot be handed over (now).
    pub fn hand_over(&self) -> Result<Handover, HandoverError> {
        let (state, files) = self.describe(Files {
            duplicates: Some(Vec::new()),
            ..Files::default()
        })?;
        let files = files.duplicates.unwrap_or_default();
        Ok(Handover { state, files })
    }

    /// The state alone, for those who want to know whether it could be taken over.
    ///
    /// # Errors
    /// As [`Self::hand_over`].
    pub fn state(&self) -> Result<Vec<u8>, HandoverError> {
        self.describe(Files::default()).map(|(state, _)| state)
    }

    pub(super) fn describe(&self, mut files: Files) -> Result<(Vec<u8>, Files), HandoverError> {
        let session = &self.session;
        let connection = self.connection.as_ref().filter(|_| session.ready);
        let connection = connection.ok_or(HandoverError::NoClient)?;
        let kept = session.kept_maps.all().ok_or(HandoverError::Cannot(
            "memory whose files are not kept, or too many of them",
        ))?;
        if let Some(what) = self.under_way() {
            return Err(HandoverError::Busy(what));
        }
        let unsent = connection.tx.unsent().unwrap_or_default();
        files.add(connection.socket.as_fd())?;
        let mut vectors = Vec::new();
        let mut failed = Ok(());
        session.irq.0.each_vector(
            &mut |vector, fd| match fd.map(|fd| files.add(fd)).transpose() {
                Ok(file) => vectors.push((vector, file)),
                Err(error) => failed = Err(error),
            },
        );
        failed?;
        let mut maps = Vec::new();
        for map in kept {
            let file = map.file.as_ref().map(|file| files.add(file.as_fd()));
            let read = if map.prot.read { dma_flags::READ } else { 0 };
            let write = if map.prot.write { dma_flags::WRITE } else { 0 };
            maps.push(Map {
                iova: map.iova,
                len: map.len,
                offset: map.offset,
                flags: read | write,
                file: file.transpose()?,
            });
        }
        let mut signals = Vec::new();
        for signal in &self.signals {
            signals.push(Watched {
                index: signal.index,
                vector: signal.vector,
                mask: signal.mask,
                file: files.add(signal.fd.as_fd())?,
            });
        }
        let (unread, with) = connection.rx.unread();
        let mut unread_files = Vec::new();
        for (start, fd) in with {
            unread_files.push((start as u32, files.add(fd)?));
        }
        let twin = match &connection.twin {
            Some(twin) => {
                let unsent = twin.tx.unsent().unwrap_or_default();
                Some(SecondSocket {
                    file: files.add(twin.socket.as_fd())?,
                    unread: twin.rx.unread().0.to_vec(),
                    unsent: unsent.to_vec(),
                })
            }
            None => None,
        };
        let doorbells = session.shape.doorbells.as_ref();
        let doorbells = match doorbells.and_then(Registers::hand_over) {
            Some((memory, seen)) => Some((files.add(memory.as_fd())?, seen)),
            None => None,
        };
        let pme = session.irq.0.pme();
        let table = session.table.as_ref().map(|table| table.entries().to_vec());
        let state = snapshot::seal(&V1 {
            max_data: session.max_data as u32,
            write_multiple: session.write_multiple,
            config: session.config.save(),
            table: table.unwrap_or_default(),
            pme: [pme.enabled, pme.status],
            maps,
            vectors,
            signals,
            unread: unread.to_vec(),
            unread_files,
            unsent: unsent.to_vec(),
            twin,
            doorbells,
        });
        Ok((state, files))
    }

    /// Goes on with a client that another server of the same device has handed over. `device` is told what it would have
    /// been told in the course of the conversation; the owner loads its state afterwards.
    ///
    /// # Errors
    /// The state or a file is refused. The client's files are closed then, and this server waits for another client.
    ///
    /// # Panics
    /// This server has a client already.
    pub fn take_over(
        &mut self,
        device: &mut dyn Device,
        handover: Handover,
    ) -> Result<(), HandoverError> {
        self.take_over_with(device, handover, None)
    }

    /// The same; `unread` is in the place of what the state says was received and not answered, and nothing is to be sent.
    pub(super) fn take_over_with(
        &mut self,
        device: &mut dyn Device,
        handover: Handover,
        unread: Option<&[u8]>,
    ) -> Result<(), HandoverError> {
        assert!(self.connection.is_none(), "a server has one client");
        let taken = self.try_to_take_over(device, handover, unread);
        if taken.is_err() {
            self.end_client(device, "it cannot be taken over");
        }
        taken
    }

    /// Closes the connection of the client, if there is one: what cannot be served is better closed than open and silent.
    pub fn end_client(&mut self, device: &mut dyn Device, why: &'static str) {
        self.disconnect(device, GoneReason::Protocol(why));
    }

    fn try_to_take_over(
        &mut self,
        device: &mut dyn Device,
        handover: Handover,
        unread: Option<&[u8]>,
    ) -> Result<(), HandoverError> {
        let Handover { state, files } = handover;
        let mut saved: V1 = snapshot::open(V1::KIND, &state)?.decode()?;
        if let Some(unread) = unread {
            saved.unread = unread.to_vec();
            saved.unsent.clear();
        }
        let mut files: Vec<Option<OwnedFd>> = files.into_iter().map(Some).collect();
        let mut file = |at: u32| {
            let file = files.get_mut(at as usize).and_then(Option::take);
            file.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
        };
        let session = &mut self.session;
        let closer = session.deferred_closer.clone();
        let socket = PeerFd::new(file(0)?, &closer);
        let most = super::session::MAX_DATA;
        if !(1..=most).contains(&(saved.max_data as usize)) {
            return Err(refuse("max_data", saved.max_data.into(), "out of bounds").into());
        }
        let events = session.config.load(&saved.config)?;
        session.follow_config();
        let events: Vec<ConfigEvent> = events.to_vec();
        for event in &events {
            device.config_event(*event);
        }
        match &mut session.table {
            Some(table) if table.entries().len() == saved.table.len() => table.put(&saved.table),
            None if saved.table.is_empty() => {}
            _ => return Err(refuse("table", saved.table.len() as u64, "another length").into()),
        }
        session.take_vectors(&saved.vectors, saved.pme, &mut file)?;
        for map in saved.maps {
            let file = map.file.map(&mut file).transpose()?;
            session.map_again(device, map.into_kept(file))?;
        }
        session.take_signals(saved.signals, &mut file)?;
        let mut with = Vec::new();
        for (start, at) in saved.unread_files {
            with.push((start as usize, file(at)?));
        }
        if with.len() > MAX_FDS {
            return Err(refuse("unread_files", with.len() as u64, "too many").into());
        }
        if let Some((at, seen)) = &saved.doorbells {
            let file = file(*at)?;
            session.take_doorbells(file, seen, unread.is_some())?;
        }
        session.max_data = saved.max_data as usize;
        session.write_multiple = saved.write_multiple;
        let stream = |unread: &[u8], with, unsent: &[u8]| {
            let mut rx = Receiver::new(message(session.max_data), closer.clone());
            if !rx.put_back(unread, with) {
                return Err(refuse("unread", unread.len() as u64, "too long"));
            }
            let mut tx = Sender::new();
            tx.push_raw(unsent);
            Ok((rx, tx))
        };
        let (rx, tx) = stream(&saved.unread, with, &saved.unsent)?;
        let twin = match saved.twin {
            Some(SecondSocket {
                file: at,
                unread,
                unsent,
            }) => {
                let (rx, tx) = stream(&unread, Vec::new(), &unsent)?;
                Some(Twin {
                    socket: PeerFd::new(file(at)?, &closer),
                    rx,
                    tx,
                    watching_out: false,
                })
            }
            None => None,
        };
        session.ready = true;
        session.counters.clients += 1;
        session.engine.connect(session.max_data);
        self.begin(socket.as_fd())?;
        if let Some(twin) = &twin {
            self.begin(twin.socket.as_fd())?;
        }
        self.served_one = true;
        self.connection = Some(Connection {
            since: Instant::now(),
            pid: rustix::net::sockopt::socket_peercred(&socket)
                .ok()
                .map(|peer| peer.pid),
            socket,
            rx,
            tx,
            twin,
            watching_out: false,
            paused: false,
            map_bell: None,
        });
        device.client(ClientEvent::Connected);
        self.settle(device);
        Ok(())
    }
}

impl Map {
    fn into_kept(self, file: Option<OwnedFd>) -> KeptMap {
        KeptMap {
            iova: self.iova,
            len: self.len,
            offset: self.offset,
            prot: Prot {
                read: self.flags & dma_flags::READ != 0,
                write: self.flags & dma_flags::WRITE != 0,
            },
            file,
        }
    }
}

impl super::session::Session {
    /// The client's doorbells, as another server had seen them, which is `dead` or not.
    fn take_doorbells(
        &mut self,
        file: OwnedFd,
        seen: &[u32],
        dead: bool,
    ) -> Result<(), HandoverError> {
        let none = || refuse("doorbells", seen.len() as u64, "there are none");
        let doorbells = self.shape.doorbells.as_mut().ok_or_else(none)?;
        Ok(doorbells.take_over(file, seen, dead)?)
    }

    /// Arms what another server had armed.
    fn take_vectors(
        &mut self,
        vectors: &[(Vector, Option<u32>)],
        pme: [bool; 2],
        file: &mut dyn FnMut(u32) -> io::Result<OwnedFd>,
    ) -> Result<(), HandoverError> {
        for (vector, fd) in vectors {
            if !self.irq.0.has(vector) {
                return Err(refuse("vector", vector.vector.into(), "there is none").into());
            }
            let fd = fd.map(&mut *file).transpose()?;
            if let Some(fd) = &fd {
                event::adopt(fd.as_fd()).map_err(io::Error::from)?;
            }
            let fd = fd.map(|fd| PeerFd::new(fd, &self.deferred_closer));
            self.irq.0.put_vector(vector, fd);
        }
        self.irq.set_pme(pci::Pme {
            enabled: pme[0],
            status: pme[1],
        });
        Ok(())
    }

    /// Watches the eventfds that mask and unmask.
    fn take_signals(
        &mut self,
        signals: Vec<Watched>,
        file: &mut dyn FnMut(u32) -> io::Result<OwnedFd>,
    ) -> Result<(), HandoverError> {
        if signals.len() > MAX_SIGNALS {
            return Err(refuse("signals", signals.len() as u64, "too many").into());
        }
        for signal in signals {
            let fd = PeerFd::new(file(signal.file)?, &self.deferred_closer);
            event::adopt(fd.as_fd()).map_err(io::Error::from)?;
            self.next_token += 1;
            self.todo.signals.push(SignalChange::Add(Signal {
                index: signal.index,
                vector: signal.vector,
                mask: signal.mask,
                fd,
                token: self.next_token,
            }));
        }
        Ok(())
    }

    /// Maps what another server had mapped.
    fn map_again(&mut self, device: &mut dyn Device, map: KeptMap) -> Result<(), HandoverError> {
        let &KeptMap {
            iova,
            len,
            offset,
            prot,
            ref file,
        } = &map;
        let done = match file {
            Some(file) => self.memory.map_fd(iova, len, file.as_fd(), offset, prot),
            None => self.memory.map_absent(iova, len, prot),
        };
        done.map_err(|error| io::Error::other(error.to_string()))?;
        device.dma_map_changed(DmaChange::Mapped {
            iova,
            len,
            prot,
            shared: file.is_some(),
        });
        let dropped = self.kept_maps.push(map);
        self.deferred_closer.bury_all(dropped);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
