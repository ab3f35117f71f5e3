//! Each direct dependency has its reason on a page, and no reason is left over.

use std::collections::BTreeSet;
use std::fs;

const PAGE: &str = "docs/design/dependencies.md";

/// The crates in the first column of the page's first two tables.
fn rows(page: &str) -> BTreeSet<String> {
    let (crates, _) = page
        .split_once("## Made by hand")
        .expect("what is made by hand comes last");
    crates
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"))
        .map(|(name, _)| name.to_owned())
        .collect()
}

#[test]
fn each_dependency_has_its_reason_on_the_page_and_no_row_is_left_over() {
    let page = fs::read_to_string(super::root().join(PAGE)).expect(PAGE);
    let rows = rows(&page);
    let mut used = BTreeSet::new();
    for package in super::packages() {
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            // Our own have a path and no registry.
            if !dependency["source"].is_null() {
                used.insert(dependency["name"].as_str().expect("name").to_owned());
            }
        }
    }
    assert!(used.len() > 20, "only {used:?} found");
    // It stands outside the workspace, so cargo does not tell of it here.
    let apart = super::root().join("fuzz/libfuzzer/Cargo.toml");
    let apart = fs::read_to_string(apart).expect("fuzz/libfuzzer");
    assert!(apart.contains("libfuzzer-sys"));
    used.insert("libfuzzer-sys".to_owned());
    let missing: Vec<_> = used.difference(&rows).collect();
    assert!(missing.is_empty(), "{PAGE} has no row for {missing:?}");
    let stale: Vec<_> = rows.difference(&used).collect();
    assert!(stale.is_empty(), "{PAGE} names unused {stale:?}");
}
