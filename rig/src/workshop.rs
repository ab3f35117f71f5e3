//! Builds drivers for a guest's kernel with that kernel's own headers and compiler, all from Debian packages, in a
//! mount namespace of their own and without root rights.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::apt::Installed;
use crate::cache::{Cache, content_key, remove, say};
use crate::error::{CannotRun, Error, Result};
use crate::kernel::{self, Kernel};
use crate::packages;
use crate::process;
use crate::root::Root;
use crate::stock::Stock;

/// What a build calls besides the compiler, which comes with the headers.
const TOOLS: [&str; 10] = [
    "coreutils",
    "dash",
    "findutils",
    "grep",
    "make",
    "mawk",
    "patch",
    "sed",
    "tar",
    "xz-utils",
];

/// The stock drivers whose source is kept: their modules, and the folders of the kernel's source.
const DRIVERS: [(&str, &str); 2] = [
    ("e1000", "drivers/net/ethernet/intel/e1000"),
    ("r8169", "drivers/net/ethernet/realtek"),
];

/// Where they stand in the workshop.
const SOURCE: &str = "usr/src/drivers";

/// Changes when the way the workshop is made changes.
const LAYOUT: &str = "2";

/// Names that maintainer scripts would have made.
const LINKS: [(&str, &str); 6] = [
    ("bin", "usr/bin"),
    ("sbin", "usr/sbin"),
    ("lib", "usr/lib"),
    ("lib64", "usr/lib64"),
    ("usr/bin/sh", "dash"),
    ("usr/bin/awk", "mawk"),
];

/// A folder of unpacked packages to build a kernel's modules in.
struct Workshop {
    dir: PathBuf,
    release: String,
}

/// The module `name` made by `recipe` for a kernel.
pub(crate) fn module(
    cache: &Cache,
    root: &Root,
    kernel: Kernel,
    recipe: &Path,
    name: &str,
) -> Result<Vec<u8>> {
    let stock = kernel::prepare(kernel, cache, root)?;
    let files = read_recipe(recipe)?;
    let mut parts = vec![
        LAYOUT.as_bytes(),
        name.as_bytes(),
        stock.manifest.as_bytes(),
    ];
    for (path, content) in &files {
        parts.extend([path.as_bytes(), content]);
    }
    let key = content_key(parts);
    let path = cache.once(&format!("module_{name}-{key}"), |scratch| {
        let workshop = Workshop::prepare(cache, kernel, &stock)?;
        let start = Instant::now();
        let module = workshop.build(&files, name)?;
        say(&format!(
            "{name} for Linux {} built in {:.1} s",
            workshop.release,
            start.elapsed().as_secs_f64()
        ));
        fs::write(scratch, module).map_err(Error::io(format!("write {}", scratch.display())))
    })?;
    fs::read(&path).map_err(Error::io(format!("read {}", path.display())))
}

/// All files of a folder but those a build leaves there: their paths in it and what they hold, in order.
fn read_recipe(recipe: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    let mut todo = vec![String::new()];
    while let Some(dir) = todo.pop() {
        let path = recipe.join(&dir);
        let entries = fs::read_dir(&path).map_err(Error::io(format!("read {}", path.display())))?;
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let inside = if dir.is_empty() {
                name
            } else {
                format!("{dir}/{name}")
            };
            if inside == "build" || inside.ends_with(".md") {
                continue;
            }
            if entry.path().is_dir() {
                todo.push(inside);
            } else {
                let path = entry.path();
                let content =
                    fs::read(&path).map_err(Error::io(format!("read {}", path.display())))?;
                files.push((inside, content));
            }
        }
    }
    files.sort();
    Ok(files)
}

impl Workshop {
    /// The workshop for a kernel, downloaded and unpacked the first time.
    fn prepare(cache: &Cache, kernel: Kernel, stock: &Stock) -> Result<Self> {
        let release = stock.release();
        let version = stock.version().ok_or_else(|| Error::Command {
            command: format!("find the version of Linux {release}"),
            output: "the kernel's manifest does not tell it".into(),
        })?;
        let key = content_key([LAYOUT.as_bytes(), release.as_bytes(), version.as_bytes()]);
        let dir = cache.once(&format!("workshop-{key}"), |scratch| {
            // The kernel itself is not needed, only just what was compiled with it.
            let installed: [Installed; 1] = [(format!("linux-image-{release}"), version.into())];
            let series: Vec<&str> = release.split(['.', '+', '-']).take(2).collect();
            let headers = format!("linux-headers-{release}={version}");
            let source = format!("linux-source-{}={version}", series.join("."));
            let mut wanted = TOOLS.to_vec();
            wanted.extend([headers.as_str(), source.as_str()]);
            let mut last = CannotRun::new("no suite to take headers from").into();
            for suite in kernel::sources(kernel) {
                let apt = cache.dir().join(format!("apt-workshop-{key}"));
                let whole = |name: &str| !name.starts_with("linux-image-");
                remove(scratch);
                let all = packages::unpack_beside(scratch, &apt, *suite, &wanted, &installed, whole);
                match all.and_then(|()| furnish(scratch)) {
                    Ok(()) => return Ok(()),
                    Err(why) => last = why,
                }
            }
            Err(CannotRun::new(format!(
                "{last}; if Debian has a newer kernel by now, remove {} and what is beside it, and try again",
                stock.modules.display()
            ))
            .into())
        })?;
        Ok(Self { dir, release })
    }

    /// Runs the recipe and returns the module, without its debug information.
    fn build(&self, files: &[(String, Vec<u8>)], name: &str) -> Result<Vec<u8>> {
        let work = tempfile::tempdir().map_err(Error::io("make a folder to build in"))?;
        for (path, content) in files {
            let path = work.path().join(path);
            let parent = path.parent().unwrap_or(&path);
            fs::create_dir_all(parent)
                .and_then(|()| fs::write(&path, content))
                .map_err(Error::io(format!("write {}", path.display())))?;
        }
        let kdir = &self.release;
        let known = DRIVERS.iter().find(|(module, _)| *module == name);
        let (_, driver) = known.ok_or_else(|| Error::Command {
            command: format!("build {name}"),
            output: "the source of no such driver is kept".into(),
        })?;
        let script = format!(
            "make -s -C /work KDIR=/usr/src/linux-headers-{kdir} NIC={name} SOURCE=/{SOURCE}/{driver} \
             OUT=/work/build && \
             strip -g /work/build/{name}.ko"
        );
        inside(&self.dir, work.path(), &script)?;
        let module = work.path().join(format!("build/{name}.ko"));
        fs::read(&module).map_err(Error::io(format!("read {}", module.display())))
    }
}

/// Makes a folder of packages fit to work in: a few names, and of the kernel's source only the drivers.
fn furnish(dir: &Path) -> Result<()> {
    for (link, target) in LINKS {
        let link = dir.join(link);
        if !link.is_symlink() && !link.exists() {
            std::os::unix::fs::symlink(target, &link)
                .map_err(Error::io(format!("link {}", link.display())))?;
        }
    }
    for made in ["dev", "proc", "tmp", "work", SOURCE] {
        let made = dir.join(made);
        fs::create_dir_all(&made).map_err(Error::io(format!("create {}", made.display())))?;
    }
    say("taking the drivers out of the kernel's source, half a minute");
    let folders = DRIVERS
        .map(|(_, folder)| format!("'*/{folder}/*'"))
        .join(" ");
    inside(
        dir,
        dir,
        &format!(
            "cd /usr/src && tar -xf linux-source-*.tar.xz -C /{SOURCE} --strip-components=1 --no-same-owner \
             --wildcards {folders} && rm -r linux-source-*"
        ),
    )
}

/// Runs a shell script with `dir` as the root and `work` at `/work`.
fn inside(dir: &Path, work: &Path, script: &str) -> Result<()> {
    const ENTER: &str = "mount --rbind /dev \"$1/dev\" && mount --rbind /proc \"$1/proc\" && \
         mount --bind \"$2\" \"$1/work\" && \
         exec unshare --root=\"$1\" -- /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C HOME=/work sh -c \"$3\"";
    let run = |user: &[&str]| {
        let mut command = Command::new("unshare");
        command
            .args(user)
            .args(["--mount", "--", "sh", "-c", ENTER, "sh"]);
        command.arg(dir).arg(work).arg(script);
        process::output(&mut command).map(drop)
    };
    // In a container, root may lack CAP_SYS_ADMIN and still be allowed a user namespace; elsewhere it is the reverse.
    let probe = ["--user", "--map-root-user"];
    let mut trial = Command::new("unshare");
    trial.args(probe).args(["--mount", "--", "true"]);
    if process::output(&mut trial).is_ok() {
        run(&probe)
    } else if rustix::process::geteuid().is_root() {
        run(&[])
    } else {
        Err(CannotRun::new(
            "drivers are built in a user namespace, and none can be made: allow unprivileged user namespaces \
             (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces>0)",
        )
        .into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_is_its_files_without_what_was_built_or_is_read_by_people() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["patches/1.patch", "Makefile", "README.md", "build/x.o"] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        let files = read_recipe(dir.path()).unwrap();
        let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["Makefile", "patches/1.patch"]);
    }

    #[test]
    fn a_kernel_tells_its_release_and_its_packages_version() {
        let stock = Stock {
            image: PathBuf::new(),
            modules: "/r/usr/lib/modules/6.12.107+deb13-amd64".into(),
            manifest: "dash_0.5_amd64.deb\nlinux-image-6.12.107+deb13-amd64_6.12.107-1_amd64.deb\n"
                .into(),
        };
        assert_eq!(stock.release(), "6.12.107+deb13-amd64");
        assert_eq!(stock.version(), Some("6.12.107-1"));
    }
}
