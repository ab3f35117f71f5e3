//! What holds for all functions together.

use crate::vlans::VlanSet;

/// Whose a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// The PF's: all that no VF has.
    Pf,
    /// A VF's.
    Vf(u32),
}

/// What holds for all pools of a chip. Mirrors name ports by `P`: registers by [`Owner`], a switch
/// by the names or numbers of its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fabric<P> {
    /// VLANs of which any pool gets anything (RCTL.VFE, VFTA); a frame without a tag is of none. Where
    /// this is set, a frame for a station inside stays inside, even if that station is not in its VLAN.
    /// `None`: all, and each VLAN has its own stations.
    pub known: Option<VlanSet>,
    /// VLANs that never go out on the wire (VLVF.LVLAN).
    pub local: VlanSet,
    /// Who gets copies (VMRCTL, VMRVM, VMRVLAN).
    pub mirrors: Vec<Mirror<P>>,
}

impl<P> Default for Fabric<P> {
    /// All VLANs go everywhere, and no pool gets copies.
    fn default() -> Fabric<P> {
        Fabric {
            known: None,
            local: VlanSet::none(),
            mirrors: Vec::new(),
        }
    }
}

impl<P> Fabric<P> {
    /// The same for ports that are named otherwise. A mirror whose own port `port` does not know is left
    /// out, and so is each port it does not know from the frames that are copied.
    pub fn resolve<Q>(&self, port: impl Fn(&P) -> Option<Q>) -> Fabric<Q> {
        let mirror = |mirror: &Mirror<P>| {
            Some(Mirror {
                to: port(&mirror.to)?,
                of: mirror.of.iter().filter_map(&port).collect(),
                incoming: mirror.incoming,
                outgoing: mirror.outgoing,
                vlans: mirror.vlans.clone(),
            })
        };
        Fabric {
            known: self.known.clone(),
            local: self.local.clone(),
            mirrors: self.mirrors.iter().filter_map(mirror).collect(),
        }
    }
}

/// A port that gets copies of frames that are others' (VMRCTL): of all that one of these holds for,
/// whatever the VLANs of its pool are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror<P> {
    /// Who gets the copies.
    pub to: P,
    /// Frames that one of these gets (VMRVM).
    pub of: Vec<P>,
    /// Frames that come from the wire (VMRCTL.UPME), also those for no pool.
    pub incoming: bool,
    /// Frames that go out on the wire (VMRCTL.DPME).
    pub outgoing: bool,
    /// Frames of these VLANs (VMRVLAN).
    pub vlans: VlanSet,
}

impl<P> Mirror<P> {
    /// One that copies nothing yet.
    pub fn to(to: P) -> Mirror<P> {
        Mirror {
            to,
            of: Vec::new(),
            incoming: false,
            outgoing: false,
            vlans: VlanSet::none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_of_ports_that_are_not_there_are_left_out() {
        let mirror = |to| Mirror {
            of: vec![Owner::Vf(0), Owner::Pf],
            vlans: VlanSet::none().with(7),
            outgoing: true,
            ..Mirror::to(to)
        };
        let fabric = Fabric {
            known: Some(VlanSet::none().with(7)),
            local: VlanSet::none().with(9),
            mirrors: vec![mirror(Owner::Pf), mirror(Owner::Vf(1))],
        };
        let name = |owner: &Owner| match owner {
            Owner::Pf => None,
            Owner::Vf(vf) => Some(vf + 10),
        };
        let resolved = fabric.resolve(name);
        assert_eq!(
            (resolved.known, resolved.local),
            (fabric.known, fabric.local)
        );
        let expected = Mirror {
            to: 11,
            of: vec![10],
            incoming: false,
            outgoing: true,
            vlans: VlanSet::none().with(7),
        };
        assert_eq!(resolved.mirrors, [expected]);
    }
}
