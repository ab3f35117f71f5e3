//! Prints the page `docs/registers/igbvf.md`.
#![forbid(unsafe_code)]

fn main() {
    print!("{}", hypernic_igb::vf_registers());
}
