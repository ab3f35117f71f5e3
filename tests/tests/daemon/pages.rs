//! Every command that a page of the manual shows, run as it stands there: each block in a shell of its own, with a daemon as the
//! pages suppose it and with `/run`, `/opt`, `/var/lib` and a network of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use hypernic_tests::{binary, copy_program, scratch};

/// Commands, or words of commands, that something else stands for.
const ELSEWHERE: &[(&str, &str)] = &[
    ("make ", "CI and the README's walk"),
    ("target/release/hypernic run", "hypernic run is run here"),
    (
        "qemu-system-x86_64",
        "tests/tests/guest: the printed arguments boot guests",
    ),
    (
        "varlinkctl ",
        "tests/tests/daemon/cli_varlinkctl: Debian 13's varlinkctl asks the same",
    ),
    (
        "ssh host ",
        "hypernic capture -w - is run here; it needs another host and a screen",
    ),
    (
        "ssh -L ",
        "hypernic web --unix is run here; it needs another host and a browser",
    ),
    (
        "hypernic migrate ",
        "hypernic/tests: it moves NICs between two daemons",
    ),
    (
        "ln -s /usr/bin/hypernic",
        "hypernic/tests: tshark runs the extcap",
    ),
    ("tshark -", "hypernic/tests: tshark runs the extcap"),
    (
        "apt install make patch",
        "tests/tests/guest: the patched drivers are built and loaded",
    ),
    (
        "sudo apt install ./target/deb",
        "tests/tests/daemon/installed: the package is installed",
    ),
    (
        "sudo systemctl status",
        "tests/tests/guest: the service runs there",
    ),
    (
        "sudo sh -c",
        "tests/tests/guest: the page is asked with such a key",
    ),
    (
        "sudo systemctl enable",
        "tests/tests/guest: the page's socket is started there",
    ),
    (
        "ip tuntap add dev vm0 mode tap user hypernic",
        "docs/tap.md: the same for another user",
    ),
    (
        "echo 'include <abstractions/hypernic>'",
        "tests/tests/daemon/installed: the rule is parsed",
    ),
    (
        "skopeo copy oci:",
        "tests/tests/daemon/installed: skopeo copies it to a folder",
    ),
    ("docker run ", "pending: no container engine was tried"),
    (
        "rmmod e1000",
        "tests/tests/guest: the patched drivers are built and loaded",
    ),
    (
        "cat /sys/module/e1000",
        "tests/tests/guest: the patched drivers are built and loaded",
    ),
];

/// Commands that go on until they are interrupted, by how they begin.
const GO_ON: &[&str] = &[
    "hypernic top -b -o json -d 5",
    "hypernic exporter",
    "hypernic web",
    "hypernic capture web",
    "hypernic capture lan/user",
    "hypernic monitor",
];

/// What the pages suppose.
const HOST: &str = r#"
control = "/run/hypernic/control.sock"
[[switch]]
name = "lan"
ports = ["user"]
[[nic]]
name = "web"
socket-path = "/run/hypernic/web.sock"
port = "switch:lan"
[[nic]]
name = "p0"
model = "82576"
vfs = 7
vf-socket-path = "/run/hypernic/p0-vf{}.sock"
port = "switch:lan"
"#;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The pages of the book that tell how it is used.
fn pages() -> Vec<String> {
    let summary = std::fs::read_to_string(root().join("SUMMARY.md")).unwrap();
    let (used, _) = summary.split_once("# Inside").unwrap();
    let links = used.split("](").skip(1);
    let mut pages: Vec<_> = links
        .map(|rest| rest.split(')').next().unwrap().to_owned())
        .collect();
    pages.push("guest/linux/README.md".into());
    pages
}

/// The blocks of a page in this language, each with the line it begins at.
fn blocks(page: &str, language: &str) -> Vec<(usize, String)> {
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    let (mut found, mut open): (Vec<(usize, String)>, Option<bool>) = (Vec::new(), None);
    for (number, line) in text.lines().enumerate() {
        if let Some(of) = line.strip_prefix("```") {
            open = match open {
                Some(_) => None,
                None => Some(of == language),
            };
            if open == Some(true) {
                found.push((number + 1, String::new()));
            }
        } else if open == Some(true) {
            let block = &mut found.last_mut().unwrap().1;
            *block += line;
            block.push('\n');
        }
    }
    found
}

/// The commands of a block: a line each, or several that belong together.
fn commands(block: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in block.lines() {
        // A comment of the shell.
        let line = line.split(" # ").next().unwrap().trim_end();
        let line = match line.strip_prefix("$ ") {
            Some(line) => line,
            // What it printed.
            None if block.starts_with("$ ") => continue,
            None => line,
        };
        if goes_on {
            let last = all.last_mut().unwrap();
            *last += "\n";
            *last += line;
        } else if !line.is_empty() && !line.starts_with('#') {
            all.push(line.to_owned());
        }
        goes_on = line.ends_with('\\') || line.ends_with("&&") || line.ends_with('|');
    }
    all
}

/// A command as the script runs it; nothing, if something else stands for it.
fn as_run(command: &str) -> Option<String> {
    if ELSEWHERE.iter().any(|(word, _)| command.starts_with(word)) {
        return None;
    }
    let quoted = command.trim_end_matches(" &").replace('\'', "'\\''");
    Some(
        if command.starts_with("hypernic run") || command.starts_with("hypernic serve") {
            let sockets = command.split("--socket-path ").skip(1);
            let sockets: Vec<_> = sockets
                .map(|rest| rest.split_whitespace().next().unwrap())
                .collect();
            format!("behind '{quoted}' {}", sockets.join(" "))
        } else if command == "hypernic top" {
            format!("on_a_terminal '{quoted}'")
        } else if GO_ON.iter().any(|begin| command.starts_with(begin)) {
            format!("for_a_while '{quoted}'")
        } else {
            command.to_owned()
        },
    )
}

/// What stands before each block.
const BEGIN: &str = r#"
set -eu -o pipefail
ip link set lo up
mount -t tmpfs none /run
mount -t tmpfs none /opt
mount -t tmpfs none /var/lib
mkdir /run/hypernic /opt/new /var/lib/node_exporter
cp "$BIN/hypernic" /opt/new/hypernic
sudo() { "$@"; }
# What the unit does: see dist/.
systemctl() { test "$*" = "reload hypernic"; kill -HUP "$daemon"; }
until_there() {
    for _ in $(seq 600); do test -S "$1" && return; sleep 0.05; done
    echo "there is no $1 after 30 seconds"; return 1
}
behind() {
    local words=$1; shift
    # One after the other, as in a terminal.
    if test -n "${last:-}"; then kill "$last"; wait "$last" || :; fi
    bash -c "exec $words" & last=$!
    for socket; do until_there "$socket"; done
    kill -0 "$last"
}
# Until q is pressed.
on_a_terminal() { (sleep 1; printf q) | TERM=xterm script -qec "$1" /dev/null >/dev/null; }
for_a_while() {
    local rc=0
    timeout -k 10 -s INT 2 bash -c "$1" || rc=$?
    test $rc = 0 || test $rc = 124 || test $rc = 130
}
"#;

/// A daemon as the pages suppose it.
const DAEMON: &str = r#"
ip tuntap add dev vm0 mode tap
hypernic serve host.toml & daemon=$!
until_there /run/hypernic/control.sock
until hypernic list >/dev/null 2>&1; do sleep 0.05; done
"#;

fn run(page: &str, line: usize, block: &str) -> Result<usize, String> {
    let mut commands = commands(block);
    if page == "docs/pkt-gen.md" && !block.contains("hypernic run") {
        commands.insert(
            0,
            "hypernic run --socket-path a --socket-path b --port switch:lan".into(),
        );
    }
    let chosen: Vec<_> = commands
        .iter()
        .filter_map(|command| Some((command.clone(), as_run(command)?)))
        .collect();
    if chosen.is_empty() {
        return Ok(0);
    }
    let dir = scratch().unwrap();
    std::fs::write(dir.path().join("host.toml"), HOST).unwrap();
    let binary = binary().unwrap();
    let bin = dir.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    for name in ["hypernic", "hypernic-pkt-gen"] {
        copy_program(&binary.with_file_name(name), &bin.join(name)).unwrap();
    }
    std::fs::write(dir.path().join("arp.pcap"), arp_pcap()).unwrap();
    let mut script = String::from(BEGIN);
    let serves = |command: &str| {
        command.starts_with("hypernic serve") || command.starts_with("hypernic run")
    };
    let makes_tap = block.contains("ip tuntap");
    if !chosen.iter().any(|(command, _)| serves(command)) && !makes_tap {
        script += DAEMON;
    }
    if block.contains("br0") {
        script += "ip link add br0 type bridge\n";
    }
    for (command, as_run) in &chosen {
        script += &format!("echo '+ {}'\n{as_run}\n", command.replace('\'', "'\\''"));
    }
    script += "echo all done\n";
    let path = format!(
        "{}:{}",
        bin.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let mut unshare = Command::new("timeout");
    unshare.args(["-k", "5", "180", "unshare"]);
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    let output = unshare
        .args([
            "--mount",
            "--net",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
            "bash",
            "-c",
        ])
        .arg(&script)
        .current_dir(dir.path())
        .env("PATH", path)
        .env("BIN", &bin)
        .env("USER", "root")
        .output()
        .map_err(|error| format!("unshare: {error}"))?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if output.status.success() && said.contains("all done\n") {
        Ok(chosen.len())
    } else {
        let lines: Vec<_> = said.lines().collect();
        let end = lines[lines.len().saturating_sub(20)..].join("\n");
        Err(format!("{page}:{line}: {}\n{end}", output.status))
    }
}

/// A file with one ARP request.
fn arp_pcap() -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 1, 0, 0, 60, 60] {
        file.extend(word.to_le_bytes());
    }
    file.extend([0xff; 6]);
    file.extend([0x52, 0x54, 0, 0, 0, 1, 0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1]);
    file.resize(40 + 60, 0);
    file
}

#[test]
fn every_command_of_the_manual_does_what_the_page_says() {
    let all: Vec<_> = pages()
        .into_iter()
        .flat_map(|page| {
            let (mut all, shown) = (blocks(&page, "sh"), blocks(&page, ""));
            all.extend(
                shown
                    .into_iter()
                    .filter(|(_, block)| block.starts_with("$ ")),
            );
            all.into_iter()
                .map(move |(line, block)| (page.clone(), line, block))
        })
        .collect();
    assert!(all.len() > 25, "only {} blocks were found", all.len());
    let next = std::sync::atomic::AtomicUsize::new(0);
    let (ran, wrong) = (
        std::sync::atomic::AtomicUsize::new(0),
        std::sync::Mutex::new(Vec::new()),
    );
    // They wait more than they work.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((page, line, block)) =
                    all.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                {
                    match run(page, *line, block) {
                        Ok(n) => _ = ran.fetch_add(n, std::sync::atomic::Ordering::Relaxed),
                        Err(error) => wrong.lock().unwrap().push(error),
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    let ran = ran.into_inner();
    assert!(ran > 50, "only {ran} commands were run");
}

/// Each block is a whole file, as `hypernic serve --check` takes it, or a part of one.
#[test]
fn every_file_of_the_manual_is_one_that_can_be_served() {
    let binary = binary().unwrap();
    let mut checked = 0;
    for page in pages() {
        for (line, block) in blocks(&page, "toml") {
            let dir = scratch().unwrap();
            let file = dir.path().join("host.toml");
            // A file has something to serve.
            let more = if block.contains("[[nic]]") || block.contains("control =") {
                ""
            } else {
                "[[nic]]\nname = \"more\"\nsocket-path = \"/run/more.sock\"\nport = \"null\"\n"
            };
            // Users and groups that every host has.
            let block = block
                .replace("prometheus", "nobody")
                .replace("\"alice\"]", "\"daemon\"]");
            let block = block.replace("@hypernic", "@daemon");
            std::fs::write(&file, format!("{block}{more}")).unwrap();
            let output = Command::new(&binary)
                .args(["serve", "--check"])
                .arg(&file)
                .output();
            let output = output.unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{page}:{line}: {said}");
            checked += 1;
        }
    }
    assert!(checked >= 10, "only {checked} files were checked");
}

#[test]
fn a_block_is_cut_into_commands() {
    let block = "a b   # what it does\n# only a comment\nc \\\n  d &&\n  e\nf '#'\n";
    assert_eq!(commands(block), ["a b", "c \\\n  d &&\n  e", "f '#'"]);
    assert_eq!(commands("$ a &\nb\n$ c\n"), ["a &", "c"]);
    assert_eq!(as_run("make demo"), None);
    assert_eq!(
        as_run("hypernic run --socket-path ./a --port user").unwrap(),
        "behind 'hypernic run --socket-path ./a --port user' ./a"
    );
}
