//! What tests of virtual functions over real sockets have in common.

use std::time::{Duration, Instant};

use drivers::SocketBus;
use drivers::igbvf::Vf;
use hypernic::host::Host;

/// How long anything may take on a machine with other things to do.
pub const LONG: Duration = Duration::from_secs(60);
pub const BROADCAST: [u8; 6] = [0xff; 6];

/// A counter of one of a host's parts.
pub fn count(host: &Host, kind: &str, name: &str, counter: &str) -> u64 {
    let sections = host.counters();
    let mut of = sections.iter().filter(|s| s.kind == kind && s.name == name);
    of.next().map_or(0, |section| section.get(counter))
}

pub fn mac(n: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 0x76, 0, n]
}

pub fn frame(dst: [u8; 6], src: [u8; 6], number: u8) -> Vec<u8> {
    let mut frame = [&dst[..], &src, &[0x88, 0xb5, number]].concat();
    frame.resize(60 + usize::from(number), number);
    frame
}

/// Looks until something is there.
#[track_caller]
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LONG;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what} did not come");
        std::thread::yield_now();
    }
}

#[track_caller]
pub fn next(vf: &mut Vf<SocketBus>) -> (Vec<u8>, Option<u16>) {
    until("a frame", || {
        vf.receive().expect("receive").into_iter().next()
    })
}

/// Sends a frame that must arrive behind those that must not have.
#[track_caller]
pub fn nothing_but(to: &mut Vf<SocketBus>, from: &mut Vf<SocketBus>, marker: &[u8]) {
    from.send(&[marker]).expect("send");
    assert_eq!(next(to).0, marker);
}
