//! What goes over the socket.

pub mod cell;
pub mod chip;
pub mod config;
pub mod inside;
pub mod migrate;
pub mod set;
pub mod upgrade;
pub mod vf;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::idl::{records, words};

records! {
    asked
    /// A NIC, in the words of `[[nic]]` of a configuration file (docs/configuration.md), with `_` for `-`.
    NicConfig {
        /// Its name.
        name: String,
        /// Where its frames go, such as `switch:lan` or `user`; `tap:fd=0` is the first descriptor that comes with the call.
        port: String,
        /// The Unix socket for its VMM.
        socket_path: Option<String>,
        /// In its place a descriptor: which of those that come with the call; in replies, the daemon's number of it.
        fd: Option<u32>,
        /// The chip, such as `e1000`.
        model: Option<String>,
        /// The model revision that a new guest sees; the newest without.
        model_revision: Option<u16>,
        /// `vfio-user` or `vhost-user`.
        transport: Option<String>,
        /// Its MAC address.
        mac: Option<String>,
        /// Whose it is.
        tenant: Option<String>,
        /// The process that serves it: `main`, or one of its own by that name.
        cell: Option<String>,
        /// A pcapng file of all its frames.
        capture: Option<String>,
        /// MiB of that file, at which a new one begins.
        capture_mib: Option<u64>,
        /// Microseconds that its worker may stay awake for it.
        busy_poll_us: Option<u64>,
        /// When it interrupts: `guest`, `adaptive` or `fixed:N`.
        moderation: Option<String>,
        /// A file that keeps its EEPROM.
        eeprom: Option<String>,
        /// The link partner offers pause frames.
        pause: Option<bool>,
        /// A guest that only receives gets its frames in portions.
        receive_throttling: Option<bool>,
        /// It offers a Communication Status Block.
        csb: Option<bool>,
        /// Pairs of queues.
        queue_pairs: Option<u16>,
        /// A virtio-net offers no packed rings.
        split_rings: Option<bool>,
        /// The MTU that its driver is told.
        mtu: Option<u16>,
        /// It stands in for another NIC with its address.
        standby: Option<bool>,
        /// It tells its driver the hash of each frame's flow.
        hash_report: Option<bool>,
        /// `trap` or `page`.
        doorbell: Option<String>,
        /// It sends from its own address only.
        mac_lock: Option<bool>,
        /// Its frames wait where a receiver has no room.
        back_pressure: Option<bool>,
        /// What it may do on its switch.
        guard: Option<Guard>,
        /// `up` or `down`: whether its cable is in.
        link: Option<String>,
    }

    asked
    /// What a port may do on its switch.
    Guard {
        /// Most that comes from it, such as `1gbit` or `500mbit,100kpps`.
        tx_rate: Option<String>,
        /// Most that goes to it.
        rx_rate: Option<String>,
        /// Most flooded frames from it, such as `broadcast=100,multicast=100`.
        storm: Option<String>,
        /// Most addresses learned on it.
        max_macs: Option<u64>,
        /// The addresses that it may send from.
        allow_macs: Option<Vec<String>>,
        /// The VLANs that it is a member of, such as `untagged,10,20-29`.
        vlans: Option<String>,
        /// It exchanges frames with uplinks only.
        private: Option<bool>,
    }

    asked
    /// A switch, in the words of `[[switch]]` of a configuration file, with `_` for `-`.
    SwitchConfig {
        /// Its name.
        name: String,
        /// Its ports besides NICs, such as `tap:vm0`.
        ports: Option<Vec<String>>,
        /// Seconds that an address is remembered.
        ageing_seconds: Option<u64>,
        /// What each of `ports` may do.
        uplink_guard: Option<Guard>,
        /// `drop` or `pass`: what becomes of frames for groups that no bridge forwards.
        link_local: Option<String>,
    }

    told
    /// A NIC that runs.
    NicInfo {
        /// All its words.
        config: NicConfig,
        /// A VMM has it.
        connected: bool,
        /// It has a link: its cable is in, and so is that of its port.
        link: bool,
        /// Its model panicked and was taken off.
        failed: bool,
        /// The chip whose virtual function it is.
        chip: Option<String>,
        /// Its number there.
        vf: Option<u32>,
        /// The model revision that its guest sees.
        model_revision: Option<u16>,
    }

    told
    /// A switch that runs.
    SwitchInfo {
        /// All its words.
        config: SwitchConfig,
        /// The NICs on it.
        nics: Vec<String>,
        /// The chips whose wire leads to it.
        chips: Vec<String>,
    }

    told
    /// A port of a switch, besides NICs.
    PortInfo {
        /// The switch.
        switch: String,
        /// The port as it is written, such as `tap:vm0`.
        port: String,
        /// Its name in counters.
        counters: String,
    }

    told
    /// The counters of one thing.
    Section {
        /// `nic`, `switch-port`, `port`, `inlet`, `capture`, `vf`, `worker`, `tenant`, `control`, `process`.
        kind: String,
        /// Its name.
        name: String,
        /// What it counts.
        values: BTreeMap<String, u64>,
    }

    told
    /// A counter, explained.
    Reason {
        /// The kind of thing that counts it.
        kind: String,
        /// Its name.
        name: String,
        /// `drop`, `refusal`, `fault`, `delay`, `count` or `gauge`.
        class: String,
        /// What it says.
        meaning: String,
        /// The section of a manual, or the rule, that has it so.
        rule: String,
        /// Why it usually rises.
        cause: String,
        /// What to do.
        cure: String,
        /// Who counted it.
        counted: Vec<Counted>,
    }

    told
    /// One that counted something.
    Counted {
        /// Its name.
        name: String,
        /// How often.
        value: u64,
        /// Of a loss: it rose last within so many seconds. The daemon knows what it was asked for: counters have no times.
        rose_within: Option<u64>,
        /// And not within the last so many seconds.
        rose_before: Option<u64>,
    }

    asked
    /// A NIC to add.
    NicAdd {
        /// The NIC.
        nic: NicConfig,
        /// Only say whether it could be done.
        check: Option<bool>,
        /// Write it into the configuration file, too.
        persist: Option<bool>,
        /// Only if the host has this generation.
        if_generation: Option<u64>,
    }

    asked
    /// A switch to add.
    SwitchAdd {
        /// The switch.
        switch: SwitchConfig,
        /// Only say whether it could be done.
        check: Option<bool>,
        /// Write it into the configuration file, too.
        persist: Option<bool>,
        /// Only if the host has this generation.
        if_generation: Option<u64>,
    }

    asked
    /// A NIC to take away.
    NicRemove {
        /// Its name.
        name: String,
        /// It is no error if there is none.
        missing_ok: Option<bool>,
        /// Only say whether it could be done.
        check: Option<bool>,
        /// Write it into the configuration file, too.
        persist: Option<bool>,
        /// Only if the host has this generation.
        if_generation: Option<u64>,
    }

    asked
    /// A switch to take away.
    SwitchRemove {
        /// Its name.
        name: String,
        /// It is no error if there is none.
        missing_ok: Option<bool>,
        /// Only say whether it could be done.
        check: Option<bool>,
        /// Write it into the configuration file, too.
        persist: Option<bool>,
        /// Only if the host has this generation.
        if_generation: Option<u64>,
    }

    asked
    /// A port to add to a switch.
    PortAdd {
        /// The switch.
        switch: String,
        /// The port, such as `tap:vm0`; `tap:fd=0` is the first descriptor that comes with the call.
        port: String,
        /// Only say whether it could be done.
        check: Option<bool>,
        /// Write it into the configuration file, too.
        persist: Option<bool>,
        /// Only if the host has this generation.
        if_generation: Option<u64>,
    }

    asked
    /// A port to take away from a switch.
    PortRemove {
        /// The switch.
        switch: String,
        /// The port as it was written.
        port: String,
        /// It is no error if there is none.
        missing_ok: Option<bool>,
        /// Only say whether it could be done.
        check: Option<bool>,
        /// Write it into the configuration file, too.
        persist: Option<bool>,
        /// Only if the host has this generation.
        if_generation: Option<u64>,
    }

    told
    /// It is done.
    Done {}

    told
    /// What a change came to.
    Changed {
        /// Something is other than it was; with `check`, it would be.
        changed: bool,
        /// How often the host was changed so far.
        generation: u64,
    }

    asked
    /// Which NICs to list.
    NicList {
        /// One of them; all without a name.
        name: Option<String>,
    }

    told
    /// NICs.
    Nics {
        /// By name.
        nics: Vec<NicInfo>,
    }

    asked
    /// Which registers to look at.
    NicInspect {
        /// The NIC.
        name: String,
        /// A register: its name in the manual, of an array with `[N]` behind it for one, or its offset, as `0x100`; all
        /// without.
        register: Option<String>,
    }

    told
    /// Registers of a NIC.
    Registers {
        /// The chip.
        model: String,
        /// By offset.
        registers: Vec<Register>,
    }

    told
    /// A register, as a read would find it.
    Register {
        /// Its name in the manual.
        name: String,
        /// Which of an array of equal ones.
        element: Option<u32>,
        /// Where it is in the BAR of registers.
        offset: u32,
        /// What accesses do: `RO`, `RW`, `RC` …
        access: String,
        /// The manual's section.
        section: String,
        /// The value.
        value: u32,
    }

    asked
    /// Which switches to list.
    SwitchList {
        /// One of them; all without a name.
        name: Option<String>,
    }

    told
    /// Switches.
    Switches {
        /// By name.
        switches: Vec<SwitchInfo>,
    }

    asked
    /// Which ports to list.
    PortList {
        /// Those of one switch; all without a name.
        switch: Option<String>,
    }

    told
    /// Ports.
    Ports {
        /// By switch.
        ports: Vec<PortInfo>,
    }

    asked
    /// Which counters to read.
    MetricsGet {
        /// Those of one kind of thing; all without.
        kind: Option<String>,
        /// Those of things with these names; all without.
        things: Option<Vec<String>>,
        /// Only counters of these names; all without.
        names: Option<Vec<String>>,
        /// Of the counters that are 0, only these; all without.
        zeros: Option<Vec<String>>,
    }

    told
    /// Counters.
    Sections {
        /// Each thing's.
        sections: Vec<Section>,
    }

    asked
    /// Which counter to explain.
    Explain {
        /// Its name; all drops, refusals and faults that were counted without.
        name: Option<String>,
    }

    told
    /// Counters, explained.
    Reasons {
        /// One for each kind of thing that has a counter of that name.
        reasons: Vec<Reason>,
    }

    asked
    /// What is asked of the service itself.
    InfoGet {}

    asked
    /// What to tell of.
    Subscribe {
        /// Losses that begin and end, too: the daemon then reads all counters once a second.
        losses: Option<bool>,
    }

    told
    /// What there is, or what has changed since the last reply.
    News {
        /// Of the last change so far; the next is one more.
        sequence: u64,
        /// Everything, in the first reply and after some was lost.
        state: Option<Everything>,
        /// What has changed, in order.
        events: Vec<Event>,
        /// Changes that were not told one by one, because the client did not read; `state` has them.
        lost: Option<u64>,
    }

    told
    /// All that can change.
    Everything {
        /// NICs by name.
        nics: Vec<NicInfo>,
        /// Switches by name, with their ports.
        switches: Vec<SwitchInfo>,
    }

    whole
    /// A change.
    Event {
        /// What has happened.
        what: Happening,
        /// To whom: a NIC, a switch, or what has counted a loss.
        name: String,
        /// The port that came or went, as it is written; the counter of a loss; the words that have changed.
        detail: Option<String>,
        /// How often a loss was counted so far.
        count: Option<u64>,
    }

    asked
    /// Which interface to describe.
    Described {
        /// Its name.
        interface: String,
    }

    told
    /// What serves here.
    Info {
        /// Who made it.
        vendor: String,
        /// What it is.
        product: String,
        /// Its version.
        version: String,
        /// Where to read more.
        url: String,
        /// What can be called.
        interfaces: Vec<String>,
    }

    told
    /// An interface.
    Description {
        /// In Varlink's interface language.
        description: String,
    }

    asked
    /// What the daemon is asked of itself.
    StatusGet {}

    told
    /// How the daemon is.
    Status {
        /// Its version.
        version: String,
        /// Its process.
        pid: u32,
        /// The role of who asks: `monitor`, `operate` or `owner`.
        role: String,
        /// NICs that run.
        nics: u64,
        /// NICs that a VMM has.
        connected: u64,
        /// Switches.
        switches: u64,
        /// How often the host was changed so far.
        generation: u64,
        /// Seconds until a configuration on trial is taken back.
        rollback_in: Option<u64>,
        /// Another program has taken the place on disk of the one that runs: `hypernic upgrade` makes the daemon that one. Never
        /// without a keeper.
        replaced: Option<bool>,
    }
}

words! {
    /// What happens.
    Happening {
        /// A NIC was added.
        NicAdded = "nic_added",
        /// A NIC was removed.
        NicRemoved = "nic_removed",
        /// Words of a NIC have changed, and its VMM keeps it.
        NicChanged = "nic_changed",
        /// A VMM has connected to a NIC.
        ClientConnected = "client_connected",
        /// The VMM of a NIC has gone.
        ClientGone = "client_gone",
        /// A NIC has a link.
        LinkUp = "link_up",
        /// A NIC has no link.
        LinkDown = "link_down",
        /// The model of a NIC panicked, and the NIC was taken off.
        NicFailed = "nic_failed",
        /// A switch was added.
        SwitchAdded = "switch_added",
        /// A switch was removed.
        SwitchRemoved = "switch_removed",
        /// Words of a switch have changed.
        SwitchChanged = "switch_changed",
        /// A port was opened.
        PortAdded = "port_added",
        /// A port was closed.
        PortRemoved = "port_removed",
        /// Something begins to be lost or refused.
        LossBegins = "loss_begins",
        /// Nothing more of it was lost for five seconds.
        LossEnds = "loss_ends",
    }

    /// What is done to something.
    Act {
        /// It is made.
        Add = "add",
        /// It is changed, or taken away and made anew.
        Change = "change",
        /// It is taken away.
        Remove = "remove",
    }

    /// What a virtual function is told of the link.
    State {
        /// As the port's is.
        Auto = "auto",
        /// Up.
        Enable = "enable",
        /// Down.
        Disable = "disable",
    }
}

impl State {
    /// The state of a word.
    pub fn of(word: &str) -> Option<Self> {
        [State::Auto, State::Enable, State::Disable]
            .into_iter()
            .find(|state| state.word() == word)
    }
}
