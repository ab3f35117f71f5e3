//! What Realtek's chips count beyond what every NIC does.

super::reason::reasons! { TABLE, "nic":
    Count interrupts "Interrupts that were signalled",
    Count rx_looks "Looks at the receive ring because frames waited: the chip has no receive doorbell",
    Count stats_dumps "Statistics written to memory",
    Refusal tx_high_priority "Doorbells of the ring of high priority, which there is not"
        "RTL8168C: TPPoll.HPQ"
        "a driver other than the stock ones"
        "use a stock driver, which sends by the normal ring",
    Drop tx_bad_chain "Packets whose descriptors do not begin with FS, or begin twice"
        "RTL8168C: transmit descriptor (FS, LS)"
        "a hostile guest or a mistake in its driver"
        "reload the guest's driver",
    Fault tx_endless "Times that all of a transmit ring was one packet without an end"
        "RTL8168C: transmit descriptor (LS)"
        "a hostile guest or a mistake in its driver"
        "reload the guest's driver",
    Fault rx_empty_buffer "Receive descriptors whose buffer has no bytes"
        "RTL8168C: receive descriptor (size)"
        "a hostile guest or a mistake in its driver"
        "reload the guest's driver",
    Fault stats_dma_fault "Statistics that could not be written"
        "RTL8168C: DTCCR"
        "the driver gave an address that the VMM did not map, or the VMM unmapped it"
        "check that all guest RAM is shared (share=on); report it, if the driver is a stock one",
    Refusal locked_writes "Writes to registers that are locked"
        "RTL8168C: 9346CR (config registers, IDR)"
        "a driver that expects another chip of the family"
        "nothing, if the NIC works; report it, if the driver is a stock one",
    Refusal eeprom_writes_refused "Commands to change the EEPROM, which is write-protected"
        "RTL8168C: 9346CR; docs/r8169.md"
        "ethtool -E in the guest, or a vendor's tool"
        "set the address by mac in the configuration",
}
