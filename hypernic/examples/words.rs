//! Prints the page `docs/words.md`.
#![forbid(unsafe_code)]

fn main() {
    print!("{}", hypernic::config::reference::page());
}
