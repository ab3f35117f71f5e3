//! Many NICs that all want everything, served by one thread of a real daemon.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use drivers::SocketBus;
use drivers::e1000::poll::{Poll, PollConfig, TxFrame};
use hypernic_tests::{Daemon, scratch};
use tempfile::TempDir;

const NICS: usize = 64;
const RING: u32 = 128;
/// Frames of several turns (256 each). A sender whose ring is done in one rests after it, as a small flow does.
const DEEP: u32 = 1024;
const SIZE: u32 = 60;
/// Frames of a sender in one measurement: so many that none comes to its part by what its ring holds.
const MEASURED: u64 = 4_000;
const TRIES: usize = 20;
const LONG: Duration = Duration::from_secs(120);

type Guest = Poll<SocketBus>;

/// Each of these tests takes what the machine has; beside the other one its NICs would share what is left.
static TURN: Mutex<()> = Mutex::new(());

fn mac(number: usize) -> [u8; 6] {
    [2, 0, 0, 0, 9, number as u8]
}

/// A daemon with one worker, and its guests in pairs, with frames for each other in all buffers of rings of this length.
fn town(ring: u32) -> (Daemon, Vec<Guest>, TempDir) {
    let dir = scratch().unwrap();
    let mut toml = String::from("workers = 1\n[[switch]]\nname = \"lan\"\n");
    for n in 0..NICS {
        let socket = dir.path().join(format!("{n}.sock"));
        let mac = mac(n).map(|byte| format!("{byte:02x}")).join(":");
        toml += &format!(
            "[[nic]]\nname = \"n{n}\"\nsocket-path = {socket:?}\nport = \"switch:lan\"\nmac = \"{mac}\"\n"
        );
    }
    let daemon = Daemon::serve(&dir.path().join("host.toml"), &toml).unwrap();
    let config = PollConfig::new().rings(ring, ring);
    let mut guests: Vec<Guest> = (0..NICS)
        .map(|n| {
            let bus = SocketBus::connect(dir.path().join(format!("{n}.sock"))).expect("connect");
            Poll::new(bus, &config).expect("a driver")
        })
        .collect();
    for (n, guest) in guests.iter_mut().enumerate() {
        let header = [mac(n ^ 1), mac(n)].concat();
        guest.prepare(|_, buffer| {
            buffer.write(0, &header);
            // Local experiments (IEEE 802): no protocol handles it.
            buffer.write(12, &[0x88, 0xb5]);
        });
    }
    // The switch learns where each is, so that nothing is flooded later.
    for guest in &mut guests {
        send(guest, 1);
    }
    // For a second after that, each counts as one with several receivers and waits a tenth of it for one at most; the
    // frames that its patience does not cover take another way, which costs more.
    let until = Instant::now() + Duration::from_millis(1_200);
    while Instant::now() < until {
        for guest in &mut guests {
            take(guest);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    (daemon, guests, dir)
}

fn send(guest: &mut Guest, most: u32) -> u32 {
    guest.send(most, |_, _| TxFrame::plain(SIZE)).expect("send")
}

fn take(guest: &mut Guest) -> u64 {
    guest.receive(2 * DEEP, |_| {}).expect("receive").into()
}

/// Lets the floods go on until the small flow's frame has come. Says how many frames of theirs came
/// meanwhile, and whether its did.
fn sweep(floods: &mut [Guest], small: &mut Guest) -> (u64, u64) {
    let mut others = 0;
    for flood in floods {
        send(flood, DEEP);
        others += take(flood);
        let came = take(small);
        if came > 0 {
            return (others, came);
        }
    }
    (others, 0)
}

/// Jain's index: 1 when all have the same, 1/n when one has all.
fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|s| *s as f64).sum();
    let squares: f64 = shares.iter().map(|s| (*s as f64).powi(2)).sum();
    sum * sum / (shares.len() as f64 * squares)
}

#[test]
fn sixty_four_equal_senders_have_equal_parts() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut daemon, mut guests, _dir) = town(RING);
    let until = Instant::now() + LONG;
    let mut found = Vec::new();
    // What else the machine does makes the parts less equal, never more: threads that are kept waiting, receivers that
    // look slow for it. So one good measurement shows that the worker gives equal parts.
    while found.len() < TRIES {
        let mut shares = [0; NICS];
        while shares.iter().sum::<u64>() < NICS as u64 * MEASURED {
            assert!(Instant::now() < until, "{found:?} {shares:?}");
            for (guest, share) in guests.iter_mut().zip(&mut shares) {
                send(guest, RING);
                *share += take(guest);
            }
        }
        found.push(jain(&shares));
        println!("Jain's index {:.4}: {shares:?}", jain(&shares));
        if jain(&shares) >= 0.95 {
            break;
        }
    }
    assert!(found.last().is_some_and(|last| *last >= 0.95), "{found:?}");
    drop(guests);
    assert!(daemon.stop().unwrap().success());
}

#[test]
fn a_small_flow_waits_for_a_part_of_a_round_of_floods() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut daemon, mut guests, _dir) = town(DEEP);
    let (floods, small) = guests.split_at_mut(NICS - 2);
    let until = Instant::now() + LONG;
    let mut foreign: Vec<u64> = Vec::new();
    for _ in 0..200 {
        // All rings are full again.
        for _ in 0..2 {
            sweep(floods, &mut small[1]);
        }
        assert_eq!(send(&mut small[0], 1), 1);
        let mut others = 0;
        loop {
            assert!(Instant::now() < until, "{foreign:?}");
            let (served, came) = sweep(floods, &mut small[1]);
            others += served;
            if came > 0 {
                break;
            }
        }
        foreign.push(others);
    }
    foreign.sort_unstable();
    println!("frames of others before a small flow's one: {foreign:?}");
    // Where it had to wait for its place in a row, it would be half a round or a whole one.
    let round = (NICS as u64 - 2) * u64::from(DEEP);
    assert!(foreign[100] < round / 4, "{foreign:?}");
    drop(guests);
    assert!(daemon.stop().unwrap().success());
}
