//! What the settings of a VF do.

use crate::regs::QUEUES;
use crate::regs::settings::{Settings, Strips};
use crate::rx::tests::{ALWAYS, SMALL, WHOLE, tcp, upper};
use crate::testing::{Guest, header_buffer, packet};

/// What is for many loses what RPLOLR says, whatever is taken out of the rest.
#[test]
fn what_is_replicated_is_treated_alike_by_vfs() {
    let mut frames = [tcp(), tcp(), tcp(), tcp()];
    for (frame, dst) in frames.iter_mut().zip([2, 1, 2, 0xff]) {
        frame[0] = dst;
    }
    for frame in &mut frames[2..] {
        frame.splice(12..12, [0x81, 0, 0x20, 5]);
    }
    let lens = frames.each_ref().map(Vec::len);
    let on = Settings {
        rx_on: true,
        tx_on: true,
        ..Settings::VF
    };
    for fast_path in [false, true] {
        for (own, many) in [
            ((true, false), (false, true)),
            ((false, true), (true, false)),
        ] {
            let strips = |(crc, vlan)| Strips { crc, vlan };
            let settings = Settings {
                strip_crc: own.0,
                strip_vlan: own.1,
                replicas: Some(strips(many)),
                ..on
            };
            let guest = Guest::vf_with(settings, fast_path);
            guest.start_rx(0, 8, WHOLE);
            assert_eq!(guest.receive(&frames), 4);
            for (at, len) in (0..).zip(lens) {
                let (crc, vlan) = if at % 2 == 1 { many } else { own };
                let stripped = vlan && at >= 2;
                let kept = len + if crc { 0 } else { 4 } - if stripped { 4 } else { 0 };
                let (status, got, tag) = upper(guest.rx_desc(0, at).1);
                assert_eq!(got, kept, "frame {at} {own:?}");
                assert_eq!((status >> 3 & 1 == 1, tag == 0x2005), (stripped, stripped));
            }
        }
    }
}

#[test]
fn a_vf_takes_what_its_settings_let_in_and_sees_no_other_memory() {
    let on = Settings {
        rx_on: true,
        tx_on: true,
        ..Settings::VF
    };
    let (one, other) = (Guest::vf(on), Guest::vf(on));
    for guest in [&one, &other] {
        guest.start_rx(0, 8, ALWAYS | SMALL);
    }
    // The other's buffers are where the one's are: what is written to one is not seen there.
    let frame = tcp();
    one.receive(std::slice::from_ref(&frame));
    assert_eq!(one.read(header_buffer(0, 0), frame.len()), frame);
    assert_eq!(
        other.read(header_buffer(0, 0), frame.len()),
        vec![0; frame.len()]
    );
    assert_eq!(other.get(QUEUES.rdh, 0), 0);
    let off = Guest::vf(Settings::VF);
    off.start_rx(0, 8, WHOLE);
    off.receive(&[frame]);
    assert_eq!(off.counter("rx_disabled"), 1);
    let long = Guest::vf(Settings {
        max_len: 9000,
        ..on
    });
    long.start_rx(0, 8, WHOLE);
    long.receive(&[packet::v4_with([1; 4], [2; 4], true, 5, 6, 8000)]);
    assert_eq!(long.get(QUEUES.rdh, 0), 4);
}
