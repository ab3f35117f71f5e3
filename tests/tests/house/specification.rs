//! SPECIFICATION.md and docs/spec: each promise names a test that exists, in cells short enough to read; and every
//! link from one page to another leads somewhere.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Characters a cell of docs/spec may have.
const CELL: usize = 120;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
        .to_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// All files below `dir` whose names end in `ending`, without what cargo and git keep.
fn files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() {
            if name != "target" && name != ".git" {
                found.extend(files(&path, ending));
            }
        } else if name.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    found
}

/// The cells of the rows of all tables whose first cell of the header is `first`.
fn rows(text: &str, first: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        let Some(row) = line
            .strip_prefix('|')
            .and_then(|l| l.trim_end().strip_suffix('|'))
        else {
            inside = false;
            continue;
        };
        let cells: Vec<String> = row.split(" | ").map(|c| c.trim().to_owned()).collect();
        if inside {
            if !row.starts_with("---") {
                found.push(cells);
            }
        } else {
            inside = cells[0] == first;
        }
    }
    found
}

/// What stands between backticks.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The sources of the tree, by their path from its root.
struct Tree(Vec<(String, String)>);

impl Tree {
    fn read() -> Self {
        let root = root();
        let sources = files(&root, ".rs").into_iter().map(|path| {
            let name = path.strip_prefix(&root).expect("below the root");
            (name.to_string_lossy().into_owned(), read(&path))
        });
        Self(sources.collect())
    }

    fn below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a (String, String)> {
        self.0
            .iter()
            .filter(move |(path, _)| path.starts_with(prefix))
    }

    /// A test of that name: marked as one, listed for each kernel by a macro, or made of a proof.
    fn has_test(&self, prefix: &str, name: &str) -> bool {
        let function = format!("fn {name}(");
        let listed = format!("    {name},");
        self.below(prefix).any(|(_, text)| {
            let lines: Vec<_> = text.lines().map(str::trim).collect();
            let marked = |at: usize| {
                let above = lines[..at].iter().rev();
                above
                    .take_while(|l| l.starts_with('#') || l.starts_with("//"))
                    .any(|l| l.contains("#[test]"))
            };
            lines
                .iter()
                .enumerate()
                .any(|(at, line)| line.contains(&function) && marked(at))
                || (text.contains("on_every_kernel! {") && text.lines().any(|l| l == listed))
                || (text.contains("\nproofs! {") && lines.iter().any(|l| l.starts_with(&function)))
        })
    }

    fn has_file(&self, prefix: &str, name: &str) -> bool {
        self.below(prefix)
            .any(|(path, _)| path.rsplit('/').next() == Some(name))
    }

    /// A program of the villains, declared by `name = …` or `name: …` in their table.
    fn has_villain(&self, prefix: &str, name: &str) -> bool {
        self.below(prefix).any(|(path, text)| {
            path.ends_with("table.rs")
                && text
                    .split(|c: char| !(c.is_alphanumeric() || c == '_'))
                    .any(|w| w == name)
        })
    }
}

/// Why what a cell names does not hold its promise; nothing if it does.
fn missing(tree: &Tree, places: &BTreeMap<String, String>, cell: &str) -> Option<String> {
    let names = quoted(cell);
    if names.is_empty() {
        return Some("names nothing".to_owned());
    }
    let Some((place, _)) = cell.split_once(": `") else {
        let command = names[0];
        let (program, of) = command.split_once(' ').unwrap_or((command, ""));
        let found = match program {
            "make" => read(&root().join("Makefile")).contains(&format!("\n{of}:")),
            "hypernic-bench" => {
                let module = root().join("bench/src").join(of);
                module.is_dir() || module.with_extension("rs").is_file()
            }
            path => root().join(path).is_file(),
        };
        return (!found).then(|| format!("there is no `{command}`"));
    };
    let Some(path) = places.get(place) else {
        return Some(format!("SPECIFICATION.md lists no place `{place}`"));
    };
    let lost = names.into_iter().find(|name| {
        let found = if name.ends_with(".rs") {
            tree.has_file(path, name)
        } else if place == "villains" {
            tree.has_villain(path, name)
        } else {
            tree.has_test(path, name)
                || (place == "fuzz" && tree.has_file("fuzz/src", &format!("{name}.rs")))
        };
        !found
    });
    lost.map(|name| format!("no test `{name}` below {path}"))
}

#[test]
fn every_promise_names_a_test_that_exists() {
    let index = read(&root().join("SPECIFICATION.md"));
    let tree = Tree::read();
    let mut places = BTreeMap::new();
    let mut wrong = Vec::new();
    for row in rows(&index, "place") {
        let name = quoted(&row[0])[0].to_owned();
        let path = row[1].split(' ').next().expect("a path").to_owned();
        if tree.below(&path).next().is_none() {
            wrong.push(format!("SPECIFICATION.md: there is nothing at {path}"));
        }
        places.insert(name, path);
    }
    let mut pages = files(&root().join("docs/spec"), ".md");
    pages.sort();
    for page in pages {
        let name = format!("docs/spec/{}", page.file_name().expect("a name").display());
        let promises = rows(&read(&page), "promise");
        let mut pending = 0;
        for row in &promises {
            let [promise, held] = row.as_slice() else {
                wrong.push(format!("{name}: a row of {} cells: {row:?}", row.len()));
                continue;
            };
            if row.iter().any(|cell| cell.chars().count() > CELL) {
                wrong.push(format!("{name}: more than {CELL} characters: {promise}"));
            }
            if held.starts_with("**pending**") {
                pending += 1;
            } else if let Some(why) = missing(&tree, &places, held) {
                wrong.push(format!("{name}: {why}: {promise}"));
            }
        }
        let counts = format!("]({name}) | {} | {pending} |", promises.len());
        if !index.contains(&counts) {
            wrong.push(format!("SPECIFICATION.md should have: …{counts}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Where the links of a page lead, without those to other sites and those within it.
fn links(text: &str) -> Vec<&str> {
    let ends = text.split("](").skip(1);
    let links = ends.filter_map(|rest| rest.split(')').next());
    let links =
        links.filter(|l| !l.contains("://") && !l.starts_with("mailto:") && !l.contains(' '));
    links
        .filter_map(|l| l.split('#').next())
        .filter(|l| !l.is_empty())
        .collect()
}

#[test]
fn every_link_between_pages_leads_to_a_file() {
    let root = root();
    let pages = files(&root, ".md");
    let mut wrong = Vec::new();
    for page in &pages {
        for link in links(&read(page)) {
            let to = page.parent().expect("a folder").join(link);
            if !to.exists() {
                let name = page.strip_prefix(&root).expect("below the root");
                wrong.push(format!("{}: {link} leads nowhere", name.display()));
            }
        }
    }
    assert!(pages.len() > 20, "only {} pages looked at", pages.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Files and folders of the tree that a page names between backticks.
fn paths(text: &str) -> Vec<&str> {
    let tops = [
        "crates/",
        "hypernic/",
        "tests/",
        "fuzz/",
        "bench/",
        "drivers/",
        "guest/",
        "docs/",
    ];
    let named = quoted(text).into_iter();
    let named = named.filter(|name| tops.iter().any(|top| name.starts_with(top)));
    named
        .filter(|name| !name.contains(['{', '*', '<', '…', ' ', '\n']))
        .collect()
}

#[test]
fn every_file_that_a_page_on_the_house_names_exists() {
    let root = root();
    let mut pages = files(&root.join("docs/design"), ".md");
    pages.extend(
        [
            "README.md",
            "ARCHITECTURE.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
        ]
        .map(|p| root.join(p)),
    );
    let mut wrong = Vec::new();
    for page in &pages {
        let text = read(page);
        let prose: Vec<_> = text.split("```").step_by(2).collect();
        for path in prose.iter().flat_map(|part| paths(part)) {
            if !root.join(path).exists() {
                let name = page.strip_prefix(&root).expect("below the root");
                wrong.push(format!("{}: there is no `{path}`", name.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_reader_notices_what_is_missing() {
    let tree = Tree::read();
    let places = BTreeMap::from([(
        "here".to_owned(),
        "tests/tests/house/specification".to_owned(),
    )]);
    let why = |cell| missing(&tree, &places, cell);
    assert_eq!(why("here: `the_reader_notices_what_is_missing`"), None);
    assert!(
        why("here: `has_test`").is_some(),
        "a function is not a test"
    );
    assert!(why("here: `no_such_test`").is_some());
    assert!(why("nowhere: `the_reader_notices_what_is_missing`").is_some());
    assert!(why("`make no-such-target`").is_some());
    assert!(why("all of them").is_some());
    assert_eq!(links("[a](b.md#c), [d](https://e), [f](#g)"), ["b.md"]);
    assert_eq!(
        paths("`crates/wire` and `frame` of `crates/{a,b}`"),
        ["crates/wire"]
    );
    let table =
        "| promise | held by |\n|---|---|\n| a | b |\n\n| other | c |\n|---|---|\n| d | e |\n";
    assert_eq!(rows(table, "promise"), [["a", "b"]]);
}
