//! What `make demo` does, as a test: two guests on one hypernic.

use std::io::Read;
use std::process::{Command, Stdio};

use hypernic_tests::{Lab, binary};

#[test]
fn the_demo_passes_and_its_capture_is_whole() {
    let lab = Lab::open(2).unwrap_or_else(|why| panic!("{why}"));
    let output = lab.path("demo");
    let mut demo = Command::new(env!("CARGO_BIN_EXE_demo"));
    demo.arg("--hypernic")
        .arg(binary().unwrap())
        .arg("--output")
        .arg(&output);
    let run = demo.output().unwrap();
    let text = String::from_utf8_lossy(&run.stdout);
    println!("{text}");
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{}\n{text}\n{errors}", run.status);
    let capture = output.join("a.pcapng");
    let named = text
        .lines()
        .find(|line| line.starts_with("capture of a's frames"))
        .unwrap();
    assert!(named.contains(capture.to_str().unwrap()), "{named}");

    // Wireshark's own reader finds a DHCP acknowledgement, pings both ways, and nothing cut off.
    let count = |filter: &str| {
        let mut tshark = Command::new("tshark");
        tshark
            .arg("-r")
            .arg(&capture)
            .args(["-c", "4000", "-Y", filter]);
        let out = tshark
            .output()
            .expect("tshark (scripts/setup test installs it)");
        let errors = String::from_utf8_lossy(&out.stderr);
        assert!(
            out.status.success() && !errors.contains("cut short"),
            "{errors}"
        );
        String::from_utf8_lossy(&out.stdout).lines().count()
    };
    assert!(
        count("dhcp.option.dhcp == 5") >= 1,
        "no DHCP acknowledgement in the capture"
    );
    assert!(
        count("icmp.type == 8") >= 100,
        "not all pings are in the capture"
    );
    assert!(
        count("icmp.type == 0") >= 100,
        "not all answers are in the capture"
    );
    let info = Command::new("capinfos").arg(&capture).output();
    if let Ok(info) = info {
        let text = String::from_utf8_lossy(&info.stdout).into_owned();
        assert!(
            info.status.success(),
            "{text}{}",
            String::from_utf8_lossy(&info.stderr)
        );
    }
}

#[test]
fn ctrl_c_ends_the_demo_and_leaves_nothing() {
    let lab = Lab::open(2).unwrap_or_else(|why| panic!("{why}"));
    let temporary = lab.path("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_demo"));
    demo.arg("--hypernic")
        .arg(binary().unwrap())
        .arg("--output")
        .arg(lab.path("demo"));
    let mut demo = demo
        .env("TMPDIR", &temporary)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut text = String::new();
    let mut out = demo.stdout.take().unwrap();
    let mut chunk = [0; 256];
    while !text.contains("guests boot") {
        let read = out.read(&mut chunk).unwrap();
        assert!(read > 0, "it ended by itself:\n{text}");
        text.push_str(&String::from_utf8_lossy(&chunk[..read]));
    }
    let id = rustix::process::Pid::from_child(&demo);
    let started = children(demo.id());
    assert!(!started.is_empty(), "the daemon runs");
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    assert_eq!(demo.wait().unwrap().code(), Some(130));
    out.read_to_string(&mut text).unwrap();
    assert!(text.contains("stopped; everything is cleaned up"), "{text}");
    let left: Vec<_> = std::fs::read_dir(&temporary)
        .unwrap()
        .flatten()
        .map(|e| e.path())
        .collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    for process in started {
        let state = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        assert!(
            state.is_empty() || state.contains(") Z "),
            "left running: {state}"
        );
    }
}

/// The processes that any thread of a process has started.
fn children(process: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task"))
        .unwrap()
        .flatten();
    let lists =
        tasks.map(|t| std::fs::read_to_string(t.path().join("children")).unwrap_or_default());
    lists
        .flat_map(|l| l.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

#[test]
fn a_demo_that_cannot_start_says_why_and_fails() {
    let dir = tempfile::tempdir().unwrap();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_demo"));
    let run = demo
        .args(["--hypernic", "/nonexistent/hypernic"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(
        errors.contains("no hypernic at /nonexistent/hypernic"),
        "{errors}"
    );
}
