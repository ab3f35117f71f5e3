//! The daemon's own life: what it prints, signals, inherited descriptors, and how it ends.

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hypernic_tests::{Counters, LONG, Launch, LogLine, binary, scratch};
use rig::Rig;
use rustix::process::Signal;
use serde_json::Value;
use vfio_user::{Client, ClientOptions};

fn run(socket: &Path) -> Launch {
    let launch = Launch::new()
        .unwrap()
        .arg("run")
        .arg("--socket-path")
        .arg(socket);
    launch.args(["--mac", "52:54:00:00:00:0a", "--port", "null"])
}

#[test]
fn it_ends_cleanly_on_sigint_and_sigterm_with_a_client_and_without() {
    for signal in [Signal::INT, Signal::TERM] {
        for with_client in [false, true] {
            let dir = scratch().unwrap();
            let socket = dir.path().join("n0.sock");
            let mut daemon = run(&socket).start().unwrap();
            let mut client = with_client.then(|| Client::connect(&socket).unwrap());
            daemon.signal(signal).unwrap();
            assert_eq!(
                daemon.wait_exit().unwrap().code(),
                Some(0),
                "{signal:?}: {}",
                daemon.log()
            );
            assert!(!socket.exists(), "the socket is left behind");
            let last = daemon
                .printed()
                .lines()
                .last()
                .map(str::to_owned)
                .unwrap_or_default();
            let counters = Counters::parse(&last).expect("counters are the last thing printed");
            assert_eq!(counters.nic("n0", "clients"), u64::from(with_client));
            assert!(client.as_mut().is_none_or(|client| client.info().is_err()));
        }
    }
}

#[test]
fn counters_come_on_sigusr1_as_often_as_asked_and_do_not_end_it() {
    let dir = scratch().unwrap();
    let socket = dir.path().join("n0.sock");
    let mut daemon = run(&socket).start().unwrap();
    assert_eq!(daemon.counters().unwrap().nic("n0", "clients"), 0);
    let mut client = Client::connect(&socket).unwrap();
    client.info().unwrap();
    let counters = daemon.counters().unwrap();
    assert_eq!(counters.nic("n0", "clients"), 1);
    assert!(counters.nic("n0", "messages") >= 2, "{counters}");
    drop(client);
    let gone = |c: &Counters| c.nic("n0", "clients_gone") == 1;
    daemon.wait_counters("the client is gone", gone).unwrap();
    assert!(daemon.is_alive());
}

#[test]
fn a_terminal_that_closes_takes_no_nic_down() {
    let dir = scratch().unwrap();
    let socket = dir.path().join("n0.sock");
    let mut daemon = run(&socket).start().unwrap();
    let mut client = Client::connect(&socket).unwrap();
    daemon.signal(Signal::HUP).unwrap();
    daemon.wait_log("SIGHUP: ignored").unwrap();
    client.info().unwrap();
    assert_eq!(daemon.stop().unwrap().code(), Some(0));
}

#[test]
fn a_vmm_that_ends_and_one_that_lets_its_device_go_are_told_apart() {
    let dir = scratch().unwrap();
    let socket = dir.path().join("n0.sock");
    let mut daemon = run(&socket).start().unwrap();
    drop(Client::connect(&socket).unwrap());
    let line = daemon.wait_log("VMM disconnected").unwrap();
    assert!(
        line.contains("runs on") && line.contains("gave up waiting"),
        "{line}"
    );
    // A process that negotiates, and is killed.
    let seen = daemon.log_position();
    let mut other = Launch::of(&binary().unwrap().with_file_name("hypernic-pkt-gen"))
        .args(["-f", "tx", "--socket-path"])
        .arg(&socket)
        .spawn()
        .unwrap();
    daemon.wait_log_after(seen, "VMM connected").unwrap();
    other.kill();
    let line = daemon.wait_log_after(seen, "VMM disconnected").unwrap();
    assert!(
        line.contains("closed its socket") && !line.contains("runs on"),
        "{line}"
    );
}

/// What `/proc` calls a descriptor of a process.
fn name(pid: u32, fd: &str) -> String {
    let link = std::fs::read_link(format!("/proc/{pid}/fd/{fd}"));
    link.map_or_else(|_| String::new(), |link| link.display().to_string())
}

#[test]
fn no_epoll_set_is_inside_another() {
    // They share a lock of the whole kernel, which any local process can hold for as long as it likes.
    let dir = scratch().unwrap();
    let sockets = ["a", "b"].map(|name| dir.path().join(name));
    let mut launch = Launch::new().unwrap().args(["run", "--port", "user"]);
    for socket in &sockets {
        launch = launch.arg("--socket-path").arg(socket);
    }
    let daemon = launch.start().unwrap();
    let mut clients = sockets
        .each_ref()
        .map(|socket| Client::connect(socket).unwrap());
    clients
        .iter_mut()
        .for_each(|client| assert!(client.info().is_ok()));
    let mut watched = 0;
    for fd in std::fs::read_dir(format!("/proc/{}/fdinfo", daemon.server())).unwrap() {
        let fd = fd.unwrap().file_name().into_string().unwrap();
        if name(daemon.server(), &fd) != "anon_inode:[eventpoll]" {
            continue;
        }
        let info =
            std::fs::read_to_string(format!("/proc/{}/fdinfo/{fd}", daemon.server())).unwrap();
        for line in info.lines().filter_map(|line| line.strip_prefix("tfd:")) {
            let target = line.split_whitespace().next().unwrap();
            assert_ne!(
                name(daemon.server(), target),
                "anon_inode:[eventpoll]",
                "{line}"
            );
            watched += 1;
        }
    }
    // A listener and a connection each, at least: the workers' sets hold them themselves.
    assert!(watched >= 4, "{watched}");
}

#[test]
fn too_few_descriptors_are_refused_at_start_or_enough() {
    let dir = scratch().unwrap();
    let (mut refused, mut served) = (0, 0);
    for limit in 10..40 {
        let socket = dir.path().join(limit.to_string());
        let shell = format!("ulimit -n {limit}; exec \"$0\" \"$@\"");
        let launch = Launch::under(&["sh", "-c", &shell]).unwrap();
        let mut daemon = launch
            .args(["run", "--port", "null", "--socket-path"])
            .arg(&socket)
            .spawn()
            .unwrap();
        if daemon.wait_log("serving").is_err() {
            let code = daemon.wait_exit().unwrap().code();
            // Where it cannot even wait for signals or load its libraries, it says so in other words.
            assert_ne!(code, Some(0), "{limit}: {}", daemon.log());
            refused += 1;
            continue;
        }
        // More clients than there are descriptors for: each is served or sent away, and then there is nothing to do.
        let clients: Vec<_> = (0..4).map(|_| UnixStream::connect(&socket)).collect();
        let polls = || daemon.counters().unwrap().total("worker", "poll_calls");
        let before = polls();
        std::thread::sleep(Duration::from_millis(100));
        let looks = polls() - before;
        assert!(
            looks < 1000,
            "{limit}: {looks} looks at the descriptors in 0.1 s"
        );
        drop(clients);
        daemon.stop().unwrap();
        served += 1;
    }
    assert!(refused > 0 && served > 0, "{refused} {served}");
}

#[test]
fn json_is_one_object_a_line_on_both_streams() {
    let dir = scratch().unwrap();
    let socket = dir.path().join("n0.sock");
    let mut daemon = run(&socket).start().unwrap();
    drop(Client::connect(&socket).unwrap());
    daemon.wait_log("VMM disconnected").unwrap();
    daemon.stop().unwrap();
    let log = daemon.log();
    assert!(log.lines().count() >= 4, "{log}");
    for line in log.lines() {
        LogLine::parse(line).unwrap_or_else(|| panic!("not a log line: {line}"));
    }
    let printed = daemon.printed();
    let lines: Vec<Value> = printed
        .lines()
        .map(|l| serde_json::from_str(l).expect(l))
        .collect();
    let nic = &lines[0]["serving"][0];
    assert_eq!(nic["name"], "n0");
    assert_eq!(nic["model"], "e1000");
    assert_eq!(nic["mac"], "52:54:00:00:00:0a");
    assert!(
        nic["cloud_hypervisor"]
            .as_str()
            .unwrap()
            .contains("--user-device socket="),
        "{nic}"
    );
}

#[test]
fn people_get_a_banner_to_paste_and_a_table() {
    let dir = scratch().unwrap();
    let socket = dir.path().join("n0.sock");
    let mut daemon = run(&socket).human().start().unwrap();
    Client::connect(&socket).unwrap().info().unwrap();
    daemon.wait_log("VMM disconnected").unwrap();
    assert!(daemon.stop().unwrap().success());
    let text = daemon.printed();
    let path = socket.display().to_string();
    let words = [
        "NIC n0 (e1000, ",
        "QEMU >= 10.1:",
        "share=on",
        "vfio-user-pci",
        "cloud-hypervisor:",
        "messages",
        &path,
    ];
    for word in words {
        assert!(text.contains(word), "{word} is not in: {text}");
    }
    let log = daemon.log();
    assert!(log.contains("VMM connected"), "{log}");
    let coloured = text.contains('\u{1b}') || log.contains('\u{1b}');
    assert!(!coloured, "colours belong on a terminal only");
}

/// Shifts `count` bits into the EEPROM of the chip at `client`, as drivers do through EECD.
fn eeprom_command(client: &mut Client, bits: u32, count: u32) {
    const EECD: u64 = 0x10;
    let mut eecd = |value: u32| {
        client
            .region_write(0, EECD, &value.to_le_bytes())
            .expect("EECD");
    };
    eecd(0x42);
    for i in (0..count).rev() {
        let di = (bits >> i & 1) << 2;
        for clock in [0, 1, 0] {
            eecd(0x42 | di | clock);
        }
    }
    eecd(0x40);
}

/// A word of the EEPROM, by EERD.
fn eeprom_word(client: &mut Client, at: u32) -> u16 {
    client
        .region_write(0, 0x14, &(at << 8 | 1).to_le_bytes())
        .unwrap();
    (client.read_u32(0, 0x14).unwrap() >> 16) as u16
}

#[test]
fn what_a_guest_writes_to_its_eeprom_outlives_the_daemon() {
    let dir = scratch().unwrap();
    let (socket, file) = (dir.path().join("n0.sock"), dir.path().join("n0.nvm"));
    let start = || run(&socket).arg("--eeprom").arg(&file).start().unwrap();
    let mut daemon = start();
    assert_eq!(
        std::fs::read(&file).unwrap()[..6],
        [0x52, 0x54, 0, 0, 0, 0x0a]
    );
    let mut client = Client::connect(&socket).unwrap();
    // Write enable; another last word of the address, and the checksum that goes with it.
    let old = eeprom_word(&mut client, 2);
    let sum = eeprom_word(&mut client, 63);
    eeprom_command(&mut client, 0b1_0011_0000, 9);
    eeprom_command(&mut client, (0b101 << 6 | 2) << 16 | 0x0b00, 25);
    let sum = sum.wrapping_add(old).wrapping_sub(0x0b00);
    eeprom_command(&mut client, (0b101 << 6 | 63) << 16 | u32::from(sum), 25);
    assert_eq!(eeprom_word(&mut client, 2), 0x0b00);
    let written = |c: &Counters| c.nic("n0", "nvm_written") >= 1;
    daemon
        .wait_counters("the file is written", written)
        .unwrap();
    // An end without warning, and an end in order.
    drop(client);
    daemon.stop().unwrap();
    for _ in 0..2 {
        let mut daemon = start();
        let mut client = Client::connect(&socket).unwrap();
        assert_eq!(eeprom_word(&mut client, 2), 0x0b00);
        assert_eq!(client.read_u32(0, 0x5404).unwrap(), 0x8000_0b00, "RAH");
        let total = (0..64).fold(0u16, |n, at| n.wrapping_add(eeprom_word(&mut client, at)));
        assert_eq!(total, 0xbaba);
        daemon
            .wait_log("52:54:00:00:00:0b; it is used instead")
            .unwrap();
        drop(client);
        daemon.stop().unwrap();
    }
    let entries = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(entries, 1, "nothing but the image is left");
    // Without the option nothing is written.
    std::fs::remove_file(&file).unwrap();
    let mut daemon = run(&socket).start().unwrap();
    let mut client = Client::connect(&socket).unwrap();
    eeprom_command(&mut client, 0b1_0011_0000, 9);
    eeprom_command(&mut client, (0b101 << 6 | 2) << 16 | 0x0b00, 25);
    drop(client);
    daemon.stop().unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn the_printed_qemu_arguments_work_as_they_are() {
    let rig = Rig::prepare().unwrap_or_else(|why| panic!("{why}"));
    let dir = scratch().unwrap();
    // A path that a shell would take apart.
    let socket = dir.path().join("it's n0.sock");
    let mut daemon = run(&socket).start().unwrap();
    let banner: Value = serde_json::from_str(&daemon.wait_printed("serving").unwrap()).unwrap();
    let pasted = banner["serving"][0]["qemu"].as_str().unwrap().to_owned();
    let words: Vec<_> = rig
        .qemu()
        .words()
        .iter()
        .map(|w| w.to_string_lossy().into_owned())
        .collect();
    let line = format!("exec \"$@\" -nodefaults -display none -accel qtest -S {pasted}");
    let mut qemu = rig::Daemon::command("sh");
    if words.len() > 1 {
        // The rig's own QEMU does not know where its parts are.
        let parts = rig.root().dir().join("usr/lib/x86_64-linux-gnu/qemu");
        qemu.env("QEMU_MODULE_DIR", parts);
    }
    qemu.args(["-c", &line, "sh"]).args(words);
    let mut qemu = rig::Daemon::start("qemu", qemu, dir.path().join("qemu.log")).unwrap();
    daemon.wait_log("VMM connected").unwrap();
    let mapped = |c: &Counters| c.nic("n0", "set_irqs") > 0;
    daemon
        .wait_counters("QEMU has set the NIC up", mapped)
        .unwrap();
    let counters = daemon.counters().unwrap();
    assert!(
        counters.nic("n0", "dma_maps") > counters.nic("n0", "dma_maps_without_fd"),
        "{counters}"
    );
    assert!(!daemon.log().contains("not shared"), "{}", daemon.log());
    assert!(
        qemu.wait_exit(Duration::from_millis(1)).is_err(),
        "QEMU ended: {}",
        qemu.output()
    );
}

#[test]
fn an_inherited_listening_socket_serves_one_client_after_the_other() {
    let dir = scratch().unwrap();
    let socket = dir.path().join("inherited.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let launch = Launch::new()
        .unwrap()
        .args(["run", "--fd", "0", "--port", "null"]);
    let mut daemon = launch.stdin(OwnedFd::from(listener)).start().unwrap();
    for _ in 0..2 {
        let mut client = Client::connect(&socket).unwrap();
        assert!(client.info().unwrap().num_regions >= 8);
        drop(client);
        let idle = |c: &Counters| c.nic("n0", "clients") == c.nic("n0", "clients_gone");
        daemon.wait_counters("the client is gone", idle).unwrap();
    }
    assert!(daemon.stop().unwrap().success());
    assert!(socket.exists(), "who made the socket removes it");
}

#[test]
fn an_inherited_connection_is_served_to_its_end_and_then_there_is_nothing_left_to_do() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let launch = Launch::new()
        .unwrap()
        .args(["run", "--fd", "0", "--port", "null"]);
    let mut daemon = launch.stdin(theirs.into()).start().unwrap();
    let mut client = Client::open(ours.into(), ClientOptions::default()).unwrap();
    client.negotiate().unwrap();
    assert!(client.info().unwrap().num_regions >= 8);
    assert!(daemon.is_alive());
    drop(client);
    assert_eq!(
        daemon.wait_exit().unwrap().code(),
        Some(0),
        "{}",
        daemon.log()
    );
}

#[test]
fn something_else_than_a_socket_is_refused() {
    let file = tempfile::tempfile().unwrap();
    let launch = Launch::new()
        .unwrap()
        .args(["run", "--fd", "0", "--port", "null"]);
    let mut daemon = launch.stdin(file.into()).spawn().unwrap();
    assert_eq!(daemon.wait_exit().unwrap().code(), Some(4));
    assert!(daemon.log().contains("socket"), "{}", daemon.log());
}

#[test]
fn log_lines_that_nobody_reads_hold_up_nobody() {
    const NICS: usize = 8;
    let dir = scratch().unwrap();
    let sockets: Vec<_> = (0..NICS).map(|n| dir.path().join(n.to_string())).collect();
    // Pipes that hold one page, and whose other ends are open but not read.
    let pipes = [(); 2].map(|()| {
        let (reader, writer) = std::io::pipe().unwrap();
        rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
        (reader, writer)
    });
    let mut command = Command::new(binary().unwrap());
    command.args(["run", "--port", "null"]);
    for socket in &sockets {
        command.arg("--socket-path").arg(socket);
    }
    let [(_printed, stdout), (_logged, stderr)] = pipes;
    let mut child = command.stdout(stdout).stderr(stderr).spawn().unwrap();
    let deadline = Instant::now() + LONG;
    while Client::connect(&sockets[NICS - 1]).is_err() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    // Some 160 lines of a hundred bytes each.
    for socket in sockets.iter().cycle().take(10 * NICS) {
        Client::connect(socket).unwrap().info().unwrap();
    }
    let id = rustix::process::Pid::from_child(&child);
    for signal in [Signal::USR1, Signal::TERM] {
        rustix::process::kill_process(id, signal).unwrap();
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn nobody_reading_what_it_prints_does_not_end_it() {
    let dir = scratch().unwrap();
    let socket = dir.path().join("n0.sock");
    // As in `hypernic run … | head -1`.
    let mut child = Command::new(binary().unwrap())
        .args(["run", "--port", "null", "--socket-path"])
        .arg(&socket)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    // The daemon binds the socket before it listens, so that the file exists does not mean that it answers.
    let deadline = Instant::now() + LONG;
    while Client::connect(&socket).is_err() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, Signal::USR1).unwrap();
    for _ in 0..3 {
        let mut client = Client::connect(&socket).unwrap();
        client.info().unwrap();
        rustix::process::kill_process(id, Signal::USR1).unwrap();
        assert!(child.try_wait().unwrap().is_none(), "it ended");
    }
    rustix::process::kill_process(id, Signal::TERM).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(0), "{status}");
}
