//! Prints the page `docs/registers/e1000.md`.
#![forbid(unsafe_code)]

fn main() {
    print!("{}", hypernic_e1000::regs::page());
}
