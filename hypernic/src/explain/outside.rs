//! What ports, the threads behind them and captures count. "Out" is from the host to the outside.

super::reason::reasons! { PORTS, "port":
    Count frames_out "Frames handed to the outside",
    Count bytes_out "Bytes of the frames handed to the outside",
    Count frames_in "Frames that came from the outside",
    Count bytes_in "Bytes of the frames that came from the outside",
    Count syscalls "System calls for this port",
    Count tap_copied "Frames of more pieces than one writev takes, copied together first",
    Count stream_connects "Times the peer of the stream came",
    Count stream_disconnects "Times the peer of the stream went",
    Count ring_connects "Times the other cell came",
    Count ring_disconnects "Times the other cell went",
    Count ring_wakes "Times the other cell was woken",
    Count vhost_connects "Times the back end came",
    Count vhost_disconnects "Times the back end went",
    Count vhost_fewer_pairs "Times the back end came with fewer pairs of rings than pairs= says",
    Count vhost_kicks "Kicks of the back end",
    Count vhost_calls "Calls by the back end",
    Drop tap_gone "Frames out to a TAP that was deleted"
        "the interface is gone for good"
        "somebody ran ip link delete"
        "make the TAP again, then remove and add the port",
    Drop tap_down "Frames out to a TAP that is down"
        "the kernel refuses them (EIO)"
        "the interface was never brought up"
        "ip link set TAP up",
    Drop tap_full "Frames out for which the kernel had no room"
        "the kernel's queue is full (EAGAIN, ENOBUFS, ENOMEM)"
        "the host is slower than the guests send"
        "ip link set TAP txqueuelen 10000, or more queues (tap:NAME,queues=N)",
    Drop tap_refused "Frames out that the kernel does not accept"
        "the kernel checks length and header (EINVAL)"
        "a guest's frame of an odd form"
        "look at the NIC with a capture",
    Drop tap_bad_memory "Frames out whose memory the VMM took away meanwhile"
        "EFAULT"
        "the VM ended or unplugged memory"
        "nothing",
    Drop tap_cannot_take "Frames out that ask for an offload that this TAP does not do"
        "virtio_net_hdr of the TAP"
        "an unknown protocol with segmentation"
        "switch segmentation off in the guest (ethtool -K DEV tso off)",
    Drop tap_bad_header "Frames in with a header that contradicts them, or too short or too long"
        "virtio_net_hdr of the TAP"
        "another program writes to the same TAP"
        "find it; report it if there is none",
    Drop tap_sink_cannot_take "Frames in that ask for an offload that the receiver does not do"
        "virtio_net_hdr of the TAP"
        "an unknown protocol with segmentation"
        "ethtool -K TAP gso off gro off on the host",
    Drop port_missing "Frames that a guest sent while its NIC's port could not be had"
        "docs/survival.md"
        "what the port needs was gone when a worker began: a folder, a TAP, another daemon"
        "the log says what; put it back, then restart the daemon, or remove and add the NIC",
    Drop ring_down "Frames to another cell that was not there"
        "docs/cells.md"
        "its worker died or is being exchanged, or it starts"
        "hypernic cell list says which cell does not answer",
    Drop ring_too_long "Frames to another cell longer than any NIC leaves to be cut"
        "64 KiB and headers"
        "a fault of hypernic"
        "report it",
    Drop ring_too_short "Frames to another cell shorter than an Ethernet header"
        "IEEE 802.3"
        "a fault of hypernic"
        "report it",
    Drop ring_bad_memory "Frames to another cell whose memory the VMM took away meanwhile"
        "a frame is copied from guest memory into the ring"
        "the VM ended or unplugged memory"
        "nothing",
    Drop ring_sink_cannot_take "Frames from another cell with an offload that cannot be finished"
        "a ring carries frames as NICs leave them"
        "an unknown protocol with segmentation"
        "switch segmentation off in the guest (ethtool -K DEV tso off)",
    Drop ring_lost_bytes "Bytes in rings that the connection's end took away"
        "docs/cells.md"
        "the worker of one of the two cells died or was exchanged"
        "nothing",
    Delay ring_no_room "Deliveries to another cell that found its ring full; their senders keep the frames and try again"
        "a ring has 1 MiB each way"
        "the other cell is slower than this one sends"
        "see whether its worker has a processor",
    Fault ring_bad_record "Records from another cell that contradict their frame"
        "the other process is not trusted"
        "another cell is broken or hostile"
        "find out which, and start it again",
    Fault ring_bad_peer "Connections of another cell ended because what it wrote cannot be"
        "the other process is not trusted"
        "another cell is broken or hostile"
        "find out which, and start it again",
    Fault ring_failed_greetings "Those that came to meet and left, or said nothing that can be"
        "docs/cells.md"
        "a cell died as it began, or another program connected"
        "nothing if it is one or two",
    Refusal ring_refused_newcomers "Those that came to meet while the other cell was there"
        "one cell has one place"
        "another program connected"
        "see who may reach the folder of the control socket",
    Drop stream_down "Frames out while no peer is connected"
        "a stream without a peer has its cable out"
        "the other side is not started"
        "start it: stream:PATH connects, stream:listen=PATH listens",
    Drop stream_stalled "Frames out that the peer did not read in time"
        "no peer is waited for without bound"
        "the other side is stopped or slow"
        "look at the other side",
    Drop stream_too_long "Frames out longer than the peer takes"
        "QEMU's stream netdev takes 64 KiB and headers"
        "a guest with a huge MTU"
        "lower the MTU in the guest",
    Drop stream_cannot_take "Frames out with an offload that cannot be finished"
        "a stream has no header for offloads"
        "an unknown protocol with segmentation"
        "switch segmentation off in the guest (ethtool -K DEV tso off)",
    Drop stream_unsent_bytes "Bytes out that waited when the peer left"
        "a closed connection takes nothing"
        "the other side ended"
        "nothing",
    Drop stream_unsure_bytes "Bytes in of frames that a worker was passing on when it died"
        "they may have arrived, and no frame comes twice"
        "the worker died"
        "see in the log why it did",
    Drop stream_runt "Frames in shorter than an Ethernet header"
        "IEEE 802.3 4.2.3.3"
        "the other side is no QEMU stream"
        "look at the other side",
    Fault stream_bad_length "Lengths in that no frame has; they end the connection"
        "QEMU's stream netdev: 32-bit length, then the frame"
        "the other side speaks another protocol"
        "check which program has the other end",
    Drop user_in_full "Frames of guests for which the user network had no room"
        "its queue is bounded"
        "the guests take no frames, so replies pile up; or the network's process takes none for half a second"
        "look at the guests' NICs, and whether the process has a processor",
    Drop user_too_long "Frames of guests longer than the user network's MTU"
        "libslirp's MTU"
        "a guest with a large MTU"
        "lower the MTU in the guest to 1500",
    Drop user_cannot_take "Frames of guests with an offload that cannot be finished"
        "the user network has no header for offloads"
        "an unknown protocol with segmentation"
        "switch segmentation off in the guest (ethtool -K DEV tso off)",
    Drop user_closed "Frames of guests after the user network had ended"
        "the port is closed"
        "the daemon is ending, or the network's process died again and again"
        "see the log",
    Drop user_down "Frames of guests while the user network had no process, or that waited for it when it died"
        "a port without its other side has its cable out"
        "its process died (the log says how), and another is started"
        "nothing, if it is rare; else report what the log says",
    Fault user_deaths "Processes of the user network that died; another is started, six times at most in a row"
        "each user network is a process of its own (docs/sandbox.md)"
        "the kernel killed it for want of memory, or the C library failed"
        "nothing, if it is rare; else report what the log says",
    Fault user_bad_message "Messages of the user network's process that are none; each ends it"
        "the port checks what the process says"
        "the process was taken over, or has a bug"
        "report it, with a capture if you have one",
    Refusal user_refused_calls "System calls that the user network's process tried to make and may not"
        "docs/sandbox.md"
        "a C library that we have not met, or the process was taken over"
        "report the line in the log that names the call",
    Drop user_out_full "Frames for guests beyond what the queue holds in one turn"
        "its queue is bounded"
        "the guests read more slowly than the host sends"
        "nothing: TCP sends them again",
    Drop user_sink_cannot_take "Frames for guests that the NIC did not take as they are"
        "the user network's frames need no offload"
        "a guest whose receiver is off"
        "look at the guest's NIC",
    Refusal user_guest_errors "Mistakes of guests that libslirp reported"
        "libslirp"
        "a guest that sends odd packets"
        "look at the guest with a capture",
    Drop user_flow_refused "Frames that would open a flow beyond flows, or fragments that hide whether they would"
        "user:flows=N, docs/configuration.md"
        "a scan or a flood of connections out of a guest"
        "find the guest (user_nic_flow_refused), or raise flows",
    Drop user_nic_flow_refused "Frames that would open a flow beyond what one NIC may have"
        "user:nic-flows=N, docs/configuration.md"
        "a scan or a flood of connections out of a guest"
        "look at the guest, or raise nic-flows",
    Drop vhost_down "Frames out while no back end is connected"
        "a port without a back end has its cable out"
        "the other process is not started"
        "start it",
    Drop vhost_stalled "Frames out that the back end did not take in time"
        "no peer is waited for without bound"
        "the other process is stopped or slow"
        "look at the other process",
    Drop vhost_too_long "Frames out longer than a ring of the back end's buffers"
        "virtio 5.1.6.2"
        "a guest with a huge MTU"
        "lower the MTU in the guest",
    Drop vhost_cannot_take "Frames out with an offload that the back end does not do"
        "virtio 5.1.3 (HOST_TSO4 and others)"
        "the back end did not offer it, and it cannot be finished here"
        "switch segmentation off in the guest (ethtool -K DEV tso off)",
    Drop vhost_unsent "Frames in the ring as the back end left"
        "a closed connection takes nothing"
        "the other process ended"
        "nothing",
    Drop vhost_bad_header "Frames in with a header that contradicts them"
        "virtio 5.1.6.4"
        "a broken or hostile back end"
        "look at the other process",
    Drop vhost_runt "Frames in shorter than a header and an Ethernet header"
        "IEEE 802.3 4.2.3.3"
        "a broken or hostile back end"
        "look at the other process",
    Fault vhost_broken_ring "Rings that the back end broke; they end the connection"
        "virtio 2.7, 2.8"
        "a broken or hostile back end"
        "look at the other process",
    Refusal vhost_refused "Back ends with which no session came about"
        "vhost-user: features"
        "the back end is no net device, or an old one"
        "see the log for what it lacks",
    Drop vhost_lost "Frames in that had found no room yet as the back end left"
        "a closed connection takes its frames along"
        "the other process ended"
        "nothing",
    Drop loopback_too_long "Frames longer than the loopback keeps"
        "64 KiB and headers"
        "a guest with a huge MTU"
        "lower the MTU in the guest",
    Drop loopback_cannot_finish "Frames whose offload cannot be finished on their way back"
        "virtio 5.1.6.4"
        "an unknown protocol with segmentation"
        "switch segmentation off in the guest (ethtool -K DEV tso off)",
}

super::reason::reasons! { INLETS, "inlet":
    Count inlet_turns "Turns of the thread that brings frames in",
    Count inlet_sleeps "Times that thread slept",
    Count inlet_answers "Times that a NIC's worker found the host's answer on a TAP itself, before that thread was awake",
    Delay inlet_blocked "Times that thread waited because the receiver had no room"
        "the outside keeps what does not fit"
        "the receiver is slower than the outside sends"
        "nothing: no frame is lost here",
    Fault inlet_error_pauses "Times that thread slowed down because its descriptor reports an error again and again"
        "no thread spins on an error"
        "the interface or the peer is in an odd state"
        "see the log; remove and add the port",
}

super::reason::reasons! { CAPTURES, "capture":
    Count capture_frames "Frames written to the capture",
    Count capture_bytes "Bytes written to the capture",
    Count capture_rotated "Times the full file became FILE.1",
    Drop capture_missed "Frames that the capture missed; the guest got them"
        "a capture never holds up traffic"
        "the disk is slower than the traffic"
        "capture to a tmpfs or a faster disk",
    Fault capture_failed "1: the file could not be written, and the capture stopped; traffic goes on"
        "capture, docs/configuration.md"
        "the disk is full"
        "make room, and restart the capture",
}
