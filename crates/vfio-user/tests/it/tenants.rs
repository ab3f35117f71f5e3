//! What clients of one tenant may have, and what is left for others.

use std::time::{Duration, Instant};

use guest_mem::Prot;
use guest_mem::quota::{Pool, Pools, Tenant};
use hypernic_vfio_user::codec::irq;
use hypernic_vfio_user::{ClientError, EventFd, SharedMem};

use crate::common::Rig;

/// Two tenants: each has a quarter, and the rest is for both.
fn pools(descriptors: u64, files: u64) -> Pools {
    Pools {
        files: Pool::new(files, 2, 0),
        bytes: Pool::new(1 << 40, 2, 0),
        descriptors: Pool::new(descriptors, 2, 0),
    }
}

fn soon(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_tenants_clients_share_its_descriptors_and_leave_others_theirs() {
    let pools = pools(16, 100);
    let greedy = Tenant::of(&pools);
    let rigs = [Rig::of_tenant(&greedy), Rig::of_tenant(&greedy)];
    let [mut first, mut second] = [rigs[0].client(), rigs[1].client()];
    let event = EventFd::new().unwrap();
    // A quarter, and the common half; each connection is one of them.
    let mut armed = 2;
    let refused = loop {
        let vector = (armed - 2) / 2;
        let client = if armed % 2 == 0 {
            &mut first
        } else {
            &mut second
        };
        match client.arm(irq::MSIX, vector, &[&event]) {
            Ok(()) => armed += 1,
            Err(error) => break error,
        }
        assert!(armed < 20);
    };
    assert!(matches!(refused, ClientError::Refused { .. }), "{refused}");
    assert_eq!(armed, 12);
    soon("the refused one closed", || greedy.descriptors.used() == 12);

    let modest = Tenant::of(&pools);
    let rig = Rig::of_tenant(&modest);
    let mut third = rig.client();
    for vector in 0..3 {
        third.arm(irq::MSIX, vector, &[&event]).unwrap();
    }
    assert!(third.arm(irq::MSIX, 0, &[&event]).is_err());

    // What is taken back is free again, for the tenant's other device too.
    first.disarm(irq::MSIX).unwrap();
    soon("closed", || greedy.descriptors.used() <= 7);
    second.arm(irq::MSIX, 0, &[&event]).unwrap();
    drop((first, second, third));
    soon("all closed", || {
        greedy.descriptors.used() + modest.descriptors.used() == 0
    });
    let [one, two] = rigs;
    assert_eq!(one.stop()("refused_quota") + two.stop()("refused_quota"), 1);
}

#[test]
fn a_tenant_without_descriptors_gets_no_further_client() {
    let pools = pools(4, 100);
    let tenant = Tenant::of(&pools);
    let rigs: Vec<_> = (0..4).map(|_| Rig::of_tenant(&tenant)).collect();
    let clients: Vec<_> = rigs[..3].iter().map(Rig::client).collect();
    assert!(tenant.descriptors.is_used_up());
    assert!(hypernic_vfio_user::Client::connect(&rigs[3].path).is_err());
    let other = Tenant::of(&pools);
    let rig = Rig::of_tenant(&other);
    drop(rig.client());
    drop(clients);
    soon("room again", || {
        hypernic_vfio_user::Client::connect(&rigs[3].path).is_ok()
    });
    let [.., last] = <[Rig; 4]>::try_from(rigs).ok().unwrap();
    assert!(last.stop()("refused_quota") >= 1);
}

#[test]
fn a_tenants_clients_share_its_mapped_files() {
    let pools = pools(1000, 16);
    let greedy = Tenant::of(&pools);
    let rigs = [Rig::of_tenant(&greedy), Rig::of_tenant(&greedy)];
    let mut clients = [rigs[0].client(), rigs[1].client()];
    let map = |client: &mut hypernic_vfio_user::Client, n: u64| {
        let memory = SharedMem::new("t", 0x1000).unwrap();
        client.dma_map(n << 20, &memory, 0, 0x1000, Prot::RW)
    };
    let mapped = (0..).take_while(|n| map(&mut clients[*n as usize % 2], *n).is_ok());
    assert_eq!(mapped.count(), 12);
    let modest = Tenant::of(&pools);
    let rig = Rig::of_tenant(&modest);
    let mut client = rig.client();
    let mapped = (0..).take_while(|n| map(&mut client, *n).is_ok());
    assert_eq!(mapped.count(), 4);
    clients[0].dma_unmap_all().unwrap();
    soon("unmapped", || greedy.files.used() == 6);
    assert_eq!(greedy.bytes.used(), 6 * 0x1000);
    map(&mut clients[1], 99).unwrap();
}
