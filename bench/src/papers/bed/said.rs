//! What a guest's kernel says, read.

use std::collections::BTreeMap;

use crate::bed::Delta;

/// Frames sent, frames received, then lines of /proc/interrupts: "21: 1234 5 IO-APIC 21-fasteoi eth0".
pub fn parse_look(text: &str) -> Option<Delta> {
    let mut lines = text.lines();
    let mut number = || lines.next()?.trim().parse().ok();
    let frames = (number()?, number()?);
    let interrupts = lines
        .flat_map(|line| {
            let words = line.split_whitespace().skip(1);
            words.map_while(|w| w.parse::<u64>().ok())
        })
        .sum();
    Some(Delta {
        frames,
        interrupts,
        ..Delta::default()
    })
}

/// Seconds, of pktgen's "Result: OK: 101532(c95261+d6271) usec, 5000 (60byte,0frags)".
pub fn elapsed(text: &str) -> Option<f64> {
    let (_, rest) = text.split_once("Result: OK: ")?;
    let microseconds: f64 = rest.split('(').next()?.trim().parse().ok()?;
    (microseconds > 0.0).then_some(microseconds / 1e6)
}

/// Lines of a histogram of the kernel's: "{ work:          1 } hitcount:         17".
pub fn histogram(text: &str) -> BTreeMap<u64, u64> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["{", "work:", work, "}", "hitcount:", hits] => {
                Some((work.parse().ok()?, hits.parse().ok()?))
            }
            _ => None,
        }
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_of_all_queues_and_processors_are_summed() {
        let text = "12\n34\n 40:  10  5  PCI-MSIX-0000:00:09.0  1-edge  virtio3-input.0\n 41:  2  0  PCI-MSIX x virtio3-output.0\n";
        let delta = parse_look(text).unwrap();
        assert_eq!((delta.frames, delta.interrupts), ((12, 34), 17));
        assert!(parse_look("12\n").is_none());
    }

    #[test]
    fn what_the_kernel_sent_took_its_time() {
        let text = "Params: count 5000\nResult: OK: 101532(c95261+d6271) usec, 5000 (60byte,0frags)\n  49245pps\n";
        assert_eq!(elapsed(text), Some(0.101_532));
        assert_eq!(elapsed("Result: Idle"), None);
    }

    #[test]
    fn a_histogram_of_polls_is_read() {
        let text = "# event histogram\n#\n\n{ work:          0 } hitcount:          3\n{ work:         64 } hitcount:         17\n\nTotals:\n    Hits: 20\n";
        assert_eq!(histogram(text), BTreeMap::from([(0, 3), (64, 17)]));
    }
}
