//! A daemon that may not have a descriptor more: what came without its descriptors is refused, not taken as what it would be
//! without them.

use guest_mem::Prot;
use hypernic_tests::{Daemon, Launch, scratch};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use vfio_user::{Client, ClientError, EventFd, SharedMem};

use crate::cli_crash::kill;

/// Keeps a process from opening descriptors while something is done.
pub(crate) fn without_descriptors<T>(process: Pid, work: impl FnOnce() -> T) -> T {
    let none = Rlimit {
        // Those that are open stay; one call waits for that many at most.
        current: Some(3),
        maximum: rustix::process::getrlimit(Resource::Nofile).maximum,
    };
    let was = prlimit(Some(process), Resource::Nofile, none).unwrap();
    let result = work();
    prlimit(Some(process), Resource::Nofile, was).unwrap();
    result
}

fn served_by(daemon: &Daemon) -> Pid {
    let server = i32::try_from(daemon.server()).ok();
    server.and_then(Pid::from_raw).expect("a process")
}

fn emfile<T>(result: Result<T, ClientError>) -> bool {
    let emfile = rustix::io::Errno::MFILE.raw_os_error() as u32;
    matches!(result, Err(ClientError::Refused { errno, .. }) if errno == emfile)
}

/// A daemon with one NIC, and that NIC's socket.
fn one(dir: &tempfile::TempDir, words: &[&str]) -> (Daemon, std::path::PathBuf) {
    let socket = dir.path().join("nic");
    let launch = Launch::new()
        .unwrap()
        .args(["run", "--port", "null"])
        .args(words);
    let launch = launch.arg("--socket-path").arg(&socket);
    (launch.start().unwrap(), socket)
}

#[test]
fn memory_and_interrupts_without_their_descriptors_are_refused() {
    for keeper in [&[][..], &["--no-keeper"]] {
        let dir = scratch().unwrap();
        let (daemon, socket) = one(&dir, keeper);
        let mut client = Client::connect(&socket).unwrap();
        let ram = SharedMem::new("ram", 0x2000).unwrap();
        let (armed, other) = (EventFd::new().unwrap(), EventFd::new().unwrap());
        client.arm(0, 0, &[&armed]).unwrap();
        without_descriptors(served_by(&daemon), || {
            assert!(emfile(client.dma_map(0, &ram, 0, 0x1000, Prot::RW)));
            assert!(emfile(client.arm(0, 0, &[&other])));
        });
        // The interrupt is where it was: IMS, then ICS (82540EM manual 13.4.20 and 13.4.19).
        client.write_u32(0, 0xd0, 4).unwrap();
        client.write_u32(0, 0xc8, 4).unwrap();
        client.region_read(0, 8, &mut [0; 4]).unwrap();
        assert!(armed.take() > 0 && other.take() == 0);
        client.dma_map(0, &ram, 0, 0x1000, Prot::RW).unwrap();
        let counters = daemon.counters().unwrap();
        assert_eq!(counters.nic("n0", "refused_truncated_fds"), 2);
    }
}

#[test]
fn a_front_end_whose_descriptors_find_no_room_is_hung_up_on() {
    let dir = scratch().unwrap();
    let words = ["--model", "virtio-net", "--transport", "vhost-user"];
    let (mut daemon, socket) = one(&dir, &words);
    let mut client = vhost_user::Client::connect(&socket).unwrap();
    let call = EventFd::new().unwrap();
    client.set_owner().unwrap();
    client.features().unwrap();
    without_descriptors(served_by(&daemon), || {
        // Unacknowledged, so the next question shows it.
        let _ = client.set_vring_call(0, Some(&call));
        assert!(client.features().is_err());
    });
    daemon.wait_log("found no room").unwrap();
    let counters = daemon.counters().unwrap();
    assert_eq!(counters.nic("n0", "refused_truncated_fds"), 1);
}

/// The table of descriptors is full when a worker dies: the next one has what that one had, and guests notice nothing.
#[test]
fn a_worker_that_dies_with_a_full_table_has_a_next_one() {
    let dir = scratch().unwrap();
    let (mut daemon, socket) = one(&dir, &["--keeper"]);
    let mut client = Client::connect(&socket).unwrap();
    client.write_u32(0, 0x38, 0x88b5).unwrap();
    for _ in 0..3 {
        let worker = daemon.worker().expect("a worker");
        let keeper = i32::try_from(daemon.id()).ok().and_then(Pid::from_raw);
        let open = |number: &u64| {
            let file = format!("/proc/{}/fd/{number}", worker.as_raw_nonzero());
            std::fs::symlink_metadata(file).is_ok()
        };
        let first_free = (0..).find(|number| !open(number)).expect("one");
        let full = Rlimit {
            current: Some(first_free),
            maximum: Some(first_free),
        };
        for process in [Some(worker), keeper] {
            prlimit(process, Resource::Nofile, full).unwrap();
        }
        kill(&mut daemon);
        assert_eq!(
            client.read_u32(0, 0x38).unwrap(),
            0x88b5,
            "{}",
            daemon.log()
        );
    }
    assert!(daemon.stop().unwrap().success());
}
