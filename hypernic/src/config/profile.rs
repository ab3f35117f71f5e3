//! What a profile changes: the defaults of words that the file does not say.

use std::collections::BTreeSet;

use super::raw::Fault;
use super::types::{HostConfig, NicConfig, Profile};
use crate::guard::{Rate, Storm};
use crate::spec::PortSpec;

/// What a NIC may send in [`Profile::MultiTenant`]: what no guest gets near by honest work, and what a flood does not
/// exceed.
const RATE: &str = "10gbit,1500kpps";
/// What of it may flood, in frames a second: many times what ARP, DHCP and neighbour discovery need.
const STORM: &str = "broadcast=500,multicast=500,unknown=500";
const HOST_LOOPBACK: &str = "host-loopback";

impl Profile {
    /// Fills in what the file left open. `locks` says what it says of `mac-lock`, NIC by NIC, by name.
    pub(super) fn apply(
        self,
        host: &mut HostConfig,
        locks: &dyn Fn(&str) -> Option<bool>,
    ) -> Result<(), Fault> {
        host.profile = self;
        if self == Profile::SingleTenant {
            return Ok(());
        }
        for switch in &mut host.switches {
            switch.ports.iter_mut().for_each(close_loopback);
        }
        for chip in &mut host.chips {
            close_loopback(&mut chip.port);
        }
        let parsed = "the profile's own words are right";
        let rate: Rate = RATE.parse().expect(parsed);
        let storm: Storm = STORM.parse().expect(parsed);
        for nic in &mut host.nics {
            close_loopback(&mut nic.port);
            if let Some(vf) = &mut nic.vf {
                if vf.policy.storm == eswitch::Storm::default() {
                    // The switch of a chip knows all addresses.
                    vf.policy.storm = eswitch::Storm {
                        unknown: None,
                        ..storm.0
                    };
                }
            } else if is_on_switch(nic) {
                let lock = locks(&nic.name).unwrap_or(nic.guard.allow_macs.is_empty());
                nic.mac_lock = lock;
                nic.guard.tx_rate = nic.guard.tx_rate.or(Some(rate));
                if nic.guard.storm == Storm::default() {
                    nic.guard.storm = storm;
                }
            }
        }
        shared_user_network(host).map_or(Ok(()), |message| Err(Fault(None, message)))
    }
}

fn is_on_switch(nic: &NicConfig) -> bool {
    nic.rules.is_none() && matches!(nic.port, PortSpec::Switch(_))
}

/// Keeps guests from services that listen on the host's loopback, unless the file lets them.
fn close_loopback(port: &mut PortSpec) {
    if let PortSpec::User(options) = port
        && !options.iter().any(|(key, _)| key == HOST_LOOPBACK)
    {
        options.push((HOST_LOOPBACK.into(), "off".into()));
    }
}

/// A user network limits the flows of each NIC, and those of all together: a tenant with several NICs could take all of them.
fn shared_user_network(host: &HostConfig) -> Option<String> {
    host.switches.iter().find_map(|switch| {
        let is_user = |port: &PortSpec| matches!(port, PortSpec::User(_));
        if !switch.ports.iter().any(is_user) {
            return None;
        }
        let it = PortSpec::Switch(switch.name.clone());
        let leads_to_it = |chip: &str| host.chips.iter().any(|c| c.name == chip && c.port == it);
        let on_it = |nic: &&NicConfig| {
            nic.port == it || nic.vf.as_ref().is_some_and(|vf| leads_to_it(&vf.chip))
        };
        let nics = host.nics.iter().filter(on_it);
        let tenants: BTreeSet<_> = nics.map(|nic| nic.tenant.as_str()).collect();
        (tenants.len() > 1).then(|| {
            let tenants = tenants.into_iter().collect::<Vec<_>>().join(", ");
            format!(
                "switch \"{}\" has a user network for several tenants ({tenants}): profile = \"multi-tenant\" wants \
                 a switch with a user network for each; or give these NICs one tenant = \"…\"",
                switch.name
            )
        })
    })
}
