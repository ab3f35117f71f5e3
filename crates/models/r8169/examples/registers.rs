//! Prints the page `docs/registers/r8169.md`.
#![forbid(unsafe_code)]

fn main() {
    print!("{}", hypernic_r8169::regs::page());
}
