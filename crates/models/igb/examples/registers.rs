//! Prints the page `docs/registers/igb.md`.
#![forbid(unsafe_code)]

fn main() {
    print!("{}", hypernic_igb::regs::page());
}
