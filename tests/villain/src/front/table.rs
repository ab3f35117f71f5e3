//! The table of those who misuse a vhost-user socket.

use crate::villain::Moves::{Counters, Nothing};
use crate::villain::{Program, Villain};

use super::{messages, rings};

macro_rules! front {
    ($($id:ident = $source:ident::$deed:ident: $class:literal, $name:literal, $moves:expr;)*) => {
        pub(crate) const FRONT: &[Villain] = &[$(
            Villain {
                id: stringify!($id),
                class: $class,
                name: $name,
                moves: $moves,
                program: Program::Front($source::$deed),
            },
        )*];
    };
}

front! {
    front_memory_tables_lie = messages::memory_tables_lie: "CVE-2018-1059", "regions that are empty, wrap, overlap, lie beyond their file, or come with other numbers of files", Counters(&["refused_violations"]);
    front_files_that_are_no_memory = messages::files_that_are_no_memory: "class 4", "pipes, sockets, timers, folders and files of disks as memory, logs and inflight areas", Counters(&["refused_violations"]);
    front_eventfds_that_are_none = messages::eventfds_that_are_none: "class 4", "the same as kicks, calls and errors", Counters(&["refused_bad_eventfd"]);
    front_inflight_areas_lie = messages::inflight_areas_lie: "CVE-2021-3839, CVE-2020-10726", "inflight areas of impossible sizes and places, full of what never was, and 200 of them", Counters(&["refused_violations"]);
    front_logs_lie = messages::logs_lie: "CVE-2020-10722", "dirty logs that are too short, unaligned, wrap, and are cut off while they are written", Counters(&["refused_violations"]);
    front_ring_numbers = messages::ring_numbers: "CVE-2020-10723", "rings that are not there, of impossible sizes", Counters(&["refused_violations"]);
    front_rings_nowhere = messages::rings_nowhere: "kill table", "each part of a ring outside of memory, at its end, unaligned; rings started without a place", Counters(&["refused_violations"]);
    front_surplus_descriptors = messages::surplus_descriptors: "CVE-2022-0669", "up to 8 descriptors with messages that want none", Counters(&["surplus_fds"]);
    front_noise = messages::noise: "ours", "1000 random messages over 300 connections", Counters(&["malformed"]);
    front_half_messages = messages::half_messages: "CVE-2019-14818", "a message cut off after each byte, its descriptors sent", Counters(&["clients_gone"]);
    front_questions_without_end = messages::questions_without_end: "ours", "20,000 questions, whose answers are not read", Counters(&["messages"]);
    front_others_at_the_door = messages::others_at_the_door: "ours", "200 more connections while one is served", Counters(&["refused_busy"]);
    front_broken_rings = rings::broken_rings: "CVE-2016-6490, CVE-2018-1059", "loops, tables, lengths, directions and indices that cannot be, on rings of memory that it shares", Counters(&["rings_broken", "broken_loop", "broken_unmapped"]);
    front_rings_start_and_stop = rings::rings_start_and_stop: "CVE-2023-3301", "600 starts, stops and moves of rings that work", Counters(&["rings_started", "rings_stopped"]);
    front_bases_that_cannot_be = rings::bases_that_cannot_be: "ours", "rings that go on where none has ever been", Nothing("the used index in memory says where a split ring is");
    front_memory_comes_and_goes = rings::memory_comes_and_goes: "ours", "regions added and removed, all of them too, under rings that work", Counters(&["rings_lost"]);
    front_memory_shrinks = rings::memory_shrinks: "kill table", "memory whose file is cut off under rings that work", Nothing("what is read there is zero, and its reader goes on");
    front_rewritten_underway = rings::rewritten_underway: "class 2, TOCTOU", "rings and descriptors rewritten while the back end reads them", Nothing("the device may see the old or the new data");
    front_kicks_without_end = rings::kicks_without_end: "ours", "50,000 kicks of empty rings", Counters(&["kicks"]);
    front_states_without_end = rings::states_without_end: "ours", "saved states that never end, end in the middle, and are not taken", Nothing("a transfer holds up its own front end");
}
