//! The codec takes any bytes.

use hypernic_vfio_user::codec::{
    DeviceFeature, DeviceInfo, DmaAccess, DmaMap, DmaUnmap, Header, IrqInfo, MigrationData,
    RegionAccess, RegionInfo, RegionIoFds, SetIrqs, SparseArea, Version, WriteEntry, sparse_areas,
    sparse_capability,
};
use proptest::prelude::*;

macro_rules! round_trip {
    ($bytes:expr, $($name:ident),+) => {$(
        match $name::parse($bytes) {
            Ok(value) => {
                prop_assert!($bytes.len() >= $name::LEN);
                prop_assert_eq!(&value.to_bytes()[..], &$bytes[..$name::LEN]);
            }
            Err(_) => prop_assert!($bytes.len() < $name::LEN),
        }
    )+};
}

proptest! {
    #[test]
    fn any_bytes_parse_to_themselves_or_not_at_all(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        round_trip!(
            &bytes[..], DmaMap, DmaUnmap, DeviceInfo, RegionInfo, RegionIoFds, IrqInfo, SetIrqs,
            RegionAccess, WriteEntry, DmaAccess, DeviceFeature, MigrationData
        );
        match Header::parse(&bytes) {
            Some(header) => prop_assert_eq!(&header.to_bytes()[..], &bytes[..16]),
            None => prop_assert!(bytes.len() < 16),
        }
        let _ = Version::parse(&bytes);
        let _ = sparse_areas(&bytes);
    }

    #[test]
    fn versions_survive_the_wire(
        minor in any::<u16>(), fds in any::<Option<u32>>(), size in any::<Option<u32>>(), multi in any::<Option<bool>>(),
    ) {
        let mut version = Version { minor, ..Version::default() };
        version.capabilities.max_msg_fds = fds;
        version.capabilities.max_data_xfer_size = size;
        version.capabilities.write_multiple = multi;
        prop_assert_eq!(Version::parse(&version.to_bytes()).unwrap(), version);
    }

    #[test]
    fn broken_capability_chains_end(
        cap_offset in 0u32..80, mut caps in prop::collection::vec(any::<u8>(), 0..64), next in 0u32..100,
    ) {
        if let Some(word) = caps.get_mut(4..8) {
            word.copy_from_slice(&next.to_ne_bytes());
        }
        let info = RegionInfo { argsz: 32, flags: 8, cap_offset, ..RegionInfo::default() };
        let _ = sparse_areas(&[&info.to_bytes()[..], &caps].concat());
    }

    #[test]
    fn sparse_areas_survive_the_wire(areas in prop::collection::vec((any::<u64>(), any::<u64>()), 0..20)) {
        let areas: Vec<SparseArea> =
            areas.into_iter().map(|(offset, size)| SparseArea { offset, size }).collect();
        let info = RegionInfo { argsz: 32, flags: 8, cap_offset: 32, ..RegionInfo::default() };
        let payload = [&info.to_bytes()[..], &sparse_capability(&areas)].concat();
        prop_assert_eq!(sparse_areas(&payload).unwrap(), areas);
    }
}
