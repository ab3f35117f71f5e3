//! Goes on with a function whose process died at any instruction: its last saved state, and the words that it kept.
//!
//! The words are believed where they can be, and checked: a process that died may have been mad before. Of what was under way
//! nothing is sent a second time; frames that were in the buffers of a batch are the guest's.

use std::sync::Arc;

use frame::{Batch, Frame};
use guest_mem::View;
use intel::kept::Nowhere;
use intel::kept::tx::Found;
use intel::{Ring, RingIds};
use model::{Env, Kept, Nanos, StateError};

use crate::control::Registers;
use crate::control::vf_control::VfControl;
use crate::core::context::Context;
use crate::core::function::Function;
use crate::core::inside::Inside;
use crate::core::irq::{Causes, Irq};
use crate::core::kept::{self, Steps};
use crate::core::ptp::Ptp;
use crate::regs::bits::icr;
use crate::rx;
use crate::state::{check, field, v1, vf};
use crate::tx::Sender;

/// A tail has 16 bits.
const TAIL: u32 = 0xffff;

impl Inside for Nowhere {
    fn looped_back(&self, _: &Env, _: &Batch<'_>, _: &[u16]) {}
    fn pool_sent(&self, _: &Env, _: &Frame<'_>, _: u32) {}
}

impl Registers {
    /// Becomes what a PF was whose process died, as it was saved so long ago. Returns the frames that were under way.
    pub(super) fn revive(
        &mut self,
        env: &Env,
        mut state: v1::V1,
        age: Nanos,
        words: Kept,
    ) -> Result<u64, StateError> {
        // What is not true any more when it is old.
        state.interrupts.last.fill(None);
        state.flow = v1::Flow {
            until: None,
            owed: false,
        };
        self.become_state(env, &state)?;
        self.function.ptp.lock().go_on(env.clock.now(), age);
        self.changed = true;
        go_on(&self.function, env, words)
    }
}

impl VfControl {
    /// The same of a VF. Its own PF has a say before.
    pub(super) fn revive(
        &mut self,
        env: &Env,
        mut state: vf::V1,
        age: Nanos,
        words: Kept,
    ) -> Result<u64, StateError> {
        state.interrupts.last.fill(None);
        self.become_state(env, &state)?;
        self.ahead = self.ahead.wrapping_add(age);
        self.changed = true;
        go_on(&self.function, env, words)
    }
}

impl Ptp {
    /// The clock went on for so long.
    fn go_on(&mut self, now: Nanos, age: Nanos) {
        self.since = self.since.saturating_sub(age);
        // As if it was read just now.
        self.read_low(now);
    }
}

impl Irq {
    /// Masks as the guest left them.
    fn set_masks(&mut self, ims: u32, eims: u32) -> Result<(), StateError> {
        let possible = ims & !icr::ALL == 0;
        check(possible, "kept.ims", ims, "no such cause")?;
        let possible = eims & !self.existing() == 0;
        check(possible, "kept.eims", eims, "no such vector")?;
        (self.ims, self.eims) = (ims, eims);
        Ok(())
    }
}

/// Has a function that was loaded go on by the words that another process has left, and keep them. Returns the frames that were
/// under way.
pub(super) fn go_on(function: &Arc<Function>, env: &Env, words: Kept) -> Result<u64, StateError> {
    let (file, ids) = (&function.file, function.ids);
    let get = |at: usize, name: &'static str, most: u32| {
        let value = u32::try_from(words.get(at)).ok();
        let value = value.filter(|value| value & !most == 0);
        value.ok_or_else(|| field(name, words.get(at), "not what it can be"))
    };
    let queues = function.queues.len() as u32;
    for queue in 0..queues {
        for (id, sends) in [(ids.rdt, false), (ids.tdt, true)] {
            let tail = get(kept::tail(sends, queue), "kept.tail", TAIL)?;
            file.set_at(id, queue, tail);
        }
    }
    for vector in 0..file.table().register(ids.eitr).count {
        let value = get(kept::eitr(vector), "kept.eitr", u32::MAX)?;
        let value = file.write(ids.eitr, vector, value);
        function.irq.lock().set_eitr(env, vector, value);
    }
    let [ims, eims] = [kept::IMS, kept::EIMS].map(|at| get(at, "kept.mask", u32::MAX));
    let mut found = Vec::new();
    {
        let view = env.memory.view();
        for queue in 0..queues {
            resume_receiver(function, &view, queue, &words)?;
            let ring = place(function, &ids.tx_ring(), queue);
            let sent = kept::tx(&words, queue).found(&view, &ring);
            let why = "not what a transmitter leaves";
            found.push(sent.ok_or_else(|| field("kept.tx", queue, why))?);
        }
    }
    function.irq.lock().set_masks(ims?, eims?)?;
    let again = function.kept.set(words.clone());
    check(again.is_ok(), "kept", 1u32, "it keeps words already")?;
    // Nothing fails from here on.
    let nowhere = Arc::new(Nowhere::default());
    for (queue, found) in (0..).zip(found) {
        resume_transmitter((function, &words), env, (queue, found), &nowhere);
    }
    let mut irq = function.irq.lock();
    // What was raised and not heard is raised again; what was heard, too.
    let all = ((1u32 << queues) - 1) as u16;
    let causes = Causes {
        rx: all,
        tx: all,
        ..Causes::default()
    };
    irq.raise(env, causes);
    drop(irq);
    // Until the accesses are made again that were not answered.
    function.hold_receiver();
    function.setup.changed();
    Ok(nowhere.taken())
}

/// Where a ring of a queue is, whatever its head and its tail are.
fn place(function: &Function, of: &RingIds, queue: u32) -> Ring {
    let get = |id| function.file.get_at(id, queue);
    Ring {
        base: u64::from(get(of.base_high)) << 32 | u64::from(get(of.base_low)),
        len: get(of.len) / intel::SIZE as u32,
        head: 0,
        tail: 0,
    }
}

/// Puts the receiver of a queue where it stands.
fn resume_receiver(
    function: &Function,
    view: &View<'_>,
    queue: u32,
    words: &Kept,
) -> Result<(), StateError> {
    let (file, ids) = (&function.file, function.ids);
    let ring = place(function, &ids.rx_ring(), queue);
    let splits = rx::splits(file.get_at(ids.srrctl, queue));
    let words = (words, kept::rx(queue));
    let head = intel::kept::rx::finish::<Steps>(words, view, &ring, splits);
    let why = "not what a receiver leaves";
    let head = head.ok_or_else(|| field("kept.rx", words.0.get(words.1.ring), why))?;
    file.set_at(ids.rdh, queue, head);
    Ok(())
}

/// Puts the transmitter of a queue where it stands, and passes over what it may have sent.
fn resume_transmitter(
    (function, words): (&Arc<Function>, &Kept),
    env: &Env,
    (queue, found): (u32, Found<[Context; 2]>),
    nowhere: &Arc<Nowhere>,
) {
    let (file, ids) = (&function.file, function.ids);
    let Some(own) = function.queues.get(queue as usize) else {
        return;
    };
    let kept = kept::tx(words, queue);
    kept.settle(&found);
    let Found {
        head,
        position,
        pass_over,
        unsure,
        ..
    } = found;
    nowhere.take(unsure as usize);
    *own.tx.lock() = position;
    file.set_at(ids.tdh, queue, head);
    function.setup.changed();
    let mut head = head;
    if let Some(pass) = pass_over {
        let next = pass.until;
        let tail = file.get_at(ids.tdt, queue);
        file.set_at(ids.tdt, queue, next);
        let mut sender = Sender::new(Arc::clone(function), Arc::clone(nowhere));
        // Each call does some of it, or it is none that can be done.
        while head != next {
            sender.pass_over(env, &**nowhere, queue);
            let now = file.get_at(ids.tdh, queue);
            if std::mem::replace(&mut head, now) == now {
                break;
            }
        }
        let mut tx = own.tx.lock();
        pass.ends(&mut tx);
        file.set_at(ids.tdh, queue, next);
        file.set_at(ids.tdt, queue, tail);
        kept.passed(&tx, next);
        head = next;
    }
    function.setup.changed();
    // Where the head is written to memory, nobody knows whether it was.
    let head_to = crate::tx::head_to(function, queue);
    if let Some(at) = head_to {
        let _ = env.memory.view().write_release(at, &head.to_le_bytes());
    }
}
