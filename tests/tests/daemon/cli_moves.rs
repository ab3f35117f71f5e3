//! Guests that move by migration version 2 while frames come to them, with NICs of every model but the 82540EM, of which
//! hypernic's own tests have more.

use std::path::Path;
use std::time::{Duration, Instant};

use drivers::e1000::{Config, Driver, TxOpts};
use drivers::igbvf::Vf;
use drivers::{Carried, SocketBus};
use hypernic_tests::{Daemon, LONG, scratch};
use model_testkit::virtq::How;
use vfio_user::Client;

use crate::cli_crash_igb::Nic;
use crate::cli_crash_rtl::Rtl;
use crate::cli_crash_virtio::Virtio;

/// Frames before and after; no ring here has fewer descriptors.
const ROUNDS: u64 = 4;
const EACH: u64 = 10;

trait Moves: Nic {
    fn bus(&mut self) -> &mut SocketBus;
}

impl Moves for Vf<SocketBus> {
    fn bus(&mut self) -> &mut SocketBus {
        Vf::bus(self)
    }
}

impl Moves for Rtl {
    fn bus(&mut self) -> &mut SocketBus {
        &mut self.bus
    }
}

impl Moves for Virtio {
    fn bus(&mut self) -> &mut SocketBus {
        &mut self.bus
    }
}

fn numbered(to: [u8; 6], from: [u8; 6], number: u64) -> Vec<u8> {
    let mut frame = [&to[..], &from, &[0x88, 0xb5], &number.to_be_bytes()].concat();
    // Each fills its buffer with something that was not there before.
    frame.resize(200 + (number as usize * 7) % 1200, number as u8 | 1);
    frame
}

fn number(frame: &[u8]) -> Option<u64> {
    let is_ours = frame.get(12..14) == Some(&[0x88, 0xb5]);
    is_ours.then(|| u64::from_be_bytes(*frame[14..].first_chunk().expect("a number")))
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The other guest, which stays.
struct Other(Driver<SocketBus>);

impl Other {
    /// Sends these; they are where they belong then.
    fn send(&mut self, to: [u8; 6], numbers: std::ops::Range<u64>) {
        for n in numbers {
            let frame = numbered(to, self.0.mac(), n);
            let sent = self.0.send(&[&frame], &TxOpts::default()).expect("sent");
            assert_eq!(sent, 1);
        }
        until("all are sent", || {
            self.0.reclaim().expect("reclaimed");
            self.0.tx_pending() == 0
        });
    }

    fn hears(&mut self, number: u64) {
        until("a frame of the one that moves", || {
            let frames = self.0.receive().expect("received");
            frames
                .iter()
                .any(|frame| self::number(frame) == Some(number))
        });
    }
}

/// A guest with the NIC at `near` moves to the one at `far`.
fn moves<N: Moves>(dir: &Path, nics: &str, [near, far]: [&str; 2], new: impl Fn(SocketBus) -> N) {
    let at = |name: &str| dir.join(name);
    let toml = format!(
        "[[switch]]\nname = \"lan\"\n[[nic]]\nname = \"other\"\nmodel = \"e1000\"\nsocket-path = {:?}\nport = \"switch:lan\"\n{nics}",
        at("other")
    );
    let mut daemon = Daemon::serve(&at("host.toml"), &toml).unwrap();
    let bus = |name: &str| SocketBus::connect(at(name)).expect("a bus");
    let mut other = Other(Driver::new(bus("other"), Config::linux()).expect("it comes up"));
    let mut guest = new(bus(near));
    let (mac, to) = (guest.mac(), other.0.mac());
    // So that the switch knows where it is.
    assert_eq!(guest.send(&[numbered(to, mac, 1)]), 1);
    other.hears(1);
    until("it is sent", || guest.all_sent());
    let client = Client::connect(at(far)).expect("a client");
    let mut journey = guest.bus().depart(client).expect("on its way");
    // The guest stands still; only the NIC writes.
    for round in 0..ROUNDS {
        other.send(mac, EACH * round..EACH * (round + 1));
        let carried = guest.bus().carry(&mut journey).expect("carried");
        let pages = carried.by_device.len();
        assert!(pages > 5, "{pages} pages of ten buffers and a ring");
        assert_eq!(carried.by_device, carried.different, "round {round}");
    }
    guest.bus().stop().expect("stopped");
    let still = guest.bus().carry(&mut journey).expect("carried");
    assert_eq!(still, Carried::default());
    drop(guest.bus().arrive(journey).expect("arrived"));
    let mut came = Vec::new();
    let mut take = |guest: &mut N, all: u64| {
        until("what was sent", || {
            let frames = guest.receive();
            came.extend(frames.iter().filter_map(|frame| number(frame)));
            came.len() as u64 >= all
        });
        came.clone()
    };
    let before = ROUNDS * EACH;
    take(&mut guest, before);
    // The switch has heard where it is now.
    other.send(mac, before..2 * before);
    let came = take(&mut guest, 2 * before);
    assert!(came.into_iter().eq(0..2 * before));
    assert_eq!(guest.send(&[numbered(to, mac, 2)]), 1);
    other.hears(2);
    drop(guest);
    assert!(daemon.stop().unwrap().success());
}

/// Two NICs of a model.
fn two(dir: &Path, model: &str) -> String {
    let nic = |name: &str| {
        let socket = dir.join(name);
        format!(
            "[[nic]]\nname = \"{name}\"\nmodel = \"{model}\"\nsocket-path = {socket:?}\nport = \"switch:lan\"\n"
        )
    };
    nic("near") + &nic("far")
}

#[test]
fn a_guest_with_an_rtl8168_moves_and_each_page_that_was_written_is_said() {
    for model in ["r8168", "r8168h"] {
        let dir = scratch().unwrap();
        let nics = two(dir.path(), model);
        moves(dir.path(), &nics, ["near", "far"], |bus| {
            Rtl::new(bus, false)
        });
    }
}

#[test]
fn a_guest_with_a_virtio_net_moves_and_each_page_that_was_written_is_said() {
    for (packed, in_order) in [(false, false), (true, false), (true, true)] {
        let dir = scratch().unwrap();
        let nics = two(dir.path(), "virtio-net");
        let how = How {
            packed,
            in_order,
            indirect: false,
        };
        println!("{how:?}");
        moves(dir.path(), &nics, ["near", "far"], |bus| {
            Virtio::new(bus, how)
        });
    }
}

#[test]
fn a_guest_with_a_vf_moves_and_each_page_that_was_written_is_said() {
    let dir = scratch().unwrap();
    let chip = |name: &str| {
        let sockets = dir.path().join(format!("{name}{{}}"));
        format!(
            "[[nic]]\nname = \"{name}\"\nmodel = \"82576\"\nvfs = 1\nvf-socket-path = {sockets:?}\nport = \"switch:lan\"\n"
        )
    };
    let nics = chip("near") + &chip("far");
    moves(dir.path(), &nics, ["near0", "far0"], |bus| {
        Vf::new(bus).expect("it comes up")
    });
}
