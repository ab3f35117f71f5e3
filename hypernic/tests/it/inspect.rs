//! `hypernic inspect` and `hypernic dump`: a running NIC's registers, without effect.

use std::process::{Command, Stdio};

use control::Registers;
use drivers::e1000::{Config, Driver};
use drivers::{Bus, SocketBus};

use crate::lab::{HYPERNIC, Lab};

const ICS: u32 = 0xc8;
const IMC: u32 = 0xd8;
const ICR: u32 = 0xc0;
const TIPG: u32 = 0x410;

fn lab() -> Lab {
    Lab::with(|dir| {
        let nic = |name: &str, model: &str| {
            let socket = dir.join(format!("{name}.sock"));
            format!(
                "[[nic]]\nname = \"{name}\"\nsocket-path = {socket:?}\nport = \"null\"\nmodel = \"{model}\"\n"
            )
        };
        nic("e", "e1000") + &nic("i", "82576") + &nic("v", "virtio-net")
    })
}

fn driver(lab: &Lab) -> Driver<SocketBus> {
    let bus = SocketBus::connect(lab.dir.path().join("e.sock")).expect("connect");
    Driver::new(bus, Config::poll()).expect("driver")
}

/// Writes a register, and returns when that is done: writes are not answered, reads are.
fn write(driver: &mut Driver<SocketBus>, at: u32, value: u32) {
    let bus = driver.bus_mut();
    bus.write32(at, value).expect("write");
    bus.read32(TIPG).expect("read");
}

fn look(lab: &Lab, words: &str) -> Registers {
    serde_json::from_str(&lab.ran(&format!("inspect e {words} --json"))).expect("JSON")
}

#[test]
fn registers_are_found_by_name_and_place_and_a_look_acknowledges_nothing() {
    let lab = lab();
    let mut driver = driver(&lab);
    write(&mut driver, IMC, u32::MAX);
    write(&mut driver, ICS, 0x04);
    write(&mut driver, TIPG, 0x0012_3456);
    for words in ["TIPG", "tipg", "0x410"] {
        let found = look(&lab, words);
        assert_eq!(
            (found.registers.len(), found.registers[0].value),
            (1, 0x0012_3456)
        );
        assert_eq!(
            (found.model.as_str(), found.registers[0].section.as_str()),
            ("e1000", "13.4.34")
        );
    }
    for _ in 0..3 {
        assert_eq!(
            look(&lab, "ICR").registers[0].value & 4,
            4,
            "it is still there"
        );
    }
    assert_eq!(look(&lab, "RAL").registers.len(), 16);
    let one = look(&lab, "RAL[1]");
    assert_eq!(
        (one.registers.len(), one.registers[0].element),
        (1, Some(1))
    );
    let text = lab.ran("inspect e");
    assert!(
        text.contains("TIPG           00410  00123456  RW"),
        "{text}"
    );
    assert!(
        !text.contains("00000000  RW"),
        "those that are 0 only with --all"
    );
    assert!(lab.ran("inspect e --all").lines().count() > 300);
    // The guest's read finds it, and acknowledges it.
    let bus = driver.bus_mut();
    assert_eq!(bus.read32(ICR).expect("read") & 4, 4);
    assert_eq!(look(&lab, "ICR").registers[0].value & 4, 0);
    for (words, code, named) in [
        ("inspect e NOPE", 1, "no register \"NOPE\""),
        ("inspect e RAL[16]", 1, "no register"),
        ("inspect e 0x3", 1, "no register"),
        ("inspect v", 1, "no table of registers"),
        ("inspect x", 1, "there is: e, i, v"),
        ("inspect e --diff --interval 0", 2, "0.01 to 3600"),
    ] {
        let output = lab.run(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words}: {said}");
        assert!(said.contains(named), "{words}: {said}");
    }
}

#[test]
fn what_changes_between_two_looks_is_shown() {
    let lab = lab();
    let mut driver = driver(&lab);
    write(&mut driver, TIPG, 1);
    let twice = Command::new(HYPERNIC)
        .args([
            "inspect",
            "e",
            "TIPG",
            "--diff",
            "--interval",
            "4",
            "--control",
        ])
        .arg(lab.control())
        .stdout(Stdio::piped())
        .spawn()
        .expect("hypernic");
    // After its first look, which the daemon logs only with -v: some time will do.
    std::thread::sleep(std::time::Duration::from_secs(2));
    write(&mut driver, TIPG, 2);
    let output = twice.wait_with_output().expect("end");
    let text = String::from_utf8(output.stdout).expect("text");
    assert_eq!(text, "TIPG           00410  00000001 -> 00000002\n");
    assert_eq!(lab.ran("inspect e TIPG --diff --interval 0.01"), "");
}

#[test]
fn a_dump_has_the_words_where_the_kernels_driver_puts_them() {
    let lab = lab();
    let mut driver = driver(&lab);
    // What it has written is done.
    driver.bus_mut().read32(TIPG).expect("read");
    let file = lab.dir.path().join("dump");
    lab.ran(&format!("dump e --output {}", file.display()));
    let bytes = std::fs::read(&file).expect("file");
    let word = |at: usize| u32::from_le_bytes(bytes[4 * at..][..4].try_into().expect("a word"));
    assert_eq!(bytes.len(), 32 * 4);
    // CTRL, STATUS, RCTL, RDLEN, TCTL, TDLEN; MANC.
    for (at, register) in [
        (0, 0),
        (1, 8),
        (2, 0x100),
        (3, 0x2808),
        (7, 0x400),
        (8, 0x3808),
        (26, 0x5820),
    ] {
        let read = driver.bus_mut().read32(register).expect("read");
        assert_eq!(word(at), read, "word {at}");
    }
    assert_ne!(word(3), 0, "a ring");
    lab.ran(&format!("dump i --output {}", file.display()));
    assert_eq!(std::fs::read(&file).expect("file").len(), 739 * 4);
    let output = lab.run(&format!("dump v --output {}", file.display()));
    assert_eq!(output.status.code(), Some(1));
    let output = lab.run("dump e --output /nowhere/at/all");
    assert_eq!(output.status.code(), Some(4));
}
