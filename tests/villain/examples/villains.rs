//! Writes `docs/villains.md` to standard output; see `make docs`.
#![forbid(unsafe_code)]

fn main() {
    print!("{}", hypernic_villain::page());
}
