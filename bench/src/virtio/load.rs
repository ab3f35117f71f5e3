//! What the guests send: lengths, bursts, and how testpmd is told of them.

/// Lengths of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lengths {
    /// All alike.
    Alike(u32),
    /// 60, 590 and 1514 bytes, 7 : 4 : 1, in no order.
    Imix,
}

/// All lengths, in the order of the page.
pub const LENGTHS: [Lengths; 3] = [Lengths::Alike(60), Lengths::Alike(1514), Lengths::Imix];

impl Lengths {
    /// In plots and raw data.
    pub fn id(self) -> String {
        match self {
            Self::Alike(size) => size.to_string(),
            Self::Imix => "imix".to_owned(),
        }
    }

    /// In titles.
    pub fn words(self) -> String {
        match self {
            Self::Alike(size) => format!("{size} bytes"),
            Self::Imix => "imix".to_owned(),
        }
    }

    /// What testpmd is told to have 768 frames go round in each direction, by so many queues of each guest; a ring holds them.
    /// What went round before is thrown away.
    pub fn lines(self, queues: u32) -> Vec<String> {
        let mut lines = vec!["stop".to_owned(), "set flush_rx on".to_owned()];
        let mut add = |parts: &str, split: &str, burst: u32, bursts: u32| {
            lines.push(format!("set txsplit {split}"));
            lines.push(format!("set txpkts {parts}"));
            lines.push(format!("set burst {burst}"));
            lines.push(format!("start tx_first {bursts}"));
            lines.push("stop".to_owned());
            lines.push("set flush_rx off".to_owned());
        };
        match self {
            Self::Alike(size) => add(&size.to_string(), "off", 64, 12 / queues),
            Self::Imix => {
                // Of a packet of several parts it takes as many as it likes at random.
                for _ in 0..16 / queues {
                    for (parts, burst) in MIXED {
                        add(parts, "rand", burst, 1);
                    }
                }
            }
        }
        lines
    }
}

/// Parts of packets, and how many of these: of 12, 7 have 60 bytes, 4 have 590 and one has 1514.
const MIXED: [(&str, u32); 3] = [("60,530,924", 12), ("60,530", 24), ("60", 12)];

/// What goes round between the guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    pub lengths: Lengths,
    /// Frames that a guest hands over at once, at most.
    pub burst: u32,
}

impl Load {
    /// What testpmd is told to go on with these bursts.
    pub fn lines(self) -> [String; 3] {
        let burst = format!("set burst {}", self.burst);
        ["stop".to_owned(), burst, "start".to_owned()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(line: &str, word: &str) -> Option<u32> {
        line.strip_prefix(word)?.trim().parse().ok()
    }

    #[test]
    fn a_ring_holds_what_is_under_way() {
        for lengths in LENGTHS {
            for queues in [1, 2] {
                let (mut burst, mut frames) = (0, 0);
                for line in lengths.lines(queues) {
                    burst = number(&line, "set burst").unwrap_or(burst);
                    frames += number(&line, "start tx_first").unwrap_or(0) * burst * queues;
                }
                assert_eq!(frames, 768, "{lengths:?} {queues}");
            }
        }
    }

    #[test]
    fn mixed_packets_are_imix() {
        let mut counts = [0.0; 3];
        for (parts, burst) in MIXED {
            let parts = parts.split(',').count();
            for count in &mut counts[..parts] {
                *count += f64::from(burst) / parts as f64;
            }
        }
        assert_eq!(counts, [28.0, 16.0, 4.0], "7 : 4 : 1");
        let sum = |parts: &str| parts.split(',').map(|p| p.parse::<u32>().unwrap()).sum();
        assert_eq!(MIXED.map(|(parts, _)| sum(parts)), [1514, 590, 60]);
    }
}
