//! What a pool of a PF sends: to its other pools, and out.

use frame::{Batch, Sink, work};
use model::Env;
use wire::VLAN_TAG;

use crate::core::function::Function;
use crate::core::inside::Inside;
use crate::filter::pools::from_inside;
use crate::regs as r;

/// Takes what a pool of a PF sends: to its others what is for them, and to `to` what goes out. Returns how
/// many frames were dealt with.
pub(crate) fn send(
    function: &Function,
    inside: &impl Inside,
    env: &Env,
    from: u32,
    to: &dyn Sink,
    (batch, picks): (&Batch<'_>, &[u16]),
) -> usize {
    let file = &function.file;
    let first = function.settings().pools.unwrap_or(0);
    let vet = file.get(r::VET) as u16;
    let routed = |pick: u16| {
        let frame = batch.get(pick.into())?;
        let dst = *frame.head().first_chunk()?;
        let tag = frame.notes().vlan.or(tag_in(frame.head(), vet));
        let (pools, out) = from_inside(file, (first, from), dst, tag);
        Some((frame, pools, out))
    };
    // Those before `at` are dealt with but for the last ones, which go out together.
    let mut waiting = 0;
    for (at, pick) in picks.iter().enumerate() {
        // What has no address goes out.
        let Some((frame, pools, out)) = routed(*pick).filter(|(_, pools, out)| *pools != 0 || !out)
        else {
            continue;
        };
        let end = at + usize::from(out);
        let taken = offer(to, batch, &picks[waiting..end]);
        if taken < end - waiting {
            return waiting + taken;
        }
        if pools != 0 {
            work::add(pools.count_ones().into());
            inside.pool_sent(env, &frame, pools);
        }
        waiting = at + 1;
    }
    waiting + offer(to, batch, &picks[waiting..])
}

fn offer(to: &dyn Sink, batch: &Batch<'_>, picks: &[u16]) -> usize {
    match picks {
        [] => 0,
        _ => to.deliver(batch, picks).min(picks.len()),
    }
}

/// The control information of a tag of this type in a frame.
fn tag_in(frame: &[u8], vet: u16) -> Option<u16> {
    // Behind the two addresses.
    let &[a, b, tci @ ..] = frame.get(12..)?.first_chunk::<VLAN_TAG>()?;
    (u16::from_be_bytes([a, b]) == vet).then(|| u16::from_be_bytes(tci))
}
