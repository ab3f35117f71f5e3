//! Many deaths of a worker, after which nothing is left behind.

use std::time::{Duration, Instant};

use hypernic_tests::{Holdings, LONG, scratch};
use rustix::process::{Signal, kill_process};
use vfio_user::{Client, EventFd, SharedMem};

use crate::cli_crash::{kill, lan};

/// A client whose NIC outlives its worker: registers are as they were, and nothing piles up.
#[test]
fn nothing_is_left_behind_by_many_deaths() {
    nothing_is_left_behind(20);
}

#[test]
#[ignore = "long: ten thousand deaths"]
fn long_nothing_is_left_behind_by_ten_thousand_deaths() {
    nothing_is_left_behind(10_000);
}

fn nothing_is_left_behind(deaths: u32) {
    let dir = scratch().unwrap();
    let sockets: Vec<_> = (0..2).map(|n| dir.path().join(format!("n{n}"))).collect();
    let mut daemon = lan(&sockets, &[]);
    let mut client = Client::connect(&sockets[0]).unwrap();
    let ram = SharedMem::new("ram", 0x10_0000).unwrap();
    client
        .dma_map(0, &ram, 0, 0x10_0000, guest_mem::Prot::RW)
        .unwrap();
    let event = EventFd::new().unwrap();
    client.arm(0, 0, &[&event]).unwrap();
    // A register that only a reset changes.
    client
        .region_write(0, 0x38, &0x88b5_u32.to_le_bytes())
        .unwrap();
    // One thread, for what must not be waited for, is there only now and then.
    let no_more = |now: (usize, (u64, u64), usize), before: (usize, (u64, u64), usize)| {
        (now.0, now.1) == (before.0, before.1) && now.2 <= before.2 + 1
    };
    let mut held = None;
    let mut resident = Vec::new();
    let mut begun = Instant::now();
    for n in 0..deaths {
        let last = daemon.worker().expect("a worker");
        kill_process(last, Signal::KILL).unwrap();
        let mut word = [0; 4];
        // The next worker answers.
        client.region_read(0, 0x38, &mut word).unwrap();
        assert_eq!(u32::from_le_bytes(word), 0x88b5, "after {n} deaths");
        // Other files and other memory each time.
        let event = EventFd::new().unwrap();
        client.arm(0, 0, &[&event]).unwrap();
        client.dma_unmap(0, 0x10_0000).unwrap();
        client
            .dma_map(0, &ram, 0, 0x10_0000, guest_mem::Prot::RW)
            .unwrap();
        let worker = daemon.worker().filter(|worker| *worker != last);
        let worker = worker.expect("another worker");
        let pid = worker.as_raw_nonzero().get() as u32;
        let holds = || {
            let now = Holdings::at_rest(pid);
            (now.fds, now.mapped, now.threads)
        };
        if n < 2 {
            continue;
        }
        resident.push([daemon.id(), pid].map(|pid| Holdings::of(pid).heap));
        if begun.elapsed() > Duration::from_secs(60) {
            begun = Instant::now();
            println!(
                "{n} deaths: {} and {} KiB",
                resident[n as usize - 2][0],
                resident[n as usize - 2][1]
            );
        }
        let before = *held.get_or_insert_with(holds);
        // What is closed is closed by another thread, soon.
        let until = Instant::now() + LONG;
        while !no_more(holds(), before) {
            let now = holds();
            assert!(
                Instant::now() < until,
                "{before:?}, after {n} deaths {now:?}"
            );
        }
    }
    // The keeper's memory, and a worker's.
    let (first, last) = (resident[0], resident[resident.len() - 1]);
    println!("{deaths} deaths: {first:?} KiB became {last:?}, {held:?}");
    for (first, last) in first.into_iter().zip(last) {
        assert!(last <= first + 512, "{first} KiB became {last}");
    }
    // A VMM that goes is gone, and one that comes is served.
    drop(client);
    kill(&mut daemon);
    let mut again = Client::connect(&sockets[0]).unwrap();
    again.region_read(0, 8, &mut [0; 4]).unwrap();
    assert!(daemon.stop().unwrap().success());
    assert!(!sockets[0].exists(), "it cleans up");
}
