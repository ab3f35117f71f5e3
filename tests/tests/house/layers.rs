//! Layers inside a crate: which of its files use which, no circle among them, and in a model one order.
//!
//! A file uses another where it names something of it: by `use`, or by a path that begins with `crate`, `super`,
//! `self` or the name of a child module. Declaring a child (`mod x;`) is no use of it. Test modules do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

/// The order of a model's parts, by the first word of a file's module path. A file uses what stands before it and
/// its own line, and never what stands after it.
const LAYERS: &[&[&str]] = &[
    &["regs"],
    // Queues, contexts, enables.
    &["core"],
    &["filter"],
    &["tx", "rx", "irq", "ptp"],
    &["sriov"],
    // The saved form of all of these.
    &["state"],
    &["control"],
    &["lib"],
];

/// A crate's files by their module paths, and which of them each one uses.
#[derive(Default)]
struct Files {
    /// File of each module, inline modules included.
    modules: BTreeMap<Vec<String>, PathBuf>,
    /// Module path of each file.
    names: BTreeMap<PathBuf, String>,
    uses: Vec<Use>,
}

struct Use {
    file: PathBuf,
    path: Vec<String>,
}

/// Collects what one file uses.
struct Reader<'a> {
    files: &'a mut Files,
    file: PathBuf,
    module: Vec<String>,
    /// Where the files of child modules are.
    dir: PathBuf,
    children: BTreeSet<String>,
}

fn only_tests(attrs: &[syn::Attribute]) -> bool {
    attrs.iter().any(|attr| {
        let syn::Meta::List(list) = &attr.meta else {
            return false;
        };
        let said = list.tokens.to_string();
        list.path.is_ident("cfg") && said.contains("test") && !said.contains("not (test")
    })
}

fn child_modules(items: &[syn::Item]) -> BTreeSet<String> {
    let name = |item: &syn::Item| match item {
        syn::Item::Mod(item) if !only_tests(&item.attrs) => Some(item.ident.to_string()),
        _ => None,
    };
    items.iter().filter_map(name).collect()
}

impl Reader<'_> {
    /// The absolute module path that a path of code begins with; `None` for what is not of this crate.
    fn absolute(&self, segments: &[String]) -> Option<Vec<String>> {
        let mut base = self.module.clone();
        let mut rest = segments;
        match segments.first()?.as_str() {
            "crate" => {
                base.clear();
                rest = &segments[1..];
            }
            "self" => rest = &segments[1..],
            "super" => {
                while rest.first().is_some_and(|word| word == "super") {
                    base.pop();
                    rest = &rest[1..];
                }
            }
            child if self.children.contains(child) => {}
            _ => return None,
        }
        base.extend(rest.iter().cloned());
        Some(base)
    }

    fn uses(&mut self, segments: &[String]) {
        if let Some(path) = self.absolute(segments) {
            let file = self.file.clone();
            self.files.uses.push(Use { file, path });
        }
    }

    fn use_tree(&mut self, before: &mut Vec<String>, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.use_tree(before, &path.tree);
                before.pop();
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.use_tree(before, tree);
                }
            }
            syn::UseTree::Glob(_) => self.uses(&before.clone()),
            syn::UseTree::Name(name) => self.use_named(before, &name.ident),
            syn::UseTree::Rename(name) => self.use_named(before, &name.ident),
        }
    }

    fn use_named(&mut self, before: &[String], name: &syn::Ident) {
        let mut path = before.to_vec();
        if name != "self" {
            path.push(name.to_string());
        }
        self.uses(&path);
    }

    fn items(&mut self, items: &[syn::Item]) {
        for item in items {
            self.visit_item(item);
        }
    }

    fn module(&mut self, item: &syn::ItemMod) {
        let name = item.ident.to_string();
        let mut module = self.module.clone();
        module.push(name.clone());
        let Some((_, items)) = &item.content else {
            let file = [format!("{name}.rs"), format!("{name}/mod.rs")]
                .map(|file| self.dir.join(file))
                .into_iter()
                .find(|file| file.exists())
                .unwrap_or_else(|| panic!("{}: where is mod {name}?", self.file.display()));
            read(self.files, file, module, self.dir.join(name));
            return;
        };
        self.files.modules.insert(module.clone(), self.file.clone());
        let mut inner = Reader {
            files: self.files,
            file: self.file.clone(),
            module,
            dir: self.dir.join(name),
            children: child_modules(items),
        };
        inner.items(items);
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !only_tests(&item.attrs) {
            self.module(item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !only_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !only_tests(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !only_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !only_tests(&item.attrs) {
            self.use_tree(&mut Vec::new(), &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            let words: Vec<_> = path.segments.iter().map(|s| s.ident.to_string()).collect();
            self.uses(&words);
        }
        visit::visit_path(self, path);
    }

    // `pub(in crate::x)` says who may use this file, not whom it uses.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    // Paths in attributes are those of derives and lints.
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}

fn read(files: &mut Files, file: PathBuf, module: Vec<String>, dir: PathBuf) {
    let text = std::fs::read_to_string(&file).expect("readable");
    let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    files.modules.insert(module.clone(), file.clone());
    let name = match module.is_empty() {
        true => "lib".to_owned(),
        false => module.join("::"),
    };
    files.names.insert(file.clone(), name);
    let mut reader = Reader {
        files,
        file,
        module,
        dir,
        children: child_modules(&parsed.items),
    };
    reader.items(&parsed.items);
}

/// Which files of a crate use which, by module path; `lib` is its root.
fn graph(root: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut files = Files::default();
    let dir = root.parent().expect("a folder").to_owned();
    read(&mut files, root.to_owned(), Vec::new(), dir);
    let mut graph: BTreeMap<String, BTreeSet<String>> = files
        .names
        .values()
        .map(|name| (name.clone(), BTreeSet::new()))
        .collect();
    for Use { file, path } in &files.uses {
        let used = (0..=path.len())
            .rev()
            .find_map(|n| files.modules.get(&path[..n]));
        let used = used.expect("the root at least");
        if used != file {
            let (from, to) = (&files.names[file], &files.names[used]);
            graph.get_mut(from).expect("known").insert(to.clone());
        }
    }
    graph
}

/// Those files that reach themselves through others.
fn circle(graph: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    let reaches = |from: &str, to: &str| {
        let mut seen = BTreeSet::new();
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            for next in &graph[at] {
                if next == to {
                    return true;
                }
                if seen.insert(next.as_str()) {
                    open.push(next);
                }
            }
        }
        false
    };
    let first = graph.keys().find(|file| reaches(file, file))?;
    let in_it = |file: &&String| reaches(first, file) && reaches(file, first);
    Some(graph.keys().filter(in_it).cloned().collect())
}

/// Roots of all our crates, libraries and programs.
fn roots() -> Vec<(String, PathBuf)> {
    let mut roots = Vec::new();
    for package in super::packages() {
        let name = super::short(package["name"].as_str().expect("name"));
        for target in package["targets"].as_array().expect("targets") {
            let kinds = target["kind"].as_array().expect("kind");
            if kinds
                .iter()
                .any(|k| k == "lib" || k == "staticlib" || k == "bin")
            {
                let file = target["src_path"].as_str().expect("path");
                roots.push((name.clone(), PathBuf::from(file)));
            }
        }
    }
    roots
}

/// Files of `tests` that still go in circles: an oracle's chip names its differences, and these the chip.
const ORACLE: &str = "oracle";

#[test]
fn files_of_a_crate_use_each_other_one_way_only() {
    let mut circles = Vec::new();
    let mut edges = 0;
    for (name, root) in roots() {
        let mut graph = graph(&root);
        edges += graph.values().map(BTreeSet::len).sum::<usize>();
        let not_yet = |file: &String| name == "tests" && file.starts_with(ORACLE);
        graph.retain(|file, _| !not_yet(file));
        for uses in graph.values_mut() {
            uses.retain(|file| !not_yet(file));
        }
        let found = circle(&graph);
        if let Some(files) = found {
            circles.push(format!("{name}: {}", files.join(", ")));
        }
    }
    assert!(edges > 1000, "only {edges} uses found");
    assert!(
        circles.is_empty(),
        "circles of files:\n{}",
        circles.join("\n")
    );
}

#[test]
fn a_models_files_keep_their_order() {
    let rank = |file: &str| {
        let part = file.split("::").next().expect("a word");
        LAYERS.iter().position(|layer| layer.contains(&part))
    };
    let mut backward = Vec::new();
    let mut models = 0;
    for (name, root) in roots() {
        if !root.components().any(|part| part.as_os_str() == "models") {
            continue;
        }
        models += 1;
        for (from, uses) in graph(&root) {
            let Some(own) = rank(&from) else {
                backward.push(format!("{name}: {from} is in no layer"));
                continue;
            };
            let after = uses
                .iter()
                .filter(|to| rank(to).is_some_and(|rank| rank > own));
            backward.extend(after.map(|to| format!("{name}: {from} uses {to}")));
        }
    }
    assert!(models >= 2, "only {models} models found");
    assert!(
        backward.is_empty(),
        "against the order of layers:\n{}",
        backward.join("\n")
    );
}

/// What the two tests above stand on, tried on a crate made for it.
#[test]
fn uses_and_circles_are_found() {
    let dir = tempfile::tempdir().expect("a folder");
    let write =
        |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("written");
    write(
        "lib.rs",
        "mod a; mod b; mod c; #[cfg(test)] mod tests; pub use a::A;",
    );
    write(
        "a.rs",
        "use crate::{b::{B, self}, c}; pub struct A(B, c::C);",
    );
    write("b.rs", "pub struct B; fn f() { let _ = super::c::C; }");
    write("c.rs", "pub(in crate::a) struct C;");
    write("tests.rs", "use crate::nothing::that::is::there;");
    let found = graph(&dir.path().join("lib.rs"));
    let of = |file: &str| found[file].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(of("lib"), ["a"]);
    assert_eq!(of("a"), ["b", "c"]);
    assert_eq!(of("b"), ["c"]);
    assert!(of("c").is_empty());
    assert!(circle(&found).is_none());
    write("c.rs", "use crate::b::B; pub struct C(B);");
    let found = graph(&dir.path().join("lib.rs"));
    assert_eq!(circle(&found), Some(vec!["b".to_owned(), "c".to_owned()]));
}
