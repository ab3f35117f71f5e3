//! A host as a file, what leads from one to another, and changes that keep a file's comments.

use control::VfChange;

use super::edit::{Edit, edited};
use super::*;
use crate::spec::PortSpec;

const RICH: &str = r#"
workers = 3
control = "/run/c"
control-monitor = ["4711"]
control-operate = ["@4712"]
control-persist = true
sandbox = "log"
sandbox-paths = ["/run/vms"]
sandbox-network = false

[[switch]]
name = "lan"
ports = ["tap:vm0,queues=2", "stream:listen=/run/s"]
ageing-seconds = 60
uplink-guard = { storm = "broadcast=100" }
link-local = "pass"

[[switch]]
name = "wan"

[[nic]]
name = "b"
model = "virtio-net"
transport = "vhost-user"
socket-path = "/run/b"
port = "switch:lan"
queue-pairs = 4
mtu = 9000
split-rings = true
standby = true
hash-report = true
back-pressure = false
guard = { tx-rate = "1gbit,200kpps,burst=5ms", vlans = "untagged,10,20-29", private = true, max-macs = 8 }

[[nic]]
name = "a"
fd = 7
mac = "52:54:00:00:00:0a"
tenant = "t"
port = "user:net=10.0.3.0/24,hostfwd=tcp::22-:22"
capture = "/run/a.pcapng"
capture-mib = 32
eeprom = "/run/a.eeprom"
busy-poll-us = 0
moderation = "fixed:8000"
pause = true
receive-throttling = true

[[nic]]
name = "p0"
model = "82576"
vfs = 3
vf-socket-path = "/run/p0-{}"
port = "switch:wan"
port-rate = 1000
moderation = "adaptive"
busy-poll-us = 50
doorbell = "page"

[[nic.vf]]
index = 1
mac = "02:00:00:00:00:01"
vlan = 7
qos = 3
trust = true
spoofchk = false
state = "enable"
max-tx-rate = 100
min-tx-rate = 10
storm = "broadcast=5,multicast=6"
interrupts = 8000
mailbox-rate = 9
strict = true
tenant = "t"
moderation = "guest"
capture = "/run/vf1.pcapng"

[[nic]]
name = "p1"
model = "82576"
vfs = 2
pf = "guest"
socket-path = "/run/p1"
vf-socket-path = "/run/p1-{}"
port = "null"
tenant = "t"
moderation = "fixed:9000"
pf-places-vf-rings = true

[[nic.vf]]
index = 0
tenant = "u"
"#;

fn host(text: &str) -> HostConfig {
    HostConfig::parse("h.toml".as_ref(), text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn plan(is: &HostConfig, to: &HostConfig, held: &[&str]) -> Plan {
    Plan::of(is, to, &|nic| held.contains(&nic), false)
}

#[test]
fn a_dump_makes_the_same_host() {
    for text in [
        RICH.to_owned(),
        format!("profile = \"multi-tenant\"\n{RICH}"),
        format!("keeper = false\n{RICH}"),
        "[[nic]]\nname = \"n\"\nsocket-path = \"rel/n\"\nport = \"loopback\"\n".into(),
        "control = \"c\"\n".into(),
    ] {
        let is = host(&text);
        let dump = is.to_text();
        let again = host(&dump);
        assert_eq!(plan(&is, &again, &[]), Plan::default(), "{dump}");
        // All but the order, and paths that the file says from where the daemon runs.
        let sorted = |host: HostConfig| {
            let mut host = host.absolute();
            host.nics.sort_by(|a, b| a.name.cmp(&b.name));
            host
        };
        assert_eq!(sorted(again.clone()), sorted(is), "{dump}");
        assert_eq!(again.to_text(), dump);
    }
}

#[test]
fn a_chips_words_make_the_same_chip() {
    for (profile, said) in [("", 1), ("profile = \"multi-tenant\"\n", 3)] {
        let is = host(&format!("{profile}{RICH}")).absolute();
        // The profile limits floods of each VF of the daemon's.
        let said = |name: &str| if name == "p0" { said } else { 1 };
        for name in ["p0", "p1"] {
            let words = is.chip_words(name).expect("a chip");
            assert_eq!(
                words.vf.as_ref().map(Vec::len),
                Some(said(name)),
                "{words:?}"
            );
            let again = is.without_chip(name).chip_beside(&words).expect("can be");
            assert_eq!(plan(&is, &again, &[]), Plan::default(), "{words:?}");
            assert_eq!(again.chip_words(name), Some(words));
        }
        assert_eq!(is.chip_words("b"), None);
    }
    let is = host(RICH);
    let chip = |change: fn(&mut control::ChipConfig)| {
        let mut words = control::ChipConfig {
            name: "p2".into(),
            port: "switch:lan".into(),
            vfs: 2,
            vf_socket_path: Some("/run/p2-{}".into()),
            ..control::ChipConfig::default()
        };
        change(&mut words);
        words
    };
    let made = is.chip_beside(&chip(|_| {})).expect("can be");
    assert_eq!(made.chips.last().map(|chip| chip.vfs), Some(2));
    assert_eq!(made.nics.last().map(|nic| nic.model.name), Some("82576"));
    for (words, named) in [
        (chip(|c| c.name = "p0".into()), "already a NIC"),
        (chip(|c| c.vfs = 0), "vfs must be between 1"),
        (chip(|c| c.vf_socket_path = None), "has no socket"),
        (
            chip(|c| c.vf_socket_path = Some("/run/p2".into())),
            "has no {}",
        ),
        (
            chip(|c| c.vf_socket_path = Some("/run/p0-{}".into())),
            "already has this socket",
        ),
        (chip(|c| c.port = "switch:no".into()), "no switch \"no\""),
        (
            chip(|c| c.model = Some("e1000".into())),
            "has no virtual functions",
        ),
        (
            chip(|c| c.socket_path = Some("/run/x".into())),
            "has no socket: name the VFs'",
        ),
        (chip(|c| c.pf = Some("none".into())), "unknown variant"),
        (chip(|c| c.port_rate = Some(0)), "port-rate must be"),
    ] {
        let error = is.chip_beside(&words).expect_err(named);
        assert!(
            error.contains(named) && !error.contains('\n'),
            "{named}: {error}"
        );
    }
}

/// What is put in place of what, which NICs a VMM has, and what follows: steps, and with `!` what cannot be.
type Case = (
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

#[rustfmt::skip]
const CASES: &[Case] = &[
    ("back-pressure = false", "", &[], &["change NIC b: back-pressure"]),
    ("back-pressure = false", "", &["b"], &["change NIC b: back-pressure"]),
    ("private = true, ", "", &["b"], &["change NIC b: guard"]),
    ("mtu = 9000", "", &["b"], &["!NIC b: mtu is to change, which a guest has started with, and a VMM has it"]),
    ("mtu = 9000", "", &[], &["change NIC b: mtu"]),
    ("hash-report = true\nback-pressure = false", "", &["b"],
     &["change NIC b: back-pressure", "!NIC b: hash-report is to change"]),
    ("busy-poll-us = 0", "", &["a"], &["change NIC a: busy-poll-us"]),
    ("capture = \"/run/a.pcapng\"", "capture = \"/run/b.pcapng\"", &["a"], &["change NIC a: capture"]),
    ("capture-mib = 32", "capture-mib = 64", &["a"], &["!NIC a: capture-mib is to change"]),
    ("name = \"b\"", "name = \"c\"", &[], &["remove NIC b", "add NIC c"]),
    ("name = \"b\"", "name = \"c\"", &["b"], &["!NIC b: it is to go", "!NIC c: b, which stays, has its socket"]),
    ("ageing-seconds = 60", "", &["b"], &["change switch lan: ageing-seconds"]),
    ("broadcast=100", "broadcast=200", &["b"], &["change switch lan: uplink-guard"]),
    ("link-local = \"pass\"", "", &["b"], &["change switch lan: link-local"]),
    ("\"tap:vm0,queues=2\", ", "\"null\", ", &["b"],
     &["remove port lan tap:vm0,queues=2", "add port lan null"]),
    ("max-tx-rate = 100", "max-tx-rate = 200", &["p0vf1"], &["change VF p0vf1: max-tx-rate"]),
    ("vlan = 7\nqos = 3", "", &["p0vf0"], &["change VF p0vf1: vlan"]),
    ("mailbox-rate = 9", "", &["p0vf0"], &["!chip p0: it is to change, and a VMM has it"]),
    ("mailbox-rate = 9", "", &["b"], &["change chip p0"]),
    ("port-rate = 1000", "port-rate = 2000", &["p0vf0"], &["change chip p0: port-rate"]),
    ("vfs = 3", "vfs = 2", &["p0vf0"], &["remove NIC p0vf2", "change chip p0: vfs"]),
    ("vfs = 3", "vfs = 2", &["p0vf2"], &["!chip p0: p0vf2 is to go, and a VMM has it"]),
    ("vfs = 3", "vfs = 4", &["p0vf2"], &["change chip p0: vfs", "add NIC p0vf3"]),
    ("vfs = 2\npf", "vfs = 1\npf", &[], &["change chip p1"]),
    ("\"/run/p0-{}\"", "\"/run/q0-{}\"", &["p0vf0"], &["!chip p0: it is to change"]),
    ("moderation = \"guest\"\ncapture", "moderation = \"guest\"\n#", &["p0vf1"], &["change NIC p0vf1: capture"]),
    ("port = \"null\"", "port = \"loopback\"", &["p1vf1"], &["!chip p1"]),
    ("workers = 3", "workers = 2", &[], &["!head workers: it holds from the start"]),
    ("sandbox = \"log\"", "", &[], &["!head sandbox"]),
    ("control-operate = [\"@4712\"]", "", &[], &["change head control roles"]),
    ("name = \"wan\"", "name = \"wan\"\n[[switch]]\nname = \"new\"\nports = [\"null\"]", &[], &["add switch new"]),
];

#[test]
fn each_change_of_a_file_is_a_step_or_a_reason() {
    let is = host(RICH);
    for (from, into, held, told) in CASES {
        assert!(RICH.contains(from), "{from}");
        let plan = plan(&is, &host(&RICH.replacen(from, into, 1)), held);
        let step = |step: &control::Step| {
            let words = step.words.join(", ");
            format!("{} {} {}: {words}", step.act.word(), step.kind, step.name)
        };
        let cannot =
            |cannot: &control::Cannot| format!("!{} {}: {}", cannot.kind, cannot.name, cannot.why);
        let steps = plan.told.iter().map(step);
        let all: Vec<String> = steps.chain(plan.cannot.iter().map(cannot)).collect();
        assert_eq!(all.len(), told.len(), "{told:?}: {all:?}");
        for (said, wanted) in all.iter().zip(*told) {
            assert!(said.starts_with(wanted), "{told:?}: {all:?}");
        }
        assert_eq!(plan.steps.is_empty(), plan.told.is_empty(), "{told:?}");
    }
}

#[test]
fn steps_take_away_before_they_put_in() {
    let is = host(RICH);
    // a's socket and port go to a new NIC, which stands on a new switch; lan goes with b.
    let text = RICH.replace("name = \"lan\"", "name = \"new\"");
    let text = text
        .replace("switch:lan", "switch:new")
        .replace("name = \"a\"", "name = \"z\"");
    let plan = plan(&is, &host(&text), &[]);
    let place = |wanted: fn(&Step) -> bool| plan.steps.iter().position(wanted).expect("step");
    let last_away = plan
        .steps
        .iter()
        .rposition(|step| matches!(step, Step::RemoveNic(_) | Step::RemoveSwitch(_)));
    let first_in = place(|step| matches!(step, Step::AddSwitch(_) | Step::AddNic(_)));
    assert!(last_away < Some(first_in), "{:?}", plan.told);
    assert!(
        place(|step| matches!(step, Step::RemoveNic(_)))
            < place(|step| matches!(step, Step::RemoveSwitch(_)))
    );
    assert!(
        place(|step| matches!(step, Step::AddSwitch(_)))
            < place(|step| matches!(step, Step::AddNic(_)))
    );
    assert!(plan.cannot.is_empty());
}

const COMMENTED: &str = "# The host in the cellar.

control = \"/run/c\" # for us
control-persist = true

# The room.
[[switch]]
name = \"lan\" # one
ports = [\"null\"] # out

# All machines follow.

# It serves pages.
[[nic]]
name = \"web\" # two
socket-path = \"/run/web\"
port = \"switch:lan\"

# It keeps data.
[[nic]]
name = \"db\"
socket-path = \"/run/db\" # three
port = \"switch:lan\"

[[nic]]
name = \"p0\"
model = \"82576\"
vfs = 2 # four
vf-socket-path = \"/run/vf{}\"
port = \"null\"

[[nic.vf]]
index = 1
max-tx-rate = 100 # five
# The end.
";

const COMMENTS: [&str; 12] = [
    "# The host in",
    "# for us",
    "# The room",
    "# one",
    "# All machines",
    "# It serves",
    "# two",
    "# It keeps",
    "# three",
    "# four",
    "# five",
    "# The end",
];

#[test]
fn comments_stay_where_a_file_is_changed() {
    let is = host(COMMENTED);
    let nic = |name: &str| {
        is.nics
            .iter()
            .find(|nic| nic.name == name)
            .expect("NIC")
            .clone()
    };
    let mut new = nic("web");
    (new.name, new.mac) = ("new".into(), crate::spec::NicMac([2, 0, 0, 0, 0, 9]));
    new.tenant = "new".into();
    new.socket = SocketSpec::Path("/run/new".into());
    let mut web = nic("web");
    web.pause = true;
    let switch = SwitchConfig {
        name: "other".into(),
        ..is.switches[0].clone()
    };
    let change = VfChange {
        max_tx_rate: Some(200),
        vlan: Some(7),
        ..VfChange::default()
    };
    let stream: PortSpec = "stream:/run/s".parse().expect("port");
    for (edit, gone, added) in [
        (
            Edit::AddNic(&new),
            &[][..],
            "\n[[nic]]\nname = \"new\"\nmodel = \"e1000\"\nsocket-path = \"/run/new\"",
        ),
        (Edit::AddNic(&web), &[], "pause = true"),
        (Edit::RemoveNic("web"), &["# It serves", "# two"], ""),
        (Edit::RemoveNic("db"), &["# It keeps", "# three"], ""),
        (Edit::RemoveNic("none"), &[], ""),
        (Edit::AddSwitch(&switch), &[], "name = \"other\""),
        (
            Edit::AddPort("lan", &stream),
            &[],
            "[\"null\", \"stream:/run/s\"] # out",
        ),
        (
            Edit::AddPort("lan", &PortSpec::Null),
            &[],
            "[\"null\"] # out",
        ),
        (
            Edit::RemovePort("lan", &[&stream, &PortSpec::Null]),
            &[],
            "ports = [] # out",
        ),
        (
            Edit::SetVf("p0", 1, &change),
            &[],
            "max-tx-rate = 200 # five",
        ),
        (
            Edit::SetVf("p0", 0, &change),
            &[],
            "index = 0\nmax-tx-rate = 200\nvlan = 7",
        ),
    ] {
        let text = edited(COMMENTED, edit).expect("can be");
        for comment in COMMENTS {
            assert_eq!(
                text.contains(comment),
                !gone.contains(&comment),
                "{edit:?} {comment}:\n{text}"
            );
        }
        assert!(text.contains(added), "{edit:?}:\n{text}");
        host(&text);
        // Once is enough.
        assert_eq!(edited(&text, edit).as_ref(), Ok(&text), "{edit:?}");
    }
    let gone = edited(COMMENTED, Edit::RemoveNic("none")).expect("can be");
    assert_eq!(gone, COMMENTED, "what needs no change has none");
    let again = edited(
        &edited(COMMENTED, Edit::AddNic(&new)).expect("in"),
        Edit::RemoveNic("new"),
    );
    assert_eq!(again.expect("out"), COMMENTED);
}

#[test]
fn comments_stay_where_a_chip_is_changed() {
    let is = host(COMMENTED);
    for (vfs, gone, added) in [
        (2, &[][..], "# five"),
        (1, &["# five"], "vfs = 1 # four"),
        (3, &[], "vfs = 3 # four"),
    ] {
        let words = control::ChipConfig {
            vfs,
            vf: is.chip_words("p0").and_then(|words| words.vf),
            ..is.chip_words("p0").expect("a chip")
        };
        let words = control::ChipConfig {
            vf: words
                .vf
                .map(|all| all.into_iter().filter(|vf| vf.index < vfs).collect()),
            ..words
        };
        let to = is.without_chip("p0").chip_beside(&words).expect("can be");
        let chip = to.chips.iter().find(|chip| chip.name == "p0");
        let table = to.chip_table(chip.expect("a chip"));
        let text = edited(COMMENTED, Edit::AddChip("p0", &table)).expect("can be");
        for comment in COMMENTS {
            let stays = text.contains(comment);
            assert_eq!(stays, !gone.contains(&comment), "{vfs} {comment}:\n{text}");
        }
        assert!(text.contains(added), "{vfs}:\n{text}");
        assert_eq!(plan(&host(&text), &to, &[]), Plan::default(), "{text}");
    }
}

#[test]
fn what_cannot_be_written_is_named() {
    let is = host(COMMENTED);
    let web = &is.nics.iter().find(|nic| nic.name == "web").expect("NIC");
    for (text, edit, named) in [
        ("nic = []\n", Edit::AddNic(web), "[[nic]]"),
        ("nic = 7\n", Edit::RemoveNic("web"), "[[nic]]"),
        ("x = [", Edit::RemoveNic("web"), "array"),
        ("", Edit::AddPort("lan", &PortSpec::Null), "no [[switch]]"),
        (
            "",
            Edit::SetVf("p0", 1, &VfChange::default()),
            "no [[nic]] \"p0\"",
        ),
    ] {
        let error = edited(text, edit).expect_err(named);
        assert!(
            error.contains(named) && !error.contains('\n'),
            "{named}: {error}"
        );
    }
}
