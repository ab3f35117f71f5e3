//! Chips with virtual functions come, change and go in a running daemon, by its control socket.

use control::{ChipAdd, ChipConfig, ChipList, ChipSet, Chips, Failure};

use crate::lab::Lab;

#[test]
fn a_chip_is_added_changed_and_removed_by_calls() {
    let lab = Lab::with(|_| String::new());
    let sockets = lab.dir.path().join("vf{}.sock");
    let add = format!(
        "chip add p0 --port null --vfs 2 --vf-socket-path {}",
        sockets.display()
    );
    assert_eq!(lab.ran(&format!("{add} --check")), "p0: it can be done\n");
    assert_eq!(lab.ran("chip list"), "", "only checked");
    assert_eq!(lab.ran(&add), "p0: done\n");
    assert_eq!(lab.ran(&add), "p0: nothing to do\n");
    let refused = |words: &str, named: &str| {
        let output = lab.run(words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{words}: {said}");
        assert!(said.contains(named), "{words}: {said}");
    };
    refused(&add.replace("--vfs 2", "--vfs 3"), "differs in vfs");
    refused("nic remove p0vf0", "hypernic chip set p0");
    let listed = lab.ran("chip list");
    assert_eq!(listed, "p0: 82576, 2 VFs, port null; NICs p0vf0, p0vf1\n");

    // A driver of one function notices nothing of others that come and go.
    let vf = lab.vf(0);
    let before = vf.mac();
    assert_eq!(
        lab.ran("chip set p0 --vfs 4 --port-rate 1000"),
        "p0: done\n"
    );
    assert_eq!(lab.ran("chip set p0 --vfs 4"), "p0: nothing to do\n");
    let last = lab.vf(3);
    assert_ne!(last.mac(), before);
    lab.said("set p0vf3 min_tx_rate 500");
    refused("chip set p0 --port-rate 100", "add up to 500");
    refused("chip set p0 --vfs 3", "p0vf3 is to go");
    assert_eq!(lab.ran("chip set p0 --vfs 3 --disconnect"), "p0: done\n");
    assert_eq!(lab.ran("chip set p0 --port-rate 0"), "p0: done\n");
    drop(last);
    assert!(lab.ran("nic list p0vf0").contains("connected"));
    assert!(!lab.dir.path().join("vf3.sock").exists());
    assert!(lab.said("show p0vf0").contains(", ready"));
    // Its wire leads elsewhere only if it is made anew.
    refused(
        "chip set p0 --port loopback",
        "p0: it is to change, and a VMM has it",
    );
    assert_eq!(
        lab.ran("chip set p0 --port loopback --disconnect"),
        "p0: done\n"
    );
    assert_eq!(
        lab.ran("chip list p0"),
        "p0: 82576, 3 VFs, port loopback; NICs p0vf0, p0vf1, p0vf2\n"
    );
    drop(vf);

    refused("chip set p0", "name a change, such as vfs");
    refused("chip set p1 --vfs 2", "no chip \"p1\"");
    refused("chip remove p1", "no chip \"p1\"");
    assert_eq!(
        lab.ran("chip remove p1 --missing-ok"),
        "p1: nothing to do\n"
    );
    assert_eq!(lab.ran("chip remove p0"), "p0: done\n");
    assert_eq!(lab.ran("nic list"), "");
    assert!(!lab.dir.path().join("vf0.sock").exists());
    assert!(
        lab.log().contains("io.hypernic.Chip.Remove"),
        "who asked for what is logged"
    );
}

#[test]
fn a_chip_comes_with_its_policies_and_is_told_in_words_that_make_it_again() {
    let lab = Lab::with(|_| "[[switch]]\nname = \"lan\"\nports = [\"null\"]\n".into());
    let path = |name: &str| Some(lab.dir.path().join(name).to_string_lossy().into_owned());
    let mut call = ChipAdd {
        chip: ChipConfig {
            name: "p0".into(),
            port: "switch:lan".into(),
            vfs: 2,
            vf_socket_path: path("vf{}.sock"),
            port_rate: Some(1000),
            vf: Some(vec![control::VfConfig {
                index: 1,
                vlan: Some(7),
                trust: Some(true),
                storm: Some("broadcast=5".into()),
                max_tx_rate: Some(100),
                ..control::VfConfig::default()
            }]),
            ..ChipConfig::default()
        },
        ..ChipAdd::default()
    };
    let socket = lab.control();
    let done = control::ask(&socket, &call).expect("done");
    assert!(done.changed);
    let shown = lab.said("show p0vf1");
    for word in ["vlan 7", "trust on", "max_tx_rate 100", "broadcast=5"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    let told = |name: &str| -> Chips {
        let name = Some(name.to_owned());
        control::ask(&socket, &ChipList { name }).expect("told")
    };
    let chips = told("p0").chips;
    assert_eq!(chips[0].nics, ["p0vf0", "p0vf1"]);
    call.chip = chips[0].config.clone();
    assert!(!control::ask(&socket, &call).expect("the same").changed);
    // By the command, the same.
    let vf = "1 vlan 7 trust on storm broadcast=5 max_tx_rate 100";
    let sockets = call.chip.vf_socket_path.clone().expect("a path");
    let output = std::process::Command::new(crate::lab::HYPERNIC)
        .args([
            "chip",
            "add",
            "p0",
            "--port",
            "switch:lan",
            "--vfs",
            "2",
            "--port-rate",
            "1000",
        ])
        .args(["--vf-socket-path", &sockets, "--vf", vf, "--control"])
        .arg(&socket)
        .output()
        .expect("hypernic");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "p0: nothing to do\n"
    );
    // What has changed since is told, too, and refused as another chip.
    lab.said("set p0vf1 vlan 8");
    assert_eq!(
        told("p0").chips[0].config.vf.as_ref().map(|vf| vf[0].vlan),
        Some(Some(8))
    );
    let refused = control::ask(&socket, &call).expect_err("another");
    assert!(refused.to_string().contains("differs in vf"), "{refused}");
    // A stale look changes nothing.
    let stale = ChipSet {
        name: "p0".into(),
        change: control::ChipChange {
            vfs: Some(1),
            ..control::ChipChange::default()
        },
        if_generation: Some(0),
        ..ChipSet::default()
    };
    match control::ask(&socket, &stale) {
        Err(control::AskError::Refused(Failure::Stale { .. })) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(told("p0").chips[0].nics.len(), 2);
}

#[test]
fn a_chip_that_persists_is_in_the_file() {
    let lab = Lab::with(|_| "control-persist = true\n# Chips follow.\n".into());
    let sockets = lab.dir.path().join("vf{}.sock");
    let file = || std::fs::read_to_string(lab.dir.path().join("host.toml")).expect("file");
    let sockets = sockets.display();
    lab.ran(&format!(
        "chip add p0 --port null --vfs 2 --vf-socket-path {sockets} --persist"
    ));
    assert!(
        file().contains("# Chips follow.") && file().contains("vfs = 2"),
        "{}",
        file()
    );
    lab.ran("vf set p0vf1 vlan 7 --persist");
    lab.ran("chip set p0 --vfs 3 --persist");
    let text = file();
    assert!(
        text.contains("vfs = 3") && text.contains("vlan = 7"),
        "{text}"
    );
    assert_eq!(lab.ran("config diff"), "nothing to do\n");
    lab.ran("chip set p0 --vfs 1 --persist");
    assert!(!file().contains("[[nic.vf]]"), "{}", file());
    assert_eq!(lab.ran("config diff"), "nothing to do\n");
    lab.ran("chip remove p0 --persist");
    assert!(
        !file().contains("[[nic]]") && file().contains("# Chips follow."),
        "{}",
        file()
    );
    assert_eq!(lab.ran("config diff"), "nothing to do\n");
}
