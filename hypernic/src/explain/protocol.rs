//! What the servers of a NIC's socket count: vfio-user, vhost-user, interrupts and guest memory.

super::reason::reasons! { VFIO_USER, "nic":
    Count messages "Messages of the VMM",
    Count region_reads "Register and configuration reads that came as messages",
    Count region_writes "Register and configuration writes that came as messages",
    Count posted_writes "Writes for which the VMM wanted no reply",
    Count write_multi_messages "Messages with several writes in one",
    Count region_read_bytes "Bytes read by messages",
    Count region_write_bytes "Bytes written by messages",
    Count dma_maps "Pieces of guest memory that the VMM mapped",
    Count dma_unmaps "Pieces of guest memory that the VMM unmapped",
    Count doorbells "Looks at the doorbell page that found something",
    Count rx_tails_found "Times a frame in hand found buffers in the doorbell page that nobody had looked at",
    Count doorbell_page_writes "Values that the guest left in the doorbell page",
    Count set_irqs "Changes of interrupts by the VMM",
    Count resets "Resets by the VMM",
    Count info_requests "Questions of the VMM about the device",
    Count states_read "States of the NIC that a VMM has read, to go on with it elsewhere",
    Count states_loaded "States that a VMM has brought, and the NIC has gone on with",
    Count clients "VMMs that connected",
    Count clients_gone "VMMs that left",
    Count recoveries "Workers that died, and after which this NIC went on with its VMM (with a keeper)",
    Count recovered_unsure "Frames that were under way when the worker before died: sent or not, none is sent twice",
    Count recv_calls "System calls that read the socket",
    Count send_calls "System calls that wrote to the socket",
    Count bytes_in "Bytes read from the socket",
    Count bytes_out "Bytes written to the socket",
    Count dma_messages "Reads and writes of guest memory by message, for memory without a descriptor",
    Count dma_message_bytes "Bytes read and written by such messages",
    Count irq_triggers "Interrupts signalled to the VMM",
    Count irq_suppressed "Interrupts that had nothing to add to one that is pending or masked",
    Count irq_latched "Interrupts that wait until their vector is unmasked or has an eventfd",
    Count irq_deferred "Interrupts that another thread signals, because the VMM's eventfds are slow",
    Fault irq_failed "Interrupts that could not be signalled: the eventfd is full"
        "eventfd(2): a count has a most"
        "nobody reads the eventfd: the VMM is stopped or hostile"
        "look at the VMM",
    Refusal dma_maps_without_fd "Pieces of guest memory without a descriptor: they are reached by messages, slowly"
        "vfio-user: DMA_MAP"
        "guest RAM is not shared"
        "QEMU: -object memory-backend-memfd,share=on; cloud-hypervisor: --memory shared=on",
    Refusal dma_maps_refused "Pieces of guest memory that were not mapped"
        "vfio-user: DMA_MAP; only memfd, tmpfs and hugetlbfs files (docs/design/one-copy.md)"
        "memory on another kind of file, or overlapping ranges"
        "keep guest RAM in a memfd (memory-backend-memfd)",
    Refusal dma_unmaps_refused "Requests to unmap what is not mapped as asked"
        "vfio-user: DMA_UNMAP"
        "the VMM asks for a part of a mapping"
        "report it with the VMM's version",
    Refusal refused_busy "Connections refused because another VMM has this NIC"
        "one NIC, one VMM"
        "two VMs were given one socket, or the last VMM has not ended yet"
        "give each VM a socket of its own",
    Refusal refused_quota "Connections, maps or descriptors refused because the tenant has its part already"
        "tenant, docs/configuration.md"
        "one tenant's VMs need more files, address space or descriptors than their part"
        "raise LimitNOFILE, or split the tenant's VMs",
    Fault accept_errors "Connections that the host could not accept"
        "accept(2)"
        "the process has no descriptor left"
        "raise LimitNOFILE (ulimit -n)",
    Fault malformed_size "Messages of an impossible length; they end the connection"
        "vfio-user: header; vhost-user: header"
        "the peer speaks another protocol"
        "check that the socket is given to the right kind of device",
    Refusal malformed_payload "Messages whose contents cannot be"
        "vfio-user: payloads"
        "a hostile or broken VMM"
        "report it with the VMM's version",
    Refusal refused_no_version "Messages before the version was agreed upon"
        "vfio-user: VERSION comes first"
        "the peer speaks another protocol"
        "check that the socket is given to a vfio-user device",
    Refusal refused_bad_version "Versions that the server does not speak"
        "vfio-user: VERSION"
        "a VMM with an older draft of the protocol"
        "use QEMU 10.1 or cloud-hypervisor",
    Refusal refused_unknown_command "Commands that the protocol does not have"
        "vfio-user: commands"
        "a newer VMM asks whether we know more"
        "nothing: the VMM is told",
    Refusal refused_wrong_direction "Commands that only a server may send"
        "vfio-user: DMA_READ and DMA_WRITE"
        "a hostile or broken VMM"
        "report it with the VMM's version",
    Refusal refused_unsupported "Commands that the server knows and does not do"
        "vfio-user: DEVICE_FEATURE and other optional parts (docs/spec/vfio-user.md)"
        "the VMM asks for a feature that is none of migration's, or for a dirty bitmap of what it unmaps"
        "nothing: the VMM is told",
    Refusal refused_bad_range "Accesses outside of a region's bounds in one message"
        "vfio-user: REGION_READ and REGION_WRITE"
        "a hostile or broken VMM"
        "report it with the VMM's version",
    Refusal beyond_region "Accesses that begin inside of a region and end behind it"
        "PCI: reads are all ones, writes are ignored"
        "a guest that probes"
        "nothing",
    Refusal refused_bad_irq "Changes of interrupts that the device does not have"
        "vfio-user: DEVICE_SET_IRQS"
        "a hostile or broken VMM"
        "report it with the VMM's version",
    Refusal refused_bad_eventfd "Descriptors for interrupts that are no eventfds"
        "a peer's descriptors are proven before use"
        "a hostile VMM"
        "look at the VMM",
    Refusal refused_truncated_fds "Messages whose descriptors the kernel did not pass on to this process"
        "recvmsg(2): MSG_CTRUNC; vfio-user: DMA_MAP and DEVICE_SET_IRQS are answered with EMFILE; vhost-user: the connection ends"
        "the process has no descriptor left, or a security module forbids it these files"
        "raise LimitNOFILE (ulimit -n); look for denials in the kernel's log",
    Refusal accesses_while_halted "Register accesses while the NIC stands still for a move: reads are ones, writes vanish"
        "vfio-user: the states STOP, STOP_COPY and RESUMING; docs/moving.md"
        "a guest runs whose VMM has stopped its NIC"
        "report it with the VMM's version",
    Refusal refused_bad_move "Requests of a migration that were out of order or out of bounds"
        "vfio-user: migration version 2; docs/moving.md"
        "a hostile or broken VMM; a state of more than 1 MiB; a log of more memory than 1 TiB"
        "report it with the VMM's version",
    Refusal refused_state "States that a VMM has brought and the NIC refused"
        "docs/moving.md; the log says why"
        "it was saved by another model, a newer program or a NIC with other settings, or it was damaged on its way"
        "give both NICs the same model and settings, and both hosts the same program; the VMM resets the NIC",
    Refusal unexpected_replies "Replies to what was not asked"
        "vfio-user: message ids"
        "a hostile or broken VMM"
        "report it with the VMM's version",
    Refusal surplus_fds "Descriptors that no message wanted; they are closed"
        "each message says how many it brings"
        "a hostile or broken VMM"
        "report it with the VMM's version",
    Fault dma_faults "Accesses to guest memory that is not mapped"
        "PCI: an unmapped address"
        "the driver gave an address that the VMM did not map"
        "check that all guest RAM is shared (share=on)",
    Fault dma_sigbus "Accesses to guest memory that the VMM had cut off its file"
        "SIGBUS guard (docs/design/one-copy.md)"
        "the VMM truncated its memory file, or a huge page was missing"
        "look at the VMM; make room for huge pages before it starts",
}

super::reason::reasons! { VHOST_USER, "nic":
    Count memory_messages "Messages about guest memory",
    Count ring_messages "Messages about rings",
    Count kicks "Kicks of the driver",
    Count rings_started "Rings that the front end started",
    Count rings_stopped "Rings that the front end stopped",
    Count log_pages_marked "Pages marked in the log of a migration",
    Count calls "Interrupts signalled to the driver",
    Count calls_suppressed "Interrupts that the driver did not want",
    Count calls_latched "Interrupts that wait until there is an eventfd",
    Count calls_deferred "Interrupts that another thread signals, because the front end's eventfds are slow",
    Count announced "Announcements of the guest's address after a migration",
    Count ring_bases_corrected "Rings whose position was taken from the ring, after the last back end was killed",
    Refusal refused_requests "Requests that were answered with an error"
        "vhost-user: replies with an error code"
        "the front end asks for what the device does not have"
        "nothing: the front end is told",
    Fault refused_violations "Requests that break the protocol; they end the connection"
        "vhost-user: order and contents of messages"
        "a hostile or broken front end"
        "report it with the VMM's version",
    Fault malformed "Messages that cannot be read; they end the connection"
        "vhost-user: payloads"
        "a hostile or broken front end"
        "report it with the VMM's version",
    Fault rings_lost "Rings stopped because their memory is no longer mapped"
        "vhost-user: memory tables"
        "the front end took memory away under a running ring"
        "report it with the VMM's version",
    Refusal rings_refused "Rings that cannot be: their size, place or position"
        "virtio 2.7, 2.8"
        "a mistake in the guest's driver"
        "reload the guest's driver",
    Fault rings_broken "Rings that the guest's driver broke"
        "virtio 2.7, 2.8; the counters broken_… say how"
        "a hostile guest or a mistake in its driver"
        "reload the guest's driver",
    Fault transfers_failed "States that could not be moved to or from another back end"
        "vhost-user: DEVICE_STATE"
        "the other end is another version, or went away"
        "use the same release at both ends of a migration",
    Refusal log_marks_outside "Pages beyond the log of a migration"
        "vhost-user: SET_LOG_BASE"
        "the front end gave a log that is too short"
        "report it with the VMM's version",
    Fault calls_failed "Interrupts that could not be signalled: the eventfd is full"
        "eventfd(2): a count has a most"
        "nobody reads the eventfd: the VMM is stopped or hostile"
        "look at the VMM",
    Drop announcements_lost "Announcements of the guest's address that found no room"
        "RFC 5227, RARP"
        "the switch was busy as the VM arrived"
        "nothing: the guest's next frame says the same",
}
