//! What virtio-net counts beyond what every NIC does.

super::reason::reasons! { TABLE, "nic":
    Count rx_gso_frames "Large frames that the guest received unsegmented",
    Count ctrl_done "Commands of the control queue that were done",
    Count queue_calls "Interrupts raised for queues",
    Count config_calls "Interrupts raised for changes of the configuration",
    Count device_resets "Resets of the device by its driver",
    Count queue_resets "Resets of single queues by the driver",
    Drop rx_no_link "Frames that came for the guest while its cable was out"
        "virtio 5.1.4 (VIRTIO_NET_S_LINK_UP)"
        "the port behind the NIC is down, or the daemon is ending"
        "look at the port: a deleted TAP, a stream without a peer",
    Drop rx_too_long "Frames longer than the guest's receive buffers"
        "virtio 5.1.6.3"
        "the sender's MTU is larger than the receiver's"
        "set the same MTU in all guests of the network, or tell the driver by mtu in the configuration",
    Drop rx_invalid "Frames whose offload notes contradict them"
        "virtio 5.1.6.4"
        "a hostile or broken peer behind a TAP, stream or vhost-user port"
        "look at the port they come from with a capture",
    Drop rx_queue_full "Frames that found no buffer in their queue, so that other queues need not wait"
        "one queue does not hold up the others (docs/spec/virtio-net.md)"
        "one queue's processor is slower than the frames that RSS gives it"
        "lengthen the ring (ethtool -G), or spread flows (ethtool -X)",
    Drop tx_not_agreed "Packets whose header asks for an offload that was not agreed upon"
        "virtio 5.1.6.2"
        "a mistake in the guest's driver"
        "reload the guest's driver",
    Drop tx_bad_csum "Packets whose header puts the checksum outside of the packet"
        "virtio 5.1.6.2 (csum_start, csum_offset)"
        "a program in the guest that writes raw frames, or a mistake in the driver"
        "switch checksum offload off in the guest (ethtool -K DEV tx off)",
    Drop tx_bad_gso "Packets whose header asks for a segmentation that cannot be"
        "virtio 5.1.6.2 (gso_type, gso_size)"
        "a program in the guest that writes raw frames, or a mistake in the driver"
        "switch segmentation off in the guest (ethtool -K DEV tso off)",
    Drop tx_no_link "Packets that the guest sent while its cable was out"
        "virtio 5.1.4 (VIRTIO_NET_S_LINK_UP)"
        "the port behind the NIC is down, or the daemon is ending"
        "look at the port: a deleted TAP, a stream without a peer",
    Drop tx_unfinished "Packets that the port cannot finish: their offload is none that it has"
        "virtio 5.1.6.2"
        "a packet of an odd form, such as an unknown protocol with segmentation"
        "switch segmentation off in the guest (ethtool -K DEV tso off)",
    Refusal ctrl_refused "Commands of the control queue that are unknown, not agreed upon or of a wrong length"
        "virtio 5.1.6.5"
        "a driver that asks for what was not offered"
        "nothing: the driver is told",
    Refusal features_refused "Feature sets that the device does not take"
        "virtio 2.2, 3.1.1"
        "a driver that accepts what was not offered, or less than virtio 1.0"
        "use a driver of virtio 1.0 or later",
    Refusal queue_refused "Queues that were not enabled: their size or an address is impossible"
        "virtio 4.1.4.3"
        "a mistake in the guest's driver"
        "reload the guest's driver",
    Refusal bad_register_access "Register accesses of another width, to what cannot be written, or out of turn"
        "virtio 4.1.3.1, 4.1.4.3"
        "a mistake in the guest's driver"
        "nothing: they are ignored",
    Refusal bad_notify "Notifications of queues that there are not"
        "virtio 4.1.4.4"
        "a mistake in the guest's driver"
        "nothing: they are ignored",
    Fault broken_avail_index "Rings broken: more entries are available than the ring has"
        "virtio 2.7.13.3.1" "a hostile guest or a mistake in its driver"
        "reset the device: reload the guest's driver",
    Fault broken_head "Rings broken: a chain begins behind the table"
        "virtio 2.7.5" "a hostile guest or a mistake in its driver"
        "reset the device: reload the guest's driver",
    Fault broken_next "Rings broken: a chain goes on behind the table"
        "virtio 2.7.5" "a hostile guest or a mistake in its driver"
        "reset the device: reload the guest's driver",
    Fault broken_loop "Rings broken: a chain is longer than its table"
        "virtio 2.7.5" "a hostile guest or a mistake in its driver"
        "reset the device: reload the guest's driver",
    Fault broken_no_indirect "Rings broken: an indirect table without the feature"
        "virtio 2.7.5.3" "a hostile guest or a mistake in its driver"
        "reset the device: reload the guest's driver",
    Fault broken_indirect_next "Rings broken: an indirect descriptor that has a next one"
        "virtio 2.7.5.3.1" "a hostile guest or a mistake in its driver"
        "reset the device: reload the guest's driver",
    Fault broken_nested "Rings broken: an indirect table in another"
        "virtio 2.7.5.3.1" "a hostile guest or a mistake in its driver"
        "reset the device: reload the guest's driver",
    Fault broken_indirect_length "Rings broken: an indirect table of an impossible length"
        "virtio 2.7.5.3.1" "a hostile guest or a mistake in its driver"
        "reset the device: reload the guest's driver",
    Fault broken_parts "Rings broken: the buffers of one frame are in too many parts"
        "virtio 2.7.5, 2.8.6" "a hostile guest or a mistake in its driver"
        "reset the device: reload the guest's driver",
    Fault broken_order "Rings broken: a part to read stands behind one to write"
        "virtio 2.7.4.2" "a hostile guest or a mistake in its driver"
        "reset the device: reload the guest's driver",
    Fault broken_unmapped "Rings broken: the ring or a table is not in the guest's memory"
        "virtio 4.1.4.3" "the driver gave an address that the VMM did not map"
        "reset the device: reload the guest's driver; check that all guest RAM is shared",
    Fault broken_direction "Rings broken: buffers that go the wrong way"
        "virtio 5.1.6.2, 5.1.6.3" "a hostile guest or a mistake in its driver"
        "reset the device: reload the guest's driver",
}
