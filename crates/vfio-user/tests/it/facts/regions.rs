//! 6.4: regions.

use crate::common::Rig;
use hypernic_vfio_user::{DeviceDescription, Listener, Server, SharedMem};

#[test]
fn fact_6_4_a_register_works_through_its_page_and_by_message_at_once() {
    use std::sync::atomic::Ordering::SeqCst;
    let rig = Rig::with_mmap();
    let mut c = rig.client();
    let bar = c.region_info(2).unwrap();
    let areas: Vec<(u64, u64)> = bar.areas.iter().map(|a| (a.offset, a.size)).collect();
    assert_eq!(areas, [(0x1000, 0x1000), (0x3000, 0x1000)]);
    for (i, area) in bar.areas.iter().enumerate() {
        let page = bar.map(area).unwrap();
        page.store_u32(0x18, 0x1111 + i as u32, SeqCst);
        let at = area.offset + 0x18;
        assert_eq!(c.read_u32(2, at).unwrap(), 0x1111 + i as u32);
        assert_eq!(rig.page.load_u32(at as usize, SeqCst), 0x1111 + i as u32);
        c.write_u32(2, at, 0x2222).unwrap();
        assert_eq!(page.load_u32(0x18, SeqCst), 0x2222);
    }
    // A trapped page of the same BAR.
    c.write_u32(2, 0x2000, 3).unwrap();
    assert_eq!(c.read_u32(2, 0x2000).unwrap(), 3);
}

#[test]
fn fact_6_4_impossible_mappable_areas_are_refused_when_the_device_is_described() {
    use hypernic_vfio_user::SparseArea;
    use hypernic_vfio_user::pci::Bar;
    let (_, socket) = std::os::unix::net::UnixStream::pair().unwrap();
    let area = |offset, size| SparseArea { offset, size };
    let cases: &[(Bar, usize, &[SparseArea])] = &[
        (Bar::memory32(0x4000), 0x4000, &[]),
        (Bar::memory32(0x4000), 0x4000, &[area(0x10, 0x1000)]),
        (Bar::memory32(0x4000), 0x4000, &[area(0x4000, 0x1000)]),
        (
            Bar::memory32(0x4000),
            0x4000,
            &[area(0x1000, 0x1000), area(0x1000, 0x1000)],
        ),
        (Bar::memory32(0x4000), 0x4000, &[area(0x1000, !0xfff)]),
        (Bar::memory32(0x4000), 0x1000, &[area(0, 0x1000)]),
        (Bar::io(256), 0x1000, &[area(0, 0x1000)]),
    ];
    for (i, (bar, len, areas)) in cases.iter().enumerate() {
        let memory = SharedMem::new("bar", *len).unwrap();
        let description = DeviceDescription::new(1, 2)
            .bar(0, *bar)
            .mmap(0, memory, areas);
        let socket = Listener::from_connected(socket.try_clone().unwrap().into());
        assert!(Server::new(description, socket).is_err(), "case {i}");
    }
}
