//! For the tests: workers that die in every way. The first argument is the name of a scene.
#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use hypernic_keeper::exact::{Arrival, Link};
use hypernic_keeper::{self as keeper, Role, Shared};
use rustix::event::{PollFd, PollFlags};

/// A worker's side of a scene.
fn main() {
    let scene = std::env::args().nth(1).unwrap_or_default();
    let mut options = keeper::Options::default();
    if scene == "cell" {
        // What a keeper starts as a cell.
        options.is_cell = true;
        if let Role::Over(code) = keeper::start(options).expect("a keeper") {
            std::process::exit(code);
        }
        let name = std::env::args().nth(2).unwrap_or_default();
        let keeper = std::os::unix::process::parent_id();
        say(&format!("cell {name} pid {keeper}"));
        sleep();
    }
    options.cells = Some(|name, file| {
        let mut command = std::process::Command::new(std::env::current_exe().expect("a program"));
        let text = std::fs::read_to_string(format!("/proc/self/fd/{file}")).expect("a text");
        let last = text.lines().last().unwrap_or_default();
        command.args(["cell", &format!("{name} {last}")]);
        command
    });
    if scene == "exact" {
        (options.links, options.life) = (1, Duration::ZERO);
    }
    match keeper::start(options).expect("a keeper") {
        Role::Over(code) => std::process::exit(code),
        Role::Worker => {}
    }
    let page = keeper::current().expect("a worker");
    say(&format!("life {} pid {}", page.life(), std::process::id()));
    match scene.as_str() {
        "leave" => std::process::exit(7),
        "stay" => stay(page),
        "keep" => keep(page),
        "poison" => poison(page),
        "poisons" => poisons(page),
        "hang" => hang(page),
        "die" => std::process::abort(),
        "exact" => exact(page),
        "hand-over" => hand_over(page, None),
        "become" => hand_over(page, std::env::current_exe().ok().as_deref()),
        "become-bad" if page.life() > 1 => std::process::abort(),
        "become-bad" => hand_over(page, std::env::current_exe().ok().as_deref()),
        "slow" => slow(page),
        "cells" => cells(page),
        "become-nothing" => hand_over(page, Some("/nowhere/hypernic".as_ref())),
        other => panic!("no scene {other}"),
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

fn sleep() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

fn stay(page: &'static Shared) {
    if let Some(before) = page.before() {
        say(&format!(
            "before {} {} {}",
            before.lives, before.signal, before.hung
        ));
    }
    page.serving();
    sleep();
}

/// Has two cells in the first life, one of them with another text in the second, and none in the third.
fn cells(page: &'static Shared) {
    match page.life() {
        1 => {
            assert!(keeper::cell("a", "one").expect("kept"));
            assert!(keeper::cell("b", "one").expect("kept"));
        }
        2 => {
            assert!(keeper::cell("a", "two").expect("kept"));
            keeper::end_cell("b");
        }
        _ => keeper::end_other_cells(&[]),
    }
    page.serving();
    sleep();
}

/// Takes its time before it serves, and is then as all others.
fn slow(page: &'static Shared) {
    std::thread::sleep(Duration::from_millis(700));
    page.serving();
    say("serves");
    sleep();
}

/// Leaves one half of a pair to the next life, and forgets about another.
fn keep(page: &'static Shared) {
    let open = || std::fs::read_dir("/proc/self/fd").expect("proc").count() as u64;
    let before = open();
    if page.life() == 1 {
        let (kept, other) = UnixStream::pair().expect("a pair");
        let (lost, third) = UnixStream::pair().expect("a pair");
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(|| sleep())).collect();
        assert!(page.keep(b"one", kept.as_fd(), [before, 4]));
        assert!(page.keep(b"other", other.as_fd(), [0, 0]));
        assert!(page.keep(b"third", third.as_fd(), [0, 0]));
        assert!(page.keep(b"gone", lost.as_fd(), [0, 0]));
        page.forget(b"gone");
        // A number that was closed, though it is named still, and became another's.
        assert!(page.keep(b"stale", lost.as_fd(), [0, 0]));
        let number = lost.as_raw_fd();
        drop(lost);
        let (again, _end) = UnixStream::pair().expect("a pair");
        assert_eq!(again.as_raw_fd(), number);
        (&kept).write_all(b"before").expect("written");
        page.serving();
        say("ready");
        drop(threads);
        sleep();
    }
    let (kept, notes) = page.take(b"one").expect("kept");
    let (other, _) = page.take(b"other").expect("kept");
    let (third, _) = page.take(b"third").expect("kept");
    assert!(page.take(b"one").is_none() && page.take(b"gone").is_none());
    assert!(page.take(b"stale").is_none(), "another's");
    let (mut kept, mut other) = (UnixStream::from(kept), UnixStream::from(other));
    kept.write_all(b" after").expect("written");
    let mut text = [0; 12];
    other.read_exact(&mut text).expect("read");
    // Its other end was named by nobody.
    let end = UnixStream::from(third).read(&mut [0]).expect("read");
    let text = String::from_utf8_lossy(&text).into_owned();
    page.serving();
    let more = open() - notes[0];
    say(&format!(
        "{text}, {} noted, {end} at the end, {more} more",
        notes[1]
    ));
    sleep();
}

/// Writes a word in each of six lives to the other end of a pair, which goes from life to life by its number alone; `program`
/// goes on, if one is named.
fn hand_over(page: &'static Shared, program: Option<&Path>) {
    let open = || std::fs::read_dir("/proc/self/fd").expect("proc").count() as u64;
    let (ours, theirs, before) = match page.take_handover() {
        None => {
            assert_eq!(page.life(), 1, "the handover is lost");
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            // Another that stays under its name, with what the page knows of it.
            let (named, _) = UnixStream::pair().expect("a pair");
            assert!(page.keep(b"named", named.as_fd(), [1, 2]));
            let _ = named.into_raw_fd();
            (ours, theirs, 0)
        }
        Some(mut handover) => {
            let (numbers, _) = handover.payload.as_chunks::<8>();
            let [ours, theirs, _, before] =
                std::array::from_fn(|at| u64::from_ne_bytes(numbers[at]));
            let mut pair = [ours, theirs].map(|number| {
                let fd = handover.take(number as RawFd).expect("left");
                UnixStream::from(fd)
            });
            let (named, notes) = page.take(b"named").expect("kept");
            assert_eq!(notes, [1, 2]);
            assert!(page.keep(b"named", named.as_fd(), [1, 2]));
            let _ = named.into_raw_fd();
            pair[0].write_all(b"x").expect("written");
            pair[1].read_exact(&mut [0]).expect("read");
            let [ours, theirs] = pair;
            (ours, theirs, before)
        }
    };
    page.serving();
    assert!(page.take_handover().is_none(), "it is there once");
    if page.life() == 6 {
        say(&format!("{} more", open() - before));
        sleep();
    }
    let (stray, _end) = UnixStream::pair().expect("a pair");
    let numbers = [&ours, &theirs, &stray].map(AsRawFd::as_raw_fd);
    // Before there is anything that is closed later.
    let before = if page.life() == 1 { open() - 2 } else { before };
    let words = numbers.map(|number| number as u64);
    let payload = [words[0], words[1], words[2], before];
    let payload: Vec<u8> = payload.iter().flat_map(|n| n.to_ne_bytes()).collect();
    page.hand_over(&numbers, program, &payload).expect("room");
    std::process::exit(0);
}

fn poison(page: &'static Shared) {
    let (good, bad) = (
        page.nics().place("good").expect("place"),
        page.nics().place("bad").expect("place"),
    );
    let thread = page.thread(0).expect("word");
    page.serving();
    assert!(!page.nics().is_quarantined(good));
    if page.nics().is_quarantined(bad) {
        say("quarantined");
        page.nics().pardon(bad);
        assert!(!page.nics().is_quarantined(bad));
        sleep();
    }
    thread.begin(Some(good));
    thread.end();
    thread.begin(Some(bad));
    std::process::abort();
}

/// Several that kill, one behind the other.
fn poisons(page: &'static Shared) {
    let mut names = (0..4).map(|n| format!("bad{n}"));
    let thread = page.thread(0).expect("word");
    page.serving();
    let bad = names.find_map(|name| {
        let nic = page.nics().place(&name)?;
        (!page.nics().is_quarantined(nic)).then_some(nic)
    });
    if bad.is_none() {
        say("all quarantined");
        sleep();
    }
    thread.begin(bad);
    std::process::abort();
}

fn hang(page: &'static Shared) {
    let slow = page.nics().place("slow").expect("place");
    page.serving();
    if let Some(before) = page.before() {
        say(&format!("hung {} hangs {}", before.hung, page.hangs()));
        sleep();
    }
    let busy = page.thread(1).expect("word");
    std::thread::spawn(move || {
        loop {
            busy.begin(Some(slow));
            std::thread::sleep(Duration::from_millis(1));
            busy.end();
        }
    });
    std::thread::sleep(Duration::from_secs(3));
    say("fine so far");
    page.thread(0).expect("word").begin(Some(slow));
    sleep();
}

/// Answers numbers on standard input, which is a socket, by how many came before and what their sum is.
fn exact(page: &'static Shared) {
    let mut link = keeper::link(0).expect("a link");
    assert!(keeper::link(0).is_none(), "it has one holder");
    page.serving();
    let socket = std::io::stdin();
    let socket = socket.as_fd();
    loop {
        serve(&mut link, socket);
        wait_for(socket, PollFlags::IN);
    }
}

fn wait_for(socket: BorrowedFd<'_>, what: PollFlags) {
    let _ = rustix::event::poll(&mut [PollFd::from_borrowed_fd(socket, what)], None);
}

fn serve(link: &mut Link, socket: BorrowedFd<'_>) {
    loop {
        while !link.flush(socket).expect("open") {
            wait_for(socket, PollFlags::OUT);
        }
        if link.arrival().is_empty() {
            match link.receive(socket).expect("open") {
                Arrival::Data => {}
                Arrival::Empty => return,
                Arrival::Closed => std::process::exit(0),
            }
        }
        let [mut count, mut sum, mut files, ..] = link.notes();
        let numbers: Vec<RawFd> = link.descriptors();
        let bytes = [link.rest(), link.arrival()].concat();
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            count += 1;
            sum = sum.wrapping_add(u64::from_ne_bytes(*word));
            assert!(link.reply(&[count.to_ne_bytes(), sum.to_ne_bytes()].concat()));
        }
        files += numbers.len() as u64;
        for number in &numbers {
            let there = std::fs::read_link(format!("/proc/self/fd/{number}"));
            assert!(there.is_ok(), "a descriptor was lost");
        }
        let rest = rest.to_vec();
        link.commit(&rest, [count, sum, files], keeper::exact::Held::Same);
    }
}
