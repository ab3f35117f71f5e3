//! The Debian package: clean, works where nothing else is, and leaves nothing.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use drivers::SocketBus;
use drivers::e1000::{Config, Driver, TxOpts};
use hypernic_tests::installed::{DebianRoot, package, repository, run};

/// What the package needs, but for what every Debian has.
const NEEDS: [&str; 2] = ["libslirp0", "systemd-standalone-sysusers"];

/// All files, users and groups of a root, but for what the package manager, the log and the tools for users keep.
const LISTED: &str = "find / -xdev \\( -path /proc -o -path /dev -o -path /run -o -path /var/lib/dpkg -o -path /var/log \
    -o -path /var/cache -o -path /tmp -o -path '/etc/*shadow-' \\) -prune -o -printf '%p %y\\n'; cut -d: -f1 /etc/passwd | sed 's/^/user /'; \
    cut -d: -f1 /etc/group | sed 's/^/group /'";

fn listed(root: &DebianRoot) -> BTreeSet<String> {
    let said = root.sh(LISTED).unwrap();
    said.lines().map(str::to_owned).collect()
}

/// The first command of the README, and a driver that asks its network who the gateway is. Returns how long it took until the socket
/// was there, and then until the answer was.
fn first_traffic(root: &DebianRoot) -> [Duration; 2] {
    let begin = Instant::now();
    let run = "cd /root; exec timeout -k 20 60 hypernic run --model e1000 --socket-path ./n1.sock --port user";
    let mut command = root.command(run);
    let mut daemon = command.stdout(Stdio::null()).spawn().unwrap();
    let socket = root.path().join("root/n1.sock");
    let bus = loop {
        match SocketBus::connect(&socket) {
            Ok(bus) => break bus,
            Err(error) if begin.elapsed() > Duration::from_secs(60) => panic!("{error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let there = begin.elapsed();
    let mut nic = Driver::new(bus, Config::poll()).unwrap();
    let own = nic.mac();
    let (guest, gateway) = ([10, 0, 2, 15], [10, 0, 2, 2]);
    let head: [&[u8]; 4] = [&[0xff; 6], &own, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &own];
    let head = head.concat();
    let parts: [&[u8]; 4] = [&head, &guest, &[0; 6], &gateway];
    let mut ask = parts.concat();
    ask.resize(60, 0);
    nic.send(&[&ask[..]], &TxOpts::default()).unwrap();
    let mut answered = false;
    while !answered {
        assert!(begin.elapsed() < Duration::from_secs(60), "no answer");
        let is_answer = |frame: &[u8]| frame[12..14] == [8, 6] && frame[28..32] == gateway;
        nic.poll_rx(64, |frame| answered |= is_answer(&frame.to_vec()))
            .unwrap();
    }
    let traffic = begin.elapsed() - there;
    drop(nic);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    root.sh("rm -f /root/n1.sock").unwrap();
    [there, traffic]
}

#[test]
#[ignore = "needs root, mmdebstrap and a package: `make test-long`"]
fn long_the_package_installs_works_and_leaves_nothing() {
    let package = package().unwrap();
    let root = DebianRoot::new(&NEEDS).unwrap();
    let before = listed(&root);
    let begin = Instant::now();
    root.install(&package).unwrap();
    let took = begin.elapsed();
    let installed = listed(&root);
    for path in [
        "/usr/bin/hypernic f",
        "/usr/bin/hypernic-pkt-gen f",
        "/etc/hypernic/host.toml f",
        "/usr/share/man/man1/hypernic.1.gz f",
        "/usr/share/man/man1/hypernic-nic-add.1.gz f",
        "/usr/share/man/man5/hypernic.toml.5.gz f",
        "/usr/libexec/hypernic-vhost-user-net l",
        "user hypernic",
        "group kvm",
    ] {
        assert!(installed.contains(path), "{path}");
    }
    for unit in [
        "hypernic.socket",
        "hypernic.service",
        "hypernic@.service",
        "hypernic-exporter.service",
        "hypernic-web.service",
        "hypernic-web.socket",
    ] {
        assert!(
            installed
                .iter()
                .any(|line| line.contains(&format!("/systemd/system/{unit} f"))),
            "{unit}"
        );
    }
    // The first command of the README.
    let said = root
        .sh("cd /root; timeout --preserve-status -k 20 -s TERM 3 hypernic run --model e1000 --socket-path ./n0.sock --port user & \
             until [ -S n0.sock ]; do sleep 0.1; done; stat -c %F n0.sock; code=0; wait $! || code=$?; echo code $code")
        .unwrap();
    assert!(
        said.contains("socket\n") && said.contains("code 0\n"),
        "{said}"
    );
    assert!(
        said.contains("\"driver\":\"vfio-user-pci\"") && said.contains("/root/n0.sock"),
        "{said}"
    );
    let [socket, answer] = first_traffic(&root);
    println!(
        "first traffic: {took:.1?} for dpkg, {socket:.2?} for the command until its socket was there, {answer:.2?} for a driver \
         until the network answered"
    );
    // What the service would serve.
    root.sh("hypernic serve --check /etc/hypernic/host.toml")
        .unwrap();
    let completions = root
        .sh("source /usr/share/bash-completion/completions/hypernic; complete -p hypernic")
        .unwrap();
    assert!(completions.contains("hypernic"), "{completions}");
    root.sh("hypernic-vhost-user-net --print-capabilities || /usr/libexec/hypernic-vhost-user-net --print-capabilities")
        .unwrap();
    // It is upgraded to itself, removed, and installed again.
    root.install(&package).unwrap();
    root.sh("dpkg --remove hypernic && [ -e /etc/hypernic/host.toml ]")
        .unwrap();
    root.install(&package).unwrap();
    root.sh("dpkg --purge hypernic").unwrap();
    let mut left: BTreeSet<_> = listed(&root).difference(&before).cloned().collect();
    // Others may use that group by now.
    left.remove("group kvm");
    assert!(left.is_empty(), "{left:?}");
    assert!(before.is_subset(&listed(&root)));
}

#[test]
#[ignore = "needs lintian and a package: `make test-long`"]
fn long_lintian_has_no_complaint() {
    let mut lintian = Command::new("lintian");
    lintian.args([
        "--allow-root",
        "--fail-on",
        "error,warning",
        "--tag-display-limit",
        "0",
    ]);
    let said = run(lintian.arg(package().unwrap())).unwrap();
    let complaints = said.lines().filter(|line| line.starts_with(['E', 'W']));
    assert_eq!(complaints.count(), 0, "{said}");
}

#[test]
#[ignore = "needs apparmor: `make test-long`"]
fn long_the_apparmor_rule_parses() {
    let dir = tempfile::tempdir().unwrap();
    let profile = dir.path().join("profile");
    let text = "include <tunables/global>\nprofile vm {\n  include <abstractions/hypernic>\n}\n";
    std::fs::write(&profile, text).unwrap();
    let parse = || {
        let mut parser = Command::new("apparmor_parser");
        parser.args([
            "--skip-kernel-load",
            "--skip-cache",
            "--base",
            "/etc/apparmor.d",
            "--Include",
        ]);
        run(parser.arg(repository("dist/apparmor")).arg(&profile))
    };
    parse().unwrap();
    std::fs::write(&profile, text.replace("hypernic>", "hypernic-not-there>")).unwrap();
    parse().expect_err("a test that could not fail would say nothing");
}
