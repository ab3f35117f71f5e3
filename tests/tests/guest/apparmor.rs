//! The rule for libvirt's QEMU where AppArmor enforces it: in a Debian whose kernel has it on.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hypernic_tests::Slots;
use hypernic_tests::installed::{DebianRoot, package, repository};
use rig::{Boot, CMDLINE, GuestConfig, Kernel, Rig};

/// What libvirt confines its QEMUs by, and what lets an operator add to it.
const LIBVIRTS: &str = "etc/apparmor.d/abstractions/libvirt-qemu";

/// A profile as libvirt makes one for each guest, of a guest whose program is ours.
const PROFILE: &str = "#include <tunables/global>\nprofile vm flags=(attach_disconnected) {\n  #include <abstractions/libvirt-qemu>\n  \
    /usr/bin/hypernic* rmix,\n}\n";

const HOST: &str = r#"control = "/run/hypernic/control.sock"
[[nic]]
name = "web"
socket-path = "/run/hypernic/web.sock"
port = "null"
doorbell = "page"
"#;

const INIT: &str = r#"#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev 2>/dev/null
mkdir -p /dev/shm; mount -t tmpfs t /run; mount -t tmpfs t /tmp; mount -t tmpfs t /dev/shm
mount -t securityfs s /sys/kernel/security
end() { echo o >/proc/sysrq-trigger; sleep 600; }
badly() { echo "ENDED-BADLY in: $*"; cat /tmp/said /tmp/daemon; end; }
[ "$(cat /sys/module/apparmor/parameters/enabled)" = Y ] || badly AppArmor is off
mkdir -p /run/hypernic
hypernic serve /etc/hypernic/vm.toml >/tmp/daemon 2>&1 &
n=0; until hypernic nic list >/tmp/said 2>&1; do n=$((n+1)); [ $n -lt 300 ] || badly serve; sleep 0.2; done
confined() { apparmor_parser -r /etc/apparmor.d/vm && aa-exec -p vm -- "$@" >/tmp/said 2>&1; }
sends() { confined hypernic pkt-gen -f tx -i /run/hypernic/web.sock -n 1000 -T 60; }

echo STEP confined
confined hypernic serve /etc/hypernic/vm.toml && badly it was not confined
grep -q "Permission denied" /tmp/said || badly another reason

echo STEP with the rule
RECIPE
sends || badly it was not let in
grep 1000 /tmp/said || badly frames

# Kernels that look at connections to sockets by path: not Debian's.
echo STEP the control socket
if confined hypernic nic list --control /run/hypernic/control.sock; then
    echo KERNEL-LOOKS-AT-NO-PATH
else
    grep -q "Permission denied" /tmp/said || badly another reason
fi
hypernic nic list || badly its operator has it no more
echo ALL-IS-WELL
end
"#;

/// What the page tells the operator to do, who is root here.
fn recipe() -> String {
    let page = std::fs::read_to_string(repository("docs/install.md")).unwrap();
    let line = page
        .lines()
        .find(|line| line.contains("local/abstractions/libvirt-qemu"));
    line.expect("it is in docs/install.md").replace("sudo ", "")
}

/// The root of a Debian with the package and that rule of libvirt's, as an archive that a kernel boots.
fn archive(dir: &Path) -> PathBuf {
    let libvirt = DebianRoot::of(Some("trixie"), &["libvirt-daemon-driver-qemu"]).unwrap();
    let root = DebianRoot::of(
        Some("trixie"),
        &["apparmor", "libslirp0", "systemd-standalone-sysusers"],
    )
    .unwrap();
    root.copy(&libvirt.path().join(LIBVIRTS), LIBVIRTS).unwrap();
    root.install(&package().unwrap()).unwrap();
    let write = |path: &str, text: &str| std::fs::write(root.path().join(path), text).unwrap();
    write("init", &INIT.replace("RECIPE", &recipe()));
    write("etc/apparmor.d/vm", PROFILE);
    write("etc/hypernic/vm.toml", HOST);
    root.sh("chmod 755 /init; mkdir -p /etc/apparmor.d/local/abstractions; rm -rf /var/cache/apt /var/lib/apt/lists /usr/share/doc")
        .unwrap();
    let archive = dir.join("root.cpio");
    root.archive(&archive).unwrap();
    archive
}

#[test]
#[ignore = "needs root, mmdebstrap and a package: `make test-long`"]
fn long_where_apparmor_is_on_libvirts_qemu_reaches_a_nic_by_the_rule() {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(dir.path());
    let rig = Rig::prepare().unwrap();
    let _slot = Slots::take(rig.cache().dir(), 1).unwrap();
    let image = rig.image(Kernel::Stable).unwrap();
    let mut config = GuestConfig::new("apparmor").boot(Boot::Kernel {
        kernel: image.kernel(),
        initrd: Some(archive),
        append: format!(
            "{} lsm=landlock,apparmor apparmor=1",
            CMDLINE.replace(" lsm=", "")
        ),
    });
    config.mem_mib = 1536;
    config.smp = 2;
    let guest = rig.start(config).unwrap();
    let said = guest.expect_console("ALL-IS-WELL", Duration::from_secs(600));
    let console = guest.console();
    assert!(
        said.is_ok() && !console.contains("ENDED-BADLY"),
        "{console}"
    );
}
