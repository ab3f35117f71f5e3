//! What a bed is made of: networks, daemons, NICs and the files that guests carry.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rig::{Daemon, Netdev, Netns, Nic};
use serde_json::json;

use super::super::lan::Lan;
use crate::error::{Error, Result};
use crate::fabric::alone;

/// The limit of things that take a moment.
pub const MOMENT: Duration = Duration::from_secs(60);

/// Lines that find a guest's NIC, name it, give it its address and take it up. Everybody's address is known from the
/// beginning, so that no frame waits for an answer.
pub fn configure(lan: Lan, guest: usize) -> String {
    let mut lines = format!(
        "i=$(grep -ls {} /sys/class/net/*/address); i=${{i#/sys/class/net/}}; i=${{i%/address}}; \
         [ -n \"$i\" ] || {{ echo no NIC for {lan:?}; exit 1; }}; echo \"IF $i\"; \
         ip addr flush dev $i; ip addr add {}/24 dev $i && ip link set $i up || exit 1\n",
        lan.mac(guest),
        lan.address(guest)
    );
    let mut others = vec![(lan.address(1 - guest), lan.mac(1 - guest))];
    if !lan.switched() {
        others.push((lan.host(), lan.host_mac()));
    }
    for (address, mac) in others {
        lines +=
            &format!("ip neigh replace {address} lladdr {mac} dev $i nud permanent || exit 1\n");
    }
    lines
}

pub fn trace(dir: &Path, guest: usize) -> PathBuf {
    dir.join(format!("qemu{guest}.trace"))
}

pub fn socket(dir: &Path, lan: Lan, guest: usize) -> PathBuf {
    dir.join(format!("n{}{guest}.sock", lan.number()))
}

/// A bridge with an address of the host and a TAP for each guest.
pub fn network(netns: &Netns, lan: Lan) -> Result<()> {
    let taps: Vec<String> = (0..lan.guests()).map(|guest| lan.tap(guest)).collect();
    for tap in &taps {
        netns.tap(tap, None)?;
    }
    let bridge = lan.bridge();
    let members: Vec<&str> = taps.iter().map(String::as_str).collect();
    netns.bridge(&bridge, &members)?;
    netns.ip(["link", "set", &bridge, "address", &lan.host_mac()])?;
    netns.ip(["addr", "add", &format!("{}/24", lan.host()), "dev", &bridge])?;
    for guest in 0..lan.guests() {
        let (address, mac) = (lan.address(guest), lan.mac(guest));
        netns.ip([
            "neigh",
            "replace",
            &address,
            "lladdr",
            &mac,
            "dev",
            &bridge,
            "nud",
            "permanent",
        ])?;
    }
    Ok(())
}

/// The daemon of one network.
pub fn serve(netns: &Netns, dir: &Path, hypernic: &Path, lan: Lan) -> Result<Daemon> {
    let mut text = String::new();
    if lan.switched() {
        text.push_str("[[switch]]\nname = \"lan\"\n\n");
    }
    // A switch has one more, for the generator.
    let count = lan.guests() + usize::from(lan.switched());
    for guest in 0..count {
        let port = match lan {
            lan if lan.switched() => "switch:lan".to_owned(),
            _ => format!("tap:{}", lan.tap(guest)),
        };
        let moderation = match lan {
            Lan::Adaptive | Lan::Switch | Lan::PvAdaptive => "adaptive",
            Lan::Fixed => "fixed:4000",
            _ => "guest",
        };
        let model = match lan {
            lan if lan.realtek() => "r8168",
            lan if lan.ours_pv() => "virtio-net",
            _ => "e1000",
        };
        let rest = match lan {
            lan if lan.over_vhost_user() => "transport = \"vhost-user\"\n".to_owned(),
            lan if lan.ours_pv() => String::new(),
            _ => format!("csb = true\nreceive-throttling = {}\n", lan == Lan::Switch),
        };
        text.push_str(&format!(
            "[[nic]]\nname = \"n{guest}\"\nsocket-path = {:?}\nmac = \"{}\"\nport = \"{port}\"\n\
             model = \"{model}\"\nmoderation = \"{moderation}\"\n{rest}\n",
            socket(dir, lan, guest),
            lan.mac(guest),
        ));
    }
    let file = dir.join(format!("{}.toml", lan.number()));
    std::fs::write(&file, alone(&text)).map_err(Error::io("write a configuration"))?;
    let mut command = netns.command(hypernic);
    command.args(["--log-format", "json", "serve"]).arg(file);
    let log = dir.join(format!("{}.log", lan.number()));
    let mut daemon = Daemon::start("hypernic", command, log)?;
    daemon.expect("serving", MOMENT)?;
    Ok(daemon)
}

/// A guest's NIC, and what else QEMU has to be told.
pub fn nic(dir: &Path, lan: Lan, guest: usize) -> (Nic, Vec<String>) {
    let id = format!("n{}", lan.number());
    if lan.ours() && !lan.over_vhost_user() {
        return (Nic::vfio_user(&id, socket(dir, lan, guest)), Vec::new());
    }
    let mut arguments = Vec::new();
    let netdev = match lan {
        lan if lan.over_vhost_user() => {
            let front = format!("front{}", lan.number());
            let path = socket(dir, lan, guest);
            let chardev = format!("socket,id={front},path={}", path.display());
            arguments = vec!["-chardev".to_owned(), chardev];
            Netdev::Json(json!({"type": "vhost-user", "chardev": front}))
        }
        Lan::Vhost => Netdev::Json(json!({
            "type": "tap", "ifname": lan.tap(guest), "script": "no", "downscript": "no", "vhost": true,
        })),
        _ => Netdev::Tap {
            ifname: lan.tap(guest),
        },
    };
    let model = if lan == Lan::Qemu {
        "e1000"
    } else {
        "virtio-net-pci"
    };
    let nic = Nic::qemu(&id, model, Some(netdev));
    let nic = nic.mac(&lan.mac(guest)).rom("");
    if lan.without_event_idx() {
        return (nic.property("event_idx", json!(false)), arguments);
    }
    (nic, arguments)
}

/// This program, its loader and its libraries, by the names they have in the guest.
pub fn carried(program: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut ldd = Command::new("ldd");
    let out = ldd.arg(program).output().map_err(Error::io("run ldd"))?;
    let mut files = vec![("program".to_owned(), program.to_owned())];
    files.extend(libraries(&String::from_utf8_lossy(&out.stdout)));
    let read = |(name, path): (String, PathBuf)| {
        let content =
            std::fs::read(&path).map_err(Error::io(format!("read {}", path.display())))?;
        Ok((name, content))
    };
    files.into_iter().map(read).collect()
}

/// What `ldd` says: "libm.so.6 => /lib/libm.so.6 (0x...)", and the loader alone on its line.
fn libraries(text: &str) -> Vec<(String, PathBuf)> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [name, "=>", path, _] => Some((name.to_owned(), path.into())),
            [path, _] if path.starts_with('/') => Some(("loader".to_owned(), path.into())),
            _ => None,
        }
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_and_the_libraries_are_found() {
        let text = "\tlinux-vdso.so.1 (0x00007f72)\n\tlibgcc_s.so.1 => /lib/x/libgcc_s.so.1 (0x00007f)\n\
                    \tlibc.so.6 => /lib/x/libc.so.6 (0x1)\n\t/lib64/ld-linux-x86-64.so.2 (0x2)\n";
        let names: Vec<String> = libraries(text).into_iter().map(|(n, _)| n).collect();
        assert_eq!(names, ["libgcc_s.so.1", "libc.so.6", "loader"]);
    }
}
