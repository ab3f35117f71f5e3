//! The "newc" cpio archive that Linux unpacks as its initramfs (Documentation/driver-api/early-userspace/
//! buffer-format.rst). Several archives may follow one another.

use std::collections::BTreeSet;

/// File type bits of a mode, as in stat(2).
const DIR: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// Builds one archive in memory. Parent folders are added by themselves; everything belongs to root and has
/// time 0, so equal content gives equal bytes.
#[derive(Debug, Default)]
pub struct Cpio {
    out: Vec<u8>,
    inode: u32,
    dirs: BTreeSet<String>,
}

impl Cpio {
    /// An empty archive.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a folder and its parents.
    pub fn dir(&mut self, path: &str) {
        let path = path.trim_matches('/');
        let mut at = 0;
        while at < path.len() {
            let end = path[at..].find('/').map_or(path.len(), |n| at + n);
            let part = &path[..end];
            if self.dirs.insert(part.to_owned()) {
                self.entry(part, DIR | 0o755, &[]);
            }
            at = end + 1;
        }
    }

    /// Adds a regular file; `mode` holds the permission bits. Panics on a file of 4 GiB or more, which
    /// the format cannot hold.
    pub fn file(&mut self, path: &str, mode: u32, data: &[u8]) {
        self.parent(path);
        self.entry(path.trim_matches('/'), FILE | (mode & 0o7777), data);
    }

    /// Adds a symbolic link.
    pub fn symlink(&mut self, path: &str, target: &str) {
        self.parent(path);
        self.entry(path.trim_matches('/'), LINK | 0o777, target.as_bytes());
    }

    /// Ends the archive and hands it over.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        // Archives that follow are found at a multiple of 4; 512 is cpio's customary block.
        self.pad(512);
        self.out
    }

    fn parent(&mut self, path: &str) {
        if let Some((parent, _)) = path.trim_matches('/').rsplit_once('/') {
            self.dir(parent);
        }
    }

    fn entry(&mut self, name: &str, mode: u32, data: &[u8]) {
        assert!(
            u32::try_from(data.len()).is_ok(),
            "{name} is too big for a cpio archive"
        );
        self.inode += 1;
        let links = if mode & DIR == DIR { 2 } else { 1 };
        self.out.extend_from_slice(b"070701");
        let fields = [
            self.inode,
            mode,
            0,
            0,
            links,
            0,
            data.len() as u32,
            0,
            0,
            0,
            0,
            name.len() as u32 + 1,
            0,
        ];
        for field in fields {
            self.out
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.out.extend_from_slice(name.as_bytes());
        self.out.push(0);
        self.pad(4);
        self.out.extend_from_slice(data);
        self.pad(4);
    }

    fn pad(&mut self, to: usize) {
        let len = self.out.len().next_multiple_of(to);
        self.out.resize(len, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An independent reader of the format: (name, mode, data) of each entry.
    fn read(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        loop {
            assert_eq!(&bytes[..6], b"070701");
            let field = |n: usize| {
                let text = std::str::from_utf8(&bytes[6 + n * 8..14 + n * 8]).unwrap();
                u32::from_str_radix(text, 16).unwrap() as usize
            };
            let (mode, size, name_size) = (field(1), field(6), field(11));
            let name = std::str::from_utf8(&bytes[110..110 + name_size - 1]).unwrap();
            assert_eq!(bytes[110 + name_size - 1], 0);
            let data = (110 + name_size).next_multiple_of(4);
            if name == "TRAILER!!!" {
                return entries;
            }
            entries.push((
                name.to_owned(),
                mode as u32,
                bytes[data..data + size].to_vec(),
            ));
            bytes = &bytes[(data + size).next_multiple_of(4)..];
        }
    }

    #[test]
    fn parents_come_first_and_once() {
        let mut cpio = Cpio::new();
        cpio.file("/a/b/c", 0o644, b"1");
        cpio.file("a/b/d", 0o755, b"22");
        cpio.symlink("bin/sh", "dash");
        let entries = read(&cpio.finish());
        let names: Vec<_> = entries.iter().map(|e| e.0.as_str()).collect();
        assert_eq!(names, ["a", "a/b", "a/b/c", "a/b/d", "bin", "bin/sh"]);
        assert_eq!(entries[0].1, 0o040_755);
        assert_eq!(entries[3].1, 0o100_755);
        assert_eq!(entries[5], ("bin/sh".into(), 0o120_777, b"dash".to_vec()));
    }

    proptest! {
        #[test]
        fn every_file_comes_back(files in prop::collection::vec(("[a-z]{1,12}", prop::collection::vec(any::<u8>(), 0..70)), 0..8)) {
            let mut cpio = Cpio::new();
            for (name, data) in &files {
                cpio.file(name, 0o600, data);
            }
            let bytes = cpio.finish();
            prop_assert_eq!(bytes.len() % 512, 0);
            let entries = read(&bytes);
            prop_assert_eq!(entries.len(), files.len());
            for (entry, (name, data)) in entries.iter().zip(&files) {
                prop_assert_eq!((&entry.0, entry.1, &entry.2), (name, 0o100_600, data));
            }
        }
    }
}
