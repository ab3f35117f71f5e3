//! Prints `include/hypernic_nic.h`.
#![forbid(unsafe_code)]

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let here = env!("CARGO_MANIFEST_DIR");
    let config = cbindgen::Config::from_file(format!("{here}/cbindgen.toml"))?;
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(format!("{here}/src/host.rs"))
        .with_src(format!("{here}/src/lib.rs"))
        .generate()?;
    bindings.write(std::io::stdout());
    Ok(())
}
