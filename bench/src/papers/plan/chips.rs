//! ANCS' question with a second chip: that paper changed the drivers of two NICs and printed the figures of one.

use super::super::lan::{Lan, Load, Way};
use super::settings::{ITR250, base};
use super::terms::{Experiment, Line, Look, Stream, experiment, line, set};

/// The rows of figure 4 that both chips have.
fn rows(
    (lan, realtek): (Lan, Lan),
    way: Way,
    streams: &[Stream],
    (theirs, ours): (&'static str, &'static str),
) -> Vec<Line> {
    let mut lines = Vec::new();
    for stream in streams {
        for (chip, lan, theirs) in [("82540EM", lan, theirs), ("RTL8168C", realtek, ours)] {
            for setting in [
                base(lan),
                set("itr=250", lan, Load::Plain, ITR250),
                set("itr=250 SC", lan, Load::Combining, ITR250),
                set("itr=0 CSB", lan, Load::Csb, Some(0)),
            ] {
                let mut line = line(setting, 1, way, *stream, theirs);
                line.label = format!("{chip} {}", setting.name);
                lines.push(line);
            }
        }
    }
    lines
}

pub fn chips() -> Vec<Experiment> {
    let table = |id, title, lines| experiment(id, title, Look::Bars, lines);
    let (tap, vale) = ((Lan::Tap, Lan::RtlTap), (Lan::Vale, Lan::RtlVale));
    let out = [Stream::Kernel, Stream::Small, Stream::Tcp, Stream::Rr];
    let across = [Stream::Kernel, Stream::Tcp, Stream::Rr];
    vec![
        table(
            "c4.out",
            "Two chips in one guest, guest to host over TAP",
            rows(tap, Way::Out, &out, ("a4.out", "c4.out")),
        ),
        table(
            "c4.in",
            "Two chips in one guest, host to guest over TAP",
            rows(tap, Way::In, &[Stream::Paced(60_000)], ("c4.in", "c4.in")),
        ),
        table(
            "c4.vale",
            "Two chips in the same guests, guest to guest over the switch",
            rows(vale, Way::Across, &across, ("a4.vale", "c4.vale")),
        ),
    ]
}
