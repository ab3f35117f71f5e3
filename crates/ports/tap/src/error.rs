//! What can go wrong when a TAP is opened, in words that help.

use std::io;

use thiserror::Error;

/// Why a TAP could not be opened.
#[derive(Debug, Error)]
pub enum TapError {
    /// The name cannot be that of an interface.
    #[error("\"{name}\" cannot be an interface name: use 1 to 15 characters without '/' or '%'")]
    BadName {
        /// As given.
        name: String,
    },
    /// `/dev/net/tun` is not there.
    #[error(
        "/dev/net/tun is missing: load the driver (modprobe tun), or give the container the \
         device (--device /dev/net/tun)"
    )]
    NoDevice,
    /// `/dev/net/tun` may not be opened.
    #[error("no permission to open /dev/net/tun: make it accessible (chmod 0666 /dev/net/tun)")]
    NoDevicePermission,
    /// The interface may not be made or attached.
    #[error(
        "no permission to attach to TAP \"{name}\": let an administrator make it for you (ip \
         tuntap add dev {name} mode tap user $USER), or run with CAP_NET_ADMIN"
    )]
    NoPermission {
        /// The interface.
        name: String,
    },
    /// Another process holds it.
    #[error(
        "TAP \"{name}\" is busy: another process is attached to it; stop that one (ip -d link \
         show {name}) or choose another name"
    )]
    Busy {
        /// The interface.
        name: String,
    },
    /// An interface of that name is no TAP, or one with other flags (several queues).
    #[error(
        "\"{name}\" exists but is not a TAP with a single queue (ip -d link show {name}): write \
         queues=N if it has several, choose another name, or make it anew with ip tuntap add dev \
         {name} mode tap"
    )]
    Unsuitable {
        /// The interface.
        name: String,
    },
    /// The same where several queues are wanted.
    #[error(
        "\"{name}\" exists but is not a TAP with several queues (ip -d link show {name}): leave out \
         queues={queues}, choose another name, or make it anew with ip tuntap add dev {name} mode \
         tap multi_queue"
    )]
    SingleQueue {
        /// The interface.
        name: String,
        /// As asked for.
        queues: usize,
    },
    /// The kernel gives no more queues.
    #[error(
        "the kernel does not give TAP \"{name}\" {queues} queues: another process may have some (ip -d \
         link show {name}); ask for fewer"
    )]
    NoMoreQueues {
        /// The interface.
        name: String,
        /// As asked for.
        queues: usize,
    },
    /// No such number of queues.
    #[error("a TAP may have 1 to {max} queues, not {queues}", max = crate::queue::MAX_QUEUES)]
    QueueCount {
        /// As asked for.
        queues: usize,
    },
    /// The descriptor is no TAP.
    #[error(
        "the descriptor given is not an attached TAP: open /dev/net/tun and call TUNSETIFF \
         before passing it on"
    )]
    NotATap,
    /// A TUN (IP packets), not a TAP.
    #[error("\"{name}\" carries IP packets, not Ethernet frames: make it with mode tap")]
    NotEthernet {
        /// The interface.
        name: String,
    },
    /// Anything else.
    #[error("{call} failed: {source}")]
    System {
        /// The call.
        call: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl TapError {
    pub(crate) fn system(call: &'static str, source: io::Error) -> Self {
        Self::System { call, source }
    }

    pub(crate) fn device(e: io::Error) -> Self {
        match e.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => Self::NoDevice,
            Some(libc::EPERM | libc::EACCES) => Self::NoDevicePermission,
            _ => Self::system("open /dev/net/tun", e),
        }
    }

    pub(crate) fn attach(name: &str, queues: Option<usize>, e: io::Error) -> Self {
        let name = name.to_owned();
        match (e.raw_os_error(), queues) {
            (Some(libc::EPERM | libc::EACCES), _) => Self::NoPermission { name },
            (Some(libc::EBUSY), _) => Self::Busy { name },
            (Some(libc::EINVAL), None) => Self::Unsuitable { name },
            (Some(libc::EINVAL), Some(queues)) => Self::SingleQueue { name, queues },
            (Some(libc::E2BIG), Some(queues)) => Self::NoMoreQueues { name, queues },
            _ => Self::system("TUNSETIFF", e),
        }
    }

    pub(crate) fn not_a_tap(e: io::Error) -> Self {
        match e.raw_os_error() {
            Some(libc::ENOTTY | libc::EBADFD | libc::EINVAL | libc::EBADF) => Self::NotATap,
            _ => Self::system("TUNGETIFF", e),
        }
    }
}
