//! What a frame touches of memory, counted: every access that models and switch make in one process for a burst, as
//! valgrind's `lackey` tells of it. The processor's own counters are not needed for that.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::ops::Range;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::inside::{Pair, Spec};
use crate::page::Page;
use crate::stats::figure;

/// The word after the program's name that makes it the one that is watched.
pub const WORD: &str = "touch";
/// Descriptors of each ring: few, since all bursts before the one that is watched are run so too.
const RING: u32 = 64;
/// The same for packets of 17 descriptors each, eight of which are the least that a ring holds whole.
const LONG_RING: u32 = 256;
/// What the watched program's own line begins with.
pub const SAID: &str = "@hypernic ";
/// Bytes of a cache line.
pub const LINE: u64 = 64;

/// Written before and after the burst that is watched.
pub static MARK: AtomicU64 = AtomicU64::new(0);

fn cases() -> Vec<(&'static str, Spec)> {
    let tso = Spec {
        mss: Some(1460),
        ..Spec::frames(65_000, LONG_RING, 1)
    };
    vec![
        ("60 bytes, one by one", Spec::frames(60, RING, 1)),
        ("60 bytes, bursts of 32", Spec::frames(60, RING, 32)),
        ("1514 bytes, bursts of 32", Spec::frames(1514, RING, 32)),
        ("9014 bytes, bursts of 8", Spec::frames(9014, RING, 8)),
        (
            "64 KiB of TCP for the NIC to cut (a frame is a segment)",
            tso,
        ),
        (
            "60 bytes between VFs of an 82576, bursts of 32",
            Spec::frames(60, RING, 32).between_vfs(),
        ),
    ]
}

/// The program that is watched: says where its mark and its guests' memories are, and sends one burst between two
/// writes of the mark.
///
/// # Errors
/// When there is no such case.
pub fn run(case: Option<&str>) -> Result<()> {
    let case = case.and_then(|n| n.parse::<usize>().ok());
    let spec = case.and_then(|n| Some(cases().get(n)?.1));
    let spec = spec.ok_or_else(|| Error::Usage("no such case".to_owned()))?;
    let mut pair = Pair::new(spec);
    let memories = pair.memories();
    say(&memories)?;
    pair.burst();
    let before = pair.arrived();
    MARK.store(1, Ordering::SeqCst);
    pair.burst();
    MARK.store(2, Ordering::SeqCst);
    println!("{}", pair.arrived() - before);
    Ok(())
}

/// Says where the mark and these memories are: among what valgrind says, so that it stands before what it explains; some way before, as
/// valgrind writes late.
///
/// # Errors
/// Nobody listens.
pub fn say(memories: &[Range<u64>]) -> Result<()> {
    let memories: Vec<_> = memories.iter().map(|m| [m.start, m.end]).collect();
    let mark = std::ptr::from_ref(&MARK).addr();
    let said = format!("{SAID}{}\n", json!({"mark": mark, "memories": memories}));
    // In one piece.
    std::io::stderr()
        .write_all(said.as_bytes())
        .map_err(Error::io("say where memory is"))
}

/// What [`say`] has said in a line of valgrind's, if it has: the mark, and the memories.
pub fn heard(line: &str) -> Option<(Option<u64>, Vec<Range<u64>>)> {
    // It may stand inside of one.
    let (_, said) = line.split_once(SAID)?;
    let said: Value = serde_json::from_str(said).unwrap_or_default();
    let range = |m: &Value| Some(m[0].as_u64()?..m[1].as_u64()?);
    let memories = said["memories"].as_array().into_iter().flatten();
    Some((said["mark"].as_u64(), memories.filter_map(range).collect()))
}

/// An access: whether it writes, reads, where, and how many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    reads: bool,
    /// It writes.
    pub writes: bool,
    /// Where.
    pub at: u64,
    bytes: u64,
}

impl Access {
    /// A line of lackey's, such as ` S 1ffeffe7e,8`. Nothing for an instruction and for what it says else.
    pub fn parse(line: &str) -> Option<Self> {
        let (kind, rest) = line.strip_prefix(' ')?.split_once(' ')?;
        let (at, bytes) = rest.trim().split_once(',')?;
        Some(Self {
            reads: kind == "L" || kind == "M",
            writes: kind == "S" || kind == "M",
            at: u64::from_str_radix(at, 16).ok()?,
            bytes: bytes.parse().ok()?,
        })
    }

    /// The lines that it touches.
    pub fn lines(&self) -> impl Iterator<Item = u64> + use<> {
        self.at / LINE..=(self.at + self.bytes.max(1) - 1) / LINE
    }
}

/// What a burst touched.
#[derive(Debug, Default, PartialEq, Eq)]
struct Touched {
    own: BTreeSet<u64>,
    guests: BTreeSet<u64>,
    read: u64,
    written: u64,
    /// Accesses of any size to anything but the guests' memories.
    accesses: u64,
}

/// Follows what is told, line by line.
#[derive(Debug, Default)]
struct Watch {
    mark: Option<u64>,
    memories: Vec<Range<u64>>,
    /// How often the mark has been written.
    marks: u32,
    touched: Touched,
}

impl Watch {
    fn line(&mut self, line: &str) {
        if let Some(said) = heard(line) {
            (self.mark, self.memories) = said;
        } else if self.mark.is_some()
            && self.marks < 2
            && let Some(access) = Access::parse(line)
        {
            if access.writes && Some(access.at) == self.mark {
                self.marks += 1;
            } else if self.marks == 1 {
                self.access(access);
            }
        }
    }

    fn access(&mut self, access: Access) {
        let touched = &mut self.touched;
        if self.memories.iter().any(|m| m.contains(&access.at)) {
            touched.guests.extend(access.lines());
            touched.read += u64::from(access.reads) * access.bytes;
            touched.written += u64::from(access.writes) * access.bytes;
        } else {
            touched.own.extend(access.lines());
            touched.accesses += 1;
        }
    }

    /// What was touched, once the mark has been written a second time.
    fn finish(self) -> Option<Touched> {
        (self.marks == 2).then_some(self.touched)
    }
}

/// Watches one case.
fn watch(case: usize) -> Result<Value> {
    let mut watch = Watch::default();
    let frames = told_of([WORD, &case.to_string()], |line| watch.line(line))?;
    let touched = watch.finish();
    let (Some(touched), Ok(frames)) = (touched, frames.trim().parse::<f64>()) else {
        return Err(Error::tool("valgrind", "the burst is not in what it tells"));
    };
    let each = |n: f64| n / frames.max(1.0);
    Ok(json!({
        "frames": frames,
        "own_lines": each(touched.own.len() as f64),
        "own_accesses": each(touched.accesses as f64),
        "guest_lines": each(touched.guests.len() as f64),
        "bytes_read": each(touched.read as f64),
        "bytes_written": each(touched.written as f64),
        "copies": each(touched.written as f64) / cases()[case].1.shape().size as f64,
    }))
}

/// Shows each line that valgrind tells of this program with these words. Returns what it says itself.
///
/// # Errors
/// No valgrind.
pub fn told_of(words: [&str; 2], mut show: impl FnMut(&str)) -> Result<String> {
    let program = std::env::current_exe().map_err(Error::io("find this program"))?;
    let mut child = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--log-fd=2"])
        .arg(program)
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(Error::io("run valgrind (Debian's package `valgrind`)"))?;
    if let Some(told) = child.stderr.take() {
        for line in BufReader::new(told).lines() {
            show(&line.map_err(Error::io("read what valgrind tells"))?);
        }
    }
    let mut said = String::new();
    if let Some(mut out) = child.stdout.take() {
        out.read_to_string(&mut said)
            .map_err(Error::io("read what the program says"))?;
    }
    child.wait().map_err(Error::io("wait for valgrind"))?;
    Ok(said)
}

/// Writes what was counted, or why nothing was.
pub fn write(page: &mut Page) {
    page.text(
        "Models, switch and both guests' memories in one process, without sockets: each access to memory during one burst \
         of a steady stream, as valgrind's `lackey` tells of it, over the frames that arrived. Lines are of 64 bytes, each \
         counted once a burst however often it is touched. Bytes read and written are those in the guests' memories: a copy \
         reads a frame's bytes once and writes them once, and there are descriptors beside them, read and written back, on \
         both sides. *Copies* is bytes written there over the frame's: what is above 1 is descriptors.",
    );
    let mut rows = Vec::new();
    let mut data = Vec::new();
    eprint!("  {} cases under valgrind", cases().len());
    for (at, (title, _)) in cases().iter().enumerate() {
        match watch(at) {
            Ok(found) => {
                let of = |name: &str| found[name].as_f64().map_or("–".to_owned(), figure);
                let fields = [
                    "own_lines",
                    "own_accesses",
                    "guest_lines",
                    "bytes_read",
                    "bytes_written",
                    "copies",
                ];
                let mut row = vec![(*title).to_owned()];
                row.extend(fields.map(of));
                rows.push(row);
                data.push(json!({"case": title, "found": found}));
                eprint!(".");
            }
            Err(error) => {
                eprintln!();
                page.text(&format!("Not counted here: {error}."));
                return;
            }
        }
    }
    eprintln!();
    page.table(
        &[
            "per frame",
            "lines of our own",
            "accesses to them",
            "lines of the guests",
            "bytes read there",
            "bytes written there",
            "copies",
        ],
        &rows,
    );
    page.data("memory", data);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_between_the_marks_are_told_apart_by_whose_memory_it_is() {
        let said = format!(" L 1ff{SAID}{{\"mark\":4096,\"memories\":[[2097152,2101248]]}}");
        let before = ["==1== Lackey", " S 1000,8", " L 9000,8", &said, "I  0400,4"];
        let burst = [" L 8000,64", " L 8020,64", " S 20003c,8", " M 300,4"];
        let mut watch = Watch::default();
        before.iter().for_each(|line| watch.line(line));
        watch.line(" S 1000,8");
        burst.iter().for_each(|line| watch.line(line));
        watch.line(" S 1000,8");
        watch.line(" S 7000,8");
        let touched = watch.finish().expect("a burst");
        assert_eq!(touched.own.len(), 3, "8000, 8040 and 300");
        assert_eq!(touched.accesses, 3);
        assert_eq!(touched.guests.len(), 2, "across two lines");
        assert_eq!((touched.read, touched.written), (0, 8));
    }

    #[test]
    fn a_burst_without_its_end_is_none() {
        let mut watch = Watch::default();
        watch.line(&format!("{SAID}{{\"mark\":4096,\"memories\":[]}}"));
        watch.line(" S 1000,8");
        watch.line(" S 8000,8");
        assert_eq!(watch.finish(), None);
    }
}
