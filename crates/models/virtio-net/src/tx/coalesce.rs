//! Commands that say when the driver is called (virtio 1.4 §5.1.6.5.9).

use crate::core::coalesce::Coalesce;
use crate::core::device::{Device, Role};
use crate::regs::{ctrl, feature};

/// Packets, then microseconds.
fn asked(payload: &[u8]) -> Option<Coalesce> {
    let (packets, usecs) = payload.split_first_chunk()?;
    Some(Coalesce {
        packets: u32::from_le_bytes(*packets),
        usecs: u32::from_le_bytes(usecs.try_into().ok()?),
    })
}

/// The queue that a payload begins with, and what is behind it.
fn queue<'p>(device: &Device, payload: &'p [u8]) -> Option<(Role, &'p [u8])> {
    let (head, rest) = payload.split_first_chunk()?;
    let [low, high, _, _] = *head;
    let role = device.role(u16::from_le_bytes([low, high]).into())?;
    let enabled = match role {
        Role::Rx(pair) => device.rx.lock().rings[pair].is_some(),
        Role::Tx(pair) => device.tx.lock().rings[pair].is_some(),
        // It has no packets.
        Role::Ctrl => false,
    };
    enabled.then_some((role, rest))
}

/// Sets it. `None`: refused, and nothing has changed.
pub fn set(device: &Device, number: u8, payload: &[u8]) -> Option<()> {
    let agreed = |features| device.has(features).then_some(());
    match number {
        ctrl::COAL_TX_SET => {
            agreed(feature::NOTF_COAL)?;
            let asked = asked(payload)?;
            device.tx.lock().calls.ask_all(asked);
        }
        ctrl::COAL_RX_SET => {
            agreed(feature::NOTF_COAL)?;
            let asked = asked(payload)?;
            device.rx.lock().calls.ask_all(asked);
        }
        ctrl::COAL_VQ_SET => {
            agreed(feature::VQ_NOTF_COAL)?;
            let (role, rest) = queue(device, payload)?;
            let asked = asked(rest)?;
            match role {
                Role::Rx(pair) => device.rx.lock().calls.pending[pair].ask(asked),
                Role::Tx(pair) => device.tx.lock().calls.pending[pair].ask(asked),
                Role::Ctrl => return None,
            }
        }
        _ => return None,
    }
    Some(())
}

/// Shows it. `None`: as [`set`].
pub fn get(device: &Device, payload: &[u8], reply: &mut Vec<u8>) -> Option<()> {
    if !device.has(feature::VQ_NOTF_COAL) {
        return None;
    }
    // What the driver sends behind the queue says nothing.
    let (role, _) = queue(device, payload)?;
    let asked = match role {
        Role::Rx(pair) => device.rx.lock().calls.pending[pair].asked,
        Role::Tx(pair) => device.tx.lock().calls.pending[pair].asked,
        Role::Ctrl => return None,
    };
    reply.extend(asked.packets.to_le_bytes());
    reply.extend(asked.usecs.to_le_bytes());
    Some(())
}
