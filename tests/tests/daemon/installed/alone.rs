//! Programs that need nothing else: static ones, and the image that has nothing but them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use drivers::SocketBus;
use drivers::e1000::{Config, Driver, TxOpts};
use hypernic_tests::binary;
use hypernic_tests::installed::{apart, run};

/// Below the folder that cargo builds in.
fn built(path: &str) -> PathBuf {
    let binary = binary().unwrap();
    binary.ancestors().nth(2).unwrap().join(path)
}

/// Runs the program of a root in that root, with /proc.
fn within(root: &Path, words: &str) -> String {
    let outer = "mkdir -p \"$0/proc\" && mount -t proc p \"$0/proc\" && \
                 exec timeout -k 20 -s TERM 3 chroot \"$0\" /usr/bin/hypernic \"$@\"";
    let output = apart(outer)
        .arg(root)
        .args(words.split(' '))
        .output()
        .unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
#[ignore = "needs root, skopeo and an image: `make test-long`"]
fn long_the_image_is_whole_and_serves_where_nothing_else_is() {
    let image = format!("oci:{}", built("oci").display());
    let said = run(Command::new("skopeo").args(["inspect", &image])).unwrap();
    assert!(
        said.contains("\"org.opencontainers.image.title\": \"hypernic\""),
        "{said}"
    );
    // It checks every digest on the way.
    let dir = tempfile::tempdir().unwrap();
    let copy = format!("dir:{}", dir.path().join("copy").display());
    run(Command::new("skopeo").args(["--insecure-policy", "copy", &image, &copy])).unwrap();
    let root = dir.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let mut layers = Command::new("sh");
    let unpack = "for f in \"$0\"/*; do gzip -t \"$f\" 2>/dev/null && tar -xzf \"$f\" -C \"$1\"; done; [ -x \"$1/usr/bin/hypernic\" ]";
    run(layers
        .args(["-c", unpack])
        .arg(dir.path().join("copy"))
        .arg(&root))
    .unwrap();
    let program = root.join("usr/bin/hypernic");
    let kind = run(Command::new("readelf").args(["-l", "-d"]).arg(&program)).unwrap();
    assert!(
        !kind.contains("INTERP") && !kind.contains("NEEDED"),
        "{kind}"
    );
    assert!(within(&root, "--version").starts_with("hypernic "));
    let said = within(&root, "serve --sandbox strict /etc/hypernic/host.toml");
    assert!(
        said.contains("serving") && said.contains("signal 15: closing"),
        "{said}"
    );
    let said = within(
        &root,
        "run --sandbox strict --socket-path /run/hypernic/a --port null",
    );
    assert!(
        said.contains("serving") && said.contains("vfio-user-pci"),
        "{said}"
    );
    let said = within(&root, "run --socket-path /run/hypernic/a --port user");
    assert!(said.contains("has no user network"), "{said}");
}

/// Two NICs of a daemon in a container exchange frames, whose guests are outside. All that podman keeps is in a folder, and the
/// hierarchy of cgroups is one that its crun knows (Debian 12's refuses a hybrid one), in mounts that go with the test.
#[test]
#[ignore = "needs root, podman and an image: `make test-long`"]
fn long_the_image_serves_in_podman() {
    let dir = tempfile::tempdir().unwrap();
    let sockets = dir.path().join("s");
    std::fs::create_dir(&sockets).unwrap();
    let nic = |name: &str| {
        format!(
            "[[nic]]\nname = \"{name}\"\nsocket-path = \"/run/hypernic/{name}\"\nport = \"switch:lan\"\n"
        )
    };
    let head = "control = \"/run/hypernic/control.sock\"\n[[switch]]\nname = \"lan\"\nports = [\"null\"]\n";
    let host = [head, &nic("a"), &nic("b")].concat();
    std::fs::write(dir.path().join("host.toml"), host).unwrap();
    let script = "umount -R -l /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; cd \"$0\"; \
                  exec podman --root \"$0/root\" --runroot \"$0/run\" --storage-driver vfs --cgroup-manager cgroupfs --events-backend file \
                  run --rm --network none --cgroups disabled --ulimit nofile=4096:4096 --ulimit nproc=1000:1000 \
                  -v \"$0/s:/run/hypernic\" -v \"$0/host.toml:/etc/hypernic/host.toml:ro\" \"oci:$1\" serve --sandbox strict /etc/hypernic/host.toml";
    let mut podman = Command::new("unshare");
    podman.args(["--mount", "--propagation", "private", "sh", "-c", script]);
    podman.arg(dir.path()).arg(built("oci"));
    podman.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut podman = podman.spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while !sockets.join("b").exists() {
        let ended = podman.try_wait().unwrap();
        if ended.is_some() || Instant::now() > end {
            let _ = podman.kill();
            let output = podman.wait_with_output().unwrap();
            panic!("{}", String::from_utf8_lossy(&output.stderr));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let connect = |name: &str| {
        let bus = SocketBus::connect(sockets.join(name)).unwrap();
        Driver::new(bus, Config::poll()).unwrap()
    };
    let (mut a, mut b) = (connect("a"), connect("b"));
    let mut frame = [&b.mac()[..], &a.mac(), &[0x88, 0xb5]].concat();
    frame.resize(60, 7);
    a.send(&[&frame], &TxOpts::default()).unwrap();
    let mut got = Vec::new();
    while got.is_empty() {
        assert!(Instant::now() < end, "no frame");
        b.poll_rx(64, |frame| got.push(frame.to_vec())).unwrap();
    }
    assert_eq!(got, [frame]);
    // It passes the signal on, and has the exit code of what it ran.
    let pid = rustix::process::Pid::from_child(&podman);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let output = podman.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{said}");
    for words in [
        "sandbox strict: landlock v",
        "seccomp on",
        "signal 15: closing",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}
