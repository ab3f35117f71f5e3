//! Whether a frame would get in, without letting it in.

use frame::Frame;

use crate::core::device::Device;
use crate::filter;
use crate::regs::feature;

/// Takes a frame through what stands before its ring, as [`place_all`](super::place_all). `None`: another thread holds the
/// receive side.
pub(super) fn trace(
    device: &Device,
    frame: &Frame<'_>,
    tell: &mut dyn FnMut(String, Option<&'static str>),
) -> Option<bool> {
    let mut lost = |why: &str, counter| {
        tell(format!("lost: {why}"), Some(counter));
        Some(false)
    };
    if !device.has_link() {
        return lost("the link is down", "rx_no_link");
    }
    let queues = device.rx.reach()?;
    let pairs = device.pairs();
    let several = pairs > 1 || queues.steering.is_spread();
    if !device.is_live() || !several && queues.rings[0].is_none() {
        drop(queues);
        device.let_go();
        return lost(
            "the driver is not ready (DRIVER_OK, its receive queue, or PCI bus mastering)",
            "rx_disabled",
        );
    }
    let accepted = filter::accepts(&queues.station, device.has(feature::CTRL_VLAN), frame);
    let (pair, _) = queues
        .steering
        .place(frame, pairs, device.has(feature::HASH_REPORT));
    let enabled = queues.rings.get(pair).is_some_and(Option::is_some);
    drop(queues);
    device.let_go();
    if !accepted {
        return lost(
            "the filter does not let it in (the driver's addresses, modes and VLANs)",
            "rx_filtered",
        );
    }
    if !enabled {
        return lost(
            &format!("its receive queue {pair} is not enabled"),
            "rx_disabled",
        );
    }
    tell("the filter lets it in".into(), None);
    tell(
        format!("received by queue {pair}, as soon as the driver has given buffers to it"),
        Some("rx_frames"),
    );
    Some(true)
}
