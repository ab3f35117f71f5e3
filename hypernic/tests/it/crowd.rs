//! Many who are told of changes, beside guests at work.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use control::{Client, NicAdd, NicConfig, NicRemove, StatusGet};
use hypernic::fds;

use crate::changing::converse;
use crate::lab::Lab;

const LONG: Duration = Duration::from_secs(60);
const MANY: usize = 1000;
/// The NIC that stays.
const LAST: &str = "the-last";

fn add(dir: &Path, name: &str) -> NicAdd {
    let nic = NicConfig {
        name: name.into(),
        port: "switch:lan".into(),
        socket_path: Some(dir.join(name).to_string_lossy().into()),
        ..NicConfig::default()
    };
    NicAdd {
        nic,
        ..NicAdd::default()
    }
}

fn subscribe(lab: &Lab) -> UnixStream {
    use std::io::Write;
    let mut stream = UnixStream::connect(lab.control()).expect("connect");
    let call = b"{\"method\":\"io.hypernic.Monitor.Subscribe\",\"more\":true}\0";
    stream.write_all(call).expect("subscribe");
    stream
}

#[test]
fn a_thousand_subscribers_of_which_half_never_read_cost_no_frame() {
    // A descriptor for each, here too.
    fds::raise_limit();
    let lab = Lab::with(|dir| {
        let nic = |name: &str| {
            let socket = dir.join(name);
            format!("[[nic]]\nname = \"{name}\"\nsocket-path = {socket:?}\nport = \"switch:lan\"\n")
        };
        format!(
            "workers = 2\n[[switch]]\nname = \"lan\"\n{}{}",
            nic("a"),
            nic("b")
        )
    });
    let dir = lab.dir.path();
    let (a, b) = (dir.join("a"), dir.join("b"));
    let (stop, passed) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut all: Vec<UnixStream> = (0..MANY).map(|_| subscribe(&lab)).collect();
    let mut readers = all.split_off(MANY / 2);
    for reader in &readers {
        reader.set_nonblocking(true).expect("non-blocking");
    }
    std::thread::scope(|scope| {
        // Each frame comes once and in its order, or this fails.
        let pair = scope.spawn(|| converse([&a, &b], &stop, &passed));
        // However slowly they read, and whatever they have missed: each is told of what was added last.
        let reading = scope.spawn(|| {
            let mut told: Vec<Vec<u8>> = vec![Vec::new(); readers.len()];
            let mut part = vec![0; 1 << 16];
            let knows =
                |told: &Vec<u8>| told.windows(LAST.len()).any(|part| part == LAST.as_bytes());
            let mut unaware: Vec<usize> = (0..readers.len()).collect();
            let until = Instant::now() + 3 * LONG;
            while !unaware.is_empty() {
                let many = unaware.len();
                assert!(Instant::now() < until, "{many} are not told");
                unaware.retain(|at| match readers[*at].read(&mut part) {
                    Ok(n) => {
                        assert!(n > 0, "a reader was let go");
                        told[*at].extend(&part[..n]);
                        !knows(&told[*at])
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::WouldBlock);
                        true
                    }
                });
                std::thread::yield_now();
            }
        });
        let mut client = Client::connect(&lab.control()).expect("connect");
        for _ in 0..20 {
            client.call(&add(dir, "c")).expect("add");
            let (from, until) = (passed.load(Ordering::Relaxed), Instant::now() + LONG);
            while passed.load(Ordering::Relaxed) < from + 100 {
                assert!(!pair.is_finished(), "the pair has failed");
                assert!(Instant::now() < until, "traffic stands still");
                std::thread::yield_now();
            }
            // Longer than the time between two looks for changes.
            std::thread::sleep(Duration::from_millis(120));
            let name = "c".to_owned();
            let gone = NicRemove {
                name,
                ..NicRemove::default()
            };
            client.call(&gone).expect("remove");
        }
        assert_eq!(client.call(&StatusGet {}).expect("status").connected, 2);
        client.call(&add(dir, LAST)).expect("add");
        reading.join().expect("the readers");
        assert!(!pair.is_finished(), "the pair has failed");
        stop.store(true, Ordering::Relaxed);
    });
    drop(all);
}
