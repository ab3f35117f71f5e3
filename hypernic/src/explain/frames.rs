//! What Intel's NICs count, and the daemon around every NIC.

super::reason::reasons! { TABLE, "nic":
    Count tx_frames "Frames that the guest sent; each segment counts where the NIC cut a large one",
    Count tx_bytes "Bytes of the frames that the guest sent, as it gave them",
    Count tx_tso_frames "Large packets that the guest gave with segmentation offload",
    Count rx_frames "Frames put into the guest's receive buffers",
    Count rx_bytes "Bytes of the frames put into the guest's receive buffers",
    Gauge worker "The worker that serves the NIC, by its number",
    Count turns "Turns that the NIC had on its worker",
    Count work_ns "Nanoseconds of its turns that had something to do",
    Count reg_reads "Register reads by the guest",
    Count reg_writes "Register writes by the guest",
    Count tx_doorbells "Writes of the transmit tail register (TDT)",
    Count rx_doorbells "Writes of the receive tail register (RDT)",
    Count tx_desc_fetched "Transmit descriptors read from guest memory",
    Count rx_desc_fetched "Receive descriptors read from guest memory",
    Count wake_ups "Times a frame matched a wake-up filter and woke the guest",
    Count irq_raised "Interrupts that the model raised, after moderation",
    Count rx_no_buffer "Frames that waited in the NIC's packet FIFO for a receive descriptor",
    Count rx_rationed "Frames that waited in the FIFO because receive throttling gives the guest time",
    Count rx_leased "Receive buffers that senders filled without the lock, because several were at the NIC",
    Count csb_kicks "Register writes to tails while the guest uses a CSB",
    Count csb_tx_rounds "Looks of the transmitter at a CSB",
    Count csb_tx_polls "Looks of the transmitter at a CSB that found nothing new",
    Count csb_tx_sleeps "Times the transmitter fell asleep and asked for a call through the CSB",
    Count csb_rx_sleeps "Times the receiver ran out of buffers and asked for a call through the CSB",
    Count vf_messages "Mailbox messages from the guest's virtual functions",
    Count vf_resets "Resets of the guest's virtual functions",
    Refusal vf_spoofed "Frames of VFs that their PF's driver forbids them to send"
        "82576 datasheet 8.14 (DTXSWC)"
        "a VF's guest sends from another MAC address or VLAN than the PF's driver gave it"
        "in the PF's guest, allow it (ip link set DEV vf N spoofchk off) or look at the VF's guest",
    Delay rx_back_pressure "Times a sender kept its frames because this guest had no free receive descriptor"
        "back-pressure, docs/configuration.md"
        "the guest reads more slowly than others send to it"
        "give the guest more processor time or a longer receive ring (ethtool -G DEV rx 4096)",
    Drop rx_missed "Frames lost because the guest had no free receive descriptor, and their sender could not wait"
        "8254x manual 13.7 (MPC), 82576 datasheet 8.18 (MPC)"
        "a flood, or a guest that was too busy or stopped"
        "lengthen the receive ring (ethtool -G DEV rx 4096), give the guest processor time, or limit senders (tx-rate)",
    Drop rx_dropped "Frames dropped because their queue had no free descriptor, as SRRCTL.DROP_EN asks"
        "82576 datasheet 8.10.2 (SRRCTL), counted by RQDPC 8.10.11"
        "one queue's processor is slower than the frames that RSS gives it"
        "lengthen the receive ring (ethtool -G DEV rx 4096), or spread flows (ethtool -X)",
    Drop rx_held_up "Frames dropped because another sender held this NIC's receive side for more than 2 ms"
        "design: no sender waits for another (docs/design/leases.md)"
        "the host took the processor from a sender in the middle of its copy"
        "give the daemon processors of its own, or fewer workers",
    Drop rx_filtered "Frames for other stations, which the guest's filters do not let in"
        "8254x manual 3.2.1, 82576 datasheet 7.1.1, virtio 5.1.6.5.1"
        "floods of a switch that does not know the address yet; a wrong MAC address or VLAN"
        "nothing, if it rises slowly; otherwise compare the guest's address with mac in the configuration",
    Drop rx_oversize "Frames longer than the guest allows"
        "RCTL.LPE and RLPML: 8254x manual 13.4.22, 82576 datasheet 8.10.15"
        "the sender's MTU is larger than the receiver's"
        "set the same MTU in all guests of the network (ip link set DEV mtu N)",
    Drop rx_runt "Frames shorter than an Ethernet header that came for the guest"
        "IEEE 802.3 4.2.3.3; 8254x manual 3.2.1"
        "a broken or hostile sender behind a port"
        "look at the port they come from with a capture",
    Drop rx_disabled "Frames that came while the guest's receiver was off"
        "RCTL.EN and PCI bus mastering: 8254x manual 13.4.22, 82576 datasheet 8.10.1; virtio 2.1 (DRIVER_OK)"
        "the guest boots, or its interface is down or its driver not loaded"
        "in the guest: ip link set DEV up",
    Drop rx_bad_ring "Frames that came while the receive ring's registers described no ring"
        "8254x manual 13.4.27 to 13.4.29, 82576 datasheet 8.10.7 to 8.10.9"
        "the guest's driver wrote a length, head or tail that cannot be"
        "reload the guest's driver; report it, if it is a stock one",
    Drop rx_bad_offload "Frames whose offload notes contradict them"
        "virtio 5.1.6.4 (the header's fields)"
        "a hostile or broken peer behind a TAP, stream or vhost-user port"
        "look at the port they come from with a capture",
    Drop rx_too_large "Frames that need more descriptors than the ring can hold, or whose buffers are null"
        "8254x manual 3.2.2, 82576 datasheet 7.1.4"
        "a very short receive ring, or a driver that gave descriptors without buffers"
        "lengthen the receive ring (ethtool -G DEV rx 256)",
    Drop rx_dma_fault "Frames lost because a receive descriptor or buffer is not in the guest's memory"
        "PCI: an unmapped address takes no data"
        "the driver gave an address that the VMM did not map, or the VMM unmapped it"
        "check that all guest RAM is shared (share=on); report it, if the driver is a stock one",
    Drop rx_bad_type "Frames for a queue whose SRRCTL names a reserved descriptor type"
        "82576 datasheet 8.10.2"
        "a mistake in the guest's driver"
        "reload the guest's driver",
    Drop rx_while_halted "Frames for a NIC whose guest is being moved"
        "docs/moving.md: a stopped guest takes nothing"
        "a VMM has stopped the NIC, to read its state or to bring it one"
        "nothing: the network hears where the guest is as soon as it goes on",
    Drop rx_no_client "Frames for a NIC that no VMM has connected to"
        "the switch knows the address, and nobody is there"
        "the VM is off, or its VMM did not connect"
        "start the VM; hypernic list shows which NICs have a client",
    Fault tx_bad_ring "Times the transmit ring's registers described no ring"
        "8254x manual 13.4.38 to 13.4.40, 82576 datasheet 8.12.11 to 8.12.13"
        "the guest's driver wrote a length, head or tail that cannot be"
        "reload the guest's driver; report it, if it is a stock one",
    Drop tx_dma_fault "Packets lost because a transmit descriptor or buffer is not in the guest's memory"
        "PCI: an unmapped address gives no data"
        "the driver gave an address that the VMM did not map, or the VMM unmapped it"
        "check that all guest RAM is shared (share=on); report it, if the driver is a stock one",
    Drop tx_too_long "Packets longer than the NIC can send"
        "8254x manual 3.3 (16288 bytes), 82576 datasheet 7.2.1; virtio 5.1.6.2"
        "a hostile guest, or an MTU that the NIC does not have"
        "lower the MTU in the guest",
    Drop tx_too_many_descs "Packets of more descriptors than any driver uses, or a full ring without an end of packet"
        "8254x manual 3.3.3 (EOP)"
        "a hostile guest or a mistake in its driver"
        "reload the guest's driver",
    Drop tx_runt "Packets too short for an Ethernet header"
        "IEEE 802.3 4.2.3.3; 8254x manual 3.3.3"
        "a program in the guest that writes raw frames"
        "find that program; nothing else is lost",
    Drop tx_bad_tso "Packets for segmentation without a header length, MSS or payload, or with too many segments"
        "8254x manual 3.5, 82576 datasheet 7.2.4"
        "a hostile guest or a mistake in its driver"
        "switch segmentation off in the guest (ethtool -K DEV tso off)",
    Refusal tx_bad_checksum "Checksums to insert outside of their packet; it was sent without"
        "8254x manual 3.3.3 (CSS, CSO), 82576 datasheet 7.2.5"
        "a mistake in the guest's driver"
        "switch checksum offload off in the guest (ethtool -K DEV tx off)",
    Refusal tx_bad_desc "Transmit descriptors of an unknown type; skipped"
        "8254x manual 3.3.3, 82576 datasheet 7.2.2"
        "a mistake in the guest's driver"
        "reload the guest's driver",
    Refusal reg_bad_bar "Accesses to BARs that the NIC does not have"
        "8254x manual 4.1, 82576 datasheet 9.4"
        "a VMM that probes"
        "nothing: reads are 0, writes are ignored",
    Refusal csb_bad_tail "Tails in a CSB outside of their ring; ignored"
        "docs/csb.md"
        "a mistake in the guest's patched driver"
        "load the stock driver, or leave csb out",
    Fault csb_unmapped "CSBs given up because their page is not in the guest's memory or not aligned"
        "docs/csb.md"
        "a mistake in the guest's patched driver"
        "nothing: the NIC goes on with its registers",
    Refusal vf_ring_refused "Writes of a PF to where its VFs' rings are; ignored"
        "82576 datasheet 7.10.2; pf-places-vf-rings, docs/sriov.md"
        "the PF's driver wants to place rings for guests that do so themselves"
        "nothing for Linux' drivers; pf-places-vf-rings = true if the guest needs it and is trusted",
    Count nvm_written "Times the EEPROM's file was written",
    Fault nvm_failed "Times the EEPROM's file could not be written"
        "eeprom, docs/configuration.md"
        "the disk is full, or the folder may not be written"
        "make room or give the daemon's user the folder; the contents stay in memory meanwhile",
    Gauge quarantined "1: the worker process died twice while serving this NIC, which is not served (docs/survival.md)",
    Drop rx_quarantined "Frames that came for a NIC in quarantine"
        "docs/survival.md"
        "the worker process died twice while serving this NIC"
        "as for quarantined: remove the NIC and add it again, or start the daemon again",
    Gauge failed "1: this NIC's model panicked, and the NIC was taken off",
}
