use std::time::Duration;

use super::*;
use crate::guard::Guard;
use crate::spec::Moderation;
use crate::spec::{NicMac, PortSpec};

const GOOD: &str = r#"workers = 3
[[switch]]
name = "lan"
ports = ["user", "tap:up0"]
ageing-seconds = 60

[[nic]]
name = "a"
model = "e1000"
socket-path = "/run/a.sock"
mac = "52:54:00:00:00:0a"
port = "switch:lan"
capture = "/tmp/a.pcapng"
eeprom = "/var/lib/a.nvm"

[[nic]]
name = "b"
socket-path = "/run/b.sock"
port = "switch:lan"
guard = { tx-rate = "1gbit", storm = "broadcast=100", vlans = "untagged,10", max-macs = 8 }
"#;

#[test]
fn a_good_file_is_a_host() {
    let host = HostConfig::parse(Path::new("h.toml"), GOOD).expect("good");
    assert_eq!((host.workers, host.keeper), (3, true));
    let without = format!("keeper = false\n{GOOD}");
    let without = HostConfig::parse(Path::new("h.toml"), &without).expect("good");
    assert!(!without.keeper);
    assert_eq!(host.switches[0].ports.len(), 2);
    assert_eq!(host.switches[0].ageing, Duration::from_secs(60));
    assert_eq!(host.nics[0].mac.to_string(), "52:54:00:00:00:0a");
    let guard = &host.nics[1].guard;
    assert_eq!(guard.tx_rate, "1gbit".parse().ok());
    assert_eq!((guard.max_macs, guard.private), (Some(8), false));
    assert!(guard.vlans.as_ref().is_some_and(|set| set.contains(10)));
    assert_eq!(host.nics[0].guard, Guard::default());
    assert_eq!(host.nics[1].mac, NicMac::from_name("b"));
    assert_eq!(host.nics[1].port, PortSpec::Switch("lan".into()));
}

#[test]
fn a_switch_passes_link_local_groups_and_a_nic_does_without_back_pressure_where_it_is_said() {
    let usual = HostConfig::parse(Path::new("h.toml"), GOOD).expect("good");
    assert_eq!(usual.switches[0].link_local, LinkLocal::Drop);
    assert!(usual.nics.iter().all(|nic| nic.back_pressure));
    let text = GOOD
        .replacen("ageing-seconds = 60", "link-local = \"pass\"", 1)
        .replacen("name = \"b\"\n", "name = \"b\"\nback-pressure = false\n", 1);
    let host = HostConfig::parse(Path::new("h.toml"), &text).expect("good");
    assert_eq!(host.switches[0].link_local, LinkLocal::Pass);
    assert_eq!(
        host.nics
            .iter()
            .map(|nic| nic.back_pressure)
            .collect::<Vec<_>>(),
        [true, false]
    );
}

/// What to replace, by what; line and column of the message, and words that must be in it.
const MISTAKES: &[(&str, &str, usize, usize, &[&str])] = &[
    (
        "mac = \"52:54:00:00:00:0a\"",
        "mac = \"52:54\"",
        11,
        7,
        &["bad MAC", "six bytes"],
    ),
    ("\"e1000\"", "\"ne2000\"", 9, 9, &["unknown model", "e1000"]),
    ("model = ", "modle = ", 9, 1, &["unknown field", "modle"]),
    (
        "\"switch:lan\"\ncapture",
        "\"switch:wan\"\ncapture",
        12,
        8,
        &["no switch \"wan\"", "lan", "[[switch]]"],
    ),
    (
        "\"user\", ",
        "\"usr\", ",
        4,
        9,
        &["no port \"usr\"", "tap:NAME"],
    ),
    (
        "\"user\", ",
        "\"switch:x\", ",
        4,
        10,
        &["cannot be a port of a switch"],
    ),
    ("name = \"b\"", "name = \"a\"", 17, 8, &["already a NIC"]),
    (
        "/run/b.sock",
        "/run/a.sock",
        18,
        15,
        &["\"a\" already has this socket"],
    ),
    (
        "socket-path = \"/run/b.sock\"\n",
        "",
        17,
        8,
        &["no socket", "socket-path ="],
    ),
    ("name = \"b\"", "name = \"b c\"", 17, 8, &["bad name"]),
    (
        "name = \"b\"",
        "name = \"b\\n\\u001b[2J\"",
        17,
        8,
        &[r#"bad name "b\n\u{1b}[2J""#],
    ),
    (
        "ageing-seconds = 60",
        "ageing-seconds = 1",
        5,
        18,
        &["between 10"],
    ),
    (
        "name = \"b\"\n",
        "name = \"b\"\nbusy-poll-us = 5000\n",
        18,
        16,
        &["between 0 (off) and 1000"],
    ),
    (
        "name = \"b\"\n",
        "name = \"b\"\neeprom = \"/var/lib/a.nvm\"\n",
        18,
        10,
        &["\"a\" already has this EEPROM file"],
    ),
    ("\"1gbit\"", "\"1g\"", 20, 21, &["bad rate", "no unit"]),
    (
        "untagged,10",
        "untagged,4095",
        20,
        63,
        &["bad VLAN \"4095\""],
    ),
    ("max-macs = 8", "max-macs = 0", 20, 89, &["between 1 and"]),
    ("tx-rate", "tx-rat", 20, 11, &["unknown field"]),
    (
        "ageing-seconds = 60",
        "uplink-guard = { private = true }",
        5,
        16,
        &["for NICs"],
    ),
    (
        "socket-path = \"/run/b.sock\"\nport = \"switch:lan\"",
        "socket-path = \"/run/b.sock\"\nport = \"user\"",
        20,
        9,
        &["only a switch enforces guards", "ports = [\"user\"]"],
    ),
    ("workers = 3", "workers = 0", 1, 11, &["between 1 and 64"]),
    ("[[nic]]\nname = \"a\"", "[[nic]\nname = \"a\"", 7, 7, &[]),
];

#[test]
fn a_standby_has_the_address_of_the_nic_that_it_stands_in_for_and_no_other_has() {
    let nic = |name: &str, words: &str| {
        format!(
            "[[nic]]\nname = \"{name}\"\nsocket-path = \"/run/{name}\"\nport = \"null\"\n\
             mac = \"52:54:00:00:00:01\"\n{words}\n"
        )
    };
    let standby = "model = \"virtio-net\"\nstandby = true";
    let parsed = |nics: &[(&str, &str)]| {
        let text: String = nics.iter().map(|(name, words)| nic(name, words)).collect();
        HostConfig::parse(Path::new("h.toml"), &text).map_err(|error| error.to_string())
    };
    let pair = parsed(&[("a", ""), ("b", standby)]).expect("a pair");
    assert_eq!(pair.nics[0].mac, pair.nics[1].mac);
    for third in ["", standby] {
        let why = parsed(&[("a", ""), ("b", standby), ("c", third)]).expect_err("a third");
        assert!(why.contains("already has the MAC"), "{why}");
    }
}

#[test]
fn every_mistake_names_its_place_and_its_cure() {
    for (old, new, line, column, words) in MISTAKES {
        assert!(GOOD.contains(old), "{old}");
        let text = GOOD.replacen(old, new, 1);
        let error = HostConfig::parse(Path::new("h.toml"), &text)
            .expect_err(new)
            .to_string();
        let place = format!("h.toml:{line}:{column}: ");
        assert!(
            error.starts_with(&place),
            "{new}: {error} is not at {place}"
        );
        assert!(!error.contains(char::is_control), "one line: {error}");
        for word in *words {
            assert!(error.contains(word), "{error} lacks {word}");
        }
    }
    let error = HostConfig::parse(Path::new("h.toml"), "")
        .expect_err("empty")
        .to_string();
    assert!(error.contains("no [[nic]]"), "{error}");
    for (text, named) in [
        ("control-owner = [\"root\"]", "no control socket"),
        (
            "control = \"/run/c\"\ncontrol-monitor = [\"@no such\"]",
            "no group",
        ),
    ] {
        let error = HostConfig::parse(Path::new("h.toml"), text).expect_err(text);
        assert!(error.to_string().contains(named), "{error}");
    }
    // With a way for NICs to come, none need be there.
    for text in ["control = \"/run/c\"", "[[switch]]\nname = \"lan\""] {
        let host = HostConfig::parse(Path::new("h.toml"), text).expect("empty");
        assert!(host.nics.is_empty());
    }
}

const CHIP: &str = r#"[[nic]]
name = "p0"
model = "82576"
vfs = 3
vf-socket-path = "/run/p0-vf{}.sock"
port = "null"
port-rate = 1000
busy-poll-us = 7
[[nic.vf]]
index = 1
mac = "52:54:00:00:00:0a"
vlan = 100
qos = 3
trust = true
spoofchk = false
state = "enable"
max-tx-rate = 100
min-tx-rate = 10
storm = "broadcast=5"
interrupts = 8000
strict = true
[[nic.vf]]
index = 2
socket-path = "/run/other.sock"
"#;

#[test]
fn a_chip_is_its_vfs_each_with_its_policy() {
    let host = HostConfig::parse(Path::new("h.toml"), CHIP).expect("good");
    assert_eq!(host.chips.len(), 1);
    assert_eq!(host.chips[0].rate, Some(1000));
    let awake = Duration::from_micros(7);
    assert!(host.nics.iter().all(|nic| nic.busy_poll == awake));
    let names: Vec<_> = host.nics.iter().map(|nic| nic.name.as_str()).collect();
    assert_eq!(names, ["p0vf0", "p0vf1", "p0vf2"]);
    let sockets = host.nics.iter().map(|nic| match &nic.socket {
        SocketSpec::Path(path) => path.to_str().expect("text"),
        SocketSpec::Fd(_) => "fd",
    });
    let sockets: Vec<_> = sockets.collect();
    assert_eq!(
        sockets,
        ["/run/p0-vf0.sock", "/run/p0-vf1.sock", "/run/other.sock"]
    );
    let policy = |n: usize| host.nics[n].vf.as_ref().expect("a VF").policy.clone();
    assert!(!policy(0).mac_set && policy(0).spoof_check && !policy(0).trust);
    let said = policy(1);
    assert_eq!(said.mac.to_string(), "52:54:00:00:00:0a");
    assert!(said.mac_set && said.trust && !said.spoof_check && said.strict);
    assert_eq!(said.vlan.map(|vlan| (vlan.id, vlan.qos)), Some((100, 3)));
    assert_eq!((said.max_tx_rate, said.min_tx_rate), (100, 10));
    assert_eq!(
        (said.storm.broadcast, said.interrupts),
        (Some(5), Some(8000))
    );
    let all = |host: &HostConfig| {
        host.nics
            .iter()
            .map(|nic| nic.moderation)
            .collect::<Vec<_>>()
    };
    assert_eq!(all(&host), [Moderation::Guest; 3]);
    let said = CHIP
        .replace("vfs = 3", "vfs = 3\nmoderation = \"adaptive\"")
        .replace("index = 1", "index = 1\nmoderation = \"guest\"");
    let host = HostConfig::parse(Path::new("h.toml"), &said).expect("good");
    let (own, others) = (Moderation::Guest, Moderation::Adaptive);
    assert_eq!(all(&host), [others, own, others]);
}

/// A good file with a mistake in it is refused at its line, in words.
#[track_caller]
fn refused(good: &str, old: &str, new: &str, line: u32, words: &str) {
    assert!(good.contains(old), "{old}");
    let text = good.replacen(old, new, 1);
    let error = HostConfig::parse(Path::new("h.toml"), &text)
        .expect_err(new)
        .to_string();
    assert!(
        error.starts_with(&format!("h.toml:{line}:")),
        "{new}: {error}"
    );
    assert!(error.contains(words), "{error} lacks {words}");
}

#[test]
fn what_no_chip_can_be_is_refused_where_it_stands() {
    for (old, new, line, words) in [
        ("vfs = 3", "vfs = 0", 4, "between 1 and 1000"),
        ("vfs = 3\n", "", 2, "add vfs = N"),
        ("vfs = 3", "vfs = 2", 23, "there is no VF 2"),
        ("index = 2", "index = 1", 23, "two [[nic.vf]]"),
        ("-vf{}.sock", ".sock", 5, "has no {}"),
        ("port-rate = 1000", "port-rate = 0", 7, "at least 1 Mbit/s"),
        (
            "poll-us = 7",
            "poll-us = 1001",
            8,
            "between 0 (off) and 1000",
        ),
        ("port-rate = 1000", "port-rate = 5", 10, "add up to"),
        ("vlan = 100", "vlan = 4095", 10, "VLANs are 1 to 4094"),
        (
            "state = \"enable\"",
            "state = \"on\"",
            16,
            "auto, enable or disable",
        ),
        ("broadcast=5", "unknown=5", 19, "knows all addresses"),
        ("interrupts = 8000", "interrupts = 0", 20, "at least 1"),
        (
            "\"/run/other.sock\"",
            "\"/run/p0-vf0.sock\"",
            23,
            "already has this socket",
        ),
        (
            "port = \"null\"",
            "port = \"switch:x\"",
            6,
            "there is no switch",
        ),
        (
            "model = \"82576\"",
            "model = \"e1000\"",
            4,
            "no virtual functions",
        ),
        (
            "vfs = 3",
            "socket-path = \"/run/p0.sock\"\nvfs = 3",
            2,
            "the daemon controls the physical function",
        ),
        ("vfs = 3", "vfs = 3\ncsb = true", 2, "csb is for a NIC"),
        ("vfs = 3", "vfs = 3\npause = true", 2, "pause is for a NIC"),
        (
            "vfs = 3",
            "vfs = 3\nreceive-throttling = true",
            2,
            "receive-throttling is for a NIC",
        ),
        (
            "vfs = 3",
            "vfs = 3\nmac = \"52:54:00:00:00:0a\"",
            2,
            "mac is for a NIC",
        ),
        (
            "vfs = 3",
            "vfs = 3\neeprom = \"/e\"",
            2,
            "eeprom is for a NIC",
        ),
        (
            "vfs = 3",
            "vfs = 3\ncapture = \"/c\"",
            2,
            "capture is for a NIC",
        ),
        (
            "vfs = 3",
            "vfs = 3\nmac-lock = true",
            2,
            "mac-lock is for a NIC",
        ),
        (
            "vfs = 3",
            "vfs = 3\nguard = { private = true }",
            2,
            "guard is for a NIC",
        ),
        (
            "vfs = 3",
            "vfs = 3\npf = \"nobody\"",
            5,
            "`daemon` or `guest`",
        ),
        (
            "vfs = 3",
            "vfs = 3\npf-places-vf-rings = false",
            5,
            "for a physical function that a guest has",
        ),
    ] {
        refused(CHIP, old, new, line, words);
    }
}

const GUEST: &str = r#"[[nic]]
name = "p0"
model = "82576"
pf = "guest"
vfs = 3
socket-path = "/run/p0.sock"
mac = "52:54:00:00:00:0a"
vf-socket-path = "/run/p0-vf{}.sock"
port = "null"
[[nic.vf]]
index = 1
socket-path = "/run/other.sock"
"#;

#[test]
fn a_guest_may_have_the_physical_function() {
    let host = HostConfig::parse(Path::new("h.toml"), GUEST).expect("good");
    let chip = &host.chips[0];
    assert_eq!((chip.vfs, chip.pf), (3, PfOwner::Guest));
    let names: Vec<_> = host.nics.iter().map(|nic| nic.name.as_str()).collect();
    assert_eq!(names, ["p0vf0", "p0vf1", "p0vf2", "p0"]);
    let own = &host.nics[3];
    assert_eq!(own.rules.as_deref(), Some("p0"));
    assert_eq!(own.mac.to_string(), "52:54:00:00:00:0a");
    assert!(own.vf.is_none() && host.nics[0].rules.is_none());
    assert!(!own.pf_places_vf_rings);
    let text = GUEST.replacen("vfs = 3", "vfs = 3\npf-places-vf-rings = true", 1);
    let placing = HostConfig::parse(Path::new("h.toml"), &text).expect("good");
    assert!(placing.nics[3].pf_places_vf_rings && !placing.nics[0].pf_places_vf_rings);
    // The daemon's is the same as saying nothing.
    let text = CHIP.replacen("vfs = 3", "vfs = 3\npf = \"daemon\"", 1);
    let said = HostConfig::parse(Path::new("h.toml"), &text).expect("good");
    let usual = HostConfig::parse(Path::new("h.toml"), CHIP).expect("good");
    assert_eq!(said, usual);
}

#[test]
fn what_a_guests_physical_function_contradicts_is_refused_where_it_stands() {
    for (old, new, line, words) in [
        ("vfs = 3", "vfs = 8", 5, "at most 7 VFs"),
        ("vfs = 3\n", "", 2, "add vfs = N"),
        (
            "port =",
            "port-rate = 10\nport =",
            9,
            "port-rate is for VFs",
        ),
        (
            "port =",
            "mac-lock = true\nport =",
            2,
            "mac-lock is for VFs",
        ),
        ("socket-path = \"/run/p0.sock\"\n", "", 2, "has no socket"),
        (
            "/run/p0.sock",
            "/run/p0-vf2.sock",
            6,
            "already has this socket",
        ),
        ("index = 1", "index = 1\nvlan = 7", 11, "vlan is for VFs"),
        (
            "index = 1",
            "index = 1\nmac = \"52:54:00:00:00:0b\"",
            11,
            "mac is for VFs",
        ),
        (
            "index = 1",
            "index = 1\nspoofchk = true",
            11,
            "leave out one",
        ),
    ] {
        refused(GUEST, old, new, line, words);
    }
}

#[test]
fn a_word_of_the_release_before_still_works_and_names_its_successor() {
    let config = |word: &str| {
        let text = format!(
            "[[nic]]\nname = \"a\"\nsocket-path = \"/run/a.sock\"\nport = \"null\"\n{word} = true\n"
        );
        HostConfig::parse(Path::new("host.toml"), &text).expect("good")
    };
    let (old, new) = (config("portions"), config("receive-throttling"));
    assert_eq!(old.nics, new.nics);
    assert!(new.nics[0].receive_throttling);
    assert_eq!(new.hints, [""; 0]);
    assert_eq!(old.hints.len(), 1, "{:?}", old.hints);
    assert!(
        old.hints[0].contains("receive-throttling"),
        "{:?}",
        old.hints
    );
}

const TENANTS: &str = r#"profile = "multi-tenant"
[[switch]]
name = "red"
ports = ["user:flows=100"]
[[switch]]
name = "blue"
ports = ["user:host-loopback=on", "tap:up0"]
[[nic]]
name = "r0"
tenant = "red"
socket-path = "/run/r0.sock"
port = "switch:red"
[[nic]]
name = "r1"
tenant = "red"
socket-path = "/run/r1.sock"
port = "switch:red"
guard = { tx-rate = "1gbit", storm = "broadcast=7" }
mac-lock = false
[[nic]]
name = "b0"
socket-path = "/run/b0.sock"
port = "switch:blue"
[[nic]]
name = "alone"
socket-path = "/run/alone.sock"
port = "user"
[[nic]]
name = "chip"
model = "82576"
vfs = 2
port = "switch:blue"
vf-socket-path = "/run/vf{}.sock"
vf = [{ index = 1, tenant = "red", storm = "broadcast=9" }]
tenant = "blue"
"#;

#[test]
fn a_profile_for_several_tenants_switches_the_guards_on() {
    let text = TENANTS.replace("port = \"switch:blue\"\nvf-", "port = \"null\"\nvf-");
    let host = HostConfig::parse(Path::new("h.toml"), &text).expect("good");
    assert_eq!(host.profile, Profile::MultiTenant);
    let ports = |at: usize| host.switches[at].ports[0].to_string();
    assert_eq!(ports(0), "user:flows=100,host-loopback=off");
    assert_eq!(ports(1), "user:host-loopback=on");
    let nic = |name: &str| {
        let found = host.nics.iter().find(|nic| nic.name == name);
        found.expect(name)
    };
    assert_eq!(nic("alone").port.to_string(), "user:host-loopback=off");
    let shown = |name: &str| {
        let guard = &nic(name).guard;
        let rate = guard.tx_rate.map(|rate| rate.to_string());
        (nic(name).mac_lock, rate, guard.storm.to_string())
    };
    let rate = |text: &str| Some(text.to_owned());
    let storm = "broadcast=500,multicast=500,unknown=500";
    let usual = rate("10000000000bit,1500000pps,burst=10ms");
    assert_eq!(shown("r0"), (true, usual, storm.into()));
    let own = rate("1000000000bit,burst=10ms");
    assert_eq!(shown("r1"), (false, own, "broadcast=7".into()));
    assert_eq!(shown("alone"), (false, None, "none".into()));
    let vf = |at: usize| {
        let vf = nic(&format!("chip{}", format_args!("vf{at}"))).vf.as_ref();
        vf.expect("a VF").policy.storm
    };
    assert_eq!((vf(0).broadcast, vf(1).broadcast), (Some(500), Some(9)));
    let tenants: Vec<_> = host.nics.iter().map(|nic| nic.tenant.as_str()).collect();
    assert_eq!(tenants, ["red", "red", "b0", "alone", "blue", "red"]);
    assert_eq!(host.tenants(), 4);
    let banner = crate::hints::banner(&host);
    for line in [
        "profile multi-tenant, 4 tenants",
        "r1: tenant red, port switch:red, mac-lock OFF",
        "switch blue: ports user:host-loopback=on, tap:up0",
    ] {
        assert!(banner.contains(line), "{line} in:\n{banner}");
    }
    let single = HostConfig::parse(Path::new("h.toml"), GOOD).expect("good");
    assert!(!crate::hints::banner(&single).contains("profile"));
}

#[test]
fn tenants_do_not_share_a_user_network_in_that_profile() {
    let text = TENANTS.replace(
        "port = \"switch:blue\"\n[[nic]]\nname = \"alone\"",
        "port = \"switch:red\"\n[[nic]]\nname = \"alone\"",
    );
    let error = HostConfig::parse(Path::new("h.toml"), &text).expect_err("shared");
    let error = error.to_string();
    assert!(
        error.contains("\"red\" has a user network for several tenants (b0, red)"),
        "{error}"
    );
    let error = HostConfig::parse(Path::new("h.toml"), TENANTS).expect_err("by a chip");
    let error = error.to_string();
    assert!(
        error.contains("\"blue\" has a user network for several tenants (b0, blue, red)"),
        "{error}"
    );
    let single = text.replace("profile = \"multi-tenant\"\n", "");
    HostConfig::parse(Path::new("h.toml"), &single).expect("theirs to decide");
    let bad = TENANTS.replacen("tenant = \"red\"", "tenant = \"r e d\"", 1);
    let error = HostConfig::parse(Path::new("h.toml"), &bad).expect_err("a bad name");
    assert!(error.to_string().contains("bad name"), "{error}");
}
