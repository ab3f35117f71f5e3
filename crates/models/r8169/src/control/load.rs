//! From plain data to the live NIC: first every field is checked and its live form made, then all of it takes the place of
//! what was there. A refusal leaves the NIC as it is.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use datapath::adaptive::{Adaptive, MOST_GAP};
use model::{Env, Nanos, Work};
use regs::Id;

use crate::control::{EPHY, Registers};
use crate::core::eeprom::{self, Eeprom, Phase};
use crate::core::irq::{Held, Irq, Way};
use crate::core::ocp::Ocp;
use crate::core::phy::{PAGES, Phy, REGISTERS, WRITABLE};
use crate::core::queues::MOST;
use crate::core::wake::Power;
use crate::regs as r;
use crate::regs::bits::{cause, cpcr, mitigate};
use crate::state::{StateError, v1};

/// No deadline of moderation is further away.
const AHEAD: i64 = 1_000_000_000;
/// Auto-negotiation ends within this, or within what is configured.
const NEGOTIATION: i64 = 3600 * 1_000_000_000;
/// What no count of a saved state reaches.
const MOST_COUNT: u64 = 1 << 62;
/// Frames that IntrMitigate holds at most.
const MOST_HELD: u32 = 15 * mitigate::FRAMES;

pub(super) fn check(
    ok: bool,
    field: &'static str,
    value: impl Into<u64>,
    why: &'static str,
) -> Result<(), StateError> {
    let value = value.into();
    ok.then_some(())
        .ok_or(StateError::Field { field, value, why })
}

/// A time of this clock.
fn absolute(field: &'static str, at: i64, most: i64, now: Nanos) -> Result<Nanos, StateError> {
    check(
        (-v1::PAST..=most).contains(&at),
        field,
        at.unsigned_abs(),
        "too far from the moment of saving",
    )?;
    Ok(now.saturating_add_signed(at))
}

impl Registers {
    /// Becomes what was saved.
    pub(super) fn become_state(&mut self, env: &Env, state: &v1::V1) -> Result<(), StateError> {
        let v1::V1 {
            xid,
            registers,
            statistics,
            ephy,
            eeprom,
            phy,
            ocp,
            power,
            tx_next,
            rx_next,
            command,
            link_up,
            awake,
            tx_work,
            interrupts,
        } = state;
        let chip = Arc::clone(&self.chip);
        let variant = chip.variant;
        check(*xid == variant.xid(), "xid", *xid, "this is another chip")?;
        let words = load_words(registers)?;
        let csb = [r::CSBAL, r::CSBAH].map(|id| {
            let saved = words.iter().find(|(found, ..)| *found == id);
            saved.map_or(0, |(.., value)| *value)
        });
        let offered = chip.csb.offered || csb == [0, 0];
        check(offered, "CSBAL", csb[0], "this NIC offers no CSB")?;
        for count in statistics {
            check(*count < MOST_COUNT, "statistics", *count, "too many")?;
        }
        let ephy = <[u16; EPHY]>::try_from(ephy.as_slice()).map_err(|_| StateError::Field {
            field: "ephy",
            value: ephy.len() as u64,
            why: "another number of registers",
        })?;
        let eeprom = load_eeprom(eeprom, self.eeprom.mac())?;
        let phy = load_phy(phy, variant.phy())?;
        let ocp = load_ocp(ocp.as_ref(), variant.has_ocp())?;
        check(
            *link_up == phy.link(),
            "link_up",
            *link_up,
            "the PHY says otherwise",
        )?;
        check(*tx_next < MOST, "tx_next", *tx_next, "no ring is so long")?;
        check(*rx_next < MOST, "rx_next", *rx_next, "no ring is so long")?;
        let mode = chip.irq.lock().adaptive.mode;
        let negotiation = i64::try_from(self.negotiation).unwrap_or(i64::MAX);
        let now = env.clock.now();
        let new = Irq::new(variant.is_first(), mode);
        let mut irq = load_interrupts(interrupts, new, now, negotiation.max(NEGOTIATION))?;
        irq.adaptive.mode = mode;

        // Nothing fails from here on.
        let mut tx = chip.tx.lock();
        let mut rx = chip.rx.settle();
        tx.reset();
        rx.reset();
        (tx.next, rx.next) = (*tx_next, *rx_next);
        let inside = |id: &Id| *id != r::CSBAL && *id != r::CSBAH;
        for (id, element, value) in words.into_iter().filter(|(id, ..)| inside(id)) {
            chip.file.set_at(id, element, value);
        }
        chip.setup.changed();
        chip.stats.set(*statistics);
        chip.command.store(*command, Ordering::Release);
        chip.link_up.store(*link_up, Ordering::Release);
        chip.awake.store(*awake, Ordering::Release);
        (self.ephy, self.eeprom, self.phy, self.ocp) = (ephy, eeprom, phy, ocp);
        let v1::Power {
            d3,
            pme_enabled,
            pme_status,
        } = *power;
        let power = Power {
            d3,
            pme_enabled,
            pme_status,
        };
        chip.wake.set(env, power);
        self.ask_to_wake();
        if self.phy.can_negotiate() && !self.phy.negotiated {
            irq.link.get_or_insert(now);
        }
        let cpcr = chip.file.get(r::CPCR_MITIGATE);
        irq.mitigate = (cpcr >> mitigate::SHIFT) as u16;
        irq.scale = (cpcr & cpcr::SCALE) as u8;
        irq.timer = irq.next_match(now, chip.file.get(r::TIMER_INT));
        irq.replace(&mut chip.irq.lock(), env);
        chip.set_csb(env, csb[0], csb[1]);
        self.work = Work {
            tx: *tx_work || *command || csb[0] != 0,
            rx: csb[0] != 0,
        };
        drop((tx, rx));
        // A sender that waited for room in what was there before asks again.
        chip.stop_waiting();
        Ok(())
    }
}

/// Bits that no guest can change are as the chip has them.
fn load_words(saved: &[u32]) -> Result<Vec<(Id, u32, u32)>, StateError> {
    let mut words = Vec::with_capacity(saved.len());
    let mut rest = saved.iter();
    for (register, index) in r::REGISTERS.iter().zip(0..) {
        for element in 0..register.count {
            let Some(&value) = rest.next() else {
                return Err(StateError::Field {
                    field: "registers",
                    value: saved.len() as u64,
                    why: "too few",
                });
            };
            let fixed = (value ^ register.reset) & !register.mask == 0;
            check(fixed, register.name, value, "not what it can hold")?;
            words.push((Id::new(index), element, value));
        }
    }
    let left = rest.len();
    check(left == 0, "registers", saved.len() as u64, "too many")?;
    Ok(words)
}

fn load_eeprom(state: &v1::Eeprom, mac: [u8; 6]) -> Result<Eeprom, StateError> {
    const FIELD: &str = "eeprom.phase";
    let phase = match state.phase {
        v1::Phase::Idle => Phase::Idle,
        v1::Phase::Command { bits, value } => {
            check(bits < 8, FIELD, bits, "more bits than it takes")?;
            let fits = value >> bits == 0;
            check(fits, FIELD, value, "more bits than were taken")?;
            Phase::Command { bits, value }
        }
        v1::Phase::Read { at, left } => {
            let inside = usize::from(at) < eeprom::WORDS;
            check(inside, FIELD, at, "beyond the EEPROM")?;
            check((1..=16).contains(&left), FIELD, left, "a word has 16 bits")?;
            Phase::Read { at, left }
        }
        v1::Phase::Spent => Phase::Spent,
    };
    let mut live = Eeprom::new(mac);
    live.phase = phase;
    (live.cs, live.sk, live.data_out) = (state.cs, state.sk, state.data_out);
    Ok(live)
}

fn load_ocp(state: Option<&v1::Ocp>, there: bool) -> Result<Option<Ocp>, StateError> {
    let right = state.is_some() == there;
    check(right, "ocp", state.is_some(), "not what the chip has")?;
    let Some(v1::Ocp { mac, phy, eri }) = state else {
        return Ok(None);
    };
    let refused = |value: u32| StateError::Field {
        field: "ocp",
        value: value.into(),
        why: "no such place, or not what it can hold",
    };
    Ocp::of_entries([mac, phy, eri]).map(Some).map_err(refused)
}

fn load_phy(state: &v1::Phy, id: u16) -> Result<Phy, StateError> {
    let v1::Phy {
        registers,
        page,
        cable,
        negotiated,
    } = state;
    let len = registers.len();
    check(
        len == PAGES * REGISTERS,
        "phy.registers",
        len as u64,
        "another number of registers",
    )?;
    let mut live = Phy::new(*cable, id);
    let reset = live.registers[0];
    for (at, &value) in registers.iter().enumerate() {
        if at < REGISTERS {
            let fixed = (value ^ reset[at]) & !WRITABLE[at] == 0;
            check(fixed, "phy.registers", value, "not what it can hold")?;
        }
        live.registers[at / REGISTERS][at % REGISTERS] = value;
    }
    (live.page, live.negotiated) = (*page, *negotiated);
    check(
        !negotiated || live.can_negotiate(),
        "phy.negotiated",
        *negotiated,
        "there is nothing to negotiate with",
    )?;
    Ok(live)
}

fn load_interrupts(
    state: &v1::Interrupts,
    new: Irq,
    now: Nanos,
    negotiation: i64,
) -> Result<Irq, StateError> {
    let v1::Interrupts {
        isr,
        imr,
        way,
        rx,
        tx,
        last,
        throttled,
        elapsed,
        link,
        mbits,
        adaptive,
    } = state;
    for (field, bits) in [("interrupts.isr", isr), ("interrupts.imr", imr)] {
        check(*bits & !cause::ALL == 0, field, *bits, "no such cause")?;
    }
    let time =
        |field, at: &Option<i64>, most| at.map(|at| absolute(field, at, most, now)).transpose();
    let held = |v1::Held { frames, until }: &v1::Held| {
        const FIELD: &str = "interrupts.held";
        check(*frames <= MOST_HELD, FIELD, *frames, "more than can wait")?;
        check(
            (*frames > 0) == until.is_some(),
            FIELD,
            *frames,
            "frames wait for a time, and only they do",
        )?;
        Ok::<_, StateError>(Held {
            frames: *frames,
            until: time(FIELD, until, AHEAD)?,
        })
    };
    check(
        [10, 100, 1000].contains(mbits),
        "interrupts.mbits",
        *mbits,
        "no such speed",
    )?;
    check(
        *elapsed < new.wrap(),
        "interrupts.elapsed",
        *elapsed,
        "TCTR has 32 bits",
    )?;
    Ok(Irq {
        isr: *isr,
        imr: *imr,
        way: match way {
            v1::Way::Line => Way::Line,
            v1::Way::Msi => Way::Msi,
            v1::Way::Msix => Way::Msix,
        },
        rx: held(rx)?,
        tx: held(tx)?,
        mbits: *mbits,
        last: time("interrupts.last", last, 0)?,
        throttled: time("interrupts.throttled", throttled, AHEAD)?,
        timer_base: now.wrapping_sub(*elapsed),
        link: time("interrupts.link", link, negotiation)?,
        adaptive: load_adaptive(adaptive, now)?,
        ..new
    })
}

fn load_adaptive(state: &v1::Adaptive, now: Nanos) -> Result<Adaptive, StateError> {
    let v1::Adaptive {
        cost,
        raised,
        paid,
        waiting,
        sent,
        urgent,
        received,
        crowded,
    } = state;
    check(
        *cost <= MOST_GAP,
        "adaptive.cost",
        *cost,
        "longer than is ever measured",
    )?;
    let time = |field, at: &Option<i64>| at.map(|at| absolute(field, at, 0, now)).transpose();
    Ok(Adaptive {
        cost: *cost,
        raised: time("adaptive.raised", raised)?,
        paid: absolute("adaptive.paid", *paid, AHEAD, now)?,
        waiting: time("adaptive.waiting", waiting)?,
        sent: *sent,
        urgent: *urgent,
        received: *received,
        crowded: *crowded,
        ..Adaptive::default()
    })
}
