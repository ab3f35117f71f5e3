use hypernic_vhost_user::codec::*;
use proptest::prelude::*;

fn state() -> impl Strategy<Value = VringState> {
    (any::<u32>(), any::<u32>()).prop_map(|(index, num)| VringState { index, num })
}

fn vring_fd() -> impl Strategy<Value = VringFd> {
    (any::<u8>(), any::<bool>()).prop_map(|(index, without_fd)| VringFd { index, without_fd })
}

fn region() -> impl Strategy<Value = MemRegion> {
    any::<[u64; 4]>().prop_map(|[guest, size, user, mmap_offset]| MemRegion {
        guest,
        size,
        user,
        mmap_offset,
    })
}

fn inflight() -> impl Strategy<Value = Inflight> {
    let fields = (any::<u64>(), any::<u64>(), any::<u16>(), any::<u16>());
    fields.prop_map(|(size, offset, queues, queue_size)| Inflight {
        size,
        offset,
        queues,
        queue_size,
    })
}

fn addr() -> impl Strategy<Value = VringAddr> {
    (any::<[u32; 2]>(), any::<[u64; 4]>()).prop_map(
        |([index, flags], [descriptor, used, available, log])| VringAddr {
            index,
            flags,
            descriptor,
            used,
            available,
            log,
        },
    )
}

/// Any message but those with configuration space, which borrow.
fn message() -> impl Strategy<Value = Message<'static>> {
    let empty = prop::sample::select(vec![
        Message::GetFeatures,
        Message::SetOwner,
        Message::ResetOwner,
        Message::SetLogFd,
        Message::GetProtocolFeatures,
        Message::GetQueueNum,
        Message::SetBackendReqFd,
        Message::PostcopyAdvise,
        Message::PostcopyListen,
        Message::PostcopyEnd,
        Message::GpuSetSocket,
        Message::ResetDevice,
        Message::GetMaxMemSlots,
        Message::GetStatus,
        Message::CheckDeviceState,
    ]);
    let direction = prop::sample::select(vec![Direction::Save, Direction::Load]);
    prop_oneof![
        empty,
        any::<u64>().prop_map(Message::SetFeatures),
        any::<u64>().prop_map(Message::SetProtocolFeatures),
        any::<u64>().prop_map(Message::NetSetMtu),
        any::<u64>().prop_map(Message::SetStatus),
        any::<u64>().prop_map(|at| Message::SetLogBase(LogBase::Address(at))),
        any::<[u64; 2]>()
            .prop_map(|[size, offset]| Message::SetLogBase(LogBase::Shared(Log { size, offset }))),
        prop::collection::vec(region(), 0..=MAX_REGIONS)
            .prop_map(|regions| Message::SetMemTable(MemTable::new(&regions).expect("they fit"))),
        state().prop_map(Message::SetVringNum),
        state().prop_map(Message::SetVringBase),
        state().prop_map(Message::GetVringBase),
        state().prop_map(Message::SetVringEnable),
        state().prop_map(Message::SetVringEndian),
        state().prop_map(Message::VringKick),
        addr().prop_map(Message::SetVringAddr),
        vring_fd().prop_map(Message::SetVringKick),
        vring_fd().prop_map(Message::SetVringCall),
        vring_fd().prop_map(Message::SetVringErr),
        any::<[u8; 6]>().prop_map(Message::SendRarp),
        any::<[u8; 16]>().prop_map(Message::GetSharedObject),
        (any::<[u64; 3]>(), any::<[u8; 2]>()).prop_map(
            |([iova, size, user], [permissions, kind])| Message::IotlbMsg(Iotlb {
                iova,
                size,
                user,
                permissions,
                kind
            })
        ),
        inflight().prop_map(Message::GetInflightFd),
        inflight().prop_map(Message::SetInflightFd),
        region().prop_map(Message::AddMemReg),
        region().prop_map(Message::RemMemReg),
        (direction, any::<u32>()).prop_map(|(direction, phase)| Message::SetDeviceStateFd(
            DeviceState { direction, phase }
        )),
    ]
}

fn encoded(message: &Message<'_>, wants_reply: bool) -> (Header, Vec<u8>) {
    let mut buffer = [0; HEADER_LEN + MAX_PAYLOAD];
    let bytes = message.encode(wants_reply, &mut buffer);
    let header = Header::parse(bytes).expect("a header");
    (header, bytes[HEADER_LEN..].to_vec())
}

proptest! {
    /// What is encoded is parsed, and one byte more or less is not.
    #[test]
    fn every_message_survives_its_encoding(message in message(), wants_reply in any::<bool>()) {
        let (header, mut payload) = encoded(&message, wants_reply);
        prop_assert_eq!(header.needs_reply(), wants_reply);
        prop_assert_eq!(Message::parse(&header, &payload), Ok(message));
        let longer = Header { size: header.size + 1, ..header };
        prop_assert!(Message::parse(&longer, &payload).is_err());
        payload.push(0);
        prop_assert!(Message::parse(&longer, &payload).is_err(), "a byte too many");
        payload.truncate(payload.len().saturating_sub(2));
        if header.size > 0 {
            let shorter = Header { size: header.size - 1, ..header };
            prop_assert!(Message::parse(&shorter, &payload).is_err(), "a byte too few");
        }
    }

    /// Configuration space, which borrows its bytes.
    #[test]
    fn configuration_space_survives_its_encoding(
        offset in 0..MAX_CONFIG, flags in any::<u32>(), data in prop::collection::vec(any::<u8>(), 0..=MAX_CONFIG),
    ) {
        let config = Config { offset: offset as u32, flags, data: &data };
        for message in [Message::GetConfig(config), Message::SetConfig(config)] {
            let (header, payload) = encoded(&message, false);
            let parsed = Message::parse(&header, &payload);
            if offset + data.len() <= MAX_CONFIG {
                prop_assert_eq!(parsed, Ok(message));
            } else {
                prop_assert!(parsed.is_err());
            }
        }
    }

    /// Any bytes are a message or none; what is one says the same when it is sent again.
    #[test]
    fn any_bytes_are_parsed_within_bounds(
        request in prop_oneof![0..50u32, any::<u32>()], flags in prop_oneof![Just(1u32), Just(9), any::<u32>()],
        payload in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let header = Header { request, flags, size: payload.len() as u32 };
        prop_assert_eq!(Header::parse(&header.to_bytes()), Some(header));
        match Message::parse(&header, &payload) {
            Ok(message) => {
                let (again, bytes) = encoded(&message, header.needs_reply());
                prop_assert_eq!(Message::parse(&again, &bytes), Ok(message));
                prop_assert_eq!(message.request() as u32, request);
            }
            Err(malformed) => prop_assert_eq!(malformed.request, request),
        }
    }
}

#[test]
fn a_memory_table_says_no_more_regions_than_it_has() {
    let header = |size| Header {
        request: Request::SetMemTable as u32,
        flags: 1,
        size,
    };
    let table = |count: u32, regions: usize| {
        let mut bytes = count.to_ne_bytes().to_vec();
        bytes.resize(8 + 32 * regions, 0);
        Message::parse(&header(bytes.len() as u32), &bytes).is_ok()
    };
    assert!(table(0, 0) && table(8, 8));
    assert!(!table(9, 9) && !table(8, 7) && !table(7, 8) && !table(u32::MAX, 8));
    assert_eq!(MemTable::new(&[MemRegion::default(); 9]), None);
}

#[test]
fn an_inflight_description_may_come_without_its_padding() {
    let asked = Inflight {
        size: 1,
        offset: 2,
        queues: 3,
        queue_size: 4,
    };
    let header = |size| Header::request(Request::SetInflightFd, size);
    let bytes = asked.to_bytes();
    let parsed = Ok(Message::SetInflightFd(asked));
    assert_eq!(Message::parse(&header(24), &bytes), parsed);
    assert_eq!(Message::parse(&header(20), &bytes[..20]), parsed);
    assert!(Message::parse(&header(22), &bytes[..22]).is_err());
}

/// The numbers are those that an independent crate has.
#[test]
fn requests_and_bits_have_the_numbers_that_others_give_them() {
    use vhost::vhost_user::message::{
        FrontendReq, VhostUserProtocolFeatures as Theirs, VhostUserVirtioFeatures,
    };
    for number in 0..44 {
        let known = matches!(number, 1..=25 | 28..=43);
        assert_eq!(Request::from_u32(number).is_some(), known, "{number}");
        if let (Some(ours), Ok(theirs)) = (Request::from_u32(number), FrontendReq::try_from(number))
        {
            assert_eq!(ours.name(), format!("{theirs:?}"));
        }
    }
    for (ours, theirs) in [
        (protocol::MQ, Theirs::MQ),
        (protocol::LOG_SHMFD, Theirs::LOG_SHMFD),
        (protocol::RARP, Theirs::RARP),
        (protocol::REPLY_ACK, Theirs::REPLY_ACK),
        (protocol::MTU, Theirs::MTU),
        (protocol::BACKEND_REQ, Theirs::BACKEND_REQ),
        (protocol::CROSS_ENDIAN, Theirs::CROSS_ENDIAN),
        (protocol::PAGEFAULT, Theirs::PAGEFAULT),
        (protocol::CONFIG, Theirs::CONFIG),
        (protocol::BACKEND_SEND_FD, Theirs::BACKEND_SEND_FD),
        (protocol::HOST_NOTIFIER, Theirs::HOST_NOTIFIER),
        (protocol::INFLIGHT_SHMFD, Theirs::INFLIGHT_SHMFD),
        (protocol::RESET_DEVICE, Theirs::RESET_DEVICE),
        (protocol::INBAND_NOTIFICATIONS, Theirs::INBAND_NOTIFICATIONS),
        (protocol::CONFIGURE_MEM_SLOTS, Theirs::CONFIGURE_MEM_SLOTS),
        (protocol::STATUS, Theirs::STATUS),
        (protocol::XEN_MMAP, Theirs::XEN_MMAP),
        (protocol::SHARED_OBJECT, Theirs::SHARED_OBJECT),
        (protocol::DEVICE_STATE, Theirs::DEVICE_STATE),
    ] {
        assert_eq!(ours, theirs.bits(), "{theirs:?}");
    }
    assert_eq!(feature::LOG_ALL, VhostUserVirtioFeatures::LOG_ALL.bits());
    assert_eq!(
        feature::PROTOCOL,
        VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
    );
}
