//! Cuts a script down to what still shows its difference.

use crate::oracle::script::{Op, Script};

/// The smallest script found for which `fails` holds, starting from one for which it does.
pub fn shrink(script: &Script, fails: &mut dyn FnMut(&Script) -> bool) -> Script {
    let mut best = script.clone();
    loop {
        let before = best.clone();
        fewer(&mut best, fails);
        smaller(&mut best, fails);
        if best == before {
            return best;
        }
    }
}

/// Leaves out runs of steps, from half the script down to single ones.
fn fewer(best: &mut Script, fails: &mut dyn FnMut(&Script) -> bool) {
    let mut run = best.ops.len() / 2;
    while run > 0 {
        let mut at = 0;
        while at < best.ops.len() {
            let mut shorter = best.clone();
            let end = (at + run).min(shorter.ops.len());
            shorter.ops.drain(at..end);
            if fails(&shorter) {
                *best = shorter;
            } else {
                at += run;
            }
        }
        run /= 2;
    }
}

/// Makes single steps simpler.
fn smaller(best: &mut Script, fails: &mut dyn FnMut(&Script) -> bool) {
    for index in 0..best.ops.len() {
        for simpler in simpler(&best.ops[index]) {
            let mut other = best.clone();
            other.ops[index] = simpler;
            if fails(&other) {
                *best = other;
            }
        }
    }
}

/// Simpler steps to try in place of one. Each try may build on the one before only by another round.
fn simpler(op: &Op) -> Vec<Op> {
    match op {
        Op::Write { at, size, value } => {
            let bits = (0..64).filter(|i| value >> i & 1 == 1);
            let write = |value| Op::Write {
                at: *at,
                size: *size,
                value,
            };
            bits.map(|i| write(value & !(1 << i))).collect()
        }
        Op::Frames(frames) => {
            let mut all = Vec::new();
            for i in 0..frames.len() {
                let mut fewer = frames.clone();
                if frames.len() > 1 {
                    fewer.remove(i);
                    all.push(Op::Frames(fewer.clone()));
                    fewer.clone_from(frames);
                }
                let zeros = fewer[i].len().min(14);
                if fewer[i][zeros..].iter().any(|b| *b != 0) {
                    fewer[i][zeros..].fill(0);
                    all.push(Op::Frames(fewer));
                }
            }
            all
        }
        Op::Mem { at, bytes } if bytes.iter().any(|b| *b != 0) => {
            let mut all = Vec::new();
            for part in [0..bytes.len() / 2, bytes.len() / 2..bytes.len()] {
                let mut zeroed = bytes.clone();
                zeroed[part].fill(0);
                all.push(Op::Mem {
                    at: *at,
                    bytes: zeroed,
                });
            }
            all
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_matter_goes() {
        let script: Script = "w4 0 0xff\nlook\nr4 8\nlook\nw4 0x100 0x8002\nlook"
            .parse()
            .unwrap();
        let mut tries = 0;
        let small = shrink(&script, &mut |s| {
            tries += 1;
            let rctl = |op: &Op| matches!(op, Op::Write { at: 0x100, value, .. } if value & 2 != 0);
            s.ops.iter().any(rctl)
        });
        assert_eq!(small, "w4 0x100 2".parse().unwrap());
        assert!(tries < 100);
    }
}
