//! Whose NICs are whose, and what each tenant may have of the process.

use std::collections::BTreeMap;
use std::sync::Arc;

use guest_mem::MAX_MAPPINGS;
use guest_mem::quota::{Pool, Pools, Tenant};
use parking_lot::Mutex;

use crate::fds;
use crate::report::Section;

/// Bytes of address space for guest memory: three quarters of what a process has on x86-64 and arm64.
const ADDRESSES: u64 = 96 << 40;

/// Fewest mapped files of a tenant: a VM with some DIMMs, twice over while it restarts.
const LEAST_FILES: u64 = 16;
/// Fewest bytes: a VM of 64 GiB, twice over.
const LEAST_BYTES: u64 = 128 << 30;
/// Fewest descriptors: an 82576 with all its vectors, twice over.
const LEAST_DESCRIPTORS: u64 = 80;

/// The tenants of a host. One comes with its first NIC and stays.
pub(crate) struct Tenants {
    pools: Pools,
    known: Mutex<BTreeMap<String, Arc<Tenant>>>,
}

impl Tenants {
    /// For so many of them with so many NICs in all.
    pub fn new(tenants: usize, nics: usize) -> Self {
        let tenants = tenants as u64;
        let pool = |all, least| Pool::new(all, tenants, least);
        Self {
            pools: Pools {
                files: pool(MAX_MAPPINGS as u64, LEAST_FILES),
                bytes: pool(ADDRESSES, LEAST_BYTES),
                descriptors: pool(fds::for_peers(nics), LEAST_DESCRIPTORS),
            },
            known: Mutex::default(),
        }
    }

    /// The tenant of this name.
    pub fn get(&self, name: &str) -> Arc<Tenant> {
        let mut known = self.known.lock();
        let tenant = known.entry(name.to_owned());
        Arc::clone(tenant.or_insert_with(|| Tenant::of(&self.pools)))
    }

    /// What each has.
    pub fn sections(&self) -> Vec<Section> {
        let section = |(name, tenant): (&String, &Arc<Tenant>)| Section {
            kind: "tenant",
            name: name.clone(),
            values: vec![
                ("memory_files", tenant.files.used()),
                ("memory_bytes", tenant.bytes.used()),
                ("descriptors", tenant.descriptors.used()),
            ],
        };
        self.known.lock().iter().map(section).collect()
    }
}
