//! Prints the page `docs/metrics.md`.
#![forbid(unsafe_code)]

fn main() {
    print!("{}", hypernic::client::metrics_page::page());
}
