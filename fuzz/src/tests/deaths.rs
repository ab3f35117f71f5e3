//! What fuzzing has kept, with processes that die between any two operations.

use super::replay::kept;
use crate::machine::Life;
use crate::mortal::{Deaths, Outcome};
use crate::{registers, rings, rings_igb, rings_rtl, virtqueue};

/// Of two runs of a program: each frame is sent once at most and in order, and the rest is the same. Whether that could be compared, too.
fn compared(lived: &Outcome, died: &Outcome) -> Result<bool, String> {
    if lived.meddled {
        return Ok(false);
    }
    let mut all = lived.frames.iter();
    let in_order = died
        .frames
        .iter()
        .all(|frame| all.any(|other| other == frame));
    let missing = lived.frames.len().saturating_sub(died.frames.len());
    if !in_order || missing as u64 > died.unsure {
        let counts = (lived.frames.len(), died.frames.len(), died.unsure);
        return Err(format!("frames, with deaths, and unsure: {counts:?}"));
    }
    let (Some(a), Some(b)) = (&lived.memory, &died.memory) else {
        return Ok(false);
    };
    if missing > 0 || died.forgot {
        return Ok(false);
    }
    if lived.registers != died.registers {
        return Err(format!("{:x?}\n{:x?}", lived.registers, died.registers));
    }
    let other: Vec<_> = b.iter().filter(|block| !a.contains(block)).collect();
    if a != b {
        return Err(format!("memory at {other:x?}"));
    }
    Ok(true)
}

/// Goes through all that was kept of a target. Of so many runs in a hundred at most only the frames may be compared.
fn undisturbed(target: &str, script: impl Fn(&[u8], Option<Deaths>) -> Outcome, most: usize) {
    let (mut wrong, mut all, mut not) = (Vec::new(), 0, 0);
    for (name, data) in kept(target) {
        for after in [u64::MAX, 0x1111_1111_1111_1111, 1 << (data.len() % 64)] {
            all += 1;
            let run = |real| script(&data, Some(Deaths { after, real }));
            match compared(&run(false), &run(true)) {
                Ok(whole) => not += usize::from(!whole),
                Err(why) => wrong.push(format!("{name} {after:x}: {why}")),
            }
        }
    }
    println!("{target}: {all} runs, of which {not} were not compared in all");
    let some = wrong.iter().take(10).cloned().collect::<Vec<_>>();
    assert!(
        wrong.is_empty(),
        "{target}: {} of {all}:\n{}",
        wrong.len(),
        some.join("\n")
    );
    assert!(100 * not <= most * all, "{target}: {not} of {all}");
}

fn life(deaths: Option<Deaths>) -> Life {
    Life {
        deaths,
        ..Life::default()
    }
}

#[test]
fn a_death_between_two_operations_changes_nothing_for_an_82540em() {
    let script = |data: &[u8], deaths| rings::script(data, life(deaths)).outcome();
    undisturbed("rings", script, 20);
    // The first byte says something else.
    let script = |data: &[u8], deaths| {
        let data = data.get(1..).unwrap_or_default();
        registers::script(data, life(deaths)).outcome()
    };
    undisturbed("registers", script, 20);
}

#[test]
fn a_death_between_two_operations_changes_nothing_for_an_82576_or_a_vf() {
    undisturbed("rings_igb", rings_igb::script, 20);
}

#[test]
fn a_death_between_two_operations_changes_nothing_for_the_realtek_chips() {
    undisturbed("rings_rtl", rings_rtl::script, 20);
}

#[test]
fn a_death_between_two_operations_changes_nothing_for_a_virtio_net() {
    undisturbed("virtqueue", virtqueue::script, 35);
}
