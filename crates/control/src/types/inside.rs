//! What NICs and switches have inside, and what passes them.

use serde::{Deserialize, Serialize};

use crate::idl::records;

records! {
    told
    /// An address that a switch knows.
    Address {
        /// The switch, or the chip whose switch it is.
        switch: String,
        /// The address.
        mac: String,
        /// Its VLAN; 0 while the switch is one domain.
        vlan: u16,
        /// The port it was seen on.
        port: String,
        /// Seconds since it was seen.
        seconds: u64,
    }

    told
    /// An interrupt of a NIC.
    Vector {
        /// The NIC.
        nic: String,
        /// `intx`, `msi` or `msix`.
        kind: String,
        /// Its number.
        vector: u32,
        /// The VMM has given an eventfd for it.
        armed: bool,
        /// The VMM or the guest has masked it.
        masked: bool,
        /// An interrupt waits; of the pin, the level.
        pending: bool,
        /// Interrupts signalled to the VMM.
        signalled: u64,
        /// Interrupts that had to wait, because the vector was masked or had no eventfd.
        held: u64,
        /// Interrupts that had nothing to add to one that waits.
        merged: u64,
        /// Times that something began to wait in the NIC: guest or operator want fewer interrupts.
        delayed: u64,
    }

    told
    /// A decision about a frame.
    Decision {
        /// The NIC, or the port of a switch, that decides.
        at: String,
        /// What it decides.
        what: String,
        /// The counter that would rise with it; `Explain` says what it means.
        counter: Option<String>,
    }

    told
    /// A region of a guest's memory that a NIC reaches.
    Region {
        /// The NIC.
        nic: String,
        /// Where it is for the guest.
        address: u64,
        /// Its length.
        bytes: u64,
        /// The NIC may read it.
        read: bool,
        /// The NIC may write it.
        write: bool,
        /// It is mapped here; what is not is asked of the VMM.
        mapped: bool,
    }

    asked
    /// Whose addresses are wanted.
    SwitchAddresses {
        /// One switch; all without a name.
        name: Option<String>,
    }

    told
    /// Addresses.
    Addresses {
        /// By switch, VLAN and address.
        addresses: Vec<Address>,
    }

    asked
    /// Whose interrupts are wanted.
    NicInterrupts {
        /// One NIC; all without a name.
        name: Option<String>,
    }

    told
    /// Interrupts.
    Vectors {
        /// By NIC. One over vhost-user has none of its own: its VMM has them.
        vectors: Vec<Vector>,
    }

    asked
    /// A frame to be followed.
    NicTrace {
        /// The NIC whose guest sends it.
        name: String,
        /// The frame, from its destination on and without FCS, in hexadecimal digits.
        frame: String,
        /// It comes to the NIC instead.
        received: Option<bool>,
    }

    told
    /// What would become of a frame.
    Traced {
        /// Decisions, in their order.
        steps: Vec<Decision>,
        /// NICs and ports that would get it.
        reached: Vec<String>,
    }

    asked
    /// Whose memory is wanted.
    NicMemory {
        /// One NIC; all without a name.
        name: Option<String>,
    }

    told
    /// Memory.
    Regions {
        /// By NIC and address.
        regions: Vec<Region>,
        /// Bytes of memory that the daemon has now, guests' included as far as it has touched it.
        resident: u64,
        /// Of those, bytes of shared memory: guests'.
        resident_shared: u64,
        /// Descriptors that the daemon has open, where the kernel tells (from Linux 6.2 on).
        descriptors: Option<u64>,
    }

    asked
    /// A NIC whose frames are wanted.
    CaptureStart {
        /// Its name. With `drops` it may be a port of a switch, as `lan/tap:vm0`.
        nic: String,
        /// Bytes of each frame; all without.
        snaplen: Option<u32>,
        /// Only frames from and for it that are lost by it, its switch or its own port, each with the reason as a comment; of a
        /// port of a switch, those that it and the switch lose there.
        drops: Option<bool>,
    }

    told
    /// The capture has begun: what follows on the connection is pcapng, until one of both ends it.
    CaptureStarted {}

    asked
    /// What captures there are.
    CaptureList {}

    told
    /// A capture that goes to somebody who looks on.
    CaptureInfo {
        /// The NIC.
        nic: String,
        /// The user who asked for it.
        uid: u32,
        /// The process that asked for it.
        pid: u32,
        /// For how many seconds it goes on.
        seconds: u64,
        /// Frames captured.
        frames: u64,
        /// Frames that were not, because they were not read fast enough.
        missed: u64,
    }

    told
    /// Captures.
    Captures {
        /// The oldest first.
        captures: Vec<CaptureInfo>,
    }
}
