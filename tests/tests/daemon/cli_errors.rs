//! What goes wrong when hypernic starts: every mistake names its cause and the next step, on one line, with the
//! documented exit code, and leaves nothing behind.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use guest_mem::Prot;
use hypernic_tests::{Daemon, Launch, binary, copy_program, scratch};
use rig::{Boot, GuestConfig, Rig};
use vfio_user::Client;

/// Runs hypernic to its end; returns its exit code and what it said on standard error.
fn fails(args: &[&str]) -> (i32, String) {
    let mut daemon = Launch::new().unwrap().args(args).spawn().unwrap();
    let status = daemon.wait_exit().unwrap();
    (status.code().expect("an exit code"), daemon.log())
}

/// Runs hypernic, which must fail with this code and one log line that contains all of the words.
fn refuses(args: &[&str], code: i32, words: &[&str]) {
    let (got, log) = fails(args);
    println!("{args:?} -> {got}: {log}");
    assert_eq!(got, code, "{args:?}: {log}");
    for word in words {
        assert!(log.contains(word), "{args:?}: `{word}` is not in: {log}");
    }
    // clap explains itself in several lines; what comes from us is one.
    if code != 2 {
        assert_eq!(log.lines().count(), 1, "{log}");
    }
}

#[test]
fn the_command_line() {
    refuses(&[], 2, &["Usage"]);
    refuses(&["run", "--port", "user"], 2, &["--socket-path"]);
    refuses(&["run", "--socket-path", "x.sock"], 2, &["--port"]);
    let with = |option: &'static str, value: &'static str, words: &[&str]| {
        refuses(
            &[
                "run",
                "--socket-path",
                "x.sock",
                "--port",
                "user",
                option,
                value,
            ],
            2,
            words,
        );
    };
    with(
        "--model",
        "ne2000",
        &["unknown model", "ne2000", "e1000 (Intel 82540EM)"],
    );
    with("--mac", "52:54:00", &["bad MAC", "52:54:00:12:34:56"]);
    with(
        "--mac",
        "01:00:5e:00:00:01",
        &["group address", "first byte must be even"],
    );
    with("--port", "bridge:br0", &["no port \"bridge\"", "tap:NAME"]);
    with("--socket-path", "x.sock", &["same socket", "its own"]);
    with("--log-format", "xml", &["human", "json"]);
    assert!(!Path::new("x.sock").exists());
}

#[test]
fn the_file_of_an_eeprom() {
    let dir = scratch().unwrap();
    let socket = dir.path().join("a.sock").display().to_string();
    let file = dir.path().join("a.nvm");
    let shown = file.display().to_string();
    let run = |file: &str, words: &[&str]| {
        let args = [
            "run",
            "--socket-path",
            &socket,
            "--port",
            "null",
            "--eeprom",
        ];
        let args: Vec<_> = args.into_iter().chain([file]).collect();
        refuses(&args, 4, words);
    };
    std::fs::write(&file, [0; 127]).unwrap();
    run(
        &shown,
        &[
            "a.nvm has 127 bytes, this chip's EEPROM has 128",
            "remove the file",
        ],
    );
    std::fs::remove_file(&file).unwrap();
    let nowhere = dir.path().join("none/a.nvm").display().to_string();
    run(&nowhere, &["cannot write the EEPROM file", "none/a.nvm"]);
    run(
        &dir.path().display().to_string(),
        &["cannot read the EEPROM file"],
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn the_configuration_file_by_line_and_column() {
    let dir = scratch().unwrap();
    let file = dir.path().join("host.toml");
    let socket = dir.path().join("a.sock");
    let good = format!("[[nic]]\nname = \"a\"\nsocket-path = {socket:?}\nport = \"null\"\n");
    let place = |at: &str| format!("{}:{at}: ", file.display());
    for (old, new, at, words) in [
        (
            "\"null\"",
            "\"nul\"",
            "4:8",
            ["no port \\\"nul\\\"", "tap:NAME"],
        ),
        (
            "name = \"a\"",
            "name = \"a\"\nmodel = \"ne2000\"",
            "3:9",
            ["unknown model", "82540EM"],
        ),
        (
            "name = \"a\"",
            "name = \"a\"\nmac = \"52:54\"",
            "3:7",
            ["bad MAC", "six bytes"],
        ),
        (
            "socket-path",
            "socket",
            "3:1",
            ["unknown field", "socket-path"],
        ),
        (
            "\"null\"",
            "\"switch:lan\"",
            "4:8",
            ["no switch", "add a [[switch]]"],
        ),
        ("[[nic]]", "[[nic]", "1:7", ["", ""]),
    ] {
        std::fs::write(&file, good.replacen(old, new, 1)).unwrap();
        let words = [place(at).as_str(), words[0], words[1]].map(str::to_owned);
        let words = words.each_ref().map(String::as_str);
        refuses(&["serve", file.to_str().unwrap()], 3, &words);
        refuses(&["serve", "--check", file.to_str().unwrap()], 3, &words);
    }
    let missing = dir.path().join("none.toml");
    refuses(
        &["serve", missing.to_str().unwrap()],
        3,
        &["cannot read", "none.toml", "No such file"],
    );
    std::fs::write(&file, &good).unwrap();
    let (code, log) = fails(&["serve", "--check", file.to_str().unwrap()]);
    assert_eq!((code, log.as_str()), (0, ""));
    assert!(!socket.exists(), "checking makes nothing");
}

#[test]
fn the_socket_path() {
    let dir = scratch().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let run = |socket: &str, code: i32, words: &[&str]| {
        refuses(
            &["run", "--socket-path", socket, "--port", "null"],
            code,
            words,
        );
    };
    let socket = path("n0.sock");
    let mut first = Launch::new()
        .unwrap()
        .args(["run", "--socket-path", &socket, "--port", "null"])
        .start()
        .unwrap();
    run(
        &socket,
        4,
        &[&socket, "in use by another process", "choose another path"],
    );
    assert!(
        Client::connect(&socket).is_ok(),
        "the first is not disturbed"
    );
    assert!(first.stop().unwrap().success());

    let file = path("file");
    std::fs::write(&file, "precious").unwrap();
    run(&file, 4, &[&file, "not a socket", "choose another path"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
    run(
        &path(&"x".repeat(110)),
        4,
        &["at most 107 bytes", "shorter"],
    );
    // One that is short enough from here, but not for a VMM that starts elsewhere.
    let deep = dir.path().join("x".repeat(90));
    std::fs::create_dir(&deep).unwrap();
    let mut far = Launch::under(&["env", "-C", deep.to_str().unwrap()])
        .unwrap()
        .args(["run", "--socket-path", "n0.sock", "--port", "null"])
        .spawn()
        .unwrap();
    assert_eq!(far.wait_exit().unwrap().code(), Some(4));
    assert!(far.log().contains("at most 107 bytes"), "{}", far.log());
    run(
        &path("no/such/folder.sock"),
        4,
        &["folder.sock", "cannot listen", "No such file"],
    );

    // A socket that a dead process left behind does not stop the daemon from listening there.
    drop(UnixListener::bind(&socket).unwrap());
    assert!(Path::new(&socket).exists());
    Launch::new()
        .unwrap()
        .args(["run", "--socket-path", &socket, "--port", "null"])
        .start()
        .unwrap();
}

#[test]
fn a_tap_without_permission() {
    let dir = scratch().unwrap();
    let socket = dir.path().join("n0.sock").display().to_string();
    let args = [
        "--log-format",
        "json",
        "run",
        "--socket-path",
        &socket,
        "--port",
        "tap:nobodys",
    ];
    let mut command = if rustix::process::geteuid().is_root() {
        // As an unprivileged user, who must be able to reach the program and the folder.
        use std::os::unix::fs::PermissionsExt;
        let copy = dir.path().join("hypernic");
        copy_program(&binary().unwrap(), &copy).unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
            .arg(copy);
        command
    } else {
        Command::new(binary().unwrap())
    };
    let out = command.args(args).output().unwrap();
    let log = String::from_utf8_lossy(&out.stderr);
    println!("{log}");
    assert_eq!(out.status.code(), Some(4), "{log}");
    assert!(log.contains("n0") && log.contains("tap:nobodys"), "{log}");
    let node = log.contains("/dev/net/tun") && (log.contains("chmod") || log.contains("modprobe"));
    let interface = log.contains("ip tuntap add") || log.contains("CAP_NET_ADMIN");
    assert!(node || interface, "{log}");
    assert!(!Path::new(&socket).exists(), "the socket is left behind");
}

#[test]
fn ports_and_files_that_cannot_be_had() {
    let dir = scratch().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let socket = path("n0.sock");
    let run = |port: &str, more: &[&str], words: &[&str]| {
        let mut args = vec!["run", "--socket-path", &socket, "--port", port];
        args.extend(more);
        refuses(&args, 4, words);
        assert!(
            !Path::new(&socket).exists(),
            "{port}: the socket is left behind"
        );
    };
    run("tap:a-name-that-is-too-long", &[], &["15 characters"]);
    run(
        &format!("user:tftp={}", path("none")),
        &[],
        &["TFTP", "none", "No such file"],
    );
    run("user:nat=off", &[], &["no option", "known: net"]);
    run("tap:fd=77", &[], &["77", "close-on-exec"]);
    run(
        "null",
        &["--capture", &path("no/such/file.pcapng")],
        &["cannot write", "file.pcapng", "No such file"],
    );
    let (code, log) = fails(&["run", "--fd", "77", "--port", "null"]);
    assert_eq!(code, 4, "{log}");
    assert!(log.contains("77") && log.contains("close-on-exec"), "{log}");
}

#[test]
fn a_host_that_cannot_be_made_whole_is_not_made_at_all() {
    let dir = scratch().unwrap();
    let path = |name: &str| dir.path().join(name);
    let _other = UnixListener::bind(path("b.sock")).unwrap();
    let nic = |name: &str| {
        let socket = path(&format!("{name}.sock"));
        format!("[[nic]]\nname = \"{name}\"\nsocket-path = {socket:?}\nport = \"user\"\n")
    };
    let file = path("host.toml");
    std::fs::write(&file, nic("a") + &nic("b")).unwrap();
    refuses(
        &["serve", file.to_str().unwrap()],
        4,
        &["NIC \\\"b\\\"", "b.sock", "in use"],
    );
    assert!(
        !path("a.sock").exists(),
        "the first NIC's socket is left behind"
    );
    assert!(
        path("b.sock").exists(),
        "another process's socket was removed"
    );
}

fn run_null(socket: &Path) -> Daemon {
    Launch::new()
        .unwrap()
        .arg("run")
        .arg("--socket-path")
        .arg(socket)
        .args(["--port", "null"])
        .start()
        .unwrap()
}

#[test]
fn guest_ram_that_is_not_shared_is_named_with_its_cure() {
    let dir = scratch().unwrap();
    let socket = dir.path().join("n0.sock");
    let mut daemon = run_null(&socket);
    let both = Prot {
        read: true,
        write: true,
    };

    // A ROM without a descriptor is what every VMM has, and says nothing.
    let mut client = Client::connect(&socket).unwrap();
    client
        .dma_map_without_fd(
            0xfffc_0000,
            None,
            0x4_0000,
            Prot {
                read: true,
                write: false,
            },
        )
        .unwrap();
    assert!(!daemon.log().contains("not shared"), "{}", daemon.log());
    // RAM without one is a mistake. The VMM is not turned away for it: its guest lives, without this NIC.
    client.dma_map_without_fd(0, None, 64 << 20, both).unwrap();
    let line = daemon.wait_log("not shared").unwrap();
    println!("{line}");
    for word in [
        "ERROR",
        "64 MiB",
        "share=on",
        "memory-backend-memfd",
        "shared=on",
        "n0",
    ] {
        assert!(line.contains(word), "{word} is not in: {line}");
    }
    assert!(client.info().is_ok());
}

#[test]
fn qemu_whose_ram_is_not_shared_is_told_so() {
    let rig = Rig::prepare().unwrap_or_else(|why| panic!("{why}"));
    let dir = scratch().unwrap();
    let socket = dir.path().join("n0.sock");
    let mut daemon = run_null(&socket);
    let nic = rig::Nic::vfio_user("n0", &socket);
    // The machine's RAM as plain `-m` makes it. The last `-machine` property wins.
    let config = GuestConfig::new("unshared").boot(Boot::Qtest).nic(nic);
    let config = config.args([
        "-object",
        "memory-backend-ram,id=plain,size=256M",
        "-machine",
        "memory-backend=plain",
    ]);
    let _guest = rig.start(config).unwrap();
    let line = daemon.wait_log("not shared").unwrap();
    println!("{line}");
    assert!(
        line.contains("256 MiB") && line.contains("share=on"),
        "{line}"
    );
}

#[test]
fn the_help_documents_exit_codes_and_signals() {
    let out = Command::new(binary().unwrap())
        .arg("--help")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(out.status.success());
    for word in [
        "Exit codes: 0",
        "1 an unexpected failure",
        "2 a mistake on the command line",
        "3 a mistake in the configuration file",
        "4 the host",
        "SIGUSR1",
    ] {
        assert!(text.contains(word), "{word} is not in: {text}");
    }
}

#[test]
fn too_few_descriptors_for_the_nics_asked_for() {
    let dir = scratch().unwrap();
    let mut toml = String::from("workers = 1\n");
    for n in 0..60 {
        let socket = dir.path().join(format!("{n}.sock"));
        toml += &format!("[[nic]]\nname = \"n{n}\"\nsocket-path = {socket:?}\nport = \"null\"\n");
    }
    let file = dir.path().join("host.toml");
    std::fs::write(&file, toml).unwrap();
    // The soft limit alone is no limit: what the system grants is taken.
    let under = |limit: &str| {
        let script = format!("ulimit {limit}; exec \"$0\" \"$@\"");
        let launch = Launch::under(&["sh", "-c", &script]).unwrap();
        launch.arg("serve").arg(&file)
    };
    let mut daemon = under("-Sn 50").start().unwrap();
    assert!(daemon.stop().unwrap().success());
    let mut daemon = under("-n 50").spawn().unwrap();
    let status = daemon.wait_exit().unwrap();
    let log = daemon.log();
    assert_eq!(status.code(), Some(4), "{log}");
    for word in ["60 NICs need about 820", "limit is 50", "ulimit -Hn 820"] {
        assert!(log.contains(word), "`{word}` is not in: {log}");
    }
    assert_eq!(log.lines().count(), 1, "{log}");
}
