//! From the live NIC to plain data. Live types are taken apart without `..`: a field that is added
//! to one of them stops this file from compiling until it says what becomes of it.

use std::sync::atomic::Ordering;

use datapath::Adaptive;
use datapath::csb::{Block, CsbBase};
use model::{Env, Nanos, Work};
use regs::{Access, File, Register, Status};

use crate::control::Registers;
use crate::control::eeprom::{Eeprom, Phase, Target};
use crate::core::chip::Chip;
use crate::core::context::{Context, Contexts};
use crate::core::fifo::{Fifo, Held};
use crate::core::flow::Flow;
use crate::core::irq::{Delay, Irq};
use crate::core::packet_buffer::PacketBuffer;
use crate::core::rx_queue::RxState;
use crate::core::stats::Stats;
use crate::core::tx_queue::TxState;
use crate::regs as r;
use crate::state::{PAGE, v1};
use intel::io::Window;
use intel::link::Port;
use intel::saved::{relative, save_phy, save_words};
use intel::tx::{Memory, Position};

impl Registers {
    /// The whole NIC, between two batches.
    pub(crate) fn state(&self, env: &Env) -> v1::V1 {
        let Registers {
            variant,
            chip,
            eeprom,
            port:
                Port {
                    phy,
                    negotiation: _, // configured
                },
            io: Window { address },
            work: Work { tx, rx },
            changed: _, // the process's
        } = self;
        let Chip {
            file,
            setup: _, // counts changes
            irq,
            allowance: _, // follows from what it waits for
            stats,
            counters: _, // the process's
            packet_buffer: PacketBuffer { bytes },
            tx: transmitter,
            rx: receiver,
            rx_poll_owed: _, // the process's
            flow,
            wake,
            link_up,
            phy_loopback,
            bus_master,
            kept: _,        // says where rings stand, as this does
            rx_hold: _,     // ends when this is saved
            passes_over: _, // one call's
            csb,
            waiters: _,        // the process's
            true_fcs: _,       // configured
            fast_path: _,      // the process's
            drop_when_full: _, // configured
            obey_pause: _,     // configured
        } = &**chip;
        let transmitter = transmitter.lock();
        // Nothing is under way into the guest's buffers.
        let receiver = receiver.settle();
        let irq = irq.lock();
        let (statistics, latched) = {
            let Stats { counts, reading } = stats;
            reading.lock().save(file, |stat| counts.total(stat))
        };
        v1::V1 {
            device: variant.device(),
            registers: words(file, csb),
            statistics,
            latched,
            packet_buffer: pages(&bytes.lock()),
            io_address: *address,
            link_up: link_up.load(Ordering::Acquire),
            phy_loopback: phy_loopback.load(Ordering::Acquire),
            bus_master: bus_master.load(Ordering::Acquire),
            d3: wake.d3(),
            // What was begun is gone on with, and what was said in a CSB is said again.
            tx_work: *tx || transmitter.unfinished || csb.is_set(),
            // Nor is a guest's rest gone on with: what waits for it to end moves at once.
            rx_work: *rx || csb.is_set() || irq.rx_throttle.rest.is_some(),
            eeprom: save_eeprom(eeprom),
            phy: save_phy(phy),
            transmitter: save_transmitter(&transmitter),
            receiver: save_receiver(&receiver),
            flow: save_flow(flow, env.clock.now()),
            interrupts: save_interrupts(&irq, env.clock.now()),
        }
    }
}

/// What has a value of its own, and not in the state of something else.
pub(super) fn keeps(register: &Register) -> bool {
    register.access != Access::Memory && !matches!(register.status, Status::Absent(_))
}

/// The registers; those of a CSB only of a NIC with one in use, others are saved as they always were.
fn words(file: &File, csb: &Block) -> Vec<v1::Words> {
    let CsbBase {
        low,
        high,
        epoch: _, // of this life
    } = csb.base();
    let outside = [(r::CSBAL, low), (r::CSBAH, high)]
        .map(|(id, value)| (file.table().register(id).offset, value));
    let inside = |register: &Register| outside.iter().all(|(at, _)| *at != register.offset);
    let mut list = save_words(file, |register| keeps(register) && inside(register));
    for (offset, value) in outside.into_iter().filter(|(_, value)| *value != 0) {
        let values = vec![value];
        list.push(v1::Words { offset, values });
    }
    list.sort_by_key(|words| words.offset);
    list
}

fn pages(bytes: &[u8]) -> Vec<v1::Page> {
    (0..)
        .zip(bytes.chunks(PAGE))
        .filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0))
        .map(|(index, bytes)| v1::Page {
            index,
            bytes: bytes.to_vec(),
        })
        .collect()
}

fn save_eeprom(eeprom: &Eeprom) -> v1::Eeprom {
    let Eeprom {
        words,
        wires,
        writable,
        phase,
        changed: _, // who loads it is told of all of it
    } = eeprom;
    let target = |target: Target| match target {
        Target::Word(at) => v1::Target::Word(at as u8),
        Target::All => v1::Target::All,
    };
    v1::Eeprom {
        words: words.to_vec(),
        sk: wires.sk,
        cs: wires.selected,
        data_out: wires.data_out,
        writable: *writable,
        phase: match *phase {
            Phase::Idle => v1::Phase::Idle,
            Phase::Command { bits, value } => v1::Phase::Command { bits, value },
            Phase::Read { at, left } => v1::Phase::Read { at: at as u8, left },
            Phase::Data {
                bits,
                value,
                target: to,
            } => v1::Phase::Data {
                bits,
                value,
                target: target(to),
            },
            Phase::Commit { value, target: to } => v1::Phase::Commit {
                value,
                target: target(to),
            },
            Phase::Spent => v1::Phase::Spent,
        },
    }
}

fn save_transmitter(tx: &TxState) -> v1::Transmitter {
    let TxState {
        position: Position { memory, taken },
        unfinished,
        csb: _,    // found again in the page
        stride: _, // learned again
        fan_out: _,
        runs: _,
        plan: _,  // follows from the registers
        store: _, // one call's
    } = tx;
    let Memory {
        contexts: Contexts { segmenting, plain },
        skipping,
    } = memory;
    v1::Transmitter {
        segmenting: segmenting.saved(),
        plain: plain.saved(),
        skipping: *skipping,
        taken: *taken as u32,
        unfinished: *unfinished,
    }
}

intel::mirrored!(Context as v1::Context {
    ipcss, ipcso, ipcse, tucss, tucso, tucse, hdrlen, mss, paylen, tcp, ipv4,
});

fn save_flow(flow: &Flow, now: Nanos) -> v1::Flow {
    let Flow {
        silence,
        owed,
        high,
        ten_bits,
    } = flow;
    v1::Flow {
        until: silence.until().map(|until| relative(until, now)),
        owed: owed.load(Ordering::Acquire),
        high: high.load(Ordering::Acquire),
        ten_bits: ten_bits.load(Ordering::Acquire),
    }
}

fn save_receiver(rx: &RxState) -> v1::Receiver {
    let RxState {
        fifo:
            Fifo {
                frames,
                size,
                head,
                used: _, // follows from the frames
            },
        leased: _, // nothing is
        csb: _,    // found again in the page
        spare: _,  // empty lists
        run: _,    // follows from the registers
        cut: _,    // follows from the registers
    } = rx;
    let waiting = |&Held { len, csum_valid }: &Held| v1::Waiting { len, csum_valid };
    v1::Receiver {
        fifo_size: *size,
        fifo_head: *head,
        waiting: frames.iter().map(waiting).collect(),
    }
}

fn save_interrupts(irq: &Irq, now: Nanos) -> v1::Interrupts {
    let Irq {
        icr,
        ims,
        itr: _,  // the register
        line: _, // follows from causes, mask and `throttled`; a message is sent again
        msi,
        last,
        throttled,
        rx,
        tx,
        link,
        look,
        second: _, // a loaded NIC looks at once
        gate: _,   // so it is asked anew
        armed: _,  // the first of the deadlines
        adaptive,
        rx_throttle: _, // a loaded NIC begins anew
        raised: _,      // a counter for people
        waits: _,       // told to people
    } = irq;
    let time = |t: &Option<Nanos>| t.map(|t| relative(t, now));
    let delay = |delay: &Delay| {
        let Delay { packet, absolute } = delay;
        v1::Delay {
            packet: time(packet),
            absolute: time(absolute),
        }
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
        causes: *icr,
        mask: *ims,
        msi: *msi,
        last: time(last),
        throttled: time(throttled),
        receive: delay(rx),
        transmit: delay(tx),
        negotiation: time(link),
        look: time(look),
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
