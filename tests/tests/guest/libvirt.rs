//! The recipes for libvirt of docs/install.md, with Debian's libvirt.

use std::process::Command;
use std::time::Duration;

use hypernic_tests::Slots;
use hypernic_tests::installed::{DebianRoot, package, repository, run};
use rig::{CMDLINE, Kernel, Rig};

/// In the guest, once its kernel runs.
const INIT: &str = r#"#!/bin/sh
export PATH=/bin HOME=/root
mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev 2>/dev/null; mount -t tmpfs t /tmp
ip link set lo up
mp e1000; mp virtio_pci; mp virtio_net
n=0; until [ -e /sys/class/net/eth0 ] || [ $n -gt 500 ]; do n=$((n+1)); usleep 20000; done
cat /sys/class/net/eth0/address
dhcp eth0 && ping -c 3 10.0.2.2 && echo VM-IS-WELL || echo VM-FAILED
poweroff -f
"#;

const HOST: &str = r#"control = "/run/hypernic/control.sock"
[[nic]]
name = "web"
socket-path = "/run/hypernic/web.sock"
port = "user"
[[nic]]
name = "db"
model = "virtio-net"
transport = "vhost-user"
socket-path = "/run/hypernic/db.sock"
mac = "52:54:00:00:00:02"
port = "user"
"#;

/// QEMU is the rig's, and libvirt's own confinement needs what a folder does not have.
const QEMU_CONF: &str = "security_driver = \"none\"\nuser = \"root\"\ngroup = \"root\"\ndynamic_ownership = 0\n\
    remember_owner = 0\nnamespaces = []\ncgroup_controllers = []\nstdio_handler = \"file\"\n";

const SCRIPT: &str = r#"
mkdir -p /run/hypernic /run/lock /run/libvirt
hypernic serve /etc/hypernic/vm.toml >/vm/hypernic.log 2>&1 &
libvirtd >/vm/libvirtd.log 2>&1 &
n=0; until virsh -c qemu:///system version >/vm/version 2>&1; do n=$((n+1)); [ $n -lt 240 ] || { cat /vm/libvirtd.log; exit 1; }; sleep 0.5; done
cat /vm/version
export LIBVIRT_DEFAULT_URI=qemu:///system
for vm in web db; do
    virsh define /vm/$vm.xml
    # The NIC is there for the next guest, too.
    for time in first second; do
        echo "$vm, the $time time"
        : >/vm/$vm.console
        virsh start $vm || { cat /var/log/libvirt/qemu/$vm.log; exit 1; }
        n=0; until [ "$(virsh domstate $vm | head -1)" = "shut off" ]; do n=$((n+1)); [ $n -lt 600 ] || { cat /vm/$vm.console; exit 1; }; sleep 0.5; done
        grep -q VM-IS-WELL /vm/$vm.console || { cat /vm/$vm.console /var/log/libvirt/qemu/$vm.log /vm/hypernic.log; exit 1; }
        tail -20 /vm/$vm.console
    done
done
echo ALL-IS-WELL
"#;

/// A recipe of the page.
fn recipe(name: &str) -> String {
    let page = std::fs::read_to_string(repository("docs/install.md")).unwrap();
    let head = format!("<!-- libvirt: {name} -->\n```xml\n");
    let (_, text) = page.split_once(&head).expect("it is in docs/install.md");
    text.split_once("```").expect("it ends").0.to_owned()
}

/// The domain of the page, as it can be started here: translated, from the rig's kernel, with its console in a file.
fn domain(name: &str, devices: &str) -> String {
    let boot = format!(
        "<kernel>/vm/vmlinux</kernel><initrd>/vm/initrd</initrd><cmdline>{CMDLINE}</cmdline></os><devices>\
         <emulator>/usr/local/bin/qemu</emulator><serial type='file'><source path='/vm/{name}.console'/></serial>{devices}</devices>"
    );
    let text = recipe("vfio-user");
    assert!(
        text.contains("type='kvm'") && text.contains("<name>web</name>"),
        "{text}"
    );
    let text = text
        .replace("type='kvm'", "type='qemu'")
        .replace("</os>", &boot);
    text.replace("<name>web</name>", &format!("<name>{name}</name>"))
}

fn without_arguments(text: &str) -> String {
    let (before, rest) = text.split_once("<qemu:commandline>").expect("it has some");
    let (_, after) = rest.split_once("</qemu:commandline>").expect("they end");
    format!("{before}{after}")
}

#[test]
#[ignore = "needs root, mmdebstrap and a package: `make test-long`"]
fn long_libvirt_starts_guests_by_the_recipes() {
    let rig = Rig::prepare().unwrap();
    let _slot = Slots::take(rig.cache().dir(), 1).unwrap();
    let image = rig.image(Kernel::Stable).unwrap();
    // Its libvirt knows a QEMU that has vfio-user.
    let packages = [
        "libslirp0",
        "libvirt-clients",
        "libvirt-daemon-driver-qemu",
        "libvirt-daemon-system",
    ];
    let root = DebianRoot::of(Some("trixie"), &packages).unwrap();
    root.install(&package().unwrap()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let init = dir.path().join("init");
    std::fs::write(&init, INIT).unwrap();
    std::fs::set_permissions(&init, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::create_dir(root.path().join("vm")).unwrap();
    let initrd = root.path().join("vm/initrd");
    let pack = "cp \"$0\" \"$1\" && cd \"$2\" && echo init | cpio --quiet -o -H newc >>\"$1\"";
    let mut command = Command::new("sh");
    run(command
        .args(["-ec", pack])
        .arg(image.initramfs())
        .arg(&initrd)
        .arg(dir.path()))
    .unwrap();
    root.copy(&image.kernel(), "/vm/vmlinux").unwrap();
    let write = |path: &str, text: &str| std::fs::write(root.path().join(path), text).unwrap();
    write("vm/web.xml", &domain("web", ""));
    write(
        "vm/db.xml",
        &without_arguments(&domain("db", &recipe("vhost-user"))),
    );
    write("etc/hypernic/vm.toml", HOST);
    write("etc/libvirt/qemu.conf", QEMU_CONF);
    let words = rig
        .qemu()
        .words()
        .iter()
        .map(|word| format!("'{}'", word.to_string_lossy()));
    let words: Vec<_> = words.collect();
    let modules = rig.root().dir().join("usr/lib/x86_64-linux-gnu/qemu");
    let emulator = format!(
        "#!/bin/sh\nexport QEMU_MODULE_DIR='{}'\nexec {} \"$@\"\n",
        modules.display(),
        words.join(" ")
    );
    write("usr/local/bin/qemu", &emulator);
    root.sh("chmod 755 /usr/local/bin/qemu").unwrap();
    let said = root
        .with(rig.root().dir(), SCRIPT, Duration::from_secs(600))
        .unwrap();
    println!("{said}");
    assert!(said.ends_with("ALL-IS-WELL\n"), "{said}");
    let log = std::fs::read_to_string(root.path().join("vm/hypernic.log")).unwrap();
    assert!(!log.contains("let a system call fail"), "{log}");
    // Each recipe was what the guest had.
    assert!(
        said.matches("52:54:00:00:00:02").count() >= 1 && said.matches("VM-IS-WELL").count() == 4,
        "{said}"
    );
}
