//! `hypernic report`: one file with what a report of a bug needs, and nothing that guests sent.

use std::os::unix::fs::PermissionsExt;

use drivers::SocketBus;
use drivers::e1000::{Config, Driver, TxOpts};

use crate::metrics::lab;

#[test]
fn a_report_has_what_is_needed_and_no_guests_data() {
    let mut lab = lab();
    let bus = SocketBus::connect(lab.dir.path().join("a.sock")).expect("connect");
    let mut driver = Driver::new(bus, Config::poll()).expect("driver");
    let secret = b"a secret of the guest";
    let mut frame = [
        &[1, 0x80, 0xc2, 0, 0, 3][..],
        &driver.mac(),
        &[0x88, 0xb5],
        secret,
    ]
    .concat();
    frame.resize(60, 0);
    driver.send(&[&frame], &TxOpts::default()).expect("send");
    lab.until("the loss", || {
        lab.ran("explain").contains("drop_reserved").then_some(())
    });
    let file = lab.dir.path().join("report.txt");
    let log = lab.dir.path().join("log");
    let words = format!("report --output {} --log {}", file.display(), log.display());
    assert!(lab.ran(&words).contains("read it before you send it"));
    let mode = std::fs::metadata(&file).expect("file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = std::fs::read_to_string(&file).expect("text");
    for wanted in [
        concat!("hypernic ", env!("CARGO_PKG_VERSION"), " report"),
        "Linux version",
        "NoNewPrivs:",
        "Max open files",
        "\"port\":\"switch:lan\"",
        "drop_reserved",
        "\"kind\":\"sandbox\"",
        "\"tx_frames\":1",
        // Of the log.
        "VMM connected",
    ] {
        assert!(text.contains(wanted), "no {wanted:?} in:\n{text}");
    }
    assert!(
        !text.contains("a secret") && !text.contains("612073656372"),
        "{text}"
    );
    // Without a daemon there is a report, too.
    lab.kill();
    lab.ran(&words);
    let text = std::fs::read_to_string(&file).expect("text");
    assert!(text.contains("no daemon answers") && text.contains("Linux version"));
    assert_eq!(lab.run("report -o /nowhere/at/all").status.code(), Some(4));
}
