//! Prints the page `docs/drops.md`.
#![forbid(unsafe_code)]

fn main() {
    print!("{}", hypernic::explain::page());
}
