//! The book: SUMMARY.md lists every page, and every link leads to something.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

use crate::root;

/// Pages for readers of the repository, not of the book.
const NOT_IN_IT: &[&str] = &["SUMMARY.md"];

/// Folders besides pages that `scripts/book` puts into the book.
const BESIDE: &[&str] = &[
    "dist",
    "guest/linux",
    "docs",
    "crates/control/idl",
    "crates/control/schema",
    "crates/embed/examples",
    "crates/embed-c/examples",
    "crates/embed-c/include",
];

/// Every page, by its path in the repository.
fn pages() -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("guest/linux/README.md")];
    let mut folders = vec![(PathBuf::new(), false), (PathBuf::from("docs"), true)];
    while let Some((folder, deep)) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder)).unwrap().flatten() {
            let path = folder.join(entry.file_name());
            let kind = entry.file_type().unwrap();
            if kind.is_dir() && deep {
                folders.push((path, true));
            } else if kind.is_file() && path.extension().is_some_and(|e| e == "md") {
                found.push(path);
            }
        }
    }
    found.retain(|page| !NOT_IN_IT.iter().any(|not| page == Path::new(not)));
    found.sort();
    found
}

fn text(page: &Path) -> String {
    std::fs::read_to_string(root().join(page))
        .unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

/// The lines that are not in a block of code, without what is between backquotes.
fn prose(text: &str) -> String {
    let mut inside = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if !inside {
            for (at, part) in line.split('`').enumerate() {
                // An odd part is code; the text of a link may be code, too.
                prose += if at % 2 == 0 { part } else { "code" };
            }
            prose.push('\n');
        }
    }
    prose
}

/// The links of a page, as they are written, but those to elsewhere.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    let links = prose.split("](").skip(1);
    let links = links.filter_map(|rest| rest.split_once(')'));
    let links = links.map(|(link, _)| link.to_owned());
    links.filter(|link| !link.contains("://")).collect()
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> HashSet<String> {
    let mut inside = false;
    let mut found = HashSet::new();
    for line in text.lines() {
        if line.starts_with("```") {
            inside = !inside;
        }
        if inside || !line.starts_with('#') {
            continue;
        }
        let title = line.trim_start_matches('#').trim();
        // A link counts as its text.
        let mut plain = String::new();
        let mut rest = title;
        while let Some((before, after)) = rest.split_once("](") {
            plain += &before.replacen('[', "", 1);
            rest = after.split_once(')').map_or("", |(_, rest)| rest);
        }
        plain += rest;
        let kept = plain
            .to_lowercase()
            .chars()
            .filter_map(|c| match c {
                ' ' => Some('-'),
                c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
                _ => None,
            })
            .collect::<String>();
        let mut name = kept.clone();
        for n in 1.. {
            if found.insert(name) {
                break;
            }
            name = format!("{kept}-{n}");
        }
    }
    found
}

/// `..` taken away.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                assert!(out.pop(), "{} leaves the repository", path.display());
            }
            Component::Normal(name) => out.push(name),
            _ => {}
        }
    }
    out
}

#[test]
fn every_page_is_a_chapter_and_every_chapter_a_page() {
    let chapters: Vec<_> = links(&text(Path::new("SUMMARY.md")))
        .into_iter()
        .map(PathBuf::from)
        .collect();
    let pages = pages();
    for page in &pages {
        let times = chapters.iter().filter(|chapter| *chapter == page).count();
        assert_eq!(
            times,
            1,
            "{} is {times} times in SUMMARY.md",
            page.display()
        );
    }
    assert_eq!(
        chapters.len(),
        pages.len(),
        "SUMMARY.md names a page that there is not"
    );
}

#[test]
fn every_link_leads_to_something_that_is_in_the_book() {
    let pages = pages();
    let mut wrong = Vec::new();
    let mut followed = 0;
    for page in &pages {
        for link in links(&text(page)) {
            followed += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() {
                page.clone()
            } else {
                plain(&page.parent().unwrap().join(file))
            };
            let is_page = pages.contains(&target);
            let beside = BESIDE.iter().any(|folder| target.starts_with(folder));
            let is = root().join(&target).is_file();
            let mut say = |what: &str| wrong.push(format!("{}: {link}: {what}", page.display()));
            if !is {
                say("there is no such file");
            } else if !is_page && !beside {
                say("it is not in the book");
            } else if !anchor.is_empty() && !anchors(&text(&target)).contains(anchor) {
                say("there is no such heading");
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(followed > 200, "only {followed} links");
}

#[test]
fn anchors_and_links_are_found() {
    let page = "# A `b` c, d!\n## In a `[[nic.vf]]`\n## [E](f.md) g\n## A b c d\n```\n# no [x](y.md)\n```\n[p](q.md#r) `[s](t.md)` [`u`](v.md)\n";
    let anchors = anchors(page);
    for anchor in ["a-b-c-d", "in-a-nicvf", "e-g", "a-b-c-d-1"] {
        assert!(anchors.contains(anchor), "{anchor}: {anchors:?}");
    }
    assert_eq!(links(page), ["f.md", "q.md#r", "v.md"]);
}
