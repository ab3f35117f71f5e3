//! Places where there is not enough: a file system that can be filled to the brim, and a control group without memory.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Pid;

/// A small file system of its own. Only root may mount it.
pub struct Disk(PathBuf);

impl Disk {
    /// At this folder. `None`: it may not be mounted here.
    pub fn mount(at: &Path, mib: u32) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "soak"]);
        let mounted = mount.arg(at).stderr(Stdio::null()).status();
        mounted
            .is_ok_and(|status| status.success())
            .then(|| Self(at.to_owned()))
    }

    /// Fills it to the last byte.
    pub fn fill(&self) {
        let Ok(mut file) = File::create(self.0.join("fill")) else {
            return;
        };
        let page = [0; 4096];
        while file.write_all(&page).is_ok() {}
    }

    /// There is room again.
    pub fn empty(&self) {
        let _ = fs::remove_file(self.0.join("fill"));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Who has files open there, keeps them.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A control group whose processes the kernel kills as soon as they need memory. Only root may make one.
pub struct Cramped(PathBuf);

impl Cramped {
    /// Of either version of control groups. `None`: none may be made here.
    pub fn new() -> Option<Self> {
        let name = format!("hypernic-soak-{}", std::process::id());
        let root = Path::new("/sys/fs/cgroup");
        // The second version gives children what their parent says.
        let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
        [
            (root.join("memory"), "memory.limit_in_bytes"),
            (root.to_owned(), "memory.max"),
        ]
        .into_iter()
        .find_map(|(parent, limit)| {
            let group = Self(parent.join(&name));
            fs::create_dir(&group.0).ok()?;
            fs::write(group.0.join(limit), "65536").ok()?;
            Some(group)
        })
    }

    /// Puts a process there.
    pub fn take(&self, process: Pid) -> bool {
        let pid = process.as_raw_nonzero().to_string();
        fs::write(self.0.join("cgroup.procs"), pid).is_ok()
    }
}

impl Drop for Cramped {
    fn drop(&mut self) {
        // The dead may be in it for a moment still.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
