//! The mailbox between a VF and its PF.

use std::time::Duration;

use drivers::{Bus, BusError};

use super::stage::{
    ACK, CTRL, Done, PFSTS, REQ, RST, Stage, V2PMAILBOX, VFU, VMBMEM, ask, greet, post,
};
use crate::stage::Dice;

const SET_MAC: u32 = 2;
const MULTICAST: u32 = 3;
const VLAN: u32 = 4;
const MAX_FRAME: u32 = 5;
const PROMISC: u32 = 6;

/// Two words of an address.
fn words(mac: [u8; 6]) -> (u32, u32) {
    let [a, b, c, d, e, f] = mac;
    (
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes([e, f, 0, 0]),
    )
}

fn up(bus: &mut dyn Bus) -> Result<[u8; 6], BusError> {
    bus.config_write(4, &6u16.to_le_bytes())?;
    greet(bus)?.ok_or_else(|| BusError::Gone("its PF does not let it up".into()))
}

/// Many more than are borne, and no answer waited for.
pub(crate) fn flood(bus: &mut dyn Bus) -> Done {
    up(bus)?;
    for _ in 0..6000 {
        post(bus, &[MAX_FRAME, 1522])?;
    }
    bus.read32(V2PMAILBOX)?;
    Ok(())
}

/// REQ alone, all the time, over resets.
pub(crate) fn requests_of_nothing(bus: &mut dyn Bus) -> Done {
    up(bus)?;
    for round in 0..6000 {
        bus.write32(V2PMAILBOX, REQ)?;
        if round % 500 == 499 {
            bus.write32(CTRL, RST)?;
        }
    }
    bus.read32(V2PMAILBOX)?;
    Ok(())
}

/// Words that no driver sends, fewer of them than it is shut down for.
pub(crate) fn nonsense(bus: &mut dyn Bus) -> Done {
    let mut dice = Dice::new(47);
    up(bus)?;
    for round in 0..40u32 {
        // Never the bits of an answer, which is passed over, nor a message that is one.
        let first = (dice.next() as u32 & 0x1fff_ff00) | 0x80 | round;
        let more: Vec<u32> = (0..15).map(|_| dice.next() as u32).collect();
        ask(bus, &[&[first], &more[..]].concat())?;
    }
    Ok(())
}

/// The same until it is shut down.
pub(crate) fn nonsense_without_end(bus: &mut dyn Bus) -> Done {
    up(bus)?;
    for round in 0..200u32 {
        post(bus, &[0x77 | round << 16])?;
        bus.read32(V2PMAILBOX)?;
        bus.delay(Duration::from_millis(2))?;
    }
    Ok(())
}

/// Answers sent back as questions, and acknowledgements of nothing.
pub(crate) fn echoes(bus: &mut dyn Bus) -> Done {
    up(bus)?;
    for bits in [1u32 << 31, 1 << 30, 3 << 30, 7 << 29] {
        for kind in 0..16 {
            post(bus, &[bits | kind, u32::MAX, u32::MAX])?;
            bus.write32(V2PMAILBOX, ACK)?;
            bus.write32(V2PMAILBOX, ACK | VFU)?;
            bus.read32(V2PMAILBOX)?;
            bus.delay(Duration::from_millis(2))?;
        }
    }
    bus.write32(V2PMAILBOX, 0)
}

/// Everything but a reset, before a reset is complete.
pub(crate) fn before_any_reset(bus: &mut dyn Bus) -> Done {
    bus.config_write(4, &6u16.to_le_bytes())?;
    bus.write32(CTRL, RST)?;
    bus.read32(V2PMAILBOX)?;
    for _ in 0..4 {
        for kind in [0, SET_MAC, MULTICAST, VLAN, MAX_FRAME, PROMISC, 7, 0x100] {
            post(bus, &[kind | 1 << 16, 0x100])?;
            bus.write32(V2PMAILBOX, ACK)?;
            bus.read32(V2PMAILBOX)?;
            bus.delay(Duration::from_millis(2))?;
        }
    }
    // Half a greeting: no more than the first byte of it is new.
    bus.bar_write(0, VMBMEM.into(), &[1])?;
    bus.write32(V2PMAILBOX, REQ)
}

/// A reset at every step of every message.
pub(crate) fn reset_in_mid_message(bus: &mut dyn Bus) -> Done {
    up(bus)?;
    for round in 0..150u32 {
        for step in 0..5 {
            let message = [MAX_FRAME, 1522 + round];
            if step > 0 {
                bus.write32(V2PMAILBOX, VFU)?;
            }
            if step > 1 {
                bus.write32(VMBMEM, message[0])?;
            }
            if step > 2 {
                bus.write32(VMBMEM + 4, message[1])?;
            }
            if step > 3 {
                bus.write32(V2PMAILBOX, REQ)?;
            }
            bus.write32(CTRL, RST)?;
        }
        if round % 10 == 0 {
            bus.read32(V2PMAILBOX)?;
            // It may ask for so much at once, and no more.
            bus.delay(Duration::from_millis(5))?;
        }
    }
    Ok(())
}

/// Takes the buffer and never gives it back, whatever it requests and receives.
pub(crate) fn keeps_the_buffer(bus: &mut dyn Bus) -> Done {
    up(bus)?;
    for round in 0..100u32 {
        bus.write32(V2PMAILBOX, VFU)?;
        bus.write32(VMBMEM, MAX_FRAME)?;
        bus.write32(VMBMEM + 4, 1518 + round)?;
        bus.write32(V2PMAILBOX, VFU | REQ)?;
        bus.write32(V2PMAILBOX, VFU | ACK)?;
        bus.read32(V2PMAILBOX)?;
        bus.delay(Duration::from_millis(2))?;
    }
    Ok(())
}

/// The mailbox's words and bits byte by byte, across each other, and beyond both ends.
pub(crate) fn in_pieces(bus: &mut dyn Bus) -> Done {
    up(bus)?;
    let mut dice = Dice::new(53);
    for round in 0..300u64 {
        let noise: Vec<u8> = (0..64).map(|_| dice.next() as u8).collect();
        let len = 1 + dice.below(64);
        let at = u64::from(VMBMEM) - 16 + dice.below(96) as u64;
        bus.bar_write(0, at, &noise[..len])?;
        bus.bar_read(0, at, &mut vec![0; len])?;
        // The bits alone: what acts on ones is written in halves too.
        let bits = u64::from(V2PMAILBOX);
        bus.bar_write(0, bits + 1 + round % 3, &noise[..1])?;
        bus.bar_write(0, bits - 4, &noise[..4])?;
        bus.bar_read(0, bits - 4 + round % 8, &mut [0; 8])?;
    }
    Ok(())
}

/// Counts of hashes and of addresses beyond what a message and a VF can hold.
pub(crate) fn counts_that_lie(bus: &mut dyn Bus) -> Done {
    up(bus)?;
    for count in [0u32, 1, 29, 30, 31, 32, 254, 255] {
        let mut message = [u32::MAX; 16];
        message[0] = MULTICAST | count << 16;
        ask(bus, &message)?;
        // More words than there are.
        let long = [&message[..], &[0x5a5a_5a5a; 32]].concat();
        ask(bus, &long)?;
    }
    for n in 0..60u8 {
        let (low, high) = words([2, 0x66, 0x66, 0, 0, n]);
        ask(bus, &[SET_MAC | 2 << 16, low, high])?;
    }
    Ok(())
}

/// Addresses of others, of groups, and zero. The VF is trusted, so its own choice counts.
pub(crate) fn addresses_of_others(bus: &mut dyn Bus) -> Done {
    let [a, b, c, d, e, _] = up(bus)?;
    for last in 0..24 {
        // Those of its neighbours differ from its own in the last byte.
        let (low, high) = words([a, b, c, d, e, last]);
        ask(bus, &[SET_MAC, low, high])?;
        ask(bus, &[SET_MAC | 2 << 16, low, high])?;
    }
    for mac in [[0; 6], [0xff; 6], [1, 0, 0x5e, 0, 0, 1], [3, 0, 0, 0, 0, 0]] {
        let (low, high) = words(mac);
        ask(bus, &[SET_MAC, low, high])?;
        ask(bus, &[SET_MAC | 2 << 16, low, high])?;
    }
    Ok(())
}

/// Another address than the operator's, without being trusted.
pub(crate) fn another_address(bus: &mut dyn Bus) -> Done {
    up(bus)?;
    for n in 0..20u8 {
        let (low, high) = words([2, 0, 0, 0, 0x66, n]);
        ask(bus, &[SET_MAC | u32::from(n % 2) << 17, low, high])?;
    }
    Ok(())
}

/// Other VLANs beside the one the operator put it into.
pub(crate) fn vlans_of_others(bus: &mut dyn Bus) -> Done {
    up(bus)?;
    for id in [0, 1, 99, 101, 4094, 4095, u32::MAX] {
        for join in [1u32, 0, 255] {
            ask(bus, &[VLAN | join << 16, id])?;
        }
    }
    Ok(())
}

/// Every VLAN joined and left, and frames of every size asked for.
pub(crate) fn vlans_and_sizes(bus: &mut dyn Bus) -> Done {
    up(bus)?;
    for id in (0..4096).step_by(9) {
        ask(bus, &[VLAN | 1 << 16, id])?;
    }
    for size in [0, 1, 63, 64, 1518, 9728, 9729, 0xffff, 0x1_0000, u32::MAX] {
        ask(bus, &[MAX_FRAME, size])?;
    }
    for id in (0..4096).step_by(90) {
        ask(bus, &[VLAN, id])?;
    }
    Ok(())
}

/// All promiscuous modes, which no VF is granted.
pub(crate) fn promiscuous_wishes(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for info in [1u32, 3, 4, 0x7f, 0x81, 0xff] {
        ask(stage.bus, &[PROMISC | info << 16])?;
        let buffer = stage.buffer.iova;
        stage.post(buffer, 0)?;
        stage.traffic()?;
    }
    stage.leave()
}

/// Noise into mailbox memory while its messages are read.
pub(crate) fn words_change(bus: &mut dyn Bus) -> Done {
    up(bus)?;
    for round in 0..200u32 {
        post(bus, &[MAX_FRAME, 1522])?;
        for at in 0..16 {
            bus.write32(VMBMEM + 4 * at, round << at)?;
        }
        if bus.read32(V2PMAILBOX)? & PFSTS != 0 {
            bus.write32(V2PMAILBOX, ACK)?;
        }
        bus.delay(Duration::from_millis(2))?;
    }
    Ok(())
}
