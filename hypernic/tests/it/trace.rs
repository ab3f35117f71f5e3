//! `hypernic trace`: what would become of a frame, without effect.

use control::Traced;
use drivers::SocketBus;
use drivers::e1000::{Config, Driver, TxOpts};

use crate::lab::Lab;

fn lab() -> Lab {
    Lab::with(|dir| {
        let nic = |name: &str, more: &str| {
            let socket = dir.join(format!("{name}.sock"));
            format!("[[nic]]\nname = \"{name}\"\nsocket-path = {socket:?}\n{more}\n")
        };
        let on = "port = \"switch:lan\"";
        String::from("[[switch]]\nname = \"lan\"\nports = [\"null\"]\n")
            + &nic("a", on)
            + &nic("b", on)
            + &nic("v", &format!("{on}\nmodel = \"virtio-net\""))
            + &nic("locked", &format!("{on}\nmac-lock = true"))
            + &nic("alone", "port = \"null\"")
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn traced(lab: &Lab, nic: &str, frame: &[u8], more: &str) -> (Vec<String>, Vec<String>) {
    let told = lab.ran(&format!("trace {nic} --frame {} --json{more}", hex(frame)));
    let told: Traced = serde_json::from_str(&told).expect("JSON");
    let step =
        |step: control::Decision| format!("{} {}", step.at, step.counter.unwrap_or_default());
    let steps = told.steps.into_iter().map(step);
    (
        steps.map(|step| step.trim().to_owned()).collect(),
        told.reached,
    )
}

#[test]
fn a_frame_is_followed_through_chips_and_their_pools() {
    let lab = Lab::with(|dir| {
        let nic = |name: &str, words: &str| {
            format!("[[nic]]\nname = \"{name}\"\nport = \"switch:lan\"\n{words}\n")
        };
        let vfs = |name: &str| {
            let sockets = dir.join(format!("{name}{{}}.sock"));
            let words = format!("model = \"82576\"\nvfs = 3\nvf-socket-path = {sockets:?}\n");
            nic(name, &words) + "[[nic.vf]]\nindex = 2\nvlan = 7\n"
        };
        let a = format!("socket-path = {:?}", dir.join("a.sock"));
        String::from("[[switch]]\nname = \"lan\"\nports = [\"null\"]\n")
            + &nic("a", &a)
            + &vfs("vf")
            + &vfs("other")
    });
    let (zero, one) = (lab.vf(0), lab.vf(1));
    let before = lab.ran("metrics --all");
    let frame = |to: [u8; 6], from: [u8; 6]| [&to[..], &from, &[0x88, 0xb5], &[0; 46]].concat();
    // From a function to another: its pool has the address.
    let (steps, reached) = traced(&lab, "vfvf0", &frame(one.mac(), zero.mac()), "");
    assert_eq!(steps[0], "vf/vfvf0 rx_unicast");
    assert!(
        steps[1..].iter().all(|step| step.starts_with("vfvf1")),
        "{steps:?}"
    );
    assert!(reached.is_empty() || reached == ["vfvf1"], "{reached:?}");
    // In another's name it goes nowhere.
    let (steps, reached) = traced(&lab, "vfvf0", &frame(one.mac(), one.mac()), "");
    assert_eq!(
        (steps, reached),
        (vec!["vf/vfvf0 drop_spoofed".to_owned()], vec![])
    );
    // To all: other functions, and by the wire the switch of the host, where another chip is.
    let (steps, reached) = traced(&lab, "vfvf0", &frame([0xff; 6], zero.mac()), "");
    for step in [
        "vf/vfvf0 rx_broadcast",
        "lan/vf learned",
        "lan/vf rx_broadcast",
        "a rx_no_client",
        "other/wire rx_broadcast",
    ] {
        assert!(steps.contains(&step.to_owned()), "{step}: {steps:?}");
    }
    assert!(reached.contains(&"lan/null".to_owned()), "{reached:?}");
    // Of a VLAN that was laid down, it stays there: the other functions of it are of another chip.
    let (steps, _) = traced(&lab, "vfvf2", &frame([0xff; 6], [2, 0, 0, 0, 0, 1]), "");
    assert_eq!(steps[0], "vfvf2");
    assert!(
        !steps.iter().any(|step| step.starts_with("vfvf0")),
        "{steps:?}"
    );
    // From outside to a function.
    let (steps, _) = traced(&lab, "a", &frame(zero.mac(), [2, 0, 0, 0, 0, 1]), "");
    assert!(steps.contains(&"vf/wire rx_unicast".into()), "{steps:?}");
    assert!(
        steps.iter().any(|step| step.starts_with("vfvf0")),
        "{steps:?}"
    );
    // Nothing has come of all that.
    let told = |text: &str| -> Vec<String> {
        let frames = |line: &&str| line.contains("switch_port") || line.contains("drops_total");
        text.lines().filter(frames).map(str::to_owned).collect()
    };
    assert_eq!(told(&lab.ran("metrics --all")), told(&before));
}

#[test]
fn a_frame_is_followed_to_its_receivers_and_nothing_comes_of_it() {
    let lab = lab();
    let connect = |name: &str| {
        let bus = SocketBus::connect(lab.dir.path().join(format!("{name}.sock")));
        Driver::new(bus.expect("connect"), Config::poll()).expect("driver")
    };
    let (mut a, mut b) = (connect("a"), connect("b"));
    let frame = |to: [u8; 6], from: [u8; 6]| [&to[..], &from, &[0x88, 0xb5], &[0; 46]].concat();
    let to_b = frame(b.mac(), a.mac());
    let before = lab.ran("metrics --all");
    // The lock has fixed an address.
    let knew = lab.ran("fdb").lines().count();
    // Nobody knows where b is: all get it, and only b lets it in.
    let (steps, reached) = traced(&lab, "a", &to_b, "");
    assert_eq!(
        steps[..3],
        ["lan/a learned", "lan/a", "lan/a rx_unknown_unicast"]
    );
    assert!(steps.contains(&"b rx_frames".into()), "{steps:?}");
    // No VMM has them.
    assert!(
        steps.contains(&"v rx_no_client".into()) && steps.contains(&"locked rx_no_client".into())
    );
    assert_eq!(reached, ["lan/null", "b"]);
    assert_eq!(
        traced(&lab, "locked", &to_b, ""),
        (vec!["lan/locked drop_spoofed".into()], vec![])
    );
    let (steps, reached) = traced(&lab, "a", &to_b, " --received");
    assert_eq!((steps, reached), (vec!["a rx_filtered".to_owned()], vec![]));
    let long = [to_b.clone(), vec![0; 2000]].concat();
    assert_eq!(
        traced(&lab, "b", &long, " --received").0,
        ["b", "b rx_oversize"]
    );
    assert_eq!(traced(&lab, "alone", &to_b, "").0, ["alone"]);
    // Nothing has come of all that.
    // (NICs' workers have answered questions, which are no frames.)
    let count = |text: &str| -> Vec<String> {
        let words = [
            "switch_port",
            "_drops_",
            "_packets_",
            "_refusals_",
            "_desc_",
        ];
        let is_of_frames = |line: &&str| words.iter().any(|word| line.contains(word));
        text.lines()
            .filter(is_of_frames)
            .map(str::to_owned)
            .collect()
    };
    let (before, after) = (count(&before), count(&lab.ran("metrics --all")));
    let differs = before
        .iter()
        .zip(&after)
        .find(|(before, after)| before != after);
    assert_eq!((differs, before.len()), (None, after.len()));
    assert!(after.len() > 50);
    let known = || lab.ran("fdb").lines().count();
    assert_eq!(known(), knew);
    // Then it goes where it was said to.
    b.send(&[&frame(a.mac(), b.mac())], &TxOpts::default())
        .expect("send");
    lab.until("b's address", || (known() == knew + 1).then_some(()));
    let (steps, reached) = traced(&lab, "a", &to_b, "");
    assert_eq!(steps[1..3], ["lan/a", "lan/a rx_unicast"], "{steps:?}");
    assert_eq!(reached, ["b"]);
    a.send(&[&to_b], &TxOpts::default()).expect("send");
    lab.until("the frame", || b.receive().expect("receive").pop());
    let file = lab.dir.path().join("one.pcap");
    let words = [0xa1b2_c3d4u32, 0x0002_0004, 0, 0, 65535, 1, 0, 0, 60, 60];
    let head: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    std::fs::write(&file, [head, to_b].concat()).expect("file");
    let text = lab.ran(&format!("trace a --pcap {}", file.display()));
    assert!(
        text.contains("lan/a: goes to b  [rx_unicast]\n") && text.ends_with("gets it: b\n"),
        "{text}"
    );
    for (words, said) in [
        ("trace a --frame xyz", "hexadecimal"),
        ("trace a --frame 012", "hexadecimal"),
        ("trace nobody --frame 0123", "there is: a, alone, b"),
        ("trace a --pcap /dev/null", "no pcap"),
        ("trace a", "--frame"),
    ] {
        let output = lab.run(words);
        let wrong = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && wrong.contains(said),
            "{words}: {wrong}"
        );
    }
}
