//! The state of a VF on its way to another chip.

use serde::{Deserialize, Serialize};
use snapshot::{Kind, State};

/// A VF on its way to another chip.
#[derive(Serialize, Deserialize)]
pub(super) struct MovedVf {
    /// What its driver has asked its PF for and was granted.
    pub asked: Option<Vec<u8>>,
    /// The state of its model.
    pub model: Vec<u8>,
}

impl State for MovedVf {
    const KIND: Kind = Kind::new("moved-vf");
    const VERSION: u32 = 1;
}

/// The revision of its model that a NIC had which was saved for a move.
pub(crate) fn revision_saved(state: &[u8]) -> Option<u16> {
    let moved = snapshot::open(MovedVf::KIND, state).and_then(|saved| saved.decode::<MovedVf>());
    let model = moved.map(|moved| moved.model);
    snapshot::revision_of(model.as_deref().unwrap_or(state))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vf_on_its_way_is_written_as_ever() {
        let moved = MovedVf {
            asked: Some(vec![1, 2, 3]),
            model: vec![4; 100],
        };
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/golden/moved-vf-v1.bin");
        let bytes = model_testkit::golden(path, &snapshot::seal(&moved));
        let read = |bytes: &[u8]| snapshot::open(MovedVf::KIND, bytes)?.decode::<MovedVf>();
        let again = read(&bytes).expect("it loads");
        assert_eq!((again.asked, again.model), (moved.asked, moved.model));
        for len in 0..bytes.len() {
            assert!(read(&bytes[..len]).is_err(), "{len} bytes");
        }
    }

    #[derive(Serialize, Deserialize)]
    struct Model;

    impl State for Model {
        const KIND: Kind = Kind::new("model");
        const VERSION: u32 = 1;
    }

    #[test]
    fn a_vf_on_its_way_is_of_the_revision_of_its_model() {
        let model = snapshot::stamp(snapshot::seal(&Model), 3);
        assert_eq!(revision_saved(&model), Some(3));
        let moved = snapshot::seal(&MovedVf { asked: None, model });
        assert_eq!(revision_saved(&moved), Some(3));
        assert_eq!(revision_saved(b"nothing"), None);
    }
}
