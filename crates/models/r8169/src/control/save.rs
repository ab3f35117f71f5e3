//! From the live NIC to plain data.

use std::sync::atomic::Ordering;

use datapath::Adaptive;
use model::{Env, Nanos};

use crate::control::Registers;
use crate::core::eeprom::{Eeprom, Phase};
use crate::core::irq::{Held, Irq, Way};
use crate::core::ocp::Ocp;
use crate::core::phy::Phy;
use crate::core::wake::Power;
use crate::regs as r;
use crate::regs::bits::cause;
use crate::state::v1;

/// A time as it is saved: what was long ago need not be known exactly.
fn relative(at: Nanos, now: Nanos) -> i64 {
    (at as i64).wrapping_sub(now as i64).max(-v1::PAST)
}

impl Registers {
    pub(super) fn state(&self, env: &Env) -> v1::V1 {
        let chip = &*self.chip;
        let (tx, rx) = (chip.tx.lock(), chip.rx.settle());
        let irq = chip.irq.lock();
        let now = env.clock.now();
        let csb = chip.csb.base();
        let each = r::REGISTERS.iter().zip(0..);
        let words = each.flat_map(|(register, index)| {
            let id = regs::Id::new(index);
            (0..register.count).map(move |element| match id {
                r::CSBAL => csb.low,
                r::CSBAH => csb.high,
                _ => chip.file.get_at(id, element),
            })
        });
        v1::V1 {
            xid: chip.variant.xid(),
            registers: words.collect(),
            statistics: chip.stats.get(),
            ephy: self.ephy.to_vec(),
            eeprom: eeprom(&self.eeprom),
            phy: phy(&self.phy),
            ocp: self.ocp.as_ref().map(ocp),
            power: power(chip.wake.power()),
            tx_next: tx.next,
            rx_next: rx.next,
            command: chip.command.load(Ordering::Acquire),
            link_up: chip.link_up.load(Ordering::Acquire),
            awake: chip.awake.load(Ordering::Acquire),
            tx_work: self.work.tx || tx.unfinished || chip.csb.is_set(),
            interrupts: interrupts(&irq, now),
        }
    }
}

fn eeprom(live: &Eeprom) -> v1::Eeprom {
    let phase = match live.phase {
        Phase::Idle => v1::Phase::Idle,
        Phase::Command { bits, value } => v1::Phase::Command { bits, value },
        Phase::Read { at, left } => v1::Phase::Read { at, left },
        Phase::Spent => v1::Phase::Spent,
    };
    v1::Eeprom {
        cs: live.cs,
        sk: live.sk,
        data_out: live.data_out,
        phase,
    }
}

fn phy(live: &Phy) -> v1::Phy {
    let Phy {
        registers,
        id: _, // the chip's
        page,
        cable,
        negotiated,
    } = live;
    v1::Phy {
        registers: registers.as_flattened().to_vec(),
        page: *page,
        cable: *cable,
        negotiated: *negotiated,
    }
}

fn ocp(live: &Ocp) -> v1::Ocp {
    let [mac, phy, eri] = live.entries();
    v1::Ocp { mac, phy, eri }
}

fn power(live: Power) -> v1::Power {
    let Power {
        d3,
        pme_enabled,
        pme_status,
    } = live;
    v1::Power {
        d3,
        pme_enabled,
        pme_status,
    }
}

fn interrupts(live: &Irq, now: Nanos) -> v1::Interrupts {
    let Irq {
        first: _, // the chip's
        isr,
        fresh: _, // it is read before it is acknowledged
        imr,
        way,
        raised: _,   // follows from ISR and IMR
        mitigate: _, // a register
        scale: _,    // a register
        mbits,
        rx,
        tx,
        last,
        throttled,
        adaptive,
        timer_base: _,
        timer,
        link,
        gate: _,   // found again in the page of the CSB
        second: _, // found again in the page of the CSB
        look: _,   // who waits for room asks again
        armed: _,
        signals: _,
        waits: _, // told to people
    } = live;
    let time = |at: &Option<Nanos>| at.map(|at| relative(at, now));
    let held = |held: &Held| v1::Held {
        frames: held.frames,
        until: time(&held.until),
    };
    let Adaptive {
        mode: _, // configured
        cost,
        raised,
        paid,
        waiting,
        sent,
        urgent,
        received,
        crowded,
    } = adaptive;
    v1::Interrupts {
        // What the timer is about to say would not be said again.
        isr: *isr
            | if timer.is_some_and(|at| at <= now) {
                cause::TIMEOUT
            } else {
                0
            },
        imr: *imr,
        way: match way {
            Way::Line => v1::Way::Line,
            Way::Msi => v1::Way::Msi,
            Way::Msix => v1::Way::Msix,
        },
        rx: held(rx),
        tx: held(tx),
        last: time(last),
        throttled: time(throttled),
        elapsed: live.elapsed(now),
        link: time(link),
        mbits: *mbits,
        adaptive: v1::Adaptive {
            cost: *cost,
            raised: time(raised),
            paid: relative(*paid, now),
            waiting: time(waiting),
            sent: *sent,
            urgent: *urgent,
            received: *received,
            crowded: *crowded,
        },
    }
}
