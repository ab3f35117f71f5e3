//! A reader of captures of our own, so that tests can fail where there is no tshark.

use std::path::Path;
use std::process::Command;

#[derive(Debug, PartialEq)]
pub enum Block {
    Section(String),
    Interface {
        name: String,
        snaplen: u32,
        resolution: u8,
    },
    Packet {
        id: u32,
        nanos: u64,
        len: u32,
        data: Vec<u8>,
        flags: u32,
        missed: u64,
    },
    Statistics {
        id: u32,
        seen: u64,
        missed: u64,
    },
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(b[at..at + 4].try_into().expect("four"))
}

fn u64_of(b: &[u8]) -> u64 {
    u64::from_ne_bytes(b.try_into().expect("eight"))
}

fn options_of(mut b: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut all = Vec::new();
    loop {
        let word = |at: usize| u16::from_ne_bytes([b[at], b[at + 1]]);
        let (code, len) = (word(0), usize::from(word(2)));
        if code == 0 {
            assert_eq!((len, b.len()), (0, 4), "the end is the end");
            return all;
        }
        all.push((code, b[4..4 + len].to_vec()));
        b = &b[4 + len.next_multiple_of(4)..];
    }
}

pub fn parse(mut file: &[u8]) -> Vec<Block> {
    let mut blocks = Vec::new();
    while !file.is_empty() {
        let (kind, len) = (u32_at(file, 0), u32_at(file, 4) as usize);
        assert_eq!(len % 4, 0);
        assert_eq!(u32_at(file, len - 4) as usize, len, "both lengths agree");
        let body = &file[8..len - 4];
        file = &file[len..];
        let find = |options: &[(u16, Vec<u8>)], code| {
            let found = options.iter().find(|o| o.0 == code);
            found.map(|o| o.1.clone()).unwrap_or_default()
        };
        let text = |b: Vec<u8>| String::from_utf8(b).expect("UTF-8");
        blocks.push(match kind {
            0x0a0d_0d0a => {
                assert_eq!(u32_at(body, 0), 0x1a2b_3c4d);
                assert_eq!(u32_at(body, 4), u32::from_ne_bytes([1, 0, 0, 0]));
                Block::Section(text(find(&options_of(&body[16..]), 4)))
            }
            1 => {
                assert_eq!(body[..2], 1u16.to_ne_bytes(), "Ethernet");
                let options = options_of(&body[8..]);
                Block::Interface {
                    name: text(find(&options, 2)),
                    snaplen: u32_at(body, 4),
                    resolution: find(&options, 9)[0],
                }
            }
            6 => {
                let kept = u32_at(body, 12) as usize;
                let options = options_of(&body[20 + kept.next_multiple_of(4)..]);
                let missed = find(&options, 4);
                Block::Packet {
                    id: u32_at(body, 0),
                    nanos: u64::from(u32_at(body, 4)) << 32 | u64::from(u32_at(body, 8)),
                    len: u32_at(body, 16),
                    data: body[20..20 + kept].to_vec(),
                    flags: u32_at(&find(&options, 2), 0),
                    missed: if missed.is_empty() {
                        0
                    } else {
                        u64_of(&missed)
                    },
                }
            }
            5 => {
                let options = options_of(&body[12..]);
                Block::Statistics {
                    id: u32_at(body, 0),
                    seen: u64_of(&find(&options, 4)),
                    missed: u64_of(&find(&options, 5)),
                }
            }
            other => panic!("block type {other:#x}"),
        });
    }
    blocks
}

pub fn packets(blocks: &[Block]) -> Vec<(u32, usize, u32)> {
    let packet = |b: &Block| match b {
        Block::Packet {
            id, data, flags, ..
        } => Some((*id, data.len(), *flags)),
        _ => None,
    };
    blocks.iter().filter_map(packet).collect()
}

/// tshark reads the lengths we wrote, without a complaint.
pub fn tshark_agrees(path: &Path, lengths: &[&str]) {
    let out = Command::new("tshark")
        .args(["-n", "-T", "fields", "-e", "frame.len", "-r"])
        .arg(path)
        // An empty HOME: no user's settings, and none it may not read.
        .env("HOME", path.parent().expect("directory"))
        .env_remove("XDG_CONFIG_HOME")
        .output();
    let out = match out {
        Ok(out) => out,
        Err(e) => return println!("not checked with tshark: {e}"),
    };
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let text = String::from_utf8_lossy(&out.stdout);
    assert_eq!(text.lines().collect::<Vec<_>>(), lengths);
}
