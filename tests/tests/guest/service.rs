//! The package as a service of a Debian that boots: enabled, reloaded, watched, killed.

use std::path::PathBuf;
use std::time::Duration;

use hypernic_tests::Slots;
use hypernic_tests::installed::{DebianRoot, package};
use rig::{Boot, CMDLINE, GuestConfig, Kernel, Rig};
use tempfile::TempDir;

/// The longest a translated guest may take for all of it, on a busy machine.
const LONG: Duration = Duration::from_secs(900);

/// From an initial RAM disk, whose root cannot be exchanged, to a root file system as services expect it.
const INIT: &str = r#"#!/bin/sh
mount -t tmpfs -o size=90%,mode=755 root /mnt
cp -a /bin /etc /home /lib /lib64 /root /sbin /usr /var /mnt/ 2>/dev/null
mkdir -p /mnt/dev /mnt/proc /mnt/sys /mnt/run /mnt/tmp /mnt/mnt /mnt/opt /mnt/srv
mount -t devtmpfs d /mnt/dev
exec switch_root /mnt /sbin/init
"#;

const UNIT: &str = "[Unit]\nAfter=hypernic.service\n[Service]\nType=oneshot\nExecStart=/usr/sbin/rig-test\nTimeoutStartSec=infinity\n\
    StandardOutput=tty\nStandardError=tty\nTTYPath=/dev/ttyS0\n";

/// What is done in the guest. Each step says its name on the console before.
const TEST: &str = r#"#!/bin/bash
set -u
step() { echo "STEP $*"; }
ended() { echo "ENDED-BADLY in: $*"; systemctl status hypernic.service --no-pager; journalctl -b --no-pager -n 60; poweroff -f; exit 1; }
until_true() { local n=0; until "$@" >/dev/null 2>&1; do n=$((n+1)); [ $n -lt 600 ] || ended "$@"; sleep 0.2; done; }
show() { systemctl show hypernic.service --value -p "$1"; }
worker() { cat /proc/$(show MainPID)/task/$(show MainPID)/children; }
inode() { awk -v path="/run/hypernic/$1.sock" '$NF == path && $4 == "00010000" { print $(NF - 1) }' /proc/net/unix; }
listed() { hypernic nic list | grep -q "$1"; }

step enabled
[ "$(systemctl is-enabled hypernic.service hypernic.socket | sort -u)" = enabled ] || ended is-enabled
[ "$(systemctl is-enabled hypernic-exporter.socket)" = disabled ] || ended exporter enabled
[ "$(systemctl is-enabled hypernic-web.socket)" = disabled ] || ended web enabled
until_true systemctl is-active hypernic.service
[ "$(show SubState)" = running ] || ended running
journalctl -u hypernic.service --no-pager | grep "sandbox default" || ended sandbox

step reload
cat >>/etc/hypernic/host.toml <<'TOML'
[[switch]]
name = "lan"
[[nic]]
name = "web"
socket-path = "/run/hypernic/web.sock"
port = "switch:lan"
TOML
before=$(show MainPID)
systemctl reload hypernic.service || ended reload
until_true listed web
[ "$(show MainPID)" = "$before" ] || ended the process is another
[ "$(stat -c '%U %G %a' /run/hypernic/web.sock)" = "hypernic kvm 660" ] || ended socket $(stat -c '%U %G %a' /run/hypernic/web.sock)
hypernic nic add more --port switch:lan --socket-path /run/hypernic/more.sock || ended add
hypernic nic add bad --port null --socket-path /srv/bad.sock && ended outside of its folders

step metrics
systemctl start hypernic-exporter.socket || ended exporter
exec 3<>/dev/tcp/127.0.0.1/9479
printf 'GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n' >&3
cat <&3 >/tmp/metrics
grep -q '^hypernic_up 1$' /tmp/metrics || ended metrics "$(head -c 900 /tmp/metrics; journalctl -u hypernic-exporter --no-pager | tail -5)"
grep -q 'nic="more"' /tmp/metrics || ended nic

step page
(umask 077 && od -An -N16 -tx1 /dev/urandom | tr -d " \n" >/etc/hypernic/web.key)
systemctl start hypernic-web.socket || ended web
page() {
    exec 3<>/dev/tcp/127.0.0.1/9480
    printf 'GET /api/now HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n' "$1" >&3
    cat <&3 >/tmp/page
    grep -q "$2" /tmp/page
}
until_true page "$(cat /etc/hypernic/web.key)" '"more"'
page 0123456789abcdef '^HTTP/1.[01] 401' || ended another key "$(head -c 900 /tmp/page)"
journalctl -b --no-pager | grep -q "$(cat /etc/hypernic/web.key)" && ended the key is in the journal

step the program is replaced
before=$(show MainPID)
old=$(worker)
systemctl reload hypernic.service || ended reload
[ "$(worker)" = "$old" ] || ended nothing was replaced
cp /usr/bin/hypernic /usr/bin/hypernic.new && mv -f /usr/bin/hypernic.new /usr/bin/hypernic
systemctl reload hypernic.service || ended reload of another
until_true listed web
[ "$(show MainPID) $(show NRestarts) $(show SubState)" = "$before 0 running" ] || ended keeper
[ "$(worker)" != "$old" ] || ended the program is not replaced
[ "$(readlink /proc/$before/exe)" = /usr/bin/hypernic ] || ended program "$(readlink /proc/$before/exe)"
printf '#!/bin/sh\necho not with me >&2\nexit 1\n' >/usr/bin/hypernic.new
chmod 755 /usr/bin/hypernic.new
cp /usr/bin/hypernic /usr/bin/hypernic.good
mv -f /usr/bin/hypernic.new /usr/bin/hypernic
old=$(worker)
systemctl reload hypernic.service && ended one that refuses
mv -f /usr/bin/hypernic.good /usr/bin/hypernic
[ "$(show MainPID) $(worker)" = "$before $old" ] || ended refusal
until_true systemctl reload hypernic.service

step a worker is killed
old=$(worker)
kill -KILL $old
until_true listed web
[ "$(worker)" != "$old" ] || ended another worker
[ "$(show MainPID) $(show NRestarts)" = "$before 0" ] || ended keeper

step the keeper is killed
# Who comes meanwhile waits: the manager has the socket, from this version on.
stores() { [ "$(systemctl --version | awk 'NR == 1 { print $2 }')" -ge 254 ]; }
if stores; then [ "$(show NFileDescriptorStore)" -ge 1 ] || ended store; fi
listener=$(inode web)
[ -n "$listener" ] || ended inode
kill -KILL $before
other() { [ "$(show NRestarts)" = 1 ] && systemctl is-active hypernic.service; }
until_true other
until_true listed web
stays() { ! stores || [ "$(inode web)" = "$listener" ]; }
stays || ended "it listens by another socket: $(inode web), and not $listener"
systemctl restart hypernic.service || ended restart
until_true listed web
stays || ended "after a restart it listens by another socket"
stores && echo SOCKETS-STAYED

step the watchdog
mkdir -p /etc/systemd/system/hypernic.service.d
printf '[Service]\nWatchdogSec=5\nTimeoutAbortSec=2\n' >/etc/systemd/system/hypernic.service.d/soon.conf
systemctl daemon-reload
systemctl restart hypernic.service || ended restart
before=$(show MainPID)
until_true listed web
# It is fed for longer than it waits.
sleep 12
[ "$(show MainPID) $(show NRestarts)" = "$before 0" ] || ended fed
kill -STOP $(worker)
again() { [ "$(show NRestarts)" = 1 ] && [ "$(show MainPID)" != "$before" ] && systemctl is-active hypernic.service; }
until_true again
journalctl -u hypernic.service --no-pager | grep "Watchdog timeout" || ended watchdog
until_true listed web

step started by its socket
systemctl stop hypernic.service
[ "$(systemctl is-active hypernic.service)" = inactive ] || ended stopped
until_true listed web
[ "$(systemctl is-active hypernic.service)" = active ] || ended by socket

step a tenant of its own
printf 'control = "/run/hypernic/blue/control.sock"\nsandbox-paths = ["/run/hypernic/blue"]\n' >/etc/hypernic/blue.toml
systemctl start hypernic@blue.service || ended tenant
hypernic nic list --control /run/hypernic/blue/control.sock || ended tenant list
systemctl stop hypernic@blue.service || ended tenant stop

step purged
dpkg --purge hypernic || ended purge
[ "$(systemctl is-active hypernic.service)" = inactive ] || ended still active
[ ! -e /run/hypernic ] && [ ! -e /etc/hypernic/host.toml ] && ! getent passwd hypernic || ended left
echo ALL-IS-WELL
poweroff -f
"#;

/// The root of a Debian with the package, as an archive that a kernel boots.
fn archive(dir: &TempDir, suite: Option<&str>) -> PathBuf {
    let root = DebianRoot::of(suite, &["libslirp0", "systemd", "systemd-sysv"]).unwrap();
    root.install(&package().unwrap()).unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
    };
    write("init", INIT);
    write("usr/sbin/rig-test", TEST);
    write("usr/lib/systemd/system/rig-test.service", UNIT);
    root.sh("systemctl add-wants multi-user.target rig-test.service; systemctl mask serial-getty@ttyS0.service; \
             rm -rf /var/cache/apt /var/lib/apt/lists /usr/share/doc /usr/share/i18n; passwd -d root")
        .unwrap();
    let archive = dir.path().join("root.cpio");
    root.archive(&archive).unwrap();
    archive
}

#[test]
#[ignore = "needs root, mmdebstrap and a package: `make test-long`"]
fn long_the_service_in_a_debian_guest() {
    service(None);
}

/// Its systemd keeps listening sockets, which that of Debian 12 does not.
#[test]
#[ignore = "needs root, mmdebstrap and a package: `make test-long`"]
fn long_the_service_in_a_guest_of_debian_13_keeps_its_sockets() {
    let console = service(Some("trixie"));
    assert!(console.contains("SOCKETS-STAYED"), "{}", tail(&console));
}

/// Does all that in a guest of this suite. Returns what it said.
fn service(suite: Option<&str>) -> String {
    let dir = tempfile::tempdir().unwrap();
    let archive = archive(&dir, suite);
    let rig = Rig::prepare().unwrap();
    let _slot = Slots::take(rig.cache().dir(), 1).unwrap();
    let image = rig.image(Kernel::Stable).unwrap();
    let mut config = GuestConfig::new("service").boot(Boot::Kernel {
        kernel: image.kernel(),
        initrd: Some(archive),
        // Its own layers are to be there, and what it logs.
        append: format!(
            "{} lsm=landlock systemd.show_status=0",
            CMDLINE.replace(" lsm=", "")
        ),
    });
    config.mem_mib = 1536;
    config.smp = 2;
    let guest = rig.start(config).unwrap();
    let said = guest.expect_console("ALL-IS-WELL", LONG);
    let console = guest.console();
    assert!(
        said.is_ok() && !console.contains("ENDED-BADLY"),
        "{}",
        tail(&console)
    );
    console
}

fn tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(120)..].join("\n")
}
