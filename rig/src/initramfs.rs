//! The guest's user space, built by this program from the private root in a second or two.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::cpio::Cpio;
use crate::error::{Error, Result};
use crate::process;
use crate::root::Root;
use crate::stock;

/// Modules every guest can load by `mp NAME`.
const MODULES: &[&str] = &[
    "8021q",
    "bonding",
    "e1000",
    "e1000e",
    "igb",
    "igbvf",
    "pktgen",
    "r8169",
    "realtek",
    "uio_pci_generic",
    "vfio_iommu_type1",
    "vfio_pci",
    "virtio_net",
];

/// Modules for the rig's own ports, loaded at once. Newer kernels have them built in.
const PORT_MODULES: [&str; 2] = ["virtio_console", "virtio_pci"];

/// Programs that are not busybox applets.
const TOOLS: &[&str] = &[
    "bridge", "dash", "ethtool", "ip", "iperf3", "lspci", "ping", "tcpdump",
];

/// Loads a module with what it needs: `mp NAME [PARAMETER...]`.
const MP: &str = r#"#!/bin/sh
n=$1; shift
[ -d "/sys/module/$n" ] && exit 0
[ -e "/mod/$n.ko" ] || { echo "mp: this guest has no module $n" >&2; exit 1; }
for d in $(cat "/mod/$n.dep"); do mp "$d" || exit 1; done
insmod "/mod/$n.ko" "$@"
"#;

/// Gets an address by DHCP: `dhcp IFACE`. Fails after some seconds without an answer. It asks once the link is
/// up: a question asked before is lost and costs a second.
const DHCP: &str = r#"#!/bin/sh
ip link set "$1" up || exit 1
n=0; until [ "$(cat "/sys/class/net/$1/carrier")" = 1 ]; do
    n=$((n+1)); [ $n -gt 500 ] && { echo "dhcp: $1 has no link" >&2; exit 1; }
    usleep 20000
done
exec udhcpc -i "$1" -n -q -t 10 -T 1 -s /bin/dhcp-event
"#;

/// What udhcpc does with a lease.
const DHCP_EVENT: &str = r#"#!/bin/sh
[ "$1" = bound ] || [ "$1" = renew ] || exit 0
ip addr flush dev "$interface"
ip addr add "$ip/${mask:-24}" dev "$interface"
[ -n "$router" ] && ip route replace default via "${router%% *}" dev "$interface"
for s in $dns; do echo "nameserver $s"; done > /etc/resolv.conf
echo "lease $ip/${mask:-24} router $router dns $dns"
"#;

/// The first process. The rig's commands arrive on the virtio port `rig.ctl`; the serial console carries the
/// kernel's messages and a shell for people, so neither garbles the other.
const INIT: &str = r#"#!/bin/sh
export PATH=/bin HOME=/root TERM=linux
mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev 2>/dev/null
mkdir -p /dev/pts; mount -t devpts p /dev/pts; mount -t tmpfs t /tmp
ip link set lo up
if [ -e /mod/virtio_console.ko ]; then
    mp virtio_pci && mp virtio_console
    n=0; until [ "$(cat /sys/class/virtio-ports/*/name 2>/dev/null | grep -c ^rig)" = 2 ] || [ $n = 250 ]; do
        n=$((n+1)); usleep 20000
    done
fi
for f in /sys/class/virtio-ports/*/name; do
    [ -e "$f" ] && read -r name < "$f" && ln -s "/dev/$(basename "${f%/name}")" "/dev/$name"
done
echo "RIG-UP $(cut -d' ' -f1 /proc/uptime)"
[ -e /dev/rig.ctl ] && while :; do sh <>/dev/rig.ctl >&0 2>&1; usleep 20000; done &
while :; do setsid /bin/sh -c 'exec /bin/sh -i </dev/ttyS0 >/dev/ttyS0 2>&1'; usleep 100000; done
"#;

/// What an initramfs has besides busybox and the scripts.
struct Contents {
    modules: &'static [&'static str],
    tools: &'static [&'static str],
}

/// For the rig's own guests.
const WHOLE: Contents = Contents {
    modules: MODULES,
    tools: TOOLS,
};

/// For guests that load theirs over a network: 3 MB, enough to use an e1000.
const SMALL: Contents = Contents {
    modules: &["e1000"],
    tools: &[],
};

/// All that decides what the initramfs contains, besides the root itself: part of its key in the cache.
pub(crate) fn recipe() -> String {
    [
        "3",
        &MODULES.join(" "),
        &PORT_MODULES.join(" "),
        &TOOLS.join(" "),
        MP,
        DHCP,
        DHCP_EVENT,
        INIT,
    ]
    .join("\n")
}

/// Builds the archive of the rig's own guests.
pub(crate) fn build(root: &Root, modules: &Path) -> Result<Vec<u8>> {
    archive(root, modules, &WHOLE)
}

/// Builds the small archive.
pub(crate) fn build_small(root: &Root, modules: &Path) -> Result<Vec<u8>> {
    archive(root, modules, &SMALL)
}

fn archive(root: &Root, modules: &Path, contents: &Contents) -> Result<Vec<u8>> {
    let read = |path: &Path| fs::read(path).map_err(Error::io(format!("read {}", path.display())));
    let find = |program: &str| {
        root.find(program).ok_or_else(|| Error::Command {
            command: format!("find {program} for the guest"),
            output: format!("not in {}", root.dir().display()),
        })
    };
    let mut cpio = Cpio::new();
    for dir in [
        "dev",
        "proc",
        "sys",
        "tmp",
        "run",
        "root",
        "mnt",
        "etc",
        "mod",
        "usr/bin",
        "usr/lib",
        "usr/lib64",
    ] {
        cpio.dir(dir);
    }
    for (link, target) in [
        ("bin", "usr/bin"),
        ("sbin", "usr/bin"),
        ("lib", "usr/lib"),
        ("lib64", "usr/lib64"),
        ("usr/sbin", "bin"),
    ] {
        cpio.symlink(link, target);
    }
    cpio.file("etc/hosts", 0o644, b"127.0.0.1 localhost\n");
    cpio.file("etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\n");
    cpio.file("etc/group", 0o644, b"root:x:0:\n");
    cpio.file("usr/bin/busybox", 0o755, &read(&find("busybox")?)?);
    let mut names = BTreeSet::new();
    let mut libraries = BTreeSet::new();
    for &tool in contents.tools {
        let path = find(tool)?;
        cpio.file(&format!("usr/bin/{tool}"), 0o755, &read(&path)?);
        libraries.extend(root.libraries(&path)?);
        names.insert(tool);
    }
    if names.contains("iperf3") {
        // It cancels threads, for which glibc loads libgcc_s at run time.
        libraries.insert("usr/lib/x86_64-linux-gnu/libgcc_s.so.1".into());
    }
    for library in libraries {
        let name = library.to_string_lossy().into_owned();
        cpio.file(&name, 0o755, &read(&root.dir().join(library))?);
    }
    if names.contains("dash") {
        // Debian's busybox shell prefers its own `ip` and `ping` to the real ones, so `sh` is dash.
        cpio.symlink("usr/bin/sh", "dash");
        names.insert("sh");
    }
    let applets = process::output(Command::new(find("busybox")?).arg("--list"))?;
    let applets = String::from_utf8_lossy(&applets);
    for applet in applets.split_whitespace().filter(|a| *a != "busybox") {
        if names.insert(applet) {
            cpio.symlink(&format!("usr/bin/{applet}"), "busybox");
        }
    }
    for (name, (object, needs)) in stock::collect(modules, contents.modules, &PORT_MODULES)? {
        for (path, mode, content) in module(&name, object, &needs) {
            cpio.file(&path, mode, &content);
        }
    }
    for (path, script) in [
        ("usr/bin/mp", MP),
        ("usr/bin/dhcp", DHCP),
        ("usr/bin/dhcp-event", DHCP_EVENT),
        ("init", INIT),
    ] {
        cpio.file(path, 0o755, script.as_bytes());
    }
    Ok(cpio.finish())
}

/// An archive around a busybox of another architecture, which makes its own links (`busybox --install`).
pub(crate) fn foreign(busybox: &[u8], modules: &[(String, u32, Vec<u8>)], init: &str) -> Vec<u8> {
    let mut cpio = Cpio::new();
    for dir in ["dev", "proc", "sys", "tmp", "run", "etc", "mod", "bin"] {
        cpio.dir(dir);
    }
    cpio.file("bin/busybox", 0o755, busybox);
    cpio.symlink("bin/sh", "busybox");
    for (path, mode, content) in modules {
        cpio.file(path, *mode, content);
    }
    for (path, script) in [
        ("bin/mp", MP),
        ("bin/dhcp", DHCP),
        ("bin/dhcp-event", DHCP_EVENT),
        ("init", init),
    ] {
        cpio.file(path, 0o755, script.as_bytes());
    }
    cpio.finish()
}

/// A module as `mp` finds it: its object file, and the names of what must be loaded before it.
pub(crate) fn module(name: &str, object: Vec<u8>, needs: &[String]) -> [(String, u32, Vec<u8>); 2] {
    [
        (format!("mod/{name}.ko"), 0o644, object),
        (format!("mod/{name}.dep"), 0o644, needs.join(" ").into()),
    ]
}

/// A small archive that is appended to the built one: more files for one guest.
pub(crate) fn overlay(files: &[(String, u32, Vec<u8>)]) -> Vec<u8> {
    let mut cpio = Cpio::new();
    for (path, mode, data) in files {
        cpio.file(path, *mode, data);
    }
    cpio.finish()
}
