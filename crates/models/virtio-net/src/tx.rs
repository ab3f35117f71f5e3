//! The transmit side: from chains to frames.

mod coalesce;
pub mod command;
pub mod packet;
mod run;
mod stats;
mod unsent;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use datapath::counters::{count, count_alone};
use datapath::{tell_unfinished, with_batch};
use frame::{Batch, Caps, EACH, Sink};
use guest_mem::{ReadSlice, View};
use model::{Env, Progress, TURN_BYTES, Transmit};

use crate::core::chain::Chain;
use crate::core::device::{Device, Role};
use crate::core::fate::{Bad, Fate};
use crate::core::queues::TxQueues;
use crate::core::ring::{Broken, Ring};
use crate::irq;
use crate::tx::run::{Left, Sent};

/// Descriptors read in one turn, beyond which others are served.
const TURN_DESCS: u32 = 4096;

/// The transmit part. It serves the control queue too: both are the driver's to notify.
pub struct Sender {
    /// The device.
    pub device: Arc<Device>,
}

/// Why no more packets were taken.
enum End {
    Empty,
    Limit,
    Broken(Broken),
}

/// What a turn may still do.
struct Limits {
    frames: usize,
    bytes: usize,
    descs: u32,
    chains: u32,
}

impl Limits {
    /// Packets of a frame and a descriptor each.
    fn most(&self) -> usize {
        self.frames.min(self.descs.min(self.chains) as usize)
    }

    fn spend(&mut self, packets: usize, bytes: usize) {
        self.frames = self.frames.saturating_sub(packets);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.chains = self.chains.saturating_sub(packets as u32);
    }

    fn spent(&self) -> bool {
        self.frames == 0 || self.bytes == 0 || self.descs == 0 || self.chains == 0
    }
}

impl Transmit for Sender {
    fn run(&mut self, env: &Env, to: &dyn Sink, budget: usize) -> Progress {
        let device = &*self.device;
        let view = env.memory.view();
        command::answer(device, env, &view);
        if device.ctrl_kicked.swap(false, Ordering::AcqRel) {
            command::run(device, env, &view);
        }
        // Answers that wait until what they answer is saved.
        let waits = device.unsaved.waits();
        if !device.is_live() {
            return Progress::Idle;
        }
        let mut queue = device.tx.lock();
        let progress = all(device, env, &view, &mut queue, to, budget);
        irq::wait(device, env, queue.calls.wait(), Role::Tx);
        drop(queue);
        let progress = progress.unwrap_or_else(|why| {
            irq::broken(device, env, why);
            Progress::Idle
        });
        if waits { Progress::More } else { progress }
    }
}

/// Serves the queues that were notified, until one has had its turn.
fn all(
    device: &Device,
    env: &Env,
    view: &View<'_>,
    queue: &mut TxQueues,
    to: &dyn Sink,
    budget: usize,
) -> Result<Progress, Broken> {
    // Those that go nowhere are emptied, too.
    let discarded = (u32::BITS - queue.discarded.leading_zeros()) as usize;
    let pairs = device.pairs().max(discarded);
    look(device, env, view, queue)?;
    // The rest of the queues is at hand while one is served.
    let mut rings = std::mem::take(&mut queue.rings);
    let progress = each(device, env, view, (pairs, queue, &mut rings), to, budget);
    queue.rings = rings;
    progress
}

/// Serves these queues.
fn each(
    device: &Device,
    env: &Env,
    view: &View<'_>,
    (pairs, queue, rings): (usize, &mut TxQueues, &mut [Option<Ring>]),
    to: &dyn Sink,
    budget: usize,
) -> Result<Progress, Broken> {
    // A caller that says nothing of queues has all of them looked at.
    let mut kicked = match device.tx_kicked.swap(0, Ordering::AcqRel) {
        0 => u32::MAX,
        kicked => kicked,
    };
    let first = queue.first;
    for pair in (0..pairs).map(|i| (first + i) % pairs) {
        if kicked >> pair & 1 == 0 {
            continue;
        }
        let Some(slot) = rings.get_mut(pair) else {
            continue;
        };
        let Some(ring) = slot else { continue };
        let progress = turn(device, env, view, (pair, queue, ring), to, budget);
        queue.writes.used(std::iter::once(2 * pair + 1));
        if progress.is_err() {
            *slot = None;
        }
        let progress = progress?;
        if progress != Progress::Idle {
            // It goes on later, after the others had their turn.
            queue.first = pair + 1;
            device.tx_kicked.fetch_or(kicked, Ordering::AcqRel);
            return Ok(progress);
        }
        kicked &= !(1 << pair);
    }
    Ok(Progress::Idle)
}

/// Calls the driver of each queue for which that is due.
fn look(device: &Device, env: &Env, view: &View<'_>, queues: &mut TxQueues) -> Result<(), Broken> {
    let TxQueues { rings, calls, .. } = queues;
    for (pair, slot) in rings.iter_mut().enumerate() {
        if calls.pending[pair].due().is_none() {
            continue;
        }
        let Some(ring) = slot else { continue };
        match calls.look(pair, ring, view, &*env.clock) {
            Ok(true) => irq::queue(device, env, Role::Tx(pair)),
            Ok(false) => {}
            Err(why) => {
                *slot = None;
                return Err(why);
            }
        }
    }
    Ok(())
}

fn turn(
    device: &Device,
    env: &Env,
    view: &View<'_>,
    (pair, queue, ring): (usize, &mut TxQueues, &mut Ring),
    to: &dyn Sink,
    budget: usize,
) -> Result<Progress, Broken> {
    let mut limits = Limits {
        frames: budget.max(1),
        bytes: TURN_BYTES,
        descs: TURN_DESCS,
        chains: ring.size().into(),
    };
    ring.no_kick(view)?;
    // Without a cable they are given back one by one.
    // Runs are not told of to those who log writes.
    let goes = device.has_link() && queue.discarded >> pair & 1 == 0;
    let mut tries = goes && queue.writes.log.is_none() && queue.runs.tries();
    loop {
        if tries {
            let most = (limits.most(), limits.bytes);
            let sent = run::send(device, view, (pair, queue, ring), to, most)?;
            limits.descs = limits.descs.saturating_sub(ring.take_read());
            match sent {
                Sent::Some(packets, bytes, left) => {
                    queue.runs.worked();
                    limits.spend(packets, bytes);
                    if queue.calls.publish(pair, ring, view, &*env.clock)? {
                        irq::queue(device, env, Role::Tx(pair));
                    }
                    // What the sink has left is for a batch, which can wait.
                    tries = left != Left::Refused;
                    if limits.spent() {
                        return Ok(Progress::More);
                    }
                    match left {
                        Left::None if !ring.want_kick(view)? => return Ok(Progress::Idle),
                        Left::None | Left::Behind => continue,
                        Left::Refused => {}
                    }
                }
                Sent::Empty => {
                    // After a state was loaded its driver is called once.
                    if ring.owes_call() && queue.calls.publish(pair, ring, view, &*env.clock)? {
                        irq::queue(device, env, Role::Tx(pair));
                    }
                    if !ring.want_kick(view)? {
                        return Ok(Progress::Idle);
                    }
                    // It has been filled meanwhile; a driver that takes back what it gave gets no more turns by that.
                    limits.chains = limits.chains.saturating_sub(1);
                    if limits.spent() {
                        return Ok(Progress::More);
                    }
                    continue;
                }
                Sent::None => {
                    queue.runs.failed();
                    tries = false;
                }
            }
        }
        let (end, done) = with_batch(|batch, pieces| {
            let end = fill(
                device,
                view,
                (pair, queue, ring),
                (batch, pieces, to),
                &mut limits,
            );
            (end, offer(device, view, (pair, queue, ring), to, batch))
        });
        let all = done?;
        if queue.calls.publish(pair, ring, view, &*env.clock)? {
            irq::queue(device, env, Role::Tx(pair));
        }
        if !all {
            queue.runs.was_full();
            return Ok(Progress::Blocked);
        }
        match end {
            End::Broken(why) => return Err(why),
            End::Empty if !ring.want_kick(view)? => return Ok(Progress::Idle),
            End::Empty | End::Limit => {}
        }
        if limits.spent() {
            return Ok(Progress::More);
        }
    }
}

/// Takes packets until the batch is full, the ring is empty, or the turn is over.
fn fill<'v>(
    device: &Device,
    view: &'v View<'_>,
    (pair, queue, ring): (usize, &mut TxQueues, &mut Ring),
    (batch, pieces, to): (&mut Batch<'v>, &mut Vec<ReadSlice<'v>>, &dyn Sink),
    limits: &mut Limits,
) -> End {
    queue.taken.clear();
    queue.unsent.clear();
    queue.narrow = false;
    let mut chain: Chain = std::mem::take(&mut queue.chain);
    let link = device.has_link() && queue.discarded >> pair & 1 == 0;
    let features = device.features();
    let end = loop {
        if batch.is_full() || limits.spent() {
            break End::Limit;
        }
        match ring.take_to_read(view, &mut chain) {
            Ok(true) => {}
            Ok(false) => break End::Empty,
            Err(why) => break End::Broken(why),
        }
        limits.chains -= 1;
        limits.descs = limits.descs.saturating_sub(ring.take_read());
        let fate = if link {
            packet::add(view, &chain, features, pieces, batch)
        } else {
            Ok(Fate::Dropped(Bad::NoLink))
        };
        match fate {
            Ok(fate) => {
                let (frames, len) = match fate {
                    Fate::Frame { len, .. } => (1, len),
                    // Cut, they are so many frames.
                    Fate::Segments {
                        len,
                        segments,
                        narrow: true,
                    } => (segments, len),
                    Fate::Segments { len, .. } => (1, len),
                    Fate::Dropped(_) => {
                        if to.hears_of_unsent() {
                            unsent::keep(&mut queue.unsent, view, &chain);
                        }
                        (0, 0)
                    }
                };
                limits.frames = limits.frames.saturating_sub(frames as usize);
                limits.bytes = limits.bytes.saturating_sub(len as usize);
                queue.narrow |= matches!(fate, Fate::Segments { narrow: true, .. });
                queue.taken.push((chain.id, fate));
            }
            Err(why) => {
                ring.give_back(1);
                break End::Broken(why);
            }
        }
    };
    queue.chain = chain;
    end
}

/// Offers the batch to the sink, and marks as used what it stands for, as far as it was taken. What was not is taken from
/// the ring again. Returns whether all was taken.
fn offer(
    device: &Device,
    view: &View<'_>,
    (pair, queue, ring): (usize, &mut TxQueues, &mut Ring),
    to: &dyn Sink,
    batch: &Batch<'_>,
) -> Result<bool, Broken> {
    let counters = &device.counters;
    let offered = batch.len();
    let mut dealt = 0;
    if offered > 0 {
        ring.delivers();
        let mut unfinished = 0;
        let count_one = |pick, _| {
            unfinished += 1;
            tell_unfinished(to, batch, pick);
        };
        let limit = Caps {
            tso4: !queue.narrow,
            tso6: !queue.narrow,
            uso4: !queue.narrow,
            uso6: !queue.narrow,
            ..Caps::ALL
        };
        let picks = &EACH[..offered];
        let finisher = &mut queue.finisher;
        dealt = finisher.deliver_within(limit, to, batch, picks, count_one);
        count(&counters.tx_unfinished, unfinished);
    }
    let mut left = dealt;
    let mut used = 0;
    let mut unsent = queue.unsent.iter();
    for &(id, fate) in &queue.taken {
        let stats = &mut queue.stats[pair];
        match fate {
            Fate::Frame { len, .. } | Fate::Segments { len, .. } => {
                if left == 0 {
                    break;
                }
                left -= 1;
                count_alone(&counters.tx_frames, 1);
                count_alone(&counters.tx_bytes, len.into());
                if let Fate::Segments { .. } = fate {
                    count_alone(&counters.tx_tso_frames, 1);
                }
                stats.sent(fate, len.into());
            }
            Fate::Dropped(why) => {
                let counter = count_bad(device, why);
                if let Some(begin) = unsent.next() {
                    to.unsent(counter, begin);
                }
                stats.drops += 1;
                stats.malformed += u64::from(why != Bad::NoLink);
            }
        }
        ring.used(view, id, 0)?;
        used += 1;
    }
    let left = queue.taken.len() - used;
    if left > 0 {
        // Of a large packet the sink may have taken a part, which nobody will know: it is not sent again should the process die.
        let large = matches!(queue.taken[used].1, Fate::Segments { .. });
        let first = u16::from(large);
        ring.give_back(left as u16 - first);
        ring.delivers();
        ring.give_back(first);
    }
    Ok(dealt == offered)
}

/// Counts a packet that is dropped; returns the counter's name.
fn count_bad(device: &Device, why: Bad) -> &'static str {
    let counters = &device.counters;
    let (counter, name) = match why {
        Bad::Runt => (&counters.tx_runt, "tx_runt"),
        Bad::TooLong => (&counters.tx_too_long, "tx_too_long"),
        Bad::NotAgreed => (&counters.tx_not_agreed, "tx_not_agreed"),
        Bad::Csum => (&counters.tx_bad_csum, "tx_bad_csum"),
        Bad::Gso => (&counters.tx_bad_gso, "tx_bad_gso"),
        Bad::NoLink => (&counters.tx_no_link, "tx_no_link"),
    };
    count_alone(counter, 1);
    name
}
