//! What a device writes, page by page.

use std::collections::BTreeSet;

use guest_mem::Prot;
use hypernic_vfio_user::SharedMem;
use hypernic_vfio_user::codec::feature::{self, GET, SET};
use hypernic_vfio_user::codec::{LogControl, LogReport};

use super::*;

const RAM: u64 = 0x10_0000;
const LEN: u64 = 0x4_0000;
const PAGE: u64 = 4096;

fn with_ram(moving: &Moving) -> (Client, SharedMem) {
    let mut client = moving.client();
    let ram = SharedMem::new("ram", LEN as usize).unwrap();
    client.dma_map(RAM, &ram, 0, LEN, Prot::RW).unwrap();
    (client, ram)
}

/// Has the device write there. It is done before the next answer but one.
fn store(client: &mut Client, iova: u64) {
    client.region_write(0, STORE, &iova.to_le_bytes()).unwrap();
    client.region_write(0, 0, &[0]).unwrap();
}

fn dirty(client: &mut Client, iova: u64, len: u64, page_size: u64) -> BTreeSet<u64> {
    let bitmap = client.take_log(iova, len, page_size).unwrap();
    let bit = |page: &u64| bitmap[(page / 8) as usize] >> (page % 8) & 1 != 0;
    (0..8 * bitmap.len() as u64).filter(bit).collect()
}

fn set<const N: usize>(pages: [u64; N]) -> BTreeSet<u64> {
    pages.into()
}

#[test]
fn what_the_device_writes_is_shown_once_by_pages_of_any_size() {
    let moving = Moving::new();
    let (mut client, ram) = with_ram(&moving);
    store(&mut client, RAM);
    assert_eq!(client.start_log(PAGE, &[]).unwrap(), PAGE);
    assert_eq!(dirty(&mut client, RAM, LEN, PAGE), set([]));
    store(&mut client, RAM + 0x3ffc);
    store(&mut client, RAM + 0x9000);
    assert_eq!(dirty(&mut client, RAM, LEN, PAGE), set([3, 4, 9]));
    assert_eq!(dirty(&mut client, RAM, LEN, PAGE), set([]));
    let mut found = [0; 8];
    ram.read(0x9000, &mut found);
    assert_eq!(found, WORD);
    // Coarser, finer, and a part.
    store(&mut client, RAM + 0x5000);
    assert_eq!(dirty(&mut client, RAM, LEN, 0x4000), set([1]));
    store(&mut client, RAM + 0x5000);
    assert_eq!(dirty(&mut client, RAM, LEN, 2048), set([10, 11]));
    store(&mut client, RAM + 0x5000);
    store(&mut client, RAM + 0x8000);
    assert_eq!(dirty(&mut client, RAM + 0x4000, 0x2000, PAGE), set([1]));
    assert_eq!(
        dirty(&mut client, RAM, LEN, PAGE),
        set([8]),
        "the rest is still there"
    );
    // Stopped, nothing is written, and nothing is lost either.
    store(&mut client, RAM + 0x1000);
    client.set_migration_state(StopCopy).unwrap();
    assert_eq!(dirty(&mut client, RAM, LEN, PAGE), set([1]));
    client.stop_log().unwrap();
    client.stop_log().unwrap();
    assert_eq!(refused(client.take_log(RAM, LEN, PAGE)), EINVAL);
}

#[test]
fn memory_that_comes_and_goes_is_logged_and_the_clients_own_is_not() {
    let moving = Moving::new();
    let (mut client, _ram) = with_ram(&moving);
    client.start_log(PAGE, &[]).unwrap();
    let more = SharedMem::new("more", 0x2000).unwrap();
    client
        .dma_map(RAM + LEN, &more, 0, 0x2000, Prot::RW)
        .unwrap();
    store(&mut client, RAM + LEN + 0x1000);
    store(&mut client, RAM);
    client.dma_unmap(RAM + LEN, 0x2000).unwrap();
    assert_eq!(dirty(&mut client, RAM, LEN + 0x2000, PAGE), set([0, 65]));
    // What it reaches by messages alone, the client writes itself.
    client
        .dma_map_without_fd(1 << 40, None, 1 << 50, Prot::RW)
        .unwrap();
    assert_eq!(dirty(&mut client, 1 << 40, 0x1000, PAGE), set([]));
}

#[test]
fn a_log_of_ranges_has_these_and_may_be_asked_for_twice() {
    let moving = Moving::new();
    let (mut client, _ram) = with_ram(&moving);
    let other = SharedMem::new("other", 0x1000).unwrap();
    // In a part of the log of its own.
    client
        .dma_map(1 << 32, &other, 0, 0x1000, Prot::RW)
        .unwrap();
    client.start_log(PAGE, &[(RAM, LEN)]).unwrap();
    store(&mut client, RAM);
    store(&mut client, 1 << 32);
    assert_eq!(dirty(&mut client, 1 << 32, 0x1000, PAGE), set([]));
    client.start_log(PAGE, &[(1 << 32, 0x1000)]).unwrap();
    store(&mut client, 1 << 32);
    assert_eq!(dirty(&mut client, 1 << 32, 0x1000, PAGE), set([0]));
    assert_eq!(dirty(&mut client, RAM, LEN, PAGE), set([0]), "kept");
    assert_eq!(refused(client.start_log(2 * PAGE, &[])), EINVAL);
}

#[test]
fn logs_that_make_no_sense_are_refused() {
    let moving = Moving::new();
    let (mut client, _ram) = with_ram(&moving);
    assert_eq!(
        refused(client.take_log(RAM, LEN, PAGE)),
        EINVAL,
        "there is none"
    );
    for page_size in [0, 3, 4097] {
        assert_eq!(refused(client.start_log(page_size, &[])), EINVAL);
    }
    for range in [(RAM, 0), (u64::MAX, 2)] {
        assert_eq!(refused(client.start_log(PAGE, &[range])), EINVAL);
    }
    assert_eq!(
        refused(client.start_log(PAGE, &[(RAM, 1); 1025])),
        7,
        "E2BIG"
    );
    // Ranges that are not there.
    let control = LogControl {
        page_size: PAGE,
        ranges: u32::MAX,
        reserved: 0,
    };
    let start = SET | feature::LOG_START;
    assert_eq!(refused(client.feature(start, &control.to_bytes())), EINVAL);
    for cut in 0..LogControl::LEN {
        let answer = client.feature(start, &control.to_bytes()[..cut]);
        assert_eq!(refused(answer), EINVAL);
    }
    // Pages of less than the smallest are those.
    assert_eq!(client.start_log(1, &[]).unwrap(), PAGE);
    let wrong = [
        (RAM, 0, PAGE),
        (u64::MAX, 2, PAGE),
        (RAM, LEN, 0),
        (RAM, LEN, 12288),
    ];
    for (iova, len, page_size) in wrong {
        assert_eq!(refused(client.take_log(iova, len, page_size)), EINVAL);
    }
    // A bitmap that no message holds.
    assert_eq!(refused(client.take_log(0, 1 << 36, PAGE)), EINVAL);
    assert_eq!(refused(client.take_log(0, u64::MAX, 1)), EINVAL);
    assert_eq!(dirty(&mut client, 0, u64::MAX, 1 << 58), set([]));
    let report = GET | feature::LOG_REPORT;
    for cut in 0..LogReport::LEN {
        assert_eq!(
            refused(client.feature(report, &[1; LogReport::LEN][..cut])),
            EINVAL
        );
    }
}

#[test]
fn a_log_ends_with_its_client() {
    let moving = Moving::new();
    let (mut client, _ram) = with_ram(&moving);
    client.start_log(PAGE, &[]).unwrap();
    assert_eq!(moving.dma.memory().logged(), Some(0));
    drop(client);
    let (mut client, _ram) = with_ram(&moving);
    assert_eq!(refused(client.take_log(RAM, LEN, PAGE)), EINVAL);
    assert_eq!(moving.dma.memory().logged(), None);
}
