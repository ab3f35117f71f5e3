//! Which frames are received (virtio 1.4 §5.1.6.5.1 to §5.1.6.5.3).

use frame::Frame;
use wire::EtherType;

use crate::core::station::{Station, Table};

/// Whether the station wants a frame. `vlans`: VLANs are filtered.
pub fn accepts(station: &Station, vlans: bool, frame: &Frame<'_>) -> bool {
    if station.promisc {
        return true;
    }
    let head = frame.head();
    let Some(dst) = head.first_chunk::<6>() else {
        return false;
    };
    if vlans {
        let tagged = head.get(12..14) == Some(&EtherType::VLAN.0.to_be_bytes());
        let inside = head.get(14..16).filter(|_| tagged);
        let inside = inside.map(|tci| u16::from_be_bytes([tci[0], tci[1]]));
        if let Some(tci) = frame.notes().vlan.or(inside)
            && !station.has_vlan(tci & 0xfff)
        {
            return false;
        }
    }
    wants(station, *dst)
}

/// Whether it wants one to this address, whatever its VLAN.
pub fn wants(station: &Station, dst: [u8; 6]) -> bool {
    if station.promisc {
        return true;
    }
    let listed = |table: &Table| table.overflow || table.list.contains(&dst);
    if dst == [0xff; 6] {
        return !station.nobcast;
    }
    if dst[0] & 1 != 0 {
        return !station.nomulti && (station.allmulti || listed(&station.multicast));
    }
    !station.nouni && (station.alluni || dst == station.mac || listed(&station.unicast))
}
