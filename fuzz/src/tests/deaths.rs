//! What fuzzing has kept, with processes that die between any two operations.

use super::replay::kept;
use crate::machine::{Life, Machine};
use crate::{registers, rings};

fn outcomes(script: fn(&[u8], Life) -> Machine, data: &[u8], dies: u64) -> Result<(), String> {
    let run = |dies: u64| {
        let life = Life {
            dies: Some(dies),
            ..Life::default()
        };
        script(data, life).outcome()
    };
    let (lived, died) = (run(0), run(dies));
    // Each frame once at most, in its order.
    let mut all = lived.frames.iter();
    let in_order = died
        .frames
        .iter()
        .all(|frame| all.any(|other| other == frame));
    let missing = lived.frames.len() - died.frames.len().min(lived.frames.len());
    if !in_order || missing as u64 > died.unsure {
        return Err(format!(
            "{} frames, and {} with deaths",
            lived.frames.len(),
            died.frames.len()
        ));
    }
    if missing > 0 {
        return Ok(());
    }
    if lived.registers != died.registers {
        return Err(format!("{:x?}\n{:x?}", lived.registers, died.registers));
    }
    if died.memory.is_some() && lived.memory != died.memory {
        return Err("memory".into());
    }
    Ok(())
}

#[test]
fn guests_notice_no_death_between_two_operations_of_all_that_fuzzing_kept() {
    let mut wrong = Vec::new();
    let mut all = 0;
    let scripts: [(&str, fn(&[u8], Life) -> Machine, usize); 2] = [
        ("rings", rings::script, 0),
        ("registers", registers::script, 1),
    ];
    for (target, script, from) in scripts {
        for (name, data) in kept(target) {
            let Some(data) = data.get(from..) else {
                continue;
            };
            for dies in [u64::MAX, 0x1111_1111_1111_1111, 1 << (data.len() % 64)] {
                all += 1;
                if let Err(why) = outcomes(script, data, dies) {
                    wrong.push(format!("{target} {name} {dies:x}: {why}"));
                }
            }
        }
    }
    let some = wrong
        .iter()
        .take(10)
        .cloned()
        .collect::<Vec<_>>()
        .join("\n");
    assert!(wrong.is_empty(), "{} of {all}:\n{some}", wrong.len());
}
