//! From plain data to the live NIC: first every field is checked and its live form made, then all
//! of it takes the place of what was there. A refusal leaves the NIC as it is.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use datapath::adaptive::{Adaptive, MOST_GAP};
use model::{Env, Nanos, Work};
use regs::Found;

use super::save::keeps;
use crate::control::Registers;
use crate::control::eeprom::{Eeprom, Phase, Target};
use crate::core::context::{Context, Contexts, PAYLEN};
use crate::core::fifo::{Fifo, Held};
use crate::core::flow::owed;
use crate::core::irq::{Delay, Irq};
use crate::core::packet_buffer;
use crate::core::stats::TABLES;
use crate::regs as r;
use crate::regs::bits::cause;
use crate::regs::eeprom::WORDS;
use crate::state::{PAGE, StateError, v1};
use datapath::Moderation;
use datapath::RxThrottle;
use intel::io::{ADDRESS_BITS, Window};
use intel::nvm::Wires;
use intel::saved::{
    PAUSE, absolute, check, check_device, field, frames_taken, load_phy, load_words,
};
use intel::stats::Checked;
use intel::tx::{Memory, Position};
use intel::wake::Wakes;

/// No moderation deadline is further away: RADV and TADV reach 67 ms.
const AHEAD: i64 = 1_000_000_000;

impl Registers {
    /// Becomes what `state` describes.
    pub(crate) fn become_state(&mut self, env: &Env, state: &v1::V1) -> Result<(), StateError> {
        let v1::V1 {
            device,
            registers,
            statistics,
            latched,
            packet_buffer,
            io_address,
            link_up,
            phy_loopback,
            bus_master,
            d3,
            tx_work,
            rx_work,
            eeprom,
            phy,
            transmitter,
            receiver,
            flow,
            interrupts,
        } = state;
        check_device(*device, self.variant.device())?;
        let chip = Arc::clone(&self.chip);
        let words = load_words(&chip.file, registers, keeps)?;
        let csb = [r::CSBAL, r::CSBAH].map(|id| {
            let saved = words.iter().find(|(found, _)| found.id == id);
            saved.map_or(0, |(_, value)| *value)
        });
        check(
            chip.csb.offered || csb == [0, 0],
            "CSBAL",
            csb[0],
            "this NIC offers no CSB",
        )?;
        let counts = Checked::new(&TABLES, &chip.file, (statistics, latched), u64::MAX)?;
        let packet_buffer = load_pages(packet_buffer)?;
        check(
            io_address & !ADDRESS_BITS == 0,
            "io_address",
            *io_address,
            "IOADDR has 20 bits",
        )?;
        let eeprom = load_eeprom(eeprom)?;
        let phy = load_phy(phy, &self.port.phy)?;
        let position = load_transmitter(transmitter)?;
        let fifo = load_fifo(receiver)?;
        let until = check_flow(flow, env.clock.now())?;
        let configured = {
            let irq = chip.irq.lock();
            (irq.adaptive.mode, irq.rx_throttle.on)
        };
        let most = self.port.longest_negotiation();
        let irq = load_interrupts(interrupts, &words, env.clock.now(), configured, most)?;

        // Nothing fails from here on.
        let mut tx = chip.tx.lock();
        let mut rx = chip.rx.lock().revoke();
        tx.reset();
        rx.reset();
        tx.position = position;
        tx.unfinished = transmitter.unfinished;
        rx.fifo = fifo;
        chip.flow.silence.set(until);
        chip.flow.owed.store(flow.owed, Ordering::Release);
        chip.flow.high.store(flow.high, Ordering::Release);
        chip.flow.ten_bits.store(flow.ten_bits, Ordering::Release);
        chip.file.reset();
        for (found, value) in words {
            if found.id != r::CSBAL && found.id != r::CSBAH {
                chip.file.set_at(found.id, found.element, value);
            }
        }
        chip.setup.changed();
        chip.set_csb(env, csb[0], csb[1]);
        *chip.stats.reading.lock() = counts.put(|stat| chip.stats.counts.total(stat));
        *chip.packet_buffer.bytes.lock() = packet_buffer;
        chip.link_up.store(*link_up, Ordering::Release);
        chip.phy_loopback.store(*phy_loopback, Ordering::Release);
        chip.bus_master.store(*bus_master, Ordering::Release);
        chip.set_power(env, *d3, None);
        chip.setup.changed();
        self.eeprom = eeprom;
        self.port.phy = phy;
        self.io = Window {
            address: *io_address,
        };
        // What it said in a CSB, it says again, whatever the state asks for.
        self.work = Work {
            tx: *tx_work || transmitter.unfinished || csb[0] != 0,
            rx: *rx_work || csb[0] != 0,
        };
        let mut old = chip.irq.lock();
        irq.replace(&mut old, env);
        chip.allow(&old);
        drop((old, tx, rx));
        // A sender that waited for room in what was there before asks again.
        chip.waiters.wake();
        Ok(())
    }
}

fn load_pages(pages: &[v1::Page]) -> Result<Box<[u8]>, StateError> {
    if pages.is_empty() {
        return Ok(Box::default());
    }
    let mut whole = vec![0; packet_buffer::SIZE].into_boxed_slice();
    let mut next = 0;
    for v1::Page { index, bytes } in pages {
        check(
            *index >= next,
            "packet_buffer.index",
            *index,
            "not in order",
        )?;
        let page = whole.chunks_mut(PAGE).nth(*index as usize);
        let Some(page) = page.filter(|page| page.len() == bytes.len()) else {
            let why = "not a page of the packet buffer";
            return Err(field("packet_buffer.index", *index, why));
        };
        page.copy_from_slice(bytes);
        next = index + 1;
    }
    Ok(whole)
}

fn load_eeprom(state: &v1::Eeprom) -> Result<Eeprom, StateError> {
    let v1::Eeprom {
        words,
        sk,
        cs,
        data_out,
        writable,
        phase,
    } = state;
    let words = <[u16; WORDS]>::try_from(words.as_slice()).map_err(|_| {
        let found = words.len() as u64;
        field("eeprom.words", found, "the EEPROM has another size")
    })?;
    let address = |at: u8| {
        let inside = usize::from(at) < WORDS;
        check(inside, "eeprom.phase", at, "beyond the EEPROM").map(|()| usize::from(at))
    };
    let target = |target: &v1::Target| {
        Ok::<_, StateError>(match target {
            v1::Target::Word(at) => Target::Word(address(*at)?),
            v1::Target::All => Target::All,
        })
    };
    let taken = |bits: u8, of: u8, value: u16| {
        check(bits < of, "eeprom.phase", bits, "more bits than it takes")?;
        let fits = value >> bits == 0;
        check(fits, "eeprom.phase", value, "more bits than were taken")
    };
    let phase = match phase {
        v1::Phase::Idle => Phase::Idle,
        &v1::Phase::Command { bits, value } => {
            taken(bits, 8, value)?;
            Phase::Command { bits, value }
        }
        &v1::Phase::Read { at, left } => {
            check(left <= 16, "eeprom.phase", left, "a word has 16 bits")?;
            let at = address(at)?;
            Phase::Read { at, left }
        }
        v1::Phase::Data {
            bits,
            value,
            target: to,
        } => {
            taken(*bits, 16, *value)?;
            Phase::Data {
                bits: *bits,
                value: *value,
                target: target(to)?,
            }
        }
        v1::Phase::Commit { value, target: to } => Phase::Commit {
            value: *value,
            target: target(to)?,
        },
        v1::Phase::Spent => Phase::Spent,
    };
    Ok(Eeprom {
        words,
        wires: Wires {
            sk: *sk,
            selected: *cs,
            data_out: *data_out,
        },
        writable: *writable,
        phase,
        changed: true,
    })
}

fn load_transmitter(state: &v1::Transmitter) -> Result<Position<Contexts>, StateError> {
    let v1::Transmitter {
        segmenting,
        plain,
        skipping,
        taken,
        unfinished: _, // noted as work
    } = state;
    let memory = Memory {
        contexts: Contexts {
            segmenting: load_context(segmenting)?,
            plain: load_context(plain)?,
        },
        skipping: *skipping,
    };
    let taken = frames_taken("transmitter.taken", *taken)?;
    Ok(Position { memory, taken })
}

/// Whether flow control can be in this state. Returns when the silence ends that the partner asked for.
fn check_flow(state: &v1::Flow, now: Nanos) -> Result<Option<Nanos>, StateError> {
    let v1::Flow {
        until,
        owed,
        high: _, // either
        ten_bits,
    } = state;
    let until = until
        .map(|t| absolute("flow.until", t, PAUSE, now))
        .transpose()?;
    let known = owed & !owed::ALL == 0;
    check(known, "flow.owed", *owed, "no such pause frame")?;
    check(
        [0, 10, 100, 1000].contains(ten_bits),
        "flow.ten_bits",
        *ten_bits,
        "no such speed",
    )?;
    Ok(until)
}

fn load_context(state: &v1::Context) -> Result<Context, StateError> {
    let paylen = state.paylen;
    check(
        paylen <= PAYLEN,
        "transmitter.paylen",
        paylen,
        "PAYLEN has 20 bits",
    )?;
    Ok(Context::of_saved(state))
}

fn load_fifo(state: &v1::Receiver) -> Result<Fifo, StateError> {
    let v1::Receiver {
        fifo_size,
        fifo_head,
        waiting,
    } = state;
    let held = |&v1::Waiting { len, csum_valid }: &v1::Waiting| Held { len, csum_valid };
    Fifo::restored(*fifo_size, *fifo_head, waiting.iter().map(held)).ok_or_else(|| {
        let frames = waiting.len() as u64;
        field("receiver.waiting", frames, "not what a packet FIFO holds")
    })
}

fn load_interrupts(
    state: &v1::Interrupts,
    words: &[(Found, u32)],
    now: Nanos,
    (mode, throttling): (Moderation, bool),
    negotiation_most: i64,
) -> Result<Irq, StateError> {
    let v1::Interrupts {
        causes,
        mask,
        msi,
        last,
        throttled,
        receive,
        transmit,
        negotiation,
        look,
        adaptive,
    } = state;
    for (name, bits) in [("interrupts.causes", causes), ("interrupts.mask", mask)] {
        check(*bits & !cause::ALL == 0, name, *bits, "no such cause")?;
    }
    let time = |name, t: &Option<i64>, most| t.map(|t| absolute(name, t, most, now)).transpose();
    let delay = |v1::Delay { packet, absolute }: &v1::Delay| {
        Ok::<_, StateError>(Delay {
            packet: time("interrupts.packet", packet, AHEAD)?,
            absolute: time("interrupts.absolute", absolute, AHEAD)?,
        })
    };
    let v1::Adaptive {
        cost,
        raised,
        paid,
        waiting,
        sent,
        urgent,
        received,
        crowded,
    } = adaptive;
    check(
        *cost <= MOST_GAP,
        "adaptive.cost",
        *cost,
        "longer than is ever measured",
    )?;
    let adaptive = Adaptive {
        mode,
        cost: *cost,
        raised: time("adaptive.raised", raised, 0)?,
        paid: absolute("adaptive.paid", *paid, AHEAD, now)?,
        waiting: time("adaptive.waiting", waiting, 0)?,
        sent: *sent,
        urgent: *urgent,
        received: *received,
        crowded: *crowded,
    };
    let itr = words.iter().find(|(found, _)| found.id == r::ITR);
    Ok(Irq {
        icr: *causes,
        ims: *mask,
        itr: itr.map_or(0, |(_, value)| *value),
        line: false,
        msi: *msi,
        last: time("interrupts.last", last, 0)?,
        throttled: time("interrupts.throttled", throttled, AHEAD)?,
        rx: delay(receive)?,
        tx: delay(transmit)?,
        link: time("interrupts.negotiation", negotiation, negotiation_most)?,
        look: time("interrupts.look", look, PAUSE)?,
        second: None,
        gate: None,
        armed: None,
        adaptive,
        rx_throttle: RxThrottle::new(throttling),
        raised: 0,
        waits: false,
    })
}
