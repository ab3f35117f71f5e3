//! Every word of the configuration file, for `hypernic help WORD` and docs/words.md.

/// A word.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    /// As it is written.
    pub name: &'static str,
    /// A value for it.
    pub example: &'static str,
    /// What it does.
    pub meaning: &'static str,
    /// What holds without it; in backquotes, if that can be written too.
    pub default: &'static str,
}

const fn word(
    name: &'static str,
    example: &'static str,
    meaning: &'static str,
    default: &'static str,
) -> Word {
    Word {
        name,
        example,
        meaning,
        default,
    }
}

/// Where words stand, and which.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// As a title.
    pub title: &'static str,
    /// The words.
    pub words: &'static [Word],
    /// What else there is to say.
    note: &'static str,
}

/// The parts of a file.
pub const PARTS: &[Part] = &[
    Part {
        title: "At the head",
        words: HEAD,
        note: "",
    },
    Part {
        title: "In a `[[switch]]`",
        words: SWITCH,
        note: "",
    },
    Part {
        title: "In a `[[nic]]`",
        words: NIC,
        note: "The options of `hypernic run` have the same names.",
    },
    Part {
        title: "In a `guard`",
        words: GUARD,
        note: "`guard = { … }` in a `[[nic]]` limits what it may do on a switch; `uplink-guard` in a `[[switch]]` limits each of its \
            `ports`, and has no `private` and `allow-macs`. All but `allow-macs` are options of `hypernic run`, too.",
    },
    Part {
        title: "In a `[[nic.vf]]`",
        words: VF,
        note: "The policy of one [VF](sriov.md), in the words of `ip link set … vf`.",
    },
];

/// At the head of the file.
const HEAD: &[Word] = &[
    word(
        "workers",
        "3",
        "threads that serve all NICs, 1 to 64",
        "processors, at most 4",
    ),
    word(
        "keeper",
        "false",
        "serves in a child process, which is started again when it dies ([survival](survival.md))",
        "`true`",
    ),
    word(
        "control",
        r#""/run/hypernic/control.sock""#,
        "the socket where commands reach the daemon ([control](control.md)); with it the file may have no `[[nic]]`",
        "none",
    ),
    word(
        "sandbox",
        r#""strict""#,
        r#"what the daemon gives up once it runs: `"default"`, `"strict"`, `"log"`, `"off"` ([sandbox](sandbox.md))"#,
        r#"`"default"`"#,
    ),
    word(
        "sandbox-paths",
        r#"["/srv/vms"]"#,
        "absolute paths of folders for what commands add, besides the folders that the file names",
        "none",
    ),
    word(
        "sandbox-network",
        "false",
        "whether user networks may be opened",
        "with a user network or `control`",
    ),
    word(
        "control-monitor",
        r#"["prometheus", "@staff"]"#,
        "users, and groups with `@`, that may look ([control](roles.md))",
        "none",
    ),
    word(
        "control-operate",
        r#"["alice"]"#,
        "users and groups that may also change VFs, and capture",
        "none",
    ),
    word(
        "control-owner",
        r#"["@hypernic"]"#,
        "users and groups that may also add and remove NICs, switches and ports",
        "none",
    ),
    word(
        "control-group",
        r#""root""#,
        "the group of the control socket's file, by its name or number",
        "the daemon's",
    ),
    word(
        "control-mode",
        r#""0660""#,
        "the mode of the control socket's file",
        "0600; 0666 if a role is given",
    ),
    word(
        "control-persist",
        "true",
        "commands with `--persist` [write into this file](apply.md#write-into-the-file)",
        "`false`",
    ),
    word(
        "socket-group",
        r#""root""#,
        "the group of the files of NICs' sockets, by its name or number, such as `\"kvm\"`; the daemon's user must be a member",
        "the daemon's",
    ),
    word(
        "socket-mode",
        r#""0660""#,
        "the mode of the files of NICs' sockets; a VMM needs the right to write",
        "what the umask leaves",
    ),
    word(
        "profile",
        r#""multi-tenant""#,
        r#"`"multi-tenant"`: the guards are on by default, [several tenants](configuration.md#several-tenants)"#,
        r#"`"single-tenant"`"#,
    ),
    word(
        "cells",
        r#""tenant""#,
        r#"in which process NICs are served that have no `cell`: `"one"`, the main one; `"tenant"`, one for each tenant ([cells](cells.md))"#,
        "the main one; in the profile for tenants with `control`, one for each",
    ),
];

/// In a `[[switch]]`.
const SWITCH: &[Word] = &[
    word(
        "name",
        r#""lan""#,
        r#"its name, for `port = "switch:NAME"`"#,
        "required",
    ),
    word(
        "ports",
        r#"["user", "tap:vm0"]"#,
        "its ports other than NICs",
        "none",
    ),
    word(
        "ageing-seconds",
        "600",
        "how long it remembers an address, 10 to 1000000",
        "`300`",
    ),
    word(
        "uplink-guard",
        r#"{ storm = "broadcast=100" }"#,
        "a [guard](#in-a-guard) for each of its `ports`",
        "none",
    ),
    word(
        "link-local",
        r#""pass""#,
        r#"`"pass"`: frames for 01-80-C2-00-00-0X (LACP, LLDP, 802.1X, STP) reach all ports, but for pause frames. `"drop"`: none does (`drop_reserved`)"#,
        r#"`"drop"`"#,
    ),
];

/// In a `[[nic]]`.
const NIC: &[Word] = &[
    word(
        "name",
        r#""web""#,
        "its name in logs and counters",
        "required",
    ),
    word(
        "tenant",
        r#""alice""#,
        "whose it is ([several tenants](configuration.md#several-tenants)); VFs inherit it, and `[[nic.vf]]` can override it",
        "its own name",
    ),
    word(
        "cell",
        r#""tenant-a""#,
        r#"the process that serves it: one of its own by that name, or `"main"` ([cells](cells.md)); needs `control`. A chip's functions are where it is"#,
        "as `cells` says",
    ),
    word(
        "model",
        r#""82576""#,
        "the chip: a [model](configuration.md#the-command-line)",
        r#"`"e1000"`"#,
    ),
    word(
        "transport",
        r#""vhost-user""#,
        r#"`"vfio-user"`: the VMM has a PCI function. `"vhost-user"`: it has a virtio-net's registers, and hypernic its rings; `virtio-net` only, without `doorbell` and `eeprom` ([vhost-user](vhost-user.md))"#,
        r#"`"vfio-user"`"#,
    ),
    word(
        "socket-path",
        r#""/run/hypernic/web.sock""#,
        "the Unix socket for the VMM",
        "this or `fd` is required",
    ),
    word(
        "fd",
        "3",
        "the number of an inherited socket that listens, or is connected, in place of `socket-path`",
        "this or `socket-path` is required",
    ),
    word(
        "port",
        r#""switch:lan""#,
        "where frames go: a [port](configuration.md#ports) or `switch:NAME`; of a chip with VFs, where its wire leads",
        "required",
    ),
    word(
        "mac",
        r#""52:54:00:00:00:01""#,
        "its address",
        "made from its name, the same every time",
    ),
    word(
        "capture",
        r#""/var/tmp/web.pcapng""#,
        "a pcapng file of all its frames. Only its owner can read it; a symbolic link is refused",
        "none",
    ),
    word(
        "capture-mib",
        "64",
        "MiB of that file, 16 to 1048576. A full one becomes `FILE.1`, and a new one begins (`capture_rotated`)",
        "`1024`",
    ),
    word(
        "busy-poll-us",
        "0",
        "microseconds a worker may stay awake for the next register access, 0 (never) to 1000",
        "`100`",
    ),
    word(
        "moderation",
        r#""fixed:8000""#,
        r#"when it interrupts its guest: `"adaptive"`, `"guest"`, `"fixed:N"` ([moderation](moderation.md))"#,
        r#"`"adaptive"`; `"guest"` for an 82576"#,
    ),
    word(
        "receive-throttling",
        "true",
        "gives an overloaded guest time for its programs; for the 82540EM family only ([moderation](moderation.md))",
        "`false`",
    ),
    word(
        "eeprom",
        r#""/var/lib/hypernic/web.eeprom""#,
        "a file that keeps the EEPROM across restarts. If the file has another address than `mac`, the file wins",
        "none",
    ),
    word(
        "pause",
        "true",
        "the link partner offers pause frames; not for an 82576 with VFs, a Realtek chip or a `virtio-net`",
        "`false`",
    ),
    word(
        "csb",
        "true",
        "offers shared memory to drivers that know it; for the 82540EM family and the RTL8168C, not with `doorbell = \"page\"` ([CSB](csb.md))",
        "`false`",
    ),
    word(
        "model-revision",
        "1",
        "the model revision that a new guest sees; set it for a guest that is to move to a host of an older release ([versions](versioning.md#model-revisions))",
        "the newest",
    ),
    word(
        "queue-pairs",
        "4",
        "pairs of queues of a virtio-net, 1 to 16: one for each processor of the guest. Each flow keeps to one",
        "`1`",
    ),
    word(
        "split-rings",
        "true",
        "a virtio-net offers no packed rings, for a driver that has trouble with them",
        "`false`",
    ),
    word(
        "mtu",
        "9000",
        "the MTU that a virtio-net tells its driver, 68 to 65535; the driver takes it as its own and as the largest",
        "none",
    ),
    word(
        "standby",
        "true",
        "a virtio-net stands in for another NIC of the guest with the same address: Linux's `net_failover` joins them",
        "`false`",
    ),
    word(
        "hash-report",
        "true",
        "a virtio-net tells its driver the hash of each frame's flow; costs a hash a frame",
        "`false`",
    ),
    word(
        "doorbell",
        r#""page""#,
        r#"`"trap"`: the guest's tail writes are messages. `"page"`: they go to memory that the guest shares; 82576, and 82540EM family for drivers that poll, without `csb` ([doorbells](design/doorbells.md))"#,
        r#"`"trap"`"#,
    ),
    word(
        "link",
        r#""down""#,
        "`\"down\"`: the NIC's cable is pulled, until `hypernic nic link NAME up`",
        r#"`"up"`"#,
    ),
    word(
        "mac-lock",
        "true",
        "frames with the NIC's address come from it only, and it sends from no other address",
        "`false`",
    ),
    word(
        "back-pressure",
        "false",
        "where a receiver has no room, the NIC's frames wait with it; `false`: they are dropped, so that no slow neighbour holds up its other frames",
        "`true`",
    ),
    word(
        "guard",
        r#"{ tx-rate = "1gbit" }"#,
        "[limits](#in-a-guard) what it may do on a switch",
        "none",
    ),
    word(
        "vfs",
        "7",
        "how many VFs, 1 to 1000: `p0vf0`, `p0vf1`, …",
        "none",
    ),
    word(
        "pf",
        r#""guest""#,
        r#"who controls the [VFs](sriov.md): `"daemon"`, or `"guest"`: [a guest's driver](sriov.md#a-guest-controls-the-vfs) on `socket-path`"#,
        r#"`"daemon"`"#,
    ),
    word(
        "pf-places-vf-rings",
        "true",
        "a guest that has the PF may place and start the rings of VFs, as on the chip: it can then read and write the memory of their guests",
        "`false`",
    ),
    word(
        "vf-socket-path",
        r#""/run/hypernic/p0-vf{}.sock""#,
        "their sockets; `{}` becomes the VF's number",
        "required with `vfs`, unless each `[[nic.vf]]` has its own",
    ),
    word(
        "port-rate",
        "1000",
        "the wire's rate in Mbit/s, of which each `min-tx-rate` is a part",
        "none",
    ),
];

/// In a `guard`.
const GUARD: &[Word] = &[
    word(
        "tx-rate",
        r#""1gbit,200kpps,burst=10ms""#,
        "the most it sends, in bits and frames per second. Excess frames wait in the guest's ring; none is lost",
        "none",
    ),
    word(
        "rx-rate",
        r#""500mbit""#,
        "the most it receives. Above that its senders find it full, and wait at most 20 ms",
        "none",
    ),
    word(
        "storm",
        r#""broadcast=100,multicast=1000,unknown=100""#,
        "the most flooded frames per second from it, each kind separately",
        "none",
    ),
    word(
        "max-macs",
        "8",
        "the most addresses the switch learns on it",
        "1024",
    ),
    word(
        "allow-macs",
        r#"["52:54:00:00:00:07"]"#,
        "the only addresses it may send from; no other port may use them. `mac-lock` is the same with the NIC's own address",
        "none",
    ),
    word(
        "vlans",
        r#""untagged,10,20-29""#,
        "the VLANs it is a member of. Frames of other VLANs are dropped both ways",
        "none",
    ),
    word(
        "private",
        "true",
        "it exchanges frames with the switch's `ports` only. Frames for a neighbour go there too, so that an external switch sees them and decides",
        "`false`",
    ),
];

/// In a `[[nic.vf]]`.
const VF: &[Word] = &[
    word("index", "0", "the VF's number", "required"),
    word(
        "tenant",
        r#""alice""#,
        "whose it is ([several tenants](configuration.md#several-tenants))",
        "the NIC's",
    ),
    word(
        "socket-path",
        r#""/run/hypernic/alice.sock""#,
        "its socket",
        "from `vf-socket-path`",
    ),
    word(
        "capture",
        r#""/var/tmp/vf0.pcapng""#,
        "a pcapng file of its frames",
        "none",
    ),
    word(
        "mac",
        r#""52:54:00:00:00:10""#,
        "its address. The guest cannot change it unless the VF is trusted",
        "the guest may choose",
    ),
    word(
        "vlan",
        "100",
        "a VLAN tag that the chip inserts into what the VF sends and strips from what it receives",
        "none",
    ),
    word(
        "qos",
        "3",
        "that tag's priority, 0 to 7; with `vlan` only",
        "`0`",
    ),
    word(
        "trust",
        "true",
        "the guest may choose its addresses even if `mac` is set",
        "`false`",
    ),
    word(
        "spoofchk",
        "false",
        "the VF may send only from its own addresses and into its own VLANs",
        "`true`",
    ),
    word(
        "state",
        r#""disable""#,
        r#"the link state its driver sees: `"auto"`, `"enable"`, `"disable"`"#,
        r#"`"auto"`"#,
    ),
    word(
        "max-tx-rate",
        "100",
        "the most it sends, in Mbit/s. Excess frames wait in its ring",
        "no limit",
    ),
    word(
        "min-tx-rate",
        "10",
        "its guaranteed part of `port-rate`, in Mbit/s, which no other single VF can take",
        "none",
    ),
    word(
        "storm",
        r#""broadcast=100,multicast=1000""#,
        r#"the most flooded frames per second: `"broadcast=100,multicast=1000"`"#,
        "no limit",
    ),
    word(
        "interrupts",
        "8000",
        "the most interrupts per second from each of its vectors",
        "no limit",
    ),
    word(
        "moderation",
        r#""adaptive""#,
        "overrides the NIC's setting ([moderation](moderation.md))",
        "the NIC's",
    ),
    word(
        "mailbox-rate",
        "100",
        "the most mailbox messages per second. Faster ones are answered later",
        "`1000`",
    ),
    word(
        "strict",
        "true",
        "frames that it may not send count as misbehaviour; otherwise they are only dropped",
        "`false`",
    ),
];

/// docs/words.md.
pub fn page() -> String {
    let mut text = String::from(
        "# Every word of the configuration file\n\n\
         `hypernic help WORD` prints one of them. [Configuration](configuration.md) explains how they go together, and \
         `hypernic serve --check FILE` says what a file makes. `make docs` writes this page from the table in \
         `hypernic/src/config/reference.rs`; tests fail when a word has no row, when an example is refused, and when a \
         default is another.\n",
    );
    for part in PARTS {
        text += &format!("\n## {}\n", part.title);
        if !part.note.is_empty() {
            text += &format!("\n{}\n", part.note);
        }
        text += "\n| word | meaning | without it |\n|---|---|---|\n";
        for word in part.words {
            text += &format!(
                "| `{} = {}` | {} | {} |\n",
                word.name, word.example, word.meaning, word.default
            );
        }
    }
    text
}

/// What is said of a word, wherever it may stand.
pub fn explain(name: &str) -> Option<String> {
    let mut text = String::new();
    for part in PARTS {
        for word in part.words.iter().filter(|word| word.name == name) {
            text += &format!(
                "{}: {} = {}\n\n  {}\n  Without it: {}\n\n",
                part.title, word.name, word.example, word.meaning, word.default
            );
        }
    }
    (!text.is_empty()).then_some(text)
}
