//! A NIC over vfio-user: a PCI function.

mod moves;
mod moving;

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use frame::Counted;
use model::{
    Control, Interrupts, Moderation, PciState, Peeked, Pme, ResetKind, StateError, Through, Watch,
};
use pci::{ConfigEvent, PowerState};
use vfio_user::{
    ClientEvent, Device, DmaChange, EventSet, HandoverError, Lifeline, Look, ResetCause, Server,
    Work as ServerWork,
};

use self::moves::Moves;
use super::engine::{Door, DoorTurn, Engine, MESSAGE_BUDGET, SPARED};
use super::lifeline::{Found, Granted, Line, Saved};
use super::refusal::HoldRefusal;
use crate::left::{Arrived, Left};
use crate::nvm::NvmFile;
use crate::timeline::{Accesses, Step};
use crate::worker::TRIED;

/// The model's interrupt pins, wired to the server's eventfds.
pub(super) struct Wires(pub vfio_user::Interrupts);

impl Interrupts for Wires {
    fn set_line(&self, level: bool) {
        self.0.set_line(level);
    }
    fn msi(&self, vector: u16) {
        self.0.msi(vector);
    }
    fn msix(&self, vector: u16) {
        self.0.msix(vector);
    }
    fn set_pme(&self, pme: Pme) {
        self.0.set_pme(pme);
    }
    fn delayed(&self, by: Through) {
        match by {
            Through::Pin => self.0.pin_delayed(),
            Through::Msi(vector) => self.0.msi_delayed(vector),
            Through::Msix(vector) => self.0.msix_delayed(vector),
        }
    }
}

/// The server and the function behind it.
pub(super) struct VfioDoor {
    server: Server,
    board: Board,
    looks: Looks,
    /// What a worker that died has left of its client.
    left: Option<Found>,
    /// Clients that this NIC went on with after their worker had died, and frames that were under way then.
    recoveries: u64,
    unsure: u64,
}

/// The model as the server's device.
struct Board {
    engine: Engine,
    control: Box<dyn Control>,
    /// Of its model; its states say it.
    revision: u16,
    nvm: Option<NvmFile>,
    pci: PciState,
    /// The cable is in.
    link: bool,
    /// What its chip knows of it.
    granted: Option<Box<dyn Granted>>,
    /// Accesses of this turn.
    seen: Accesses,
    moves: Moves,
}

impl Board {
    /// What its chip knows of it and no other process does.
    fn granted(&self) -> Option<Vec<u8>> {
        self.granted.as_ref()?.granted()
    }

    /// It is about to go on as what the chip of the process before knew this of.
    fn regrant(&self, granted: Option<&[u8]>) {
        if let (Some(chip), Some(granted)) = (&self.granted, granted) {
            chip.resume(granted);
        }
    }

    /// It stands still, and another goes on in its place.
    pub(super) fn finish(&mut self) {
        self.control.finish(&self.engine.env);
    }

    /// The state of the model, as another process is to have it.
    fn saved(&self) -> Vec<u8> {
        snapshot::stamp(self.control.save(&self.engine.env), self.revision)
    }

    /// Becomes what [`Self::saved`] said.
    fn become_saved(&mut self, state: &[u8]) -> Result<(), StateError> {
        let state = snapshot::stamped(state, self.revision)?;
        self.control.load(&self.engine.env, &state)
    }
}

impl VfioDoor {
    pub fn new(
        mut server: Server,
        (control, revision): (Box<dyn Control>, u16),
        nvm: Option<NvmFile>,
        engine: Engine,
        (granted, mac): (Option<Box<dyn Granted>>, [u8; 6]),
        found: Option<Found>,
    ) -> Self {
        if keeper::current().is_some() {
            // A client that is to go on in another worker has its memory mapped there again.
            server.keep_files();
        }
        let board = Board {
            engine,
            control,
            revision,
            nvm,
            pci: PciState::default(),
            link: true,
            granted,
            seen: Accesses::default(),
            moves: Moves::new(mac),
        };
        let mut door = Self {
            server,
            board,
            looks: Looks::default(),
            left: None,
            recoveries: 0,
            unsure: 0,
        };
        match found {
            Some(found) if found.left.is_some() => door.left = Some(found),
            Some(found) => door.hold_on(found),
            None => {}
        }
        door
    }

    /// Serves so that another worker can go on, if the model is one that can.
    fn hold_on(&mut self, found: Found) {
        if self.board.control.keep(found.words()) {
            let (link, _home) = (found.link, found.home);
            self.server.hold_on(Box::new(Line { link, _home }));
        }
    }
}

/// Where turns look for the client. Each look is a system call, which costs as much as a burst of
/// small frames.
#[derive(Debug, Default)]
struct Looks {
    /// The transmitter watches the guest's memory, and goes on without a message.
    watching: bool,
    /// Turns in a row that did not look.
    spared: u32,
}

impl Looks {
    /// For a turn that was called for `calls`.
    fn next(&mut self, calls: u32) -> Look {
        if calls & TRIED != 0 {
            return Look::Messages;
        }
        let spared = self.watching && calls == 0 && self.spared < SPARED;
        self.spared = if spared { self.spared + 1 } else { 0 };
        if spared { Look::Nowhere } else { Look::All }
    }
}

impl Door for VfioDoor {
    fn watch(&mut self, set: &EventSet) -> io::Result<()> {
        self.server.watch(set)
    }

    fn unwatch(&mut self) {
        self.server.unwatch();
    }

    fn bell(&self) -> Option<&vfio_user::MappedDoorbells> {
        self.server.bell()
    }

    fn tick(&mut self) {
        if !self.board.moves.owes_tick() {
            self.board.control.tick(&self.board.engine.env);
        }
    }

    fn attend(&mut self) {
        if !self.board.moves.owes_look() {
            self.board.control.attend(&self.board.engine.env);
        }
    }

    fn set_link(&mut self, up: bool) {
        self.board.link = up;
        if !self.board.moves.owes_link() {
            self.board.control.set_link(&self.board.engine.env, up);
        }
    }

    fn moderate(&mut self, how: Moderation) {
        self.board.control.moderate(&self.board.engine.env, how);
    }

    fn turn(&mut self, calls: u32) -> io::Result<DoorTurn> {
        let look = self.looks.next(calls);
        let board = &mut self.board;
        let progress = self.server.process_after(look, board, MESSAGE_BUDGET)?;
        board.seen.turn_ends(progress.messages);
        if let Some(hint) = &board.engine.sink.hint {
            hint.follow(self.server.bell());
        }
        let watch = board.engine.transmit.watch();
        self.looks.watching = progress.more && watch != Watch::Off;
        // A look that found nothing does not count as served.
        let sent = progress.more && watch != Watch::Vain;
        Ok(DoorTurn {
            answered: progress.messages,
            served: progress.messages > 0 || progress.doorbells > 0 || sent,
            more: progress.more,
            finished: progress.finished,
        })
    }

    fn is_settled(&self) -> bool {
        self.server.under_way().is_none()
    }

    fn states(&self) -> Option<[Vec<u8>; 2]> {
        let client = self.server.state().ok()?;
        Some([client, self.board.saved()])
    }

    fn leave(&mut self) -> Option<Left> {
        self.server.let_go_of_lifeline();
        // Before its interrupts are written down.
        self.board.finish();
        let client = match self.server.hand_over() {
            Ok(client) => client,
            Err(HandoverError::NoClient) => return None,
            Err(why) => {
                tracing::error!(nic = %self.board.engine.name, "its VMM loses it: {why}");
                return None;
            }
        };
        // What its guest wrote there last is to be in the file before the next worker reads it.
        if let Some(nvm) = self.board.nvm.take()
            && let Some(image) = self.board.control.take_nvm()
        {
            nvm.put(image);
        }
        let state = self.board.saved();
        Some(Left {
            granted: self.board.granted(),
            ..Left::new(client, state)
        })
    }

    fn go_on(&mut self, arrived: Arrived) -> Result<(), String> {
        let board = &mut self.board;
        let taken = self.server.take_over(board, arrived.client);
        taken.map_err(|error| error.to_string())?;
        board.regrant(arrived.left.granted.as_deref());
        let loaded = board.become_saved(&arrived.left.state);
        loaded.map_err(|error| {
            self.server.end_client(board, "its NIC cannot go on");
            error.to_string()
        })?;
        // No access is made again, so its rings need not wait until they are saved: others may send to it before it has a turn.
        board.control.settled();
        Ok(())
    }

    fn revive(&mut self) -> Option<Result<u64, String>> {
        let Found {
            mut link,
            home,
            left,
        } = self.left.take()?;
        let left = left?;
        let words = model::Kept::new(home.words(), Arc::clone(&home) as _);
        let client = vfio_user::Handover {
            state: left.client,
            files: link.take_held(&left.numbers),
        };
        let mut unsure = 0;
        let load = |board: &mut Board| {
            let saved = Saved::of(&left.device).ok_or("it is cut off")?;
            board.link = saved.cable;
            board.regrant(saved.granted);
            let env = &board.engine.env;
            let age = env.clock.now().saturating_sub(saved.at);
            let state = snapshot::stamped(saved.model, board.revision);
            let recover = |state: Cow<'_, [u8]>| board.control.recover(env, (&state, age), words);
            unsure = state.and_then(recover).map_err(|error| error.to_string())?;
            Ok(())
        };
        let line = Box::new(Line { link, _home: home });
        let went = self
            .server
            .go_on_after_death(&mut self.board, line, client, load);
        match went {
            Ok(()) => (self.recoveries, self.unsure) = (1, unsure),
            // The model may not keep what the next worker would need for another client.
            Err(_) => self.server.let_go_of_lifeline(),
        }
        Some(went.map(|()| unsure).map_err(|error| error.to_string()))
    }

    fn hold(&mut self, paused: bool) -> Result<Vec<u8>, HoldRefusal> {
        Ok(self.server.hold(&mut self.board, paused)?)
    }

    fn become_held(&mut self, state: &[u8]) -> Result<(), String> {
        self.server.become_held(&mut self.board, state)
    }

    fn release(&mut self) {
        // Deadlines were not kept meanwhile.
        self.board.moves.tick |= self.board.moves.halted;
        self.server.release(&mut self.board);
    }

    fn announce(&mut self) -> bool {
        self.board.announce()
    }

    fn forsake(&mut self) {
        let Some(Found {
            mut link,
            home,
            left,
        }) = self.left.take()
        else {
            return;
        };
        let numbers = left.map_or_else(Vec::new, |left| left.numbers);
        let files = link.take_held(&numbers);
        let mut line = Line { link, _home: home };
        // Nothing is closed that is still committed.
        line.give_up();
        drop(files);
        let Line { link, _home: home } = line;
        self.hold_on(Found {
            link,
            home,
            left: None,
        });
    }

    fn cable(&self) -> bool {
        self.board.link
    }

    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("recoveries", self.recoveries);
        visit("recovered_unsure", self.unsure);
        self.board.moves.counters(visit);
        self.board.control.counters(visit);
        self.server.counters(visit);
        self.board.engine.env.memory.counters(visit);
        if let Some(nvm) = &self.board.nvm {
            nvm.counters(visit);
        }
    }

    fn peek(&self, visit: &mut dyn FnMut(Peeked)) {
        self.board.control.peek(&self.board.engine.env, visit);
    }

    fn engine(&mut self) -> &mut Engine {
        &mut self.board.engine
    }
}

impl Device for Board {
    fn bar_read(&mut self, bar: u8, offset: u64, data: &mut [u8]) {
        self.seen.access(Step::Read, bar, offset);
        self.control.read(&self.engine.env, bar, offset, data);
    }

    fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) {
        self.seen.access(Step::Write, bar, offset);
        self.control.write(&self.engine.env, bar, offset, data);
    }

    fn config_event(&mut self, event: ConfigEvent) {
        match event {
            ConfigEvent::Command { master, .. } => self.pci.bus_master = master,
            ConfigEvent::MsiEnable(on) => self.pci.msi = on,
            ConfigEvent::MsixEnable(on) => self.pci.msix = on,
            ConfigEvent::Vfs { count, .. } => self.pci.vfs = count,
            ConfigEvent::PowerState(state) => self.pci.d3 = state == PowerState::D3Hot,
            ConfigEvent::Pme(write) => self.pci.pme = Some(write),
            _ => return,
        }
        if !self.moves.owes_pci() {
            self.control.pci(&self.engine.env, self.pci);
            self.pci.pme = None;
        }
    }

    fn reset(&mut self, why: ResetCause) {
        let kind = match why {
            ResetCause::PowerUp => ResetKind::PowerUp,
            _ => ResetKind::Bus,
        };
        self.pci = PciState::default();
        self.control.reset(&self.engine.env, kind);
        // While it is stopped that reaches no memory either, and what was to be made up for is over.
        self.moves.forget();
        self.control.pci(&self.engine.env, self.pci);
    }

    fn client(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Connected => self.attach(true),
            ClientEvent::Gone(_) => self.attach(false),
            ClientEvent::Refused(_) => {}
        }
        let Some(held_back) = self.engine.may_log() else {
            return;
        };
        let name = &self.engine.name;
        match event {
            ClientEvent::Connected => tracing::info!(nic = %name, held_back, "VMM connected"),
            ClientEvent::Gone(why) => {
                tracing::info!(nic = %name, held_back, "VMM disconnected: {why}; waiting for the next");
            }
            ClientEvent::Refused(why) => {
                tracing::warn!(nic = %name, held_back, "refused another VMM: {why}");
            }
        }
    }

    fn dma_map_changed(&mut self, change: DmaChange) {
        let used = &self.engine.sink.used;
        used.fetch_or(
            matches!(change, DmaChange::Mapped { .. }),
            std::sync::atomic::Ordering::Relaxed,
        );
        // RAM starts at 0, and again at 4 GiB; ROMs and device memory come without a descriptor
        // from every VMM and mean nothing.
        let DmaChange::Mapped {
            iova: 0 | 0x1_0000_0000,
            len,
            prot,
            shared: false,
        } = change
        else {
            return;
        };
        if prot.write
            && let Some(held_back) = self.engine.may_log()
        {
            tracing::error!(
                nic = %self.engine.name,
                held_back,
                "the VMM's RAM ({} MiB) is not shared, so the NIC cannot reach it. Start QEMU with \
                 -object memory-backend-memfd,id=ram0,size=…,share=on -machine memory-backend=ram0, \
                 or cloud-hypervisor with --memory shared=on",
                len >> 20
            );
        }
    }

    fn has_changed(&mut self) -> bool {
        self.control.take_changed()
    }

    fn state(&mut self) -> Option<Vec<u8>> {
        let env = &self.engine.env;
        let granted = self.granted();
        let saved = Saved {
            cable: self.link,
            at: env.clock.now(),
            granted: granted.as_deref(),
            model: &self.saved(),
        };
        Some(saved.to_bytes())
    }

    fn settled(&mut self) {
        self.control.settled();
    }

    fn can_move(&self) -> bool {
        let chip = self.granted.as_ref();
        chip.is_none_or(|chip| chip.is_asked_for())
    }

    fn halt(&mut self) {
        self.stop_for_a_move();
    }

    fn resume(&mut self) {
        self.go_on_after_a_move();
    }

    fn save(&mut self) -> Vec<u8> {
        self.saved_for_a_move()
    }

    fn load(&mut self, state: &[u8]) -> Result<(), String> {
        self.load_for_a_move(state)
    }

    fn load_refused(&mut self, why: &str) {
        if let Some(held_back) = self.engine.may_log() {
            let nic = &self.engine.name;
            tracing::error!(
                nic,
                held_back,
                "the state of a NIC that was to go on here is refused: {why}"
            );
        }
    }

    fn work(&mut self) -> ServerWork {
        self.seen.answered();
        if let Some(nvm) = &self.nvm
            && let Some(image) = self.control.take_nvm()
        {
            nvm.put(image);
        }
        let noted = self.control.take_work();
        if self.engine.work(noted) {
            ServerWork::More
        } else {
            ServerWork::Idle
        }
    }
}

#[cfg(test)]
mod tests;
