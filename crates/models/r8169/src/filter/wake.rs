//! Which frames wake a guest, and which registers ask for them.

use datapath::is_magic;
use frame::Frame;
use regs::File;

use crate::core::queues::Group;
use crate::core::wake::event;
use crate::filter::{is_hashed, is_station, station};
use crate::regs as r;
use crate::regs::bits::{config3, config5};
use crate::regs::variant::Variant;

/// Bytes in which a magic packet is looked for.
const WINDOW: usize = 1536;

/// The events that CONFIG3 and CONFIG5 name.
pub(crate) fn asked(file: &File) -> u8 {
    let word = file.get(r::CONFIG3_5);
    let (third, fifth) = (word, word >> 16);
    let bits = [
        (third & config3::MAGIC, event::MAGIC),
        (third & config3::LINK_UP, event::LINK_UP),
        (fifth & config5::STATION, event::STATION),
        (fifth & config5::MULTICAST, event::MULTICAST),
        (fifth & config5::BROADCAST, event::BROADCAST),
    ];
    let set = bits.into_iter().filter(|(bit, _)| *bit != 0);
    set.fold(0, |events, (_, event)| events | event)
}

/// Which of `armed` a frame is. RCR does not matter: drivers let nothing in before they sleep.
pub(crate) fn events(variant: Variant, file: &File, armed: u8, frame: &Frame<'_>) -> u8 {
    let mut bytes = [0; WINDOW];
    let n = frame.copy_to(0, &mut bytes);
    let bytes = &bytes[..n];
    let Some(dst) = bytes.first_chunk::<6>() else {
        return 0;
    };
    let own = is_station(file, *dst);
    let group = match Group::of(*dst) {
        Group::Station if own => event::STATION,
        Group::Station => return 0,
        Group::Broadcast => event::BROADCAST,
        Group::Multicast if is_hashed(variant, file, *dst) => event::MULTICAST,
        Group::Multicast => return 0,
    };
    let sought = armed & event::MAGIC != 0;
    let magic = if sought && is_magic(bytes, station(file)) {
        event::MAGIC
    } else {
        0
    };
    (group | magic) & armed
}
