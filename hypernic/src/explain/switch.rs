//! What a switch counts at each of its ports. "In" is from the port into the switch.

super::reason::reasons! { TABLE, "switch-port":
    Count rx_frames "Frames that came in from this port, dropped ones included",
    Count rx_bytes "Bytes of the frames that came in from this port",
    Count tx_frames "Frames that this port took",
    Count tx_bytes "Bytes of the frames that this port took",
    Count rx_unicast "Frames that came in for one known port",
    Count rx_unknown_unicast "Frames that came in for an unknown address, and were flooded",
    Count rx_multicast "Frames that came in for a group, and were flooded",
    Count rx_broadcast "Frames that came in for everybody, and were flooded",
    Count tx_flooded "Copies of flooded frames that this port took",
    Count rx_to_uplink "Frames of a private port that went to uplinks in place of a neighbour",
    Count learned "Addresses first seen on this port",
    Count moved "Addresses that moved here from another port",
    Refusal table_full "Frames whose source address found no place in the table, or in this port's part of it"
        "max-macs, docs/configuration.md"
        "a guest that makes up addresses, or many containers behind one NIC"
        "limit the guest with mac-lock, or raise max-macs",
    Delay held_up "Times senders waited because this port had no room"
        "back-pressure, docs/configuration.md"
        "the receiver is slower than its senders"
        "nothing: no frame is lost; back-pressure = false drops in place of waiting",
    Delay patience_spent "Times frames from here did not wait for a full port, because others had waited long enough"
        "a sender waits 100 ms a second for one receiver at most (docs/spec/switch.md)"
        "one receiver takes frames only now and then"
        "look at the receiver, whose drops count as drop_no_room",
    Delay paced "Times a sender waited for its own rate"
        "tx-rate, docs/configuration.md"
        "the guest sends more than it may"
        "nothing, or raise tx-rate",
    Drop drop_runt "Frames that came in too short for an Ethernet header"
        "IEEE 802.3 4.2.3.3"
        "a program that writes raw frames"
        "find the sender",
    Drop drop_bad_notes "Frames that came in with offload notes that cannot be true"
        "virtio 5.1.6.2"
        "a hostile or broken peer behind a TAP, stream or vhost-user port"
        "look at the port with a capture",
    Drop drop_too_many_segments "Frames that came in asking for more segments than any NIC makes"
        "a frame's work is bounded (docs/spec/hostility.md)"
        "a hostile peer"
        "find the sender",
    Drop drop_source_is_group "Frames that came in from a group address"
        "IEEE 802.1Q 8.8.1"
        "a program that writes raw frames"
        "find the sender",
    Drop drop_spoofed "Frames that came in from an address that is not this port's"
        "mac-lock and allow-macs, docs/configuration.md"
        "the guest changed its address, or has a bridge or containers inside"
        "add the addresses to allow-macs, or look at the guest",
    Drop drop_reserved "Frames that came in for an address that no bridge forwards"
        "IEEE 802.1Q table 8-1; link-local, docs/configuration.md"
        "spanning tree, LLDP or LACP in a guest: harmless"
        "nothing, or link-local = \"pass\"",
    Drop drop_hairpin "Frames that came in for an address on this very port"
        "IEEE 802.1Q 8.6.1"
        "a bridge behind the port floods"
        "nothing",
    Drop drop_vlan "Frames that came in of a VLAN that this port, or their destination, is no member of"
        "IEEE 802.1Q 8.6.2; vlan, docs/configuration.md and docs/sriov.md"
        "the guest tags frames that it may not send"
        "compare the VLANs of guest and configuration",
    Drop drop_private "Frames that came in for a private port, which only an uplink may reach"
        "private, docs/configuration.md"
        "two guests that are kept apart try to talk"
        "nothing: that is what private is for",
    Drop drop_mesh "Frames that came in from the mesh for a station that is in the mesh too"
        "split horizon, RFC 4762 4.4"
        "a station moved to another member of the mesh and was silent since, or a member sends by a wrong way"
        "nothing if it ends; if not, see that each member is joined to every other",
    Drop drop_storm "Flooded frames that came in beyond this port's storm limits"
        "storm, docs/configuration.md"
        "a loop, an address scan or a broken guest"
        "find the loop; raise storm if the guest's broadcasts are honest",
    Drop drop_rate_in "Frames that came in beyond this port's rate, and could not wait"
        "tx-rate, docs/configuration.md"
        "the guest sends more than it may"
        "raise tx-rate, or let the sender wait (back-pressure)",
    Drop drop_rate_out "Frames for this port beyond its rate, which could not wait"
        "rx-rate, docs/configuration.md"
        "others send more to the guest than it may receive"
        "raise rx-rate",
    Drop drop_port_gone "Frames that came in after this port, or their destination, had been taken off"
        "ports come and go while others send"
        "a NIC was removed while frames were on their way"
        "nothing",
    Drop drop_no_pool "Frames that came in from the wire for no pool of the chip"
        "82576 datasheet 7.10.3"
        "the wire has frames for stations that are not on this chip"
        "nothing: the chip is not promiscuous",
    Drop drop_pool_off "Frames that came in while this port's function was off"
        "82576 datasheet 8.14 (VFTE, VFRE)"
        "the VF's driver has not finished its reset, or the VF was shut down"
        "hypernic vf show says why it is down",
    Drop drop_no_room "Frames for this port alone that found no room in it"
        "a sender waits for a bounded time, or not at all (back-pressure)"
        "the receiver reads more slowly than others send to it"
        "give the receiver processor time or a longer ring (ethtool -G DEV rx 4096)",
    Drop drop_flood_no_room "Copies of flooded frames that found no room in this port"
        "no sender waits for a flooded copy"
        "a storm, or a receiver that is stopped"
        "limit storms (storm), or look at the receiver",
}
