//! The interfaces: what can be called, and who may.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::idl::{Defined, comments};
use crate::message::{Request, without_nulls};
use crate::types::cell::*;
use crate::types::chip::*;
use crate::types::config::*;
use crate::types::inside::*;
use crate::types::migrate::*;
use crate::types::set::*;
use crate::types::upgrade::*;
use crate::types::vf::*;
use crate::types::*;

/// What a user of the control socket may do; each may what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Look.
    Monitor,
    /// Change what runs.
    Operate,
    /// Add and take away.
    Owner,
}

impl Role {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Monitor => "monitor",
            Role::Operate => "operate",
            Role::Owner => "owner",
        }
    }
}

/// The parameters of a method.
pub trait Method: Serialize + DeserializeOwned + Defined {
    /// Interface and method, with dots.
    const NAME: &'static str;
    /// What it replies.
    type Reply: Serialize + DeserializeOwned + Defined;
}

/// An interface.
pub struct Interface {
    /// Its name.
    pub name: &'static str,
    describe: fn() -> String,
}

impl Interface {
    /// It in Varlink's interface language.
    pub fn description(&self) -> String {
        (self.describe)()
    }

    /// The interface of a name.
    pub fn find(name: &str) -> Option<&'static Interface> {
        INTERFACES.iter().find(|one| one.name == name)
    }
}

macro_rules! interfaces {
    ($(
        $(#[doc = $about:literal])*
        $interface:literal [$($type:ident)*] $($errors:expr)? => {$(
            $(#[doc = $doc:literal])*
            $role:ident $method:literal $call:ident -> $reply:ident,
        )*}
    )*) => {
        /// All interfaces.
        pub const INTERFACES: &[Interface] = &[$(Interface {
            name: $interface,
            describe: || {
                let mut text = comments("", &[$($about),*]);
                text += concat!("interface ", $interface, "\n");
                $(text += "\n"; text += &$type::definition();)*
                $(
                    text += "\n";
                    text += &comments("", &[$($doc),*]);
                    let role = Role::$role.name();
                    text += &format!("# Role: {role}.\n");
                    let (asked, told) = ($call::members(), $reply::members());
                    text += &format!("method {} {asked} -> {told}\n", $method);
                )*
                $(text += "\n"; text += $errors;)?
                text
            },
        }),*];

        /// A call, understood.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Call {
            $($($(#[doc = $doc])* $call($call),)*)*
        }

        impl Call {
            /// What a method is called for.
            ///
            /// # Errors
            /// There is no such method, or these are not its parameters.
            pub fn parse(method: &str, parameters: Map<String, Value>) -> Result<Self, Failure> {
                $($(
                    if method == <$call as Method>::NAME {
                        let parameters = serde_json::from_value(Value::Object(parameters));
                        return parameters.map(Call::$call).map_err(|error| {
                            Failure::InvalidParameter { parameter: error.to_string() }
                        });
                    }
                )*)*
                Err(no_method(method))
            }

            /// As it goes over the socket.
            pub fn to_request(&self) -> Request {
                match self {
                    $($(Call::$call(call) => Request::of(call),)*)*
                }
            }

            /// Who may call it.
            pub const fn role(&self) -> Role {
                match self {
                    $($(Call::$call(_) => Role::$role,)*)*
                }
            }

            /// Its method.
            pub const fn method(&self) -> &'static str {
                match self {
                    $($(Call::$call(_) => <$call as Method>::NAME,)*)*
                }
            }
        }

        $($(
            impl Method for $call {
                const NAME: &'static str = concat!($interface, ".", $method);
                type Reply = $reply;
            }
        )*)*
    };
}

impl Request {
    /// The call of a method.
    pub fn of<M: Method>(call: &M) -> Self {
        let parameters = match serde_json::to_value(call).map(without_nulls) {
            Ok(Value::Object(members)) => members,
            _ => Map::new(),
        };
        Request {
            method: M::NAME.into(),
            parameters,
            ..Request::default()
        }
    }
}

fn no_method(method: &str) -> Failure {
    let interface = method
        .rsplit_once('.')
        .map_or("", |(interface, _)| interface);
    match Interface::find(interface) {
        Some(_) => Failure::MethodNotFound {
            method: method.into(),
        },
        None => Failure::InterfaceNotFound {
            interface: interface.into(),
        },
    }
}

/// What Varlink's own interface declares besides its methods.
const SERVICE_ERRORS: &str = "\
# There is no such interface.
error InterfaceNotFound (interface: string)

# The interface has no such method.
error MethodNotFound (method: string)

# The interface has the method, and this service does not.
error MethodNotImplemented (method: string)

# A parameter is missing, unknown or of another type.
error InvalidParameter (parameter: string)

# The caller may not call the method.
error PermissionDenied ()

# The method has several replies, and the call asks for one.
error ExpectedMore ()
";

interfaces! {
    /// What every Varlink service has.
    "org.varlink.service" [] SERVICE_ERRORS => {
        /// What serves here, and which interfaces it has.
        Monitor "GetInfo" InfoGet -> Info,
        /// One of them, in the interface language.
        Monitor "GetInterfaceDescription" Described -> Description,
    }

    /// The daemon as a whole, and the errors of all interfaces. After an error, nothing has changed.
    "io.hypernic.Control" [] Failure::DECLARED => {
        /// How it is, and what the caller may do.
        Monitor "GetStatus" StatusGet -> Status,
    }

    /// The daemon becomes another process, and may become another program; guests notice nothing.
    "io.hypernic.Upgrade" [] => {
        /// What a NIC would leave to it, for programs that want to know whether they could go on.
        Owner "GetStates" UpgradeStates -> NicStates,
        /// Begins; the connections of the control socket end with this process.
        Owner "Begin" UpgradeBegin -> UpgradeBegun,
    }

    /// Processes of their own for some of the NICs. What is asked of the main one is asked of all.
    "io.hypernic.Cell" [CellInfo] => {
        /// Which there are.
        Monitor "List" CellList -> Cells,
    }

    /// NICs that move to another host, in two steps: saved and loaded, then committed or aborted. The source decides, so it is asked
    /// first; what is asked again is done once.
    "io.hypernic.Migrate" [Guard NicConfig VfConfig MoveSide MoveStep Move] => {
        /// At the source: a NIC stands still, is saved, and its address is forgotten.
        Owner "Save" MigrateSave -> MoveSaved,
        /// At the destination: the NIC comes, and stands still.
        Owner "Load" MigrateLoad -> Changed,
        /// At the source, the NIC goes; then at the destination, it announces its address and is served.
        Owner "Commit" MigrateCommit -> Changed,
        /// At the source, the NIC is served as before; then at the destination, it goes.
        Owner "Abort" MigrateAbort -> Changed,
        /// Which moves there are.
        Monitor "List" MigrateList -> Moves,
    }

    /// NICs. They come and go while others run; nothing of others' traffic is lost.
    "io.hypernic.Nic" [Guard NicConfig NicChange NicInfo Register Vector Region Decision] => {
        /// Makes a NIC and serves it. One that is there already, with these words, is left as it is.
        Owner "Add" NicAdd -> Changed,
        /// Changes words of a NIC that its guest need not know. Its VMM keeps it, and frames go on.
        Owner "Set" NicSet -> Changed,
        /// Pulls the cable of a NIC, or puts it in. Of a VF, changes what it is told of the link.
        Operate "Link" NicLink -> Changed,
        /// Takes a NIC away. Its VMM is disconnected.
        Owner "Remove" NicRemove -> Changed,
        /// What there is.
        Monitor "List" NicList -> Nics,
        /// The registers as a read would find them. The look has no effect: nothing is cleared or acknowledged.
        Monitor "Inspect" NicInspect -> Registers,
        /// What became of interrupts.
        Monitor "Interrupts" NicInterrupts -> Vectors,
        /// What would become of a frame, by the tables, filters and guards as they are now. Nothing comes of it.
        Monitor "Trace" NicTrace -> Traced,
        /// The memory of guests that NICs reach.
        Monitor "Memory" NicMemory -> Regions,
    }

    /// Switches.
    "io.hypernic.Switch" [Guard SwitchConfig SwitchChange SwitchInfo Address] => {
        /// Makes a switch with its ports. One that is there already, with these words, is left as it is.
        Owner "Add" SwitchAdd -> Changed,
        /// Changes words of a switch. NICs on it notice nothing.
        Owner "Set" SwitchSet -> Changed,
        /// Takes a switch away that no NIC is on.
        Owner "Remove" SwitchRemove -> Changed,
        /// What there is.
        Monitor "List" SwitchList -> Switches,
        /// Where switches have seen whom.
        Monitor "Addresses" SwitchAddresses -> Addresses,
    }

    /// Ports of switches to the outside: TAPs, the user network, streams.
    "io.hypernic.Port" [PortInfo] => {
        /// Opens a port on a switch. One that is there already is left as it is.
        Owner "Add" PortAdd -> Changed,
        /// Closes a port.
        Owner "Remove" PortRemove -> Changed,
        /// What there is.
        Monitor "List" PortList -> Ports,
    }

    /// Chips with virtual functions, and with them the NICs that these are.
    "io.hypernic.Chip" [VfConfig ChipConfig ChipChange ChipInfo] => {
        /// Makes a chip and serves its functions. One that is there already, with these words, is left as it is.
        Owner "Add" ChipAdd -> Changed,
        /// Changes a chip. Functions that stay notice nothing, if their chip need not be made anew.
        Owner "Set" ChipSet -> Changed,
        /// Takes a chip away with all its functions. Their VMMs are disconnected.
        Owner "Remove" ChipRemove -> Changed,
        /// What there is.
        Monitor "List" ChipList -> Chips,
    }

    /// Virtual functions that the daemon controls.
    "io.hypernic.Vf" [State Storm VfChange Refusal Vf] => {
        /// Changes the policy of a virtual function: all of it, or nothing.
        Operate "Set" VfSet -> Changed,
        /// Lets a virtual function that was shut down try again.
        Operate "Revive" VfRevive -> Done,
        /// Tells a virtual function that it will be taken away.
        Operate "Leave" VfLeave -> Done,
        /// Resets a chip: its virtual functions are told, and start anew.
        Operate "Reset" VfReset -> Done,
        /// What is laid down for virtual functions, and what they were refused.
        Monitor "Show" VfShow -> Vfs,
    }

    /// The host as a configuration file. While a configuration is on trial, nothing else can be changed.
    "io.hypernic.Config" [Act Step Cannot] => {
        /// What runs, as a file that makes the same host.
        Monitor "Dump" ConfigDump -> ConfigText,
        /// What a file would change.
        Owner "Plan" ConfigPlan -> Plan,
        /// Has the host be what a file says: all of it, or nothing has changed.
        Owner "Apply" ConfigApply -> Plan,
        /// What is on trial stays.
        Owner "Confirm" ConfigConfirm -> Changed,
        /// What is on trial goes, and all is as it was before.
        Owner "Rollback" ConfigRollback -> Changed,
    }

    /// What passes a NIC.
    "io.hypernic.Capture" [CaptureInfo] => {
        /// Sends all frames of a NIC on the connection: call it with `upgrade`. A client that reads too slowly misses
        /// frames, which are counted.
        Operate "Start" CaptureStart -> CaptureStarted,
        /// Who captures.
        Monitor "List" CaptureList -> Captures,
    }

    /// Counters.
    "io.hypernic.Metrics" [Section] => {
        /// What everything counts.
        Monitor "Get" MetricsGet -> Sections,
    }

    /// What changes.
    "io.hypernic.Monitor" [Guard NicConfig NicInfo SwitchConfig SwitchInfo Happening Event Everything] => {
        /// First what there is, then each change, until the client leaves: call it with `more`. A client that does not
        /// read holds up nobody: it is told how many changes it has lost, and what there is now.
        Monitor "Subscribe" Subscribe -> News,
    }

    /// Why frames were dropped.
    "io.hypernic.Drops" [Counted Reason] => {
        /// What a counter means, and who counted it.
        Monitor "Explain" Explain -> Reasons,
    }
}
