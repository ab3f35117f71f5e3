//! What `make demo` does, as a test: two guests on one hypernic.
#![forbid(unsafe_code)]

use std::process::Command;

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
