//! A machine that was booted once and saved, from which tests start in under a second.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::arguments::arguments;
use crate::cache::{content_key, say};
use crate::config::{Boot, GuestConfig};
use crate::error::{CannotRun, Error, Result};
use crate::guest::Guest;
use crate::rig::Rig;

/// Starts a guest from the saved machine that fits the configuration, which is made first if need be.
pub(crate) fn resume(rig: &Rig, mut config: GuestConfig) -> Result<Guest> {
    if !matches!(config.boot, Boot::Linux { .. }) {
        return Err(
            CannotRun::new("only the rig's own Linux can be resumed from a saved machine").into(),
        );
    }
    let nics = std::mem::take(&mut config.nics);
    let files = std::mem::take(&mut config.files);
    let state = saved(rig, &config)?;
    let guest = Guest::launch_with(rig, config, &["-incoming", "defer"])?;
    load(&guest, &state)?;
    // A NIC that is there before the processors run is found by the guest's first look at the port.
    for nic in &nics {
        guest.hotplug(nic)?;
    }
    guest.qmp("cont", json!({}))?;
    guest.wait_ready()?;
    for (path, mode, content) in files {
        guest.push_file(&path, mode, &content)?;
    }
    Ok(guest)
}

/// The saved machine's file. Its name tells the content of kernel, initramfs, QEMU and all arguments.
fn saved(rig: &Rig, config: &GuestConfig) -> Result<std::path::PathBuf> {
    let mut plain = config.clone();
    plain.name = "saved".into();
    plain.netns = None;
    let image = rig.image(config.kernel)?;
    let mut parts = vec![image.key().into(), rig.qemu().version().into()];
    parts.extend(arguments(rig, &plain, Path::new("/"))?);
    let key = content_key(parts.iter().map(|p| p.as_encoded_bytes()));
    rig.cache().once(&format!("saved-{key}"), |scratch| {
        let start = Instant::now();
        let guest = Guest::launch(rig, plain)?;
        guest.wait_ready()?;
        let booted = start.elapsed();
        // Let the kernel finish what it put off during the boot, or every resumed guest would do it again.
        guest.run("sleep 0.5; sync")?;
        save(&guest, scratch)?;
        say(&format!(
            "a guest booted in {:.1} s and was saved in {:.1} s",
            booted.as_secs_f64(),
            (start.elapsed() - booted).as_secs_f64()
        ));
        Ok(())
    })
}

fn capabilities(guest: &Guest) -> Result<()> {
    // Pages at fixed offsets in the file: less to write, and reading them back needs no unpacking.
    let list = json!([{"capability": "mapped-ram", "state": true}]);
    guest
        .qmp("migrate-set-capabilities", json!({"capabilities": list}))
        .map(drop)
}

fn save(guest: &Guest, file: &Path) -> Result<()> {
    capabilities(guest)?;
    guest.qmp("stop", json!({}))?;
    guest.qmp(
        "migrate",
        json!({"uri": format!("file:{}", file.display())}),
    )?;
    migrated(guest, "save")
}

fn load(guest: &Guest, file: &Path) -> Result<()> {
    capabilities(guest)?;
    guest.qmp(
        "migrate-incoming",
        json!({"uri": format!("file:{}", file.display())}),
    )?;
    migrated(guest, "load")
}

fn migrated(guest: &Guest, what: &str) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let status = guest.qmp("query-migrate", json!({}))?;
        match status["status"].as_str() {
            Some("completed") => return Ok(()),
            Some("failed" | "cancelled") => break,
            _ if Instant::now() > deadline => break,
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    Err(Error::Guest {
        guest: guest.name().to_owned(),
        what: format!(
            "QEMU could not {what} the machine: {}",
            guest.qmp("query-migrate", json!({}))?
        ),
        log: guest.log().to_path_buf(),
        tail: guest.qemu_messages(),
    })
}
