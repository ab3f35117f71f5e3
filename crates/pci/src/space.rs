//! The configuration space itself.

use std::ops::Deref;

use crate::bar::{Bar, BarKind};
use crate::caps::{Msi, Window};
use crate::header::{command, offset, status};
use crate::msix::Delivery;
use crate::sriov::{Held, Placed, Seen};

/// Power state of the function (PMCSR bits 1:0).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PowerState {
    /// Fully on.
    #[default]
    D0,
    /// Optional light sleep.
    D1,
    /// Optional deeper sleep.
    D2,
    /// Off with configuration space alive.
    D3Hot,
}

impl PowerState {
    fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::D0,
            1 => Self::D1,
            2 => Self::D2,
            _ => Self::D3Hot,
        }
    }
}

/// The PME bits of PMCSR (PCI PM 1.2 §3.2.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pme {
    /// PME_En: the function may assert PME.
    pub enabled: bool,
    /// PME_Status: it does, or would.
    pub status: bool,
}

/// What software has just written to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PmeWrite {
    /// PME_En as it is now.
    pub enable: bool,
    /// PME_Status was cleared.
    pub clear: bool,
}

/// What a write changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigEvent {
    /// The command register's decode, mastering or INTx bits changed; these are the new ones.
    Command {
        /// Memory decoding is on.
        mem: bool,
        /// I/O decoding is on.
        io: bool,
        /// Bus mastering is on.
        master: bool,
        /// INTx# must stay silent.
        intx_disable: bool,
    },
    /// The BAR in this slot decodes elsewhere now; see [`ConfigSpace::bar_address`].
    Bar(u8),
    /// MSI was enabled or disabled.
    MsiEnable(bool),
    /// The MSI mask bits changed; these are the new ones.
    MsiMask(u32),
    /// MSI-X was enabled or disabled.
    MsixEnable(bool),
    /// All MSI-X vectors were masked or unmasked at once.
    MsixFunctionMask(bool),
    /// The function moved to another power state.
    PowerState(PowerState),
    /// PME_En was changed or PME_Status cleared (PMCSR bits 8 and 15).
    Pme(PmeWrite),
    /// The expansion ROM's address or enable bit changed.
    Rom,
    /// Virtual functions came or went, or their memory BARs decode or no more.
    Vfs {
        /// How many there are now.
        count: u16,
        /// Their memory BARs decode.
        memory: bool,
    },
    /// The VF BAR in this slot decodes elsewhere now; see [`ConfigSpace::vf_bar`].
    VfBar(u8),
    /// A function level reset was initiated. The owner resets the device and calls
    /// [`ConfigSpace::reset`].
    FunctionReset,
}

/// One of each kind, and one for each BAR.
const MOST_EVENTS: usize = 10 + 6 + 6;

/// The events of one write, in the order of the enumeration above.
#[derive(Clone, Copy, Debug)]
pub struct ConfigEvents {
    list: [ConfigEvent; MOST_EVENTS],
    len: usize,
}

impl ConfigEvents {
    pub(crate) fn new() -> Self {
        Self {
            list: [ConfigEvent::Rom; MOST_EVENTS],
            len: 0,
        }
    }

    fn push(&mut self, event: ConfigEvent) {
        if let Some(slot) = self.list.get_mut(self.len) {
            *slot = event;
            self.len += 1;
        }
    }
}

impl Deref for ConfigEvents {
    type Target = [ConfigEvent];

    fn deref(&self) -> &[ConfigEvent] {
        &self.list[..self.len]
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PmLayout {
    pub at: usize,
    pub d1: bool,
    pub d2: bool,
    pub no_soft_reset: bool,
}

/// Where the interesting registers ended up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Layout {
    pub bars: [Option<Bar>; 6],
    pub rom: bool,
    pub pm: Option<PmLayout>,
    pub msi: Option<(usize, Msi)>,
    pub msix: Option<usize>,
    pub pcie: Option<(usize, bool)>,
    pub sriov: Option<Placed>,
    /// Where the bytes of the serial number begin.
    pub serial: Option<usize>,
    pub window: Option<usize>,
}

/// An access to a BAR that software makes through the configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowAccess {
    /// The BAR, 0 to 5.
    pub bar: u8,
    /// Where in it.
    pub offset: u64,
    /// 1, 2 or 4 bytes.
    pub len: usize,
}

/// The values whose change is an event.
#[derive(PartialEq, Eq)]
pub(crate) struct Watched {
    command: u16,
    bars: [u32; 6],
    rom: u32,
    msi_enable: bool,
    msi_mask: u32,
    msix: u16,
    power: u8,
    vfs: Seen,
}

/// A configuration space of 256 or 4096 bytes.
///
/// Any offset and any length is a legal access: reads past the end give ones, writes past the end
/// go nowhere, and no write changes a bit that is not writable.
#[derive(Clone, Debug)]
pub struct ConfigSpace {
    pub(crate) bytes: Box<[u8]>,
    pub(crate) writable: Box<[u8]>,
    pub(crate) w1c: Box<[u8]>,
    pub(crate) initial: Box<[u8]>,
    pub(crate) layout: Layout,
}

impl ConfigSpace {
    /// What the SR-IOV capability shows, if there is one.
    pub(crate) fn vfs_seen(&self) -> Seen {
        let placed = self.layout.sriov.as_ref();
        placed.map_or(Seen::default(), |placed| placed.seen(&self.bytes))
    }

    pub(crate) fn new(
        bytes: Box<[u8]>,
        writable: Box<[u8]>,
        w1c: Box<[u8]>,
        layout: Layout,
    ) -> Self {
        Self {
            initial: bytes.clone(),
            bytes,
            writable,
            w1c,
            layout,
        }
    }

    /// 256 or 4096.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes as a read would see them.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Reads `data.len()` bytes from `offset`; bytes past the end are ones.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        data.fill(0xff);
        let Ok(start) = usize::try_from(offset) else {
            return;
        };
        if let Some(rest) = self.bytes.get(start..) {
            let n = rest.len().min(data.len());
            data[..n].copy_from_slice(&rest[..n]);
        }
    }

    /// What an access of `len` bytes at `offset` of the configuration space asks of a BAR, if it touches the data of a
    /// [`Window`] that has been set to a possible place.
    pub fn window(&self, offset: u64, len: usize) -> Option<WindowAccess> {
        let at = self.layout.window? as u64;
        let data = at + Window::DATA as u64;
        if offset >= data + 4 || offset.saturating_add(len as u64) <= data {
            return None;
        }
        let bar = self.bytes[self.layout.window? + Window::BAR];
        let offset = self.read_u32(at + Window::OFFSET as u64);
        let len = self.read_u32(at + Window::LENGTH as u64);
        let possible = bar < 6 && matches!(len, 1 | 2 | 4) && offset.is_multiple_of(len);
        possible.then_some(WindowAccess {
            bar,
            offset: offset.into(),
            len: len as usize,
        })
    }

    /// The data of the window.
    pub fn window_data(&mut self) -> Option<&mut [u8]> {
        let data = self.layout.window? + Window::DATA;
        self.bytes.get_mut(data..data + 4)
    }

    /// Reads 16 bits.
    pub fn read_u16(&self, offset: u64) -> u16 {
        let mut data = [0; 2];
        self.read(offset, &mut data);
        u16::from_le_bytes(data)
    }

    /// Reads 32 bits.
    pub fn read_u32(&self, offset: u64) -> u32 {
        let mut data = [0; 4];
        self.read(offset, &mut data);
        u32::from_le_bytes(data)
    }

    /// Writes `data` at `offset` as software would, and says what changed.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> ConfigEvents {
        let mut events = ConfigEvents::new();
        let Ok(start) = usize::try_from(offset) else {
            return events;
        };
        let len = self.bytes.len().saturating_sub(start).min(data.len());
        if len == 0 {
            return events;
        }
        let before = self.watched();
        let pme = self.pme();
        let held = self.layout.sriov.map(|sriov| sriov.held(&self.bytes));
        for (at, &value) in (start..start + len).zip(data) {
            let (writable, w1c) = (self.writable[at], self.w1c[at]);
            let kept = self.bytes[at] & !writable & !(value & w1c);
            self.bytes[at] = kept | value & writable;
        }
        self.refuse_missing_power_state(before.power);
        if let (Some(sriov), Some(held)) = (self.layout.sriov, held) {
            sriov.settle(&mut self.bytes, held);
        }
        self.compare(&before, &mut events);
        let now = self.pme();
        if now != pme {
            events.push(ConfigEvent::Pme(PmeWrite {
                enable: now.enabled,
                clear: pme.status && !now.status,
            }));
        }
        // Initiate-FLR (device control bit 15) always reads 0, so it is seen in the data.
        if let Some((at, true)) = self.layout.pcie {
            let byte = at + 9;
            if (start..start + len).contains(&byte) && data[byte - start] & 0x80 != 0 {
                events.push(ConfigEvent::FunctionReset);
            }
        }
        events
    }

    /// Back to the values after power-on.
    pub fn reset(&mut self) {
        self.bytes.copy_from_slice(&self.initial);
    }

    /// Takes over the writable bits of a saved space; everything else keeps its meaning, so a
    /// saved image cannot make another device of this one.
    pub fn restore(&mut self, saved: &[u8]) {
        for (at, &value) in saved.iter().enumerate().take(self.bytes.len()) {
            let mask = self.writable[at] | self.w1c[at];
            self.bytes[at] = self.bytes[at] & !mask | value & mask;
        }
        self.refuse_missing_power_state(0);
        if let Some(sriov) = self.layout.sriov {
            sriov.settle(&mut self.bytes, Held::FRESH);
        }
    }

    /// The command register.
    pub fn command(&self) -> u16 {
        self.read_u16(offset::COMMAND as u64)
    }

    /// Sets the interrupt status bit (status bit 3), which follows the INTx line inside the
    /// device whatever the command register allows.
    pub fn set_interrupt_status(&mut self, asserted: bool) {
        let bit = status::INTERRUPT as u8;
        let byte = &mut self.bytes[offset::STATUS];
        *byte = *byte & !bit | if asserted { bit } else { 0 };
    }

    /// Sets error bits of the status register; software clears them.
    pub fn raise_status(&mut self, bits: u16) {
        let bits = bits & status::ERRORS;
        self.bytes[offset::STATUS] |= bits as u8;
        self.bytes[offset::STATUS + 1] |= (bits >> 8) as u8;
    }

    /// The BAR in slot `index`.
    pub fn bar(&self, index: u8) -> Option<Bar> {
        self.layout.bars.get(usize::from(index)).copied().flatten()
    }

    /// Where the BAR in slot `index` decodes, whether or not decoding is enabled.
    pub fn bar_address(&self, index: u8) -> Option<u64> {
        let bar = self.bar(index)?;
        let at = offset::BAR0 as u64 + 4 * u64::from(index);
        let low = u64::from(self.read_u32(at));
        let high = match bar.kind {
            BarKind::Memory64 => u64::from(self.read_u32(at + 4)) << 32,
            _ => 0,
        };
        Some((high | low) & bar.mask())
    }

    /// MSI is enabled.
    pub fn msi_enabled(&self) -> bool {
        self.watched().msi_enable
    }

    /// The MSI mask bits; 0 without per-vector masking.
    pub fn msi_mask(&self) -> u32 {
        self.watched().msi_mask
    }

    /// Sets the MSI pending bits, if the capability has them.
    pub fn set_msi_pending(&mut self, pending: u32) {
        if let Some((at, msi)) = self.layout.msi
            && let Some(mask) = msi.mask_offset()
        {
            let at = at + mask + 4;
            self.bytes[at..at + 4].copy_from_slice(&pending.to_le_bytes());
        }
    }

    /// MSI-X is enabled.
    pub fn msix_enabled(&self) -> bool {
        self.watched().msix & 0x8000 != 0
    }

    /// What MSI-X lets through.
    pub fn msix_delivery(&self) -> Delivery {
        match (self.msix_enabled(), self.msix_masked()) {
            (false, _) => Delivery::Off,
            (true, true) => Delivery::Masked,
            (true, false) => Delivery::On,
        }
    }

    /// MSI-X is enabled with the function mask set.
    pub fn msix_masked(&self) -> bool {
        self.watched().msix & 0xc000 == 0xc000
    }

    /// The power state.
    pub fn power_state(&self) -> PowerState {
        PowerState::from_bits(self.watched().power)
    }

    /// PME_En and PME_Status; off without the capability.
    pub fn pme(&self) -> Pme {
        let byte = self.layout.pm.map_or(0, |pm| self.bytes[pm.at + 5]);
        Pme {
            enabled: byte & 1 != 0,
            status: byte & 0x80 != 0,
        }
    }

    /// Makes PME_En and PME_Status show what the device has, where the function can assert PME.
    pub fn set_pme(&mut self, pme: Pme) {
        if let Some(pm) = self.layout.pm
            && self.w1c[pm.at + 5] & 0x80 != 0
        {
            let byte = &mut self.bytes[pm.at + 5];
            *byte = *byte & !0x81 | u8::from(pme.enabled) | u8::from(pme.status) << 7;
        }
    }

    /// Going from D3hot to D0 keeps the function's state (PMCSR bit 3); true without the
    /// capability.
    pub fn no_soft_reset(&self) -> bool {
        self.layout.pm.is_none_or(|pm| pm.no_soft_reset)
    }

    fn refuse_missing_power_state(&mut self, before: u8) {
        let Some(pm) = self.layout.pm else { return };
        let byte = &mut self.bytes[pm.at + 4];
        // A write of an unsupported state completes and changes nothing (PCI PM 1.2 §3.2.4).
        if *byte & 3 == 1 && !pm.d1 || *byte & 3 == 2 && !pm.d2 {
            *byte = *byte & !3 | before;
        }
    }

    pub(crate) fn watched(&self) -> Watched {
        let mut bars = [0; 6];
        for (index, bar) in bars.iter_mut().enumerate() {
            *bar = self.read_u32((offset::BAR0 + 4 * index) as u64);
        }
        let msi = self.layout.msi;
        Watched {
            command: self.command(),
            bars,
            rom: self.read_u32(offset::ROM as u64),
            msi_enable: msi.is_some_and(|(at, _)| self.bytes[at + 2] & 1 != 0),
            msi_mask: msi.map_or(0, |(at, msi)| {
                msi.mask_offset()
                    .map_or(0, |mask| self.read_u32((at + mask) as u64))
            }),
            msix: self
                .layout
                .msix
                .map_or(0, |at| self.read_u16(at as u64 + 2)),
            power: self.layout.pm.map_or(0, |pm| self.bytes[pm.at + 4] & 3),
            vfs: self.vfs_seen(),
        }
    }

    pub(crate) fn compare(&self, before: &Watched, events: &mut ConfigEvents) {
        let now = self.watched();
        if now == *before {
            return;
        }
        let bits = command::MEMORY | command::IO | command::MASTER | command::INTX_DISABLE;
        if (now.command ^ before.command) & bits != 0 {
            events.push(ConfigEvent::Command {
                mem: now.command & command::MEMORY != 0,
                io: now.command & command::IO != 0,
                master: now.command & command::MASTER != 0,
                intx_disable: now.command & command::INTX_DISABLE != 0,
            });
        }
        for (index, bar) in self.layout.bars.iter().enumerate() {
            let Some(bar) = bar else { continue };
            let wide = bar.kind == BarKind::Memory64;
            if now.bars[index] != before.bars[index]
                || wide && now.bars.get(index + 1) != before.bars.get(index + 1)
            {
                events.push(ConfigEvent::Bar(index as u8));
            }
        }
        if now.msi_enable != before.msi_enable {
            events.push(ConfigEvent::MsiEnable(now.msi_enable));
        }
        if now.msi_mask != before.msi_mask {
            events.push(ConfigEvent::MsiMask(now.msi_mask));
        }
        if (now.msix ^ before.msix) & 0x8000 != 0 {
            events.push(ConfigEvent::MsixEnable(now.msix & 0x8000 != 0));
        }
        if (now.msix ^ before.msix) & 0x4000 != 0 {
            events.push(ConfigEvent::MsixFunctionMask(now.msix & 0x4000 != 0));
        }
        if now.power != before.power {
            events.push(ConfigEvent::PowerState(PowerState::from_bits(now.power)));
        }
        if self.layout.rom && now.rom != before.rom {
            events.push(ConfigEvent::Rom);
        }
        let (was, is) = (&before.vfs, &now.vfs);
        let Some(sriov) = &self.layout.sriov else {
            return;
        };
        for (index, bar) in sriov.cap.bars.iter().enumerate() {
            let Some(bar) = bar else { continue };
            let wide = bar.kind == BarKind::Memory64;
            if is.bars[index] != was.bars[index]
                || wide && is.bars.get(index + 1) != was.bars.get(index + 1)
            {
                events.push(ConfigEvent::VfBar(index as u8));
            }
        }
        if (is.vfs, is.memory) != (was.vfs, was.memory) {
            events.push(ConfigEvent::Vfs {
                count: is.vfs,
                memory: is.memory,
            });
        }
    }
}
