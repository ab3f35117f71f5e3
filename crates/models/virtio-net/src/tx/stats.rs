//! Commands that ask for counters (virtio 1.4 §5.1.6.5.8).

use crate::core::device::{Device, Role};
use crate::core::stats::reply_ctrl;
use crate::regs::{ctrl, feature, stats};

/// Answers such a command: `commands` and of them `done` came by the control queue. `None`: it is refused.
pub fn get(
    device: &Device,
    number: u8,
    payload: &[u8],
    (commands, done): (u64, u64),
    reply: &mut Vec<u8>,
) -> Option<()> {
    if !device.has(feature::DEVICE_STATS) {
        return None;
    }
    if number == ctrl::STATS_QUERY {
        let all = stats::RX | stats::TX | stats::CTRL;
        reply.extend(all.to_le_bytes());
        return payload.is_empty().then_some(());
    }
    // A queue, and the types that are asked for.
    let (asked, rest) = payload.as_chunks::<16>();
    let possible = number == ctrl::STATS_GET && rest.is_empty() && asked.len() <= device.queues();
    if !possible {
        return None;
    }
    for entry in asked {
        let (head, types) = entry.split_first_chunk()?;
        let [low, high, ..]: [u8; 8] = *head;
        let queue = u16::from_le_bytes([low, high]);
        let types = u64::from_le_bytes(types.try_into().ok()?);
        let role = device.role(queue.into())?;
        let tally = device.lines.tallies[usize::from(queue)].get();
        let known = match role {
            Role::Rx(pair) => {
                device.rx.lock().stats[pair].reply(reply, queue, types, tally);
                stats::RX
            }
            Role::Tx(pair) => {
                device.tx.lock().stats[pair].reply(reply, queue, types, tally);
                stats::TX
            }
            Role::Ctrl => {
                if types & stats::CTRL != 0 {
                    reply_ctrl(reply, queue, commands, done);
                }
                stats::CTRL
            }
        };
        // A driver that walks over the reply would miss them.
        if types & !known != 0 {
            return None;
        }
    }
    Some(())
}
