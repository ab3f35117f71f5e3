//! Takes a kernel package apart: the ELF image that QEMU boots by PVH, and modules with what they need.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// A kernel as its package holds it.
#[derive(Debug, Clone)]
pub(crate) struct Stock {
    /// The bzImage.
    pub(crate) image: PathBuf,
    /// The folder of its modules.
    pub(crate) modules: PathBuf,
    /// What it was made from, for keys in the cache.
    pub(crate) manifest: String,
}

impl Stock {
    /// What `uname -r` will say.
    pub(crate) fn release(&self) -> String {
        let name = self.modules.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// The version of its packages, as their archives' names tell.
    pub(crate) fn version(&self) -> Option<&str> {
        let prefix = format!("linux-image-{}_", self.release());
        let line = self.manifest.lines().find_map(|l| l.strip_prefix(&prefix));
        line?.split('_').next()
    }
}

/// The kernel in a folder of unpacked packages.
pub(crate) fn find(dir: &Path) -> Result<Stock> {
    let first = |places: &[PathBuf], prefix: &str| {
        let mut found = places.iter().flat_map(|place| {
            let entries = fs::read_dir(place).into_iter().flatten().flatten();
            let names = entries.filter(|e| e.file_name().to_string_lossy().starts_with(prefix));
            let mut paths: Vec<_> = names.map(|e| e.path()).collect();
            paths.sort();
            paths
        });
        found.next().ok_or_else(|| Error::Command {
            command: format!("find a kernel in {}", dir.display()),
            output: "there is none; remove the folder and try again".into(),
        })
    };
    let manifest = dir.join("manifest");
    // Debian 12 has a `/lib` of its own, and from 7.2 on the image lies beside its modules.
    let modules = first(&[dir.join("usr/lib/modules"), dir.join("lib/modules")], "")?;
    Ok(Stock {
        image: first(&[dir.join("boot"), modules.clone()], "vmlinuz")?,
        modules,
        manifest: fs::read_to_string(&manifest)
            .map_err(Error::io(format!("read {}", manifest.display())))?,
    })
}

/// Offset of the number of 512-byte set-up sectors, the magic and the payload's place in a bzImage
/// (Documentation/arch/x86/boot.rst, "The Real-Mode Kernel Header").
const SETUP_SECTS: usize = 0x1f1;
const MAGIC: usize = 0x202;
const PAYLOAD: usize = 0x248;

/// How an .xz stream starts.
const XZ: &[u8] = b"\xfd7zXZ\0";

/// The uncompressed ELF image inside a bzImage that was compressed by zstd (Debian 13) or xz (Debian 12). Booting it directly saves the guest from
/// unpacking itself, which takes 8 s without hardware virtualisation.
pub(crate) fn extract_vmlinux(image: &[u8]) -> Result<Vec<u8>, &'static str> {
    let word = |at: usize| -> Option<usize> {
        let bytes = image.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    };
    if image.get(MAGIC..MAGIC + 4) != Some(b"HdrS") {
        return Err("not a bzImage");
    }
    let sectors = match image[SETUP_SECTS] {
        0 => 4,
        n => usize::from(n),
    };
    let (offset, length) = word(PAYLOAD).zip(word(PAYLOAD + 4)).ok_or("cut off")?;
    let start = (sectors + 1) * 512 + offset;
    let payload = start
        .checked_add(length)
        .and_then(|end| image.get(start..end))
        .ok_or("the payload lies outside the file")?;
    // The payload ends with its uncompressed size, after what the compressor made.
    let packed = &payload[..payload.len().saturating_sub(4)];
    let mut elf = Vec::new();
    if packed.starts_with(XZ) {
        elf = unxz(packed).map_err(|_| "the payload does not decompress")?;
    } else {
        ruzstd::decoding::StreamingDecoder::new(packed)
            .map_err(|_| "the payload is neither zstd nor xz")?
            .read_to_end(&mut elf)
            .map_err(|_| "the payload does not decompress")?;
    }
    if elf.get(..4) != Some(b"\x7fELF") {
        return Err("the payload is not an ELF image");
    }
    Ok(elf)
}

/// Kernels are packed with a filter for machine code that busybox' xzcat does not know.
fn unxz(packed: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut plain = Vec::new();
    lzma_rust2::XzReader::new(packed, false).read_to_end(&mut plain)?;
    Ok(plain)
}

/// Every module under a folder by its name as `lsmod` writes it.
pub(crate) fn index_modules(dir: &Path) -> BTreeMap<String, PathBuf> {
    let mut index = BTreeMap::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                todo.push(path);
            } else if let Some((stem, _)) = name.split_once(".ko") {
                index.insert(stem.replace('-', "_"), path);
            }
        }
    }
    index
}

/// The names in a module's `depends=` entry of its `.modinfo` section.
pub(crate) fn dependencies(module: &[u8]) -> Vec<String> {
    let key = b"\0depends=";
    let Some(at) = module.windows(key.len()).position(|w| w == key) else {
        return Vec::new();
    };
    let value = &module[at + key.len()..];
    let value = &value[..value.iter().position(|b| *b == 0).unwrap_or(0)];
    let text = String::from_utf8_lossy(value);
    let names = text.split(',').filter(|n| !n.is_empty());
    names.map(|n| n.replace('-', "_")).collect()
}

/// A module's object file and the names of what must be loaded before it.
pub(crate) type Module = (Vec<u8>, Vec<String>);

/// The wanted modules and everything they need, by name.
///
/// Those of `maybe` are left out where the kernel has them built in.
pub(crate) fn collect(
    dir: &Path,
    wanted: &[&str],
    maybe: &[&str],
) -> Result<BTreeMap<String, Module>> {
    let index = index_modules(dir);
    let maybe = maybe.iter().filter(|&&n| index.contains_key(n));
    let mut todo: Vec<String> = wanted.iter().chain(maybe).map(|&n| n.to_owned()).collect();
    let mut modules = BTreeMap::new();
    while let Some(name) = todo.pop() {
        if modules.contains_key(&name) {
            continue;
        }
        let path = index.get(&name).ok_or_else(|| Error::Command {
            command: format!("find kernel module {name}"),
            output: format!("not in {}", dir.display()),
        })?;
        let mut object = fs::read(path).map_err(Error::io(format!("read {}", path.display())))?;
        if object.starts_with(XZ) {
            object = unxz(&object).map_err(Error::io(format!("unpack {}", path.display())))?;
        }
        let needs = dependencies(&object);
        todo.extend(needs.iter().cloned());
        modules.insert(name, (object, needs));
    }
    Ok(modules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depends_are_read_from_modinfo() {
        let object = b"\x7fELF...license=GPL\0depends=mdio_devres,i2c-algo-bit\0retpoline=Y\0";
        assert_eq!(dependencies(object), ["mdio_devres", "i2c_algo_bit"]);
        assert!(dependencies(b"x\0depends=\0").is_empty());
        assert!(dependencies(b"nothing").is_empty());
        assert!(dependencies(b"\0depends=unterminated").is_empty());
    }

    #[test]
    fn images_that_are_none_are_refused() {
        assert_eq!(extract_vmlinux(b"short"), Err("not a bzImage"));
        let mut image = vec![0; 4096];
        image[MAGIC..MAGIC + 4].copy_from_slice(b"HdrS");
        image[PAYLOAD + 4..PAYLOAD + 8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(
            extract_vmlinux(&image),
            Err("the payload lies outside the file")
        );
        image[PAYLOAD + 4..PAYLOAD + 8].copy_from_slice(&64_u32.to_le_bytes());
        assert_eq!(
            extract_vmlinux(&image),
            Err("the payload is neither zstd nor xz")
        );
        image[2560..2566].copy_from_slice(XZ);
        assert_eq!(
            extract_vmlinux(&image),
            Err("the payload does not decompress")
        );
    }

    #[test]
    fn kernels_are_found_where_any_debian_puts_them() {
        for (image, modules) in [
            ("boot/vmlinuz-6.1.0-50-amd64", "lib/modules/6.1.0-50-amd64"),
            ("boot/vmlinuz-6.12-amd64", "usr/lib/modules/6.12-amd64"),
            (
                "usr/lib/modules/7.2-amd64/vmlinuz",
                "usr/lib/modules/7.2-amd64",
            ),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let path = |name: &str| dir.path().join(name);
            assert!(find(dir.path()).is_err());
            fs::create_dir_all(path(modules)).unwrap();
            fs::create_dir_all(path("boot")).unwrap();
            fs::write(path(image), "").unwrap();
            fs::write(path("manifest"), "one.deb\n").unwrap();
            let stock = find(dir.path()).unwrap();
            assert_eq!(stock.image, path(image));
            assert_eq!(stock.modules, path(modules));
            assert_eq!(stock.manifest, "one.deb\n");
        }
    }

    #[test]
    fn modules_come_with_what_they_need_and_only_where_they_are_modules() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, needs: &str| {
            let object = format!("\x7fELF\0depends={needs}\0");
            fs::write(dir.path().join(name), object).unwrap();
        };
        write("igb.ko", "dca");
        write("dca.ko", "");
        write("virtio_pci.ko", "");
        let found = collect(dir.path(), &["igb"], &["virtio_pci", "built_in"]).unwrap();
        let names: Vec<_> = found.keys().map(String::as_str).collect();
        assert_eq!(names, ["dca", "igb", "virtio_pci"]);
        assert!(collect(dir.path(), &["built_in"], &[]).is_err());
    }

    #[test]
    fn modules_are_indexed_by_kernel_name() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("a/b/i2c-algo-bit.ko.xz"), "").unwrap();
        fs::write(dir.path().join("a/e1000.ko"), "").unwrap();
        fs::write(dir.path().join("a/modules.order"), "").unwrap();
        let names: Vec<_> = index_modules(dir.path()).into_keys().collect();
        assert_eq!(names, ["e1000", "i2c_algo_bit"]);
    }
}
