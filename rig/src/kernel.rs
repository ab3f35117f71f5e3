//! Takes the kernel package apart: the ELF image that QEMU boots by PVH, and modules with what they need.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::root::Root;

/// Offset of the number of 512-byte set-up sectors, the magic and the payload's place in a bzImage
/// (Documentation/arch/x86/boot.rst, "The Real-Mode Kernel Header").
const SETUP_SECTS: usize = 0x1f1;
const MAGIC: usize = 0x202;
const PAYLOAD: usize = 0x248;

/// The uncompressed ELF image inside a zstd-compressed bzImage. Booting it directly saves the guest from
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
    let mut elf = Vec::new();
    // The payload ends with its uncompressed size, after the zstd frame.
    ruzstd::decoding::StreamingDecoder::new(payload)
        .map_err(|_| "the payload is not zstd")?
        .read_to_end(&mut elf)
        .map_err(|_| "the payload does not decompress")?;
    if elf.get(..4) != Some(b"\x7fELF") {
        return Err("the payload is not an ELF image");
    }
    Ok(elf)
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
pub(crate) fn collect(
    root: &Root,
    dir: &Path,
    wanted: &[&str],
) -> Result<BTreeMap<String, Module>> {
    let index = index_modules(dir);
    let mut todo: Vec<String> = wanted.iter().map(|&n| n.to_owned()).collect();
    let mut modules = BTreeMap::new();
    while let Some(name) = todo.pop() {
        if modules.contains_key(&name) {
            continue;
        }
        let path = index.get(&name).ok_or_else(|| Error::Command {
            command: format!("find kernel module {name}"),
            output: format!("not in {}", dir.display()),
        })?;
        let object = if path.extension().is_some_and(|e| e == "xz") {
            root.unxz(path)?
        } else {
            fs::read(path).map_err(Error::io(format!("read {}", path.display())))?
        };
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
        assert_eq!(extract_vmlinux(&image), Err("the payload is not zstd"));
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
