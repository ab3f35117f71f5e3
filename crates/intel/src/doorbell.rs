//! Which registers of a NIC may be memory shared with its guest: those that are on certain pages and keep what is written.

use std::collections::BTreeMap;
use std::ops::Range;

use model::{Doorbells, QueueDoorbell};
use regs::{Access, Found, Id, Table};

/// The registers of one way's queues.
#[derive(Clone, Copy, Debug)]
pub struct Queues<'a> {
    /// What is written before a queue is enabled.
    pub setup: &'a [Id],
    /// The head.
    pub head: Id,
    /// What enables a queue, and the bits of it; not always on a page.
    pub enable: (Id, u32),
    /// The tail.
    pub tail: Id,
}

/// The registers of `table` on `pages` of `bar`; queues by way, receive queues first. Resets are elsewhere, at `resets`.
pub fn layout(
    table: &Table,
    bar: u8,
    pages: Vec<(u32, u32)>,
    ways: [Queues<'_>; 2],
    resets: Range<u32>,
) -> Doorbells {
    let mut queues: BTreeMap<(usize, u32), QueueDoorbell> = BTreeMap::new();
    let (mut others, mut touched_by) = (Vec::new(), vec![resets]);
    let words = pages
        .iter()
        .flat_map(|&(page, len)| (page..page + len).step_by(4));
    for at in words {
        let Some(found) = table.find(at) else {
            continue;
        };
        let Found { id, element } = found;
        let way = ways.iter().position(|way| {
            way.setup.contains(&id) || [way.head, way.enable.0, way.tail].contains(&id)
        });
        if let Some(way) = way {
            let of = &ways[way];
            let queue = queues.entry((way, element)).or_default();
            if id == of.head {
                queue.head = at;
            } else if id == of.enable.0 {
                queue.enable = (at, of.enable.1);
            } else if id == of.tail {
                queue.tail = at;
            } else {
                queue.setup.push(at);
            }
        } else if table.register(id).access != Access::ReadWrite {
            continue;
        } else {
            others.push(at);
        }
        touched_by.extend(elsewhere(table, found, at));
    }
    for ((way, element), queue) in &mut queues {
        let (id, bits) = ways[*way].enable;
        if queue.enable.1 == 0 {
            let register = table.register(id);
            let at = register.offset + element * register.stride;
            queue.enable = (at, bits);
            touched_by.push(at..at + 4);
        }
    }
    Doorbells {
        bar,
        pages,
        queues: queues.into_values().collect(),
        others,
        touched_by,
    }
}

/// The other addresses of what is `at` this one.
fn elsewhere(
    table: &Table,
    Found { id, element }: Found,
    at: u32,
) -> impl Iterator<Item = Range<u32>> {
    let register = table.register(id);
    let own = register.offset + element * register.stride;
    let second = table.aliases().iter().filter(move |alias| {
        // Of an array that is longer than its alias, the rest has none.
        alias.of == id && element < alias.count
    });
    let second = second.map(move |alias| alias.offset + element * alias.stride);
    let all = second.chain([own]).filter(move |other| *other != at);
    all.map(|other| other..other + 4)
}
