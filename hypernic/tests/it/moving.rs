//! Guests that move from one daemon to another while their NICs are at work, over real sockets and in memory of their own at each end.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{LONG, count, mac, until};
use drivers::e1000::{Config, Driver, TxOpts};
use drivers::igbvf::Vf;
use drivers::{Bus, SocketBus};
use hypernic::config::HostConfig;
use hypernic::host::Host;
use pf::Change;
use tempfile::TempDir;
use vfio_user::codec::feature::MigrationState;
use vfio_user::{Client, ClientError};
use wire::MacAddr;

/// Frames that may be on their way at once.
const WINDOW: u64 = 64;

/// Two hosts, whose switches are one network.
struct Hosts {
    dir: TempDir,
    /// The near one and the far one.
    hosts: [Host; 2],
}

impl Hosts {
    /// Each has a NIC `moves`, and a NIC `stays` of its own; `nic` is what is said of those that move.
    fn new(nic: &str) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let wire = dir.path().join("wire");
        let hosts = [0, 1].map(|host| {
            let port = ["stream:listen=", "stream:"][host];
            let at = |name: &str| dir.path().join(format!("{name}{host}.sock"));
            let text = format!(
                "[[switch]]\nname = \"lan\"\nports = [\"{port}{}\"]\n\
                 [[nic]]\nname = \"stays\"\nmodel = \"e1000\"\nsocket-path = {:?}\n\
                 mac = \"52:54:00:76:00:1{host}\"\nport = \"switch:lan\"\n{}",
                wire.display(),
                at("stays"),
                nic.replace("SOCKET", &at("moves").to_string_lossy()),
            );
            let config = HostConfig::parse("host.toml".as_ref(), &text).expect(&text);
            Host::start(&config).expect("a host")
        });
        Self { dir, hosts }
    }

    fn of_e1000() -> Self {
        Self::new(
            "[[nic]]\nname = \"moves\"\nmodel = \"e1000\"\nsocket-path = \"SOCKET\"\n\
             mac = \"52:54:00:76:00:01\"\nport = \"switch:lan\"\n",
        )
    }

    fn socket(&self, name: &str, host: usize) -> PathBuf {
        let path = self.dir.path().join(format!("{name}{host}.sock"));
        // A VF's has its number behind it.
        let of_vf = format!("{}0", path.display());
        if path.exists() { path } else { of_vf.into() }
    }

    fn client(&self, host: usize) -> Client {
        Client::connect(self.socket("moves", host)).expect("a client")
    }

    fn bus(&self, name: &str, host: usize) -> SocketBus {
        SocketBus::connect(self.socket(name, host)).expect("a bus")
    }

    fn driver(&self, name: &str, host: usize) -> Nic {
        Driver::new(self.bus(name, host), Config::linux()).expect("it comes up")
    }

    fn count(&self, host: usize, nic: &str, counter: &str) -> u64 {
        count(&self.hosts[host], "nic", nic, counter)
    }

    /// Frames for the NIC that moves of which hypernic says that they are lost.
    fn lost(&self) -> u64 {
        const REASONS: [&str; 5] = [
            "rx_while_halted",
            "rx_no_client",
            "rx_disabled",
            "rx_missed",
            "rx_held_up",
        ];
        let sections = self.hosts.iter().flat_map(Host::counters);
        let moves = sections.filter(|section| section.kind == "nic" && section.name == "moves");
        let values = moves.flat_map(|section| section.values);
        let lost = values.filter(|(name, _)| REASONS.contains(name));
        lost.map(|(_, frames)| frames).sum()
    }

    /// Every counter that is not zero.
    fn counters(&self) -> String {
        let mut text = String::new();
        for (at, host) in self.hosts.iter().enumerate() {
            for section in host.counters() {
                text += &format!("\n{at} {} {}:", section.kind, section.name);
                for (name, value) in section.values.iter().filter(|(_, value)| *value != 0) {
                    text += &format!(" {name}={value}");
                }
            }
        }
        text
    }
}

type Nic = Driver<SocketBus>;

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

/// The numbers of the frames that have come.
fn take(nic: &mut Nic) -> Vec<u64> {
    let frames = nic.receive().expect("received");
    frames.iter().filter_map(|frame| number(frame)).collect()
}

fn send(nic: &mut Nic, frame: &[u8]) {
    until("room", || {
        nic.reclaim().expect("reclaimed");
        (nic.send(&[frame], &TxOpts::default()).expect("sent") == 1).then_some(())
    });
}

fn all_sent(nic: &mut Nic) {
    until("all are sent", || {
        nic.reclaim().expect("reclaimed");
        (nic.tx_pending() == 0).then_some(())
    });
}

/// Sends numbered frames until it is told to end, as many as are wanted at a time.
struct Source {
    /// Numbers below this may be sent.
    limit: Arc<AtomicU64>,
    end: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<(Nic, u64)>>,
}

impl Source {
    fn new(mut nic: Nic, to: [u8; 6]) -> Self {
        let limit = Arc::new(AtomicU64::new(WINDOW));
        let end = Arc::<AtomicBool>::default();
        let (most, over) = (Arc::clone(&limit), Arc::clone(&end));
        let thread = std::thread::spawn(move || {
            let mut next = 0;
            while !over.load(Ordering::Acquire) {
                if next < most.load(Ordering::Acquire) {
                    let frame = numbered(to, nic.mac(), next);
                    send(&mut nic, &frame);
                    next += 1;
                } else {
                    std::thread::sleep(Duration::from_micros(100));
                }
            }
            all_sent(&mut nic);
            (nic, next)
        });
        Self {
            limit,
            end,
            thread: Some(thread),
        }
    }

    /// The NIC, and how many were sent.
    fn end(mut self) -> (Nic, u64) {
        self.end.store(true, Ordering::Release);
        self.thread.take().expect("once").join().expect("it ends")
    }
}

#[test]
fn what_a_nic_has_written_is_what_it_says_to_the_page() {
    let hosts = Hosts::of_e1000();
    let mut stays = hosts.driver("stays", 0);
    let mut moves = hosts.driver("moves", 0);
    let far = hosts.client(1);
    let mut journey = moves.bus_mut().depart(far).expect("on its way");
    // The guest stands still; only the NIC writes.
    for round in 0..4u64 {
        for n in 0..20 {
            let frame = numbered(mac(1), stays.mac(), 20 * round + n);
            send(&mut stays, &frame);
        }
        all_sent(&mut stays);
        let carried = moves.bus_mut().carry(&mut journey).expect("carried");
        assert!(
            carried.by_device.len() >= 11,
            "ten pages of buffers and a ring"
        );
        assert_eq!(carried.by_device, carried.different, "round {round}");
    }
    let still = moves.bus_mut().carry(&mut journey).expect("carried");
    assert_eq!(still, drivers::Carried::default());
    // What it sends it reports, and nothing else.
    let frame = numbered(stays.mac(), mac(1), 1);
    send(&mut moves, &frame);
    all_sent(&mut moves);
    let carried = moves.bus_mut().carry(&mut journey).expect("carried");
    assert_eq!(carried.by_device.len(), 1, "the descriptor");
    assert!(carried.by_device.is_subset(&carried.different));
    // It stays after all.
    moves.bus_mut().stop().expect("stopped");
    moves.bus_mut().stay().expect("stays");
    let mut numbers = Vec::new();
    until("all that came", || {
        numbers.extend(take(&mut moves));
        (numbers.len() == 80).then_some(())
    });
    assert!(numbers.into_iter().eq(0..80));
    drop(journey);
}

#[test]
fn a_guest_moves_under_traffic_and_no_frame_comes_twice_or_out_of_order() {
    let hosts = Hosts::of_e1000();
    let mut moves = hosts.driver("moves", 0);
    let mut stays = hosts.driver("stays", 0);
    // So that the near switch knows where it is, and the far one is spared.
    let hello = numbered(stays.mac(), mac(1), 0);
    send(&mut moves, &hello);
    until("the first", || take(&mut stays).pop());
    let flooded = until("the flood", || Some(hosts.lost()).filter(|lost| *lost > 0));
    assert_eq!(flooded, 1, "nobody has the far one");
    let source = Source::new(stays, mac(1));
    let limit = Arc::clone(&source.limit);
    let mut came: Vec<u64> = Vec::new();
    let mut poll = |moves: &mut Nic, lost: u64| {
        came.extend(take(moves));
        limit.store(came.len() as u64 + lost + WINDOW, Ordering::Release);
        came.len()
    };
    let mut more = |moves: &mut Nic, frames: usize| {
        let wanted = poll(moves, 0) + frames;
        until("traffic", || (poll(moves, 0) > wanted).then_some(()));
    };
    more(&mut moves, 500);
    let far = hosts.client(1);
    let mut journey = moves.bus_mut().depart(far).expect("on its way");
    let moving = || [0, 1].map(|host| hosts.hosts[host].on_the_move());
    assert_eq!(moving(), [Some("moves"); 2]);
    let mut buffers = BTreeSet::new();
    for _ in 0..5 {
        more(&mut moves, 200);
        let carried = moves.bus_mut().carry(&mut journey).expect("carried");
        buffers.extend(carried.by_device);
    }
    assert!(buffers.len() > 64, "many pages: {}", buffers.len());
    moves.bus_mut().stop().expect("stopped");
    let carried = moves.bus_mut().carry(&mut journey).expect("carried");
    // Buffers are written by nobody but the NIC: none was forgotten.
    let by_guest = &carried.different - &carried.by_device;
    assert!(by_guest.len() <= 1, "a ring: {by_guest:x?}");
    // As many as are sent now are for nobody.
    limit.fetch_add(20, Ordering::AcqRel);
    let held_up = until("frames for nobody", || {
        Some(hosts.count(0, "moves", "rx_while_halted")).filter(|lost| *lost > 0)
    });
    assert!(held_up <= WINDOW + 20);
    let still = moves.bus_mut().carry(&mut journey).expect("carried");
    assert_eq!(still, drivers::Carried::default(), "it stands still");
    while moves.bus_mut().wait_irq(Duration::ZERO).expect("it looks") {}
    let near = moves.bus_mut().arrive(journey).expect("arrived");
    // The guest had not said yet that it knows what has come.
    assert!(moves.bus_mut().wait_irq(LONG).expect("it waits"));
    assert_eq!(hosts.count(1, "moves", "states_loaded"), 1);
    assert_eq!(hosts.count(1, "moves", "announced"), 1);
    // The near switch has heard where its guest is; what went the old way is counted there.
    // One of those is the announcement, which is for everybody.
    let lost = || hosts.lost() - flooded - 1;
    let before = poll(&mut moves, lost());
    until("traffic at the far end", || {
        (poll(&mut moves, lost()) > before + 1000).then_some(())
    });
    drop(near);
    until("all is over", || (moving() == [None; 2]).then_some(()));
    let (mut stays, sent) = source.end();
    let end = std::time::Instant::now() + LONG;
    while poll(&mut moves, 0) as u64 + lost() < sent {
        assert!(
            std::time::Instant::now() < end,
            "{sent}: {}",
            hosts.counters()
        );
    }
    assert!(came.is_sorted_by(|a, b| a < b), "once each, and in order");
    assert_eq!(came.len() as u64 + lost(), sent, "{}", hosts.counters());
    let frame = numbered(stays.mac(), mac(1), 7);
    send(&mut moves, &frame);
    let numbers = until("an answer", || {
        Some(take(&mut stays)).filter(|n| !n.is_empty())
    });
    assert_eq!(numbers, [7]);
}

/// Two hosts with a chip each, whose first VF moves.
fn hosts_with_vfs() -> Hosts {
    Hosts::new(
        "[[nic]]\nname = \"chip\"\nmodel = \"82576\"\nvfs = 2\nvf-socket-path = \"SOCKET{}\"\n\
         port = \"switch:lan\"\n",
    )
}

/// A frame of a VLAN, as it is on the wire.
fn tagged(to: [u8; 6], from: [u8; 6], vlan: u16, number: u64) -> Vec<u8> {
    let mut frame = numbered(to, from, number);
    frame.splice(12..12, [0x81, 0, (vlan >> 8) as u8, vlan as u8]);
    frame
}

/// The frames that the VF gets of those that are sent to it, untagged and in two VLANs.
fn heard(vf: &mut Vf<SocketBus>, from: &mut Nic, to: [u8; 6], first: u64) -> Vec<u64> {
    for frame in [
        numbered(to, from.mac(), first),
        tagged(to, from.mac(), 7, first + 1),
        tagged(to, from.mac(), 9, first + 2),
        numbered(to, from.mac(), first + 3),
    ] {
        send(from, &frame);
    }
    all_sent(from);
    let mut numbers = Vec::new();
    until("the last", || {
        for (frame, tag) in vf.receive().expect("received") {
            let frame = match (tag, frame.get(12..14)) {
                (None, Some([0x81, 0])) => [&frame[..12], &frame[16..]].concat(),
                _ => frame,
            };
            numbers.extend(number(&frame));
        }
        numbers.contains(&(first + 3)).then_some(())
    });
    numbers
}

/// SET_VLAN of the mailbox: it joins.
const JOIN: u32 = 4 | 1 << 16;

#[test]
fn a_vf_whose_pf_a_guest_drives_says_that_it_cannot_move() {
    let hosts = Hosts::new(
        "[[nic]]\nname = \"chip\"\nmodel = \"82576\"\nvfs = 1\npf = \"guest\"\nsocket-path = \"SOCKETpf\"\n\
         vf-socket-path = \"SOCKET{}\"\nport = \"switch:lan\"\n",
    );
    let mut client = hosts.client(0);
    let not_there = |answer: Result<MigrationState, ClientError>| {
        assert!(matches!(
            answer,
            Err(ClientError::Refused { errno: 95, .. })
        ));
    };
    not_there(client.migration().map(|_| MigrationState::Running));
    not_there(client.set_migration_state(MigrationState::Stop));
    not_there(client.migration_state());
    client.region_read(0, 8, &mut [0; 4]).expect("it runs");
}

#[test]
fn a_vf_moves_to_one_of_another_chip_which_grants_what_its_policy_allows() {
    let hosts = hosts_with_vfs();
    let mut stays = hosts.driver("stays", 0);
    let mut vf = Vf::new(hosts.bus("moves", 0)).expect("a VF");
    vf.set_mac(mac(5)).expect("granted");
    vf.want(&[JOIN, 7]).expect("granted");
    assert_eq!(heard(&mut vf, &mut stays, mac(5), 0), [0, 1, 3]);
    let far = hosts.client(1);
    let mut journey = vf.bus().depart(far).expect("on its way");
    vf.bus().stop().expect("stopped");
    vf.bus().carry(&mut journey).expect("carried");
    let near = vf.bus().arrive(journey).expect("arrived");
    drop(near);
    let heard_at_the_far_end = until("the announcement", || {
        let frames = stays.receive().expect("received");
        frames
            .into_iter()
            .find(|frame| frame[12..14] == [0x80, 0x35])
    });
    assert_eq!(heard_at_the_far_end[6..12], mac(5));
    // Its driver is told nothing, and has what it had.
    assert_eq!(vf.heard().expect("looked"), None);
    assert_eq!(heard(&mut vf, &mut stays, mac(5), 10), [10, 11, 13]);
    let frame = numbered(stays.mac(), mac(5), 20);
    vf.send(&[&frame]).expect("sent");
    until("an answer", || take(&mut stays).pop().filter(|n| *n == 20));
    // It asks for more as before.
    vf.want(&[JOIN, 9]).expect("granted");
    assert_eq!(heard(&mut vf, &mut stays, mac(5), 30), [30, 31, 32, 33]);
}

#[test]
fn a_vf_that_moves_gets_nothing_that_the_other_chip_forbids() {
    let hosts = hosts_with_vfs();
    let mut stays = hosts.driver("stays", 0);
    let mut vf = Vf::new(hosts.bus("moves", 0)).expect("a VF");
    vf.set_mac(mac(5)).expect("granted");
    // There the operator has given it an address.
    let changes = [Change::Mac(MacAddr(mac(6)))];
    hosts.hosts[1].set_vf_all("chipvf0", &changes).expect("set");
    let far = hosts.client(1);
    let mut journey = vf.bus().depart(far).expect("on its way");
    vf.bus().stop().expect("stopped");
    vf.bus().carry(&mut journey).expect("carried");
    drop(vf.bus().arrive(journey).expect("arrived"));
    let refused = || count(&hosts.hosts[1], "vf", "chipvf0", "vf_refused_mac_override");
    assert_eq!(refused(), 1);
    // What it sends from the address that it had is spoofed here.
    let frame = numbered(stays.mac(), mac(5), 1);
    vf.send(&[&frame]).expect("sent");
    until("a refusal", || {
        (count(
            &hosts.hosts[1],
            "switch-port",
            "chip/chipvf0",
            "drop_spoofed",
        ) > 0)
            .then_some(())
    });
    let numbers = take(&mut stays);
    assert!(numbers.is_empty(), "{numbers:?}");
}

/// The lines of a NIC of this model.
fn lines(model: &registry::Model) -> String {
    format!(
        "[[nic]]\nname = \"moves\"\nmodel = {:?}\nsocket-path = \"SOCKET\"\n\
         mac = \"52:54:00:76:00:01\"\nport = \"switch:lan\"\n",
        model.name
    )
}

#[test]
fn each_model_goes_on_in_its_like_and_in_no_other() {
    let mut last: Option<Vec<u8>> = None;
    for model in registry::MODELS.0 {
        let hosts = Hosts::new(&lines(model));
        let (mut near, mut far) = (hosts.client(0), hosts.client(1));
        // Mastering the bus, with a register that a reset does not have so.
        near.region_write(7, 4, &[6, 0]).expect("COMMAND");
        near.set_migration_state(MigrationState::StopCopy)
            .expect("stopped");
        let state = near.read_state(1000).expect("read");
        if let Some(other) = &last {
            far.set_migration_state(MigrationState::Resuming)
                .expect("waits");
            far.write_state(other, 1000).expect("written");
            let refused = far.set_migration_state(MigrationState::Running);
            assert!(matches!(
                refused,
                Err(ClientError::Refused { errno: 22, .. })
            ));
            assert_eq!(hosts.count(1, "moves", "refused_state"), 1);
            far.reset().expect("reset");
        }
        far.set_migration_state(MigrationState::Resuming)
            .expect("waits");
        far.write_state(&state, 1000).expect("written");
        far.set_migration_state(MigrationState::Running)
            .expect(model.name);
        let mut command = [0; 2];
        far.region_read(7, 4, &mut command).expect("COMMAND");
        assert_eq!(command, [6, 0], "{}", model.name);
        // What it is now is what was saved, but for what runs by itself.
        far.set_migration_state(MigrationState::StopCopy)
            .expect("stopped");
        let again = far.read_state(1000).expect("read");
        assert_eq!(again.len(), state.len(), "{}", model.name);
        assert_eq!(hosts.count(1, "moves", "announced"), 1, "{}", model.name);
        last = Some(state);
    }
}
