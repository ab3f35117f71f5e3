//! What the software PF, workers, tenants, the control socket and the process count.

super::reason::reasons! { VFS, "vf":
    Count vf_messages "Mailbox messages of the function",
    Gauge vf_ready "1: its driver has completed a reset",
    Gauge vf_leaving "1: the operator is about to remove it",
    Gauge vf_shut_down "1: it was shut down because it misbehaved; hypernic vf revive lets it try again",
    Delay vf_messages_delayed "Mailbox messages that waited, because the function sends too many"
        "mailbox-rate, docs/sriov.md"
        "a driver that is loaded again and again, or a hostile guest"
        "nothing, or raise mailbox-rate",
    Refusal vf_refused_mac_override "Addresses other than the operator gave it"
        "mac and trust, docs/sriov.md"
        "the guest wants to change its MAC address"
        "hypernic vf set NIC trust on, or set mac",
    Refusal vf_refused_bad_address "Addresses that are none of a station"
        "IEEE 802 8.2.2"
        "a mistake in the guest's driver, or a hostile guest"
        "look at the guest",
    Refusal vf_refused_address_taken "Addresses that another function of the chip has"
        "one address, one function"
        "a cloned VM"
        "give each VM an address of its own",
    Refusal vf_refused_too_many_addresses "More addresses than one function may have"
        "82576 datasheet 8.10.17 (RAL)"
        "many macvlans in the guest"
        "use fewer, or a NIC on a switch with allow-macs",
    Refusal vf_refused_vlan_override "VLANs other than the operator gave it"
        "vlan, docs/sriov.md"
        "the guest adds a VLAN interface"
        "hypernic vf set NIC vlan 0",
    Refusal vf_refused_frame_size "Frame sizes that the chip does not take"
        "82576 datasheet 8.14 (VMOLR.RLPML)"
        "the guest sets an MTU beyond 9216"
        "lower the MTU in the guest",
    Refusal vf_refused_promiscuous "Promiscuous modes, which no function is granted"
        "docs/sriov.md"
        "tcpdump or a bridge in the guest: harmless"
        "tcpdump -p; for a bridge use a NIC on a switch",
    Refusal vf_refused_unknown_message "Mailbox messages that no driver sends"
        "82576: mailbox (docs/sriov.md)"
        "a newer driver, or a hostile guest"
        "nothing: the driver is told",
    Refusal vf_refused_not_reset "Mailbox messages before a reset was completed"
        "82576: mailbox (docs/sriov.md)"
        "the chip was reset under the driver"
        "nothing: the driver resets",
    Refusal vf_refused_flood "Mailbox messages while the one before waits for its time"
        "mailbox-rate, docs/sriov.md"
        "a hostile guest"
        "look at the guest",
    Refusal vf_refused_spoofed "Frames from addresses or of VLANs that are not its own"
        "spoofchk, docs/sriov.md"
        "the guest changed its address, or has a bridge or containers inside"
        "hypernic vf set NIC trust on, or spoofchk off",
    Refusal vf_refused_storm "Flooded frames beyond its limits"
        "storm, docs/sriov.md"
        "a loop, an address scan or a broken guest"
        "find the loop, or hypernic vf set NIC storm broadcast=N",
}

super::reason::reasons! { WORKERS, "worker":
    Count turns "Turns given to NICs",
    Count sleeps "Times the worker slept",
    Count rings "Times another thread woke the worker",
    Count became_active "Times a NIC became active",
    Count became_idle "Times a NIC became idle",
    Count poll_calls "Looks at the descriptors (epoll_wait)",
    Count doorbell_looks "Looks at doorbells in memory",
    Count timer_calls "System calls for timers",
    Count polls_saved "Sleeps saved by staying awake",
    Count tasks_moved "NICs given to another worker, because their turns waited or no longer do",
    Count work_ns "Nanoseconds of turns that had something to do",
    Count looking_ns "Nanoseconds awake besides: looks for something to do",
    Count replies_in_10us "Messages answered within 10 microseconds after the worker saw them",
    Count replies_in_30us "Messages answered within 30 microseconds, and not within the bound before",
    Count replies_in_100us "Messages answered within 100 microseconds, and not within the bound before",
    Count replies_in_300us "Messages answered within 300 microseconds, and not within the bound before",
    Count replies_in_1ms "Messages answered within 1 millisecond, and not within the bound before",
    Count replies_in_3ms "Messages answered within 3 milliseconds, and not within the bound before",
    Count replies_in_10ms "Messages answered within 10 milliseconds, and not within the bound before",
    Count replies_in_30ms "Messages answered within 30 milliseconds, and not within the bound before",
    Count replies_in_100ms "Messages answered within 100 milliseconds, and not within the bound before",
    Count replies_in_1s "Messages answered within 1 second, and not within the bound before",
    Count replies_later "Messages answered after more than 1 second",
    Count replies_wait_ns "Nanoseconds that messages waited for their answers, all together",
    Gauge longest_turn_ns "The longest turn so far, in nanoseconds",
    Gauge most_copies_in_a_turn "The most copies that other guests made of one turn's frames",
    Gauge tasks "NICs that this worker serves",
    Fault fallen "NICs whose model panicked; they were taken off, and the others go on"
        "a mistake in hypernic"
        "an input that no test has"
        "report it with the log, then remove and add the NIC",
}

super::reason::reasons! { TENANTS, "tenant":
    Gauge memory_files "Memory files that the tenant's VMs have mapped here",
    Gauge memory_bytes "Bytes of address space that the tenant's VMs have here",
    Gauge descriptors "File descriptors that the tenant's VMs have here",
}

super::reason::reasons! { CELLS, "cell":
    Refusal cell_losses_refused "Counters in answers of the cell that are not its own, or too many; monitors are not told of them"
        "the other process is not trusted"
        "a NIC that is on its way to another process; if it rises on, the cell is broken or hostile"
        "if it rises on, start the daemon again and report it",
}

super::reason::reasons! { CONTROL, "control":
    Count control_connections "Connections to the control socket",
    Count control_done "Requests that were done",
    Refusal control_stranger "Connections of users who may not use the control socket"
        "peer credentials, docs/roles.md"
        "a user who is neither root, nor the daemon's, nor in one of its groups"
        "use sudo, or add the user to the group",
    Refusal control_no_request "Connections that sent no whole request in time"
        "docs/protocol.md"
        "a client that hung or was killed"
        "nothing: others were not held up",
    Refusal control_malformed "Requests that are none"
        "docs/protocol.md"
        "another version of the client, or a mistyped field"
        "use the daemon's version of hypernic",
    Refusal control_refused "Requests that cannot be done; nothing changed"
        "docs/protocol.md"
        "a name that is taken or unknown, a port that cannot be opened"
        "read the error",
    Refusal control_not_allowed "Requests that the user's role does not allow; nothing changed"
        "control-monitor, control-operate, control-owner: docs/roles.md"
        "a monitor wants to change something, or an operator to add or remove"
        "use sudo, or give the user the role",
    Refusal control_crowded_out "Connections closed because too many were open; the quietest went"
        "docs/protocol.md"
        "clients that connect and stay silent"
        "find them by the log's pid",
    Refusal control_reply_not_taken "Replies that the client did not read"
        "docs/protocol.md"
        "a client that hung or was killed"
        "nothing",
}

super::reason::reasons! { SANDBOX, "sandbox":
    Gauge landlock "Version of Landlock's interface that restricts files; 0: none",
    Gauge seccomp "1: system calls are filtered, for each kind of thread",
    Gauge no_new_privileges "1: no program that the daemon could start would have more rights",
    Gauge capabilities "Capabilities that the daemon has kept; its workers have none",
    Fault refused_calls "System calls that failed because the sandbox does not let their thread make them"
        "docs/sandbox.md"
        "a C library or a kernel that hypernic has not met, or an attacker in a worker"
        "report the line about it on standard error; --sandbox log lets such calls pass",
}

super::reason::reasons! { PROCESS, "process":
    Drop log_lines_lost "Log lines lost because nobody read standard error in time"
        "a worker never waits for a reader of the log"
        "a full pipe or a stopped terminal"
        "read standard error, or send it to a file or the journal",
    Fault worker_restarts "Times the worker process died and was started again"
        "docs/survival.md"
        "a fault of hypernic, the kernel out of memory, or somebody killed it"
        "report it, with the log lines around \"the worker died\"",
    Fault worker_hangs "Times the worker process was killed because a turn did not end within two seconds"
        "docs/survival.md"
        "a fault of hypernic"
        "report it",
    Fault nics_quarantined "NICs that are not served any more because the worker died twice while serving them"
        "docs/survival.md"
        "a fault of hypernic that this NIC's guest or VMM meets"
        "report it; to try again, remove and add the NIC",
}
