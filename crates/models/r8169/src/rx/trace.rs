//! Whether a frame would get in, without letting it in.

use frame::Frame;
use model::Env;

use crate::core::chip::Chip;
use crate::core::queues::{Group, fetch};
use crate::filter;
use crate::regs as r;
use crate::rx::place::{Settings, on_wire};

/// Takes a frame through what stands before the ring, as [`place_all`](super::offer::place_all). `None`: another thread
/// holds the receive side.
pub(super) fn trace(
    chip: &Chip,
    env: &Env,
    frame: &Frame<'_>,
    tell: &mut dyn FnMut(String, Option<&'static str>),
) -> Option<bool> {
    let mut lost = |why: &str, counter| {
        tell(format!("lost: {why}"), Some(counter));
        Some(false)
    };
    if !chip.rx_on() {
        return lost(
            "the receiver is off (ChipCmd.RE, the link, or PCI bus mastering)",
            "rx_disabled",
        );
    }
    let dst = frame.head().first_chunk::<6>().copied();
    let accepted = dst.filter(|dst| filter::accepts(chip.variant, &chip.file, *dst));
    let Some(dst) = accepted else {
        return lost(
            "no address, hash or mode lets the address in (RCR, IDR, MAR)",
            "rx_filtered",
        );
    };
    let most = Settings::of(chip).most;
    let length = on_wire(frame);
    if length > most {
        return lost(
            &format!("{length} bytes with FCS are more than RMS allows, {most}"),
            "rx_too_long",
        );
    }
    let state = chip.rx.reach()?;
    let base = chip.address(r::RDSAR_LOW, r::RDSAR_HIGH);
    let leased = state.fence == Some(state.next);
    let next = fetch(&env.memory.view(), base, state.next);
    drop(state);
    if chip.rx.relieve() {
        chip.waiters.wake();
    }
    let next = match next {
        Ok(next) => next.filter(|_| !leased),
        Err(_) => {
            return lost("the ring is not in memory (RDSAR)", "rx_dma_fault");
        }
    };
    if next.is_none() {
        return lost(
            "no receive descriptor is free now: its sender waits, or it is lost",
            "rx_missed",
        );
    }
    let how = match Group::of(dst) {
        Group::Station if filter::is_station(&chip.file, dst) => "the own address (RCR.APM)",
        Group::Station => "any address (RCR.AAP)",
        Group::Broadcast => "broadcast (RCR.AB)",
        Group::Multicast => "multicast (RCR.AM, MAR)",
    };
    tell(format!("the filter lets it in: {how}"), None);
    tell("received: a descriptor is free".into(), Some("rx_frames"));
    Some(true)
}
