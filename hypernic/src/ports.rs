//! From the words of a port to the port.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use model::Clock;
use port::Port;
use port_ring::{Endpoint as RingEndpoint, RingConfig};
use port_stream::{Endpoint, StreamConfig};
use port_user::{Forward, Protocol, UserConfig};
use port_vhost_user::{Endpoint as VhostEndpoint, VhostUserConfig};
use vale::{Keeper, PortConfig, Switch, SwitchConfig as ValeConfig};
use wire::MacAddr;

use crate::config::cells::CellLink;
use crate::config::{LinkLocal, NicConfig, SwitchConfig};
use crate::fds;
use crate::guard::Guard;
use crate::kept_rings::KeptRing;
use crate::kept_streams::KeptStream;
use crate::kept_taps;
use crate::report::Section;
use crate::spec::PortSpec;
use crate::user_networks;

/// Opens a port of a NIC, a switch or a chip, as which the next worker finds it again.
///
/// # Errors
/// Cause and cure, in the port's own words.
pub(crate) fn open(spec: &PortSpec, owner: &str) -> Result<Port, String> {
    let text = |error: &dyn std::error::Error| error.to_string();
    match spec {
        PortSpec::User(options) => user_networks::open(&user_config(options)?),
        PortSpec::Tap(name) => kept_taps::open(name, None).map_err(|e| text(&e)),
        PortSpec::TapQueues(name, queues) => {
            kept_taps::open(name, Some(*queues)).map_err(|e| text(&e))
        }
        PortSpec::TapFd(fd) => {
            port_tap::open(port_tap::Source::Fd(fds::inherited(*fd)?)).map_err(|e| text(&e))
        }
        PortSpec::Stream(path) => stream(spec, owner, Endpoint::Connect(path.clone())),
        PortSpec::StreamListen(path) => stream(spec, owner, Endpoint::Listen(path.clone())),
        PortSpec::StreamFd(fd) => {
            let mut port = stream(spec, owner, Endpoint::Fd(fds::inherited(*fd)?))?;
            // A switch may have several.
            port.name = spec.to_string();
            Ok(port)
        }
        PortSpec::VhostUser(path, pairs) => {
            vhost_user(VhostEndpoint::Connect(path.clone()), *pairs)
        }
        PortSpec::VhostUserListen(path, pairs) => {
            vhost_user(VhostEndpoint::Listen(path.clone()), *pairs)
        }
        PortSpec::Null => Ok(port_null::open()),
        PortSpec::Loopback => port_loopback::open().map_err(|e| text(&e)),
        PortSpec::Switch(name) => Err(format!("\"{name}\" is a switch, not a port")),
    }
}

/// Opens what joins a switch with the same switch in another cell.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_link(link: &CellLink, name: &str) -> Result<Port, String> {
    let endpoint = match link.listens {
        true => RingEndpoint::Listen(link.path.clone()),
        false => RingEndpoint::Connect(link.path.clone()),
    };
    let keeps = KeptRing::of(&link.path);
    let goes_on = keeps.as_ref().and_then(|kept| kept.take());
    let port = port_ring::open(RingConfig {
        keeps: keeps.map(|kept| kept as Arc<dyn port_ring::Keeps>),
        goes_on,
        ..RingConfig::new(endpoint)
    });
    let port = port.map_err(|error| error.to_string())?;
    Ok(Port {
        name: name.to_owned(),
        ..port
    })
}

/// What comes from another cell may do at a switch. Its frames have been judged there by a process that is not trusted; so no
/// station of this side, or of a third one, is believed to be there.
pub(crate) fn of_link(link: &CellLink) -> PortConfig {
    let stations = link.stations.iter().map(|mac| MacAddr(mac.0)).collect();
    let (only, fixed) = match link.only {
        true => (stations, Vec::new()),
        false => (Vec::new(), stations),
    };
    PortConfig {
        waits: true,
        uplink: link.leads_out(),
        mesh: true,
        only,
        fixed,
        ..PortConfig::default()
    }
}

/// A port of this kind is about to be closed for good.
pub(crate) fn forget(spec: &PortSpec) {
    match spec {
        PortSpec::Tap(name) => kept_taps::forget(name, 1),
        PortSpec::TapQueues(name, queues) => kept_taps::forget(name, *queues),
        _ => {}
    }
}

fn stream(spec: &PortSpec, owner: &str, endpoint: Endpoint) -> Result<Port, String> {
    let keeps = KeptStream::of(owner, spec);
    let goes_on = keeps.as_ref().map(|kept| kept.take());
    let port = port_stream::open(StreamConfig {
        keeps: keeps.map(|kept| kept as Arc<dyn port_stream::Keeps>),
        goes_on: goes_on.unwrap_or_default(),
        ..StreamConfig::new(endpoint)
    });
    port.map_err(|error| error.to_string())
}

fn vhost_user(endpoint: VhostEndpoint, pairs: usize) -> Result<Port, String> {
    let config = VhostUserConfig {
        pairs,
        ..VhostUserConfig::new(endpoint)
    };
    port_vhost_user::open(config).map_err(|error| error.to_string())
}

/// A switch with this process's clock, and the thread that keeps its time.
pub(crate) fn new_switch(
    config: &SwitchConfig,
    clock: Arc<dyn Clock>,
) -> std::io::Result<(Switch, Keeper)> {
    let vale = ValeConfig {
        ageing: config.ageing,
        link_local: config.link_local == LinkLocal::Pass,
        ..ValeConfig::default()
    };
    let switch = Switch::new(vale, crate::time::of_turns(clock));
    let keeper = Keeper::start(&switch)?;
    Ok((switch, keeper))
}

/// What a NIC may do at its port of a switch. Its sender is left to wait for room, unless its frames are to be dropped then.
pub(crate) fn of_nic(config: &NicConfig) -> PortConfig {
    let lock = config.mac_lock.then_some(MacAddr(config.mac.0));
    let mut may = PortConfig {
        waits: config.back_pressure,
        only: lock.into_iter().collect(),
        ..PortConfig::default()
    };
    config.guard.apply(&mut may);
    may
}

/// What a port that leads to many may do at a switch: it would hold up the frames of others if it waited for one slow guest.
pub(crate) fn of_uplink(guard: &Guard) -> PortConfig {
    let mut may = PortConfig {
        waits: false,
        uplink: true,
        ..PortConfig::default()
    };
    guard.apply(&mut may);
    may
}

/// The counters of a switch's ports.
pub(crate) fn switch_sections(name: &str, switch: &Switch) -> Vec<Section> {
    let ports = switch.ports().into_iter();
    ports
        .map(|port| Section {
            kind: "switch-port",
            name: format!("{name}/{}", port.name),
            values: port.counters,
        })
        .collect()
}

/// The options of `user:KEY=VALUE,…`.
fn user_config(options: &[(String, String)]) -> Result<UserConfig, String> {
    let mut config = UserConfig::default();
    for (key, value) in options {
        let bad = |why: &str| format!("option {key}={value}: {why}");
        let switch = || match value.as_str() {
            "on" | "yes" | "true" => Ok(true),
            "off" | "no" | "false" => Ok(false),
            _ => Err(bad("write on or off")),
        };
        match key.as_str() {
            "net" => {
                let (network, prefix) = value
                    .split_once('/')
                    .ok_or_else(|| bad("write it as 10.0.2.0/24"))?;
                config.network = network
                    .parse()
                    .map_err(|_| bad("it is not an IPv4 address"))?;
                config.prefix = prefix
                    .parse()
                    .map_err(|_| bad("the prefix is not a number"))?;
            }
            "ipv6" => config.ipv6 = switch()?,
            "restrict" => config.restrict = switch()?,
            "host-loopback" => config.host_loopback = switch()?,
            "flows" | "nic-flows" => {
                let flows = value.parse().ok().filter(|n| (1..=65_536).contains(n));
                let flows = flows.ok_or_else(|| bad("write a number from 1 to 65536"))?;
                if key == "flows" {
                    config.flows = flows;
                } else {
                    config.nic_flows = flows;
                }
            }
            "hostname" => config.hostname = Some(value.clone()),
            "tftp" => config.tftp = Some(value.into()),
            "bootfile" => config.bootfile = Some(value.clone()),
            "hostfwd" => config.forwards.push(forward(value).ok_or_else(|| {
                bad("write it as tcp:127.0.0.1:2222-10.0.2.15:22 (addresses may be empty)")
            })?),
            _ => {
                return Err(format!(
                    "there is no option \"{key}\"; known: net, ipv6, restrict, host-loopback, flows, nic-flows, hostname, tftp, bootfile, hostfwd"
                ));
            }
        }
    }
    Ok(config)
}

/// `PROTO:[HOST]:PORT-[GUEST]:PORT`, as QEMU writes it.
fn forward(text: &str) -> Option<Forward> {
    let (protocol, rest) = text.split_once(':')?;
    let protocol = match protocol {
        "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        _ => return None,
    };
    let (host, guest) = rest.split_once('-')?;
    let (host_address, host_port) = host.rsplit_once(':')?;
    let (guest_address, guest_port) = guest.rsplit_once(':')?;
    let host_address = match host_address {
        "" => Ipv4Addr::LOCALHOST,
        address => address.parse().ok()?,
    };
    let guest = match guest_address {
        "" => None,
        address => Some(address.parse().ok()?),
    };
    Some(Forward {
        protocol,
        host: SocketAddrV4::new(host_address, host_port.parse().ok()?),
        guest,
        guest_port: guest_port.parse().ok().filter(|port| *port != 0)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Result<UserConfig, String> {
        match text.parse::<PortSpec>().expect("a port") {
            PortSpec::User(options) => user_config(&options),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn options_of_the_user_network() {
        let config =
            options("user:net=10.9.0.0/16,ipv6=off,tftp=/srv,bootfile=x,hostfwd=tcp::2222-:22,flows=9,nic-flows=3")
                .expect("good");
        assert_eq!(
            (config.network, config.prefix),
            (Ipv4Addr::new(10, 9, 0, 0), 16)
        );
        assert!(!config.ipv6);
        assert_eq!((config.flows, config.nic_flows), (9, 3));
        let forward = config.forwards[0];
        assert_eq!(forward.host, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 2222));
        assert_eq!((forward.guest, forward.guest_port), (None, 22));
        for (bad, why) in [
            ("user:nat=on", "no option \"nat\""),
            ("user:ipv6=maybe", "on or off"),
            ("user:hostfwd=tcp:22", "hostfwd=tcp:22"),
            ("user:net=10.0.0.0", "10.0.2.0/24"),
            ("user:nic-flows=0", "from 1 to 65536"),
        ] {
            let error = options(bad).expect_err(bad);
            assert!(error.contains(why), "{error}");
        }
    }
}
