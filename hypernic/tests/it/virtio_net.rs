//! virtio-net over a socket: found by its ids, reached through its BAR and through the window in its configuration
//! space.

use hypernic::config::HostConfig;
use hypernic::host::Host;
use vfio_user::Client;
use vfio_user::codec::region::CONFIG;

const BAR0: u32 = 0;
const BAR2: u32 = 2;
/// Of the common configuration.
const FEATURE_SELECT: u64 = 0;
const FEATURE: u64 = 4;
const STATUS: u64 = 0x14;
/// Of the window, from its capability on.
const BAR: u64 = 4;
const OFFSET: u64 = 8;
const LENGTH: u64 = 12;
const DATA: u64 = 16;

/// Where the capability of kind 5 is.
fn window(client: &mut Client) -> u64 {
    let mut at = client.read_u32(CONFIG, 0x34).expect("config") as u8;
    while at != 0 {
        let head = client.read_u32(CONFIG, at.into()).expect("config");
        let [id, next, len, kind] = head.to_le_bytes();
        if (id, kind) == (9, 5) {
            assert_eq!(len, 20);
            return at.into();
        }
        at = next;
    }
    panic!("no window");
}

#[test]
fn virtio_net_is_reached_through_its_bar_and_through_the_window_in_its_configuration_space() {
    let dir = tempfile::tempdir().expect("a folder");
    let socket = dir.path().join("n0.sock");
    let text = format!(
        "[[nic]]\nname = \"n0\"\nmodel = \"virtio-net\"\nsocket-path = {socket:?}\nport = \"null\"\n"
    );
    let config = HostConfig::parse("virtio.toml".as_ref(), &text).expect("the table has it");
    let host = Host::start(&config).expect("a host");
    let mut client = Client::connect(&socket).expect("a client");
    assert_eq!(client.read_u32(CONFIG, 0).expect("ids"), 0x1041_1af4);
    client.write_u32(BAR0, FEATURE_SELECT, 1).expect("a write");
    let high = client.read_u32(BAR0, FEATURE).expect("a read");
    assert_eq!(high & 1, 1, "VERSION_1");

    let at = window(&mut client);
    let mut set = |offset: u64, value: u32| {
        client
            .write_u32(CONFIG, at + offset, value)
            .expect("config");
    };
    set(BAR, 0);
    set(OFFSET, FEATURE as u32);
    set(LENGTH, 4);
    let data = |client: &mut Client| client.read_u32(CONFIG, at + DATA).expect("config");
    assert_eq!(data(&mut client), high);
    let mut set = |offset: u64, value: u32| {
        client
            .write_u32(CONFIG, at + offset, value)
            .expect("config");
    };
    set(OFFSET, FEATURE_SELECT as u32);
    set(DATA, 2);
    set(OFFSET, STATUS as u32);
    set(LENGTH, 1);
    set(DATA, 0xffff_ff03);
    let select = client.read_u32(BAR0, FEATURE_SELECT).expect("a read");
    assert_eq!((select, data(&mut client)), (2, 3));
    // The table of vectors, what is beyond a BAR, and what cannot be.
    for (bar, offset, length, want) in [
        (BAR2, 12, 4, 1),
        (BAR0, 0x4000, 4, u32::MAX),
        (BAR0, u32::MAX - 3, 4, u32::MAX),
        (5, 0, 4, u32::MAX),
    ] {
        for (field, value) in [(BAR, bar), (OFFSET, offset), (LENGTH, length)] {
            client.write_u32(CONFIG, at + field, value).expect("config");
        }
        assert_eq!(data(&mut client), want, "BAR {bar}, {offset:#x}");
    }
    for (bar, offset, length) in [(6, 0, 4), (0, 2, 4), (0, 0, 3), (0, 0, 0)] {
        for (field, value) in [(BAR, bar), (OFFSET, offset), (LENGTH, length), (DATA, 7)] {
            client.write_u32(CONFIG, at + field, value).expect("config");
        }
        assert_eq!(
            data(&mut client),
            7,
            "BAR {bar}, {offset:#x}: nothing is reached"
        );
    }
    assert_eq!(client.read_u32(BAR0, FEATURE_SELECT).expect("a read"), 2);
    drop(client);
    host.stop();
}

/// The error for a NIC of this model with these lines, or the number of queues and the upper half of the features.
fn made(model: &str, more: &str) -> Result<(u16, u32), String> {
    let dir = tempfile::tempdir().expect("a folder");
    let socket = dir.path().join("n0.sock");
    let text = format!(
        "[[nic]]\nname = \"n0\"\nmodel = \"{model}\"\nsocket-path = {socket:?}\nport = \"null\"\n{more}\n"
    );
    let config = HostConfig::parse("q.toml".as_ref(), &text).map_err(|e| e.to_string())?;
    let host = Host::start(&config).map_err(|e| e.to_string())?;
    let mut client = Client::connect(&socket).expect("a client");
    client.write_u32(BAR0, FEATURE_SELECT, 1).expect("a write");
    let high = client.read_u32(BAR0, FEATURE).expect("a read");
    let queues = client.read_u16(BAR0, 0x12).expect("a read");
    drop(client);
    host.stop();
    Ok((queues, high))
}

#[test]
fn queue_pairs_are_one_to_sixteen() {
    for (more, queues, packed) in [
        ("", 3, true),
        ("queue-pairs = 16", 33, true),
        ("queue-pairs = 2\nsplit-rings = true", 5, false),
    ] {
        let (found, high) = made("virtio-net", more).expect(more);
        assert_eq!((found, high >> 2 & 1 != 0), (queues, packed), "{more}");
    }
    for pairs in [0, 17, 65535] {
        let error = made("virtio-net", &format!("queue-pairs = {pairs}"));
        let error = error.expect_err("not so many");
        assert!(
            error.contains("q.toml:6:") && error.contains("between 1 and 16"),
            "{error}"
        );
    }
    let all = [
        "queue-pairs = 2",
        "split-rings = true",
        "mtu = 1400",
        "standby = true",
        "hash-report = true",
    ];
    for more in all {
        let error = made("e1000", more).expect_err("it has none of them");
        assert!(error.contains("82545em"), "{error}");
    }
}

#[test]
fn features_by_option_are_offered_only_if_they_are_chosen() {
    let (hash, standby) = (1 << 25, 1 << 30);
    let (_, high) = made("virtio-net", "").expect("the usual");
    assert_eq!(high & (hash | standby), 0);
    for (more, bit) in [("hash-report = true", hash), ("standby = true", standby)] {
        let (_, high) = made("virtio-net", more).expect(more);
        assert_eq!(high & (hash | standby), bit, "{more}");
    }
    for mtu in [68, 9000, 65535] {
        made("virtio-net", &format!("mtu = {mtu}")).expect("an MTU");
    }
    for mtu in [0, 67] {
        let error = made("virtio-net", &format!("mtu = {mtu}")).expect_err("too small");
        assert!(
            error.contains("q.toml:6:") && error.contains("between 68 and 65535"),
            "{error}"
        );
    }
}
