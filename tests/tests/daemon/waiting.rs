//! How long a guest waits that reads a register all the time, while the process that serves it is exchanged.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hypernic_tests::Daemon;
use vfio_user::{Client, EventFd, SharedMem};

/// Times that it is measured.
pub(super) const TIMES: usize = 7;

/// Prints it for a daemon all of whose NICs VMMs have.
pub(super) fn tell(daemon: &mut Daemon, sockets: &[PathBuf], exchange: impl Fn(&mut Daemon)) {
    let ram = SharedMem::new("ram", 0x10_0000).unwrap();
    let event = EventFd::new().unwrap();
    let mut clients: Vec<_> = sockets
        .iter()
        .map(|socket| {
            let mut client = Client::connect(socket).unwrap();
            client
                .dma_map(0, &ram, 0, 0x10_0000, guest_mem::Prot::RW)
                .unwrap();
            client.arm(0, 0, &[&event]).unwrap();
            client
        })
        .collect();
    let mut waits = Vec::new();
    for _ in 0..TIMES {
        let over = AtomicBool::new(false);
        // The last one that is taken over.
        let client = clients.last_mut().expect("a client");
        let longest = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut longest = Duration::ZERO;
                while !over.load(Ordering::Acquire) {
                    let asked = Instant::now();
                    client.region_read(0, 8, &mut [0; 4]).unwrap();
                    longest = longest.max(asked.elapsed());
                }
                longest
            });
            std::thread::sleep(Duration::from_millis(200));
            exchange(daemon);
            std::thread::sleep(Duration::from_millis(200));
            over.store(true, Ordering::Release);
            reader.join().expect("no panic")
        });
        waits.push(longest);
    }
    for client in &mut clients {
        client.region_read(0, 8, &mut [0; 4]).unwrap();
    }
    waits.sort();
    let (nics, median, longest) = (sockets.len(), waits[TIMES / 2], waits[TIMES - 1]);
    println!("{nics} NICs: median {median:?}, longest {longest:?}, all {waits:?}");
}
