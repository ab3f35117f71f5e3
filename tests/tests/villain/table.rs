//! The table is sound, and the page is what it says.

use std::collections::BTreeSet;

use villain::{Moves, all};

#[test]
fn every_villain_has_an_id_of_its_own_and_says_what_it_does_and_moves() {
    let ids: BTreeSet<_> = all().iter().map(|v| v.id).collect();
    assert_eq!(ids.len(), all().len());
    for villain in all() {
        for text in [villain.class, villain.name] {
            assert!(!text.is_empty() && !text.contains('|'), "{}", villain.id);
        }
        match villain.moves {
            Moves::Counters(names) => assert!(!names.is_empty(), "{}", villain.id),
            Moves::Nothing(why) => assert!(why.len() > 10, "{}: why?", villain.id),
        }
    }
}

#[test]
fn the_page_is_what_the_table_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/villains.md");
    let page = std::fs::read_to_string(path).expect("docs/villains.md");
    assert!(page == villain::page(), "write it again: make docs");
}
