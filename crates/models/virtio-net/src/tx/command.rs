//! The control queue: commands and their answers (virtio 1.4 §5.1.6.5). A driver may spin until it has its answer, so
//! commands are done in the turn of their notification.

use datapath::counters::count_alone;
use guest_mem::View;
use model::Env;
use parking_lot::MutexGuard;

use crate::core::chain;
use crate::core::device::{Device, Role};
use crate::core::queues::CtrlQueue;
use crate::core::ring::{Broken, Ring};
use crate::core::station::{Station, TABLE, Table};
use crate::core::steering::{Rss, Spread, Steering};
use crate::irq;
use crate::regs::{ctrl, feature, net_status};
use crate::tx::{coalesce, stats};

/// Longest command that is looked at: 2700 addresses.
const MOST: u64 = 16 << 10;

/// Does the commands that are there, at most a ring of them.
pub fn run(device: &Device, env: &Env, view: &View<'_>) {
    if !device.is_live() {
        return;
    }
    let mut queue = device.ctrl.lock();
    let Some(mut ring) = queue.ring.take() else {
        return;
    };
    let turned = turn(device, env, view, &mut queue, &mut ring);
    ended(device, env, queue, ring, turned);
}

/// Shows the driver answers to commands that are saved now.
pub fn answer(device: &Device, env: &Env, view: &View<'_>) {
    if !device.unsaved.take_saved() {
        return;
    }
    let mut queue = device.ctrl.lock();
    let Some(mut ring) = queue.ring.take() else {
        return;
    };
    let shown = ring.publish(view).map(|call| {
        if call {
            irq::queue(device, env, Role::Ctrl);
        }
    });
    ended(device, env, queue, ring, shown);
}

fn ended(
    device: &Device,
    env: &Env,
    mut queue: MutexGuard<'_, CtrlQueue>,
    ring: Ring,
    turned: Result<(), Broken>,
) {
    // What waited for an interrupt may have been asked for otherwise.
    irq::wait(device, env, device.rx.lock().calls.wait(), Role::Rx);
    match turned {
        Ok(()) => queue.ring = Some(ring),
        Err(why) => {
            drop(queue);
            irq::broken(device, env, why);
        }
    }
}

fn turn(
    device: &Device,
    env: &Env,
    view: &View<'_>,
    queue: &mut CtrlQueue,
    ring: &mut Ring,
) -> Result<(), Broken> {
    for _ in 0..ring.size() {
        if !ring.take(view, &mut queue.chain)? {
            // A command that came meanwhile is not notified.
            if ring.want_kick(view)? {
                continue;
            }
            // After a state was loaded the driver is called once.
            if !device.unsaved.waits() && ring.publish(view)? {
                irq::queue(device, env, Role::Ctrl);
            }
            return Ok(());
        }
        let written = one(device, view, queue)?;
        queue.commands.0 += 1;
        queue.commands.1 += u64::from(written.is_some());
        let counters = &device.counters;
        let counter = if written.is_some() {
            &counters.ctrl_done
        } else {
            &counters.ctrl_refused
        };
        count_alone(counter, 1);
        ring.used(view, queue.chain.id, written.unwrap_or(1))?;
        if device.unsaved.will_be_saved() {
            // The driver hears of it then.
            continue;
        }
        if ring.publish(view)? {
            irq::queue(device, env, Role::Ctrl);
        }
    }
    // A driver that has more than a ring's worth there waits for none of it.
    ring.want_kick(view)?;
    device
        .ctrl_kicked
        .store(true, std::sync::atomic::Ordering::Release);
    Ok(())
}

/// Does one command and writes its answer: the first byte to be written, and what else it is behind it. Returns how many
/// bytes these are, if it was done.
fn one(device: &Device, view: &View<'_>, queue: &mut CtrlQueue) -> Result<Option<u32>, Broken> {
    let CtrlQueue {
        chain,
        command,
        reply,
        commands,
        ..
    } = queue;
    let ack = chain.writable().iter().find(|part| part.len > 0);
    let ack = ack.ok_or(Broken::Direction)?.at;
    let len = chain::len(chain.readable());
    command.clear();
    reply.clear();
    let mut done = None;
    if len <= MOST {
        for part in chain.readable() {
            let from = command.len();
            command.resize(from + part.len as usize, 0);
            view.read(part.at, &mut command[from..])?;
        }
        if let [class, number, payload @ ..] = &command[..] {
            done = match (class, number) {
                (&ctrl::NOTF_COAL, &ctrl::COAL_VQ_GET) => coalesce::get(device, payload, reply),
                (&ctrl::NOTF_COAL, _) => coalesce::set(device, *number, payload),
                (&ctrl::STATS, _) => stats::get(device, *number, payload, *commands, reply),
                _ => execute(device, *class, *number, payload),
            };
        }
    }
    // What does not fit is not written in part.
    let done = done.filter(|()| chain::len(chain.writable()) > reply.len() as u64);
    let answer = if done.is_some() { ctrl::OK } else { ctrl::ERR };
    view.write(ack, &[answer])?;
    if done.is_none() {
        return Ok(None);
    }
    let mut rest = &reply[..];
    // Behind the answer, wherever its parts are.
    let mut skip = 1;
    for part in chain.writable() {
        let inside = skip.min(part.len);
        skip -= inside;
        let len = rest.len().min((part.len - inside) as usize);
        let (now, later) = rest.split_at(len);
        if !now.is_empty() {
            view.write(part.at.saturating_add(inside.into()), now)?;
        }
        rest = later;
    }
    Ok(Some(1 + reply.len() as u32))
}

/// `None`: the command is refused, and nothing has changed.
fn execute(device: &Device, class: u8, number: u8, payload: &[u8]) -> Option<()> {
    let agreed = |features| device.has(features).then_some(());
    match (class, number) {
        (ctrl::RX, _) => {
            agreed(if number < 2 {
                feature::CTRL_RX
            } else {
                feature::CTRL_RX_EXTRA
            })?;
            let &[on] = payload else { return None };
            let mut rx = device.rx.lock();
            *mode(&mut rx.station, number)? = on != 0;
        }
        (ctrl::MAC, ctrl::MAC_TABLE_SET) => {
            agreed(feature::CTRL_RX)?;
            let (unicast, rest) = table(payload)?;
            let (multicast, rest) = table(rest)?;
            if !rest.is_empty() {
                return None;
            }
            let mut rx = device.rx.lock();
            rx.station.unicast = unicast;
            rx.station.multicast = multicast;
        }
        (ctrl::MAC, ctrl::MAC_ADDR_SET) => {
            agreed(feature::CTRL_MAC_ADDR)?;
            let mac: [u8; 6] = payload.try_into().ok()?;
            device.rx.lock().station.mac = mac;
            device.changed();
        }
        (ctrl::VLAN, ctrl::VLAN_ADD | ctrl::VLAN_DEL) => {
            agreed(feature::CTRL_VLAN)?;
            let vid = u16::from_le_bytes(payload.try_into().ok()?);
            let on = number == ctrl::VLAN_ADD;
            return device.rx.lock().station.set_vlan(vid, on).then_some(());
        }
        (ctrl::ANNOUNCE, ctrl::ANNOUNCE_ACK) => {
            agreed(feature::GUEST_ANNOUNCE)?;
            if !payload.is_empty() {
                return None;
            }
            if device.set_net_status(net_status::ANNOUNCE, false) {
                device.changed();
            }
        }
        (ctrl::MQ, ctrl::VQ_PAIRS_SET) => {
            let pairs = u16::from_le_bytes(payload.try_into().ok()?);
            agreed(feature::MQ)?;
            // No frame is on its way into a queue that will not be looked at any more.
            let mut rx = device.rx.lock();
            let done = device.set_pairs(pairs);
            if done && rx.steering.is_spread() {
                // The last to say it says how flows are spread.
                let rss = Rss {
                    spread: None,
                    ..rx.steering.rss().clone()
                };
                rx.steering = Steering::new(rss);
            }
            drop(rx);
            return done.then_some(());
        }
        (ctrl::MQ, ctrl::RSS_CONFIG) => {
            agreed(feature::RSS)?;
            let (rss, pairs) = rss(payload)?;
            return set_rss(device, rss, Some(pairs));
        }
        (ctrl::MQ, ctrl::HASH_CONFIG) => {
            agreed(feature::HASH_REPORT)?;
            let (types, rest) = payload.split_first_chunk()?;
            let (_reserved, rest) = rest.split_first_chunk::<8>()?;
            let rss = Rss {
                types: u32::from_le_bytes(*types),
                key: key(rest)?,
                spread: device.rx.lock().steering.rss().spread.clone(),
            };
            return set_rss(device, rss, None);
        }
        (ctrl::GUEST_OFFLOADS, ctrl::GUEST_OFFLOADS_SET) => {
            agreed(feature::CTRL_GUEST_OFFLOADS)?;
            let offloads = u64::from_le_bytes(payload.try_into().ok()?);
            // No frame is half way with what is switched off.
            let rx = device.rx.lock();
            let done = device.set_offloads(offloads);
            drop(rx);
            return done.then_some(());
        }
        _ => return None,
    }
    Some(())
}

/// How flows are spread, and how many pairs transmit (§5.1.6.5.7).
fn rss(payload: &[u8]) -> Option<(Rss, u16)> {
    let word = |bytes: &[u8; 2]| u16::from_le_bytes(*bytes);
    let (types, rest) = payload.split_first_chunk()?;
    let (mask, rest) = rest.split_first_chunk()?;
    let (unclassified, rest) = rest.split_first_chunk()?;
    let (table, rest) = rest.split_at_checked(2 * (usize::from(word(mask)) + 1))?;
    let (pairs, rest) = rest.split_first_chunk()?;
    let rss = Rss {
        types: u32::from_le_bytes(*types),
        key: key(rest)?,
        spread: Some(Spread {
            unclassified: word(unclassified),
            table: table.as_chunks().0.iter().map(word).collect(),
        }),
    };
    Some((rss, word(pairs)))
}

/// A key: its length, and so many bytes. Linux has one more behind it.
fn key(payload: &[u8]) -> Option<Vec<u8>> {
    let (len, key) = payload.split_first()?;
    Some(key.get(..usize::from(*len))?.to_vec())
}

/// Spreads flows so from now on, and uses so many pairs.
fn set_rss(device: &Device, rss: Rss, pairs: Option<u16>) -> Option<()> {
    if !rss.is_possible(device.config.pairs) {
        return None;
    }
    let steering = Steering::new(rss);
    // No frame is half way by what was said before.
    let mut rx = device.rx.lock();
    let done = pairs.is_none_or(|pairs| device.set_pairs(pairs));
    if done {
        rx.steering = steering;
    }
    drop(rx);
    done.then_some(())
}

/// The switch that a command of the first class turns.
fn mode(station: &mut Station, number: u8) -> Option<&mut bool> {
    Some(match number {
        0 => &mut station.promisc,
        1 => &mut station.allmulti,
        2 => &mut station.alluni,
        3 => &mut station.nomulti,
        4 => &mut station.nouni,
        5 => &mut station.nobcast,
        _ => return None,
    })
}

/// A table: a number, and so many addresses. Returns what is behind it too.
fn table(payload: &[u8]) -> Option<(Table, &[u8])> {
    let (number, rest) = payload.split_first_chunk()?;
    let number = usize::try_from(u32::from_le_bytes(*number)).ok()?;
    let (all, rest) = rest.split_at_checked(number.checked_mul(6)?)?;
    let overflow = number > TABLE;
    let kept = if overflow { &[] } else { all };
    let list = kept.as_chunks::<6>().0.to_vec();
    Some((Table { list, overflow }, rest))
}
