//! A network's process that is not what it should be: it is not waited for, not believed, and replaced a few times.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::guest::{Hub, PATIENCE};
use frame::Batch;
use hypernic_port_user::{Launcher, UserConfig, open};
use port::{InletEvent, InletThread, Port, counter};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg,
    sendmsg,
};
use wire::Offload;

const READY: &[u8] = &[1];

/// A launcher: each network is played by `play`, from the first on.
fn launcher(play: impl Fn(usize, OwnedFd) + Send + 'static) -> Launcher {
    let (ours, theirs) = Launcher::socket().expect("sockets");
    std::thread::spawn(move || {
        for number in 0.. {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut given = RecvAncillaryBuffer::new(&mut space);
            let mut byte = [0];
            let room = &mut [IoSliceMut::new(&mut byte)];
            let came = recvmsg(&theirs, room, &mut given, RecvFlags::CMSG_CLOEXEC);
            let socket = given.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut all) => all.next(),
                _ => None,
            });
            let (Ok(_), Some(socket)) = (came, socket) else {
                return;
            };
            play(number, socket);
        }
    });
    Launcher::new(ours)
}

fn say(socket: &OwnedFd, message: &[u8]) {
    let nothing = &mut SendAncillaryBuffer::default();
    let _ = sendmsg(
        socket,
        &[IoSlice::new(message)],
        nothing,
        SendFlags::NOSIGNAL,
    );
}

/// A message with what was counted, and these frames.
fn frames(frames: &[&[u8]]) -> Vec<u8> {
    let mut message = [&[3][..], &[0; 48]].concat();
    for frame in frames {
        message.extend((frame.len() as u16).to_le_bytes());
        message.extend(*frame);
    }
    message
}

struct Played {
    port_counters: Arc<dyn frame::Counted>,
    sink: Arc<dyn frame::Sink>,
    events: Receiver<InletEvent>,
    inbox: Receiver<Vec<u8>>,
    _thread: InletThread,
}

fn played(play: impl Fn(usize, OwnedFd) + Send + 'static) -> Played {
    let opened = open(&UserConfig::default(), &launcher(play), false);
    let Port {
        sink,
        inlet,
        counters,
        ..
    } = opened.expect("it is ready");
    let (hub, mut inboxes) = Hub::new(1);
    let (tell, events) = channel();
    let tell = move |event| drop(tell.send(event));
    let thread = InletThread::spawn("user", inlet.expect("inlet"), Arc::new(hub), tell);
    Played {
        port_counters: counters,
        sink,
        events,
        inbox: inboxes.remove(0),
        _thread: thread.expect("thread"),
    }
}

#[test]
fn a_process_that_is_not_there_says_why_or_ended() {
    let refuse = |words: &'static [u8]| {
        let launcher = launcher(move |_, socket| say(&socket, words));
        let error = open(&UserConfig::default(), &launcher, false).err();
        error.expect("it is refused").to_string()
    };
    assert_eq!(refuse(b"\x02the port is taken"), "the port is taken");
    assert!(refuse(b"\x04was killed by signal 11").contains("signal 11"));
    assert!(refuse(b"nonsense").contains("ended before it was there"));
    let launcher = launcher(|_, socket| drop(socket));
    let error = open(&UserConfig::default(), &launcher, false).err();
    assert!(error.expect("gone").to_string().contains("ended before"));
}

#[test]
fn what_is_no_message_ends_the_process_and_another_is_started() {
    // What a process says, one after the other; the last is a good one.
    let odd: [Vec<u8>; 5] = [
        vec![9; 9],
        READY.to_vec(),
        frames(&[])[..20].to_vec(),
        [frames(&[&[7; 60]]), vec![200, 0, 1]].concat(),
        vec![3; 40_000],
    ];
    let count = odd.len();
    let port = played(move |number, socket| {
        say(&socket, READY);
        match odd.get(number) {
            Some(odd) => say(&socket, odd),
            None => {
                // Too short for a frame, too long for one, and one.
                say(&socket, &frames(&[&[1; 13], &[2; 5000], &[3; 60]]));
                // It goes on until the port closes.
                std::thread::spawn(move || recv_all(&socket));
            }
        }
    });
    let came = port.inbox.recv_timeout(PATIENCE).expect("of the good one");
    assert_eq!(came, [3; 60]);
    let count_of = |name| counter(&*port.port_counters, name);
    assert_eq!(count_of("user_bad_message"), Some(count as u64));
    assert_eq!(count_of("user_deaths"), Some(count as u64));
    assert_eq!(count_of("user_out_full"), Some(2));
    // Counted behind it.
    let until = Instant::now() + PATIENCE;
    while count_of("frames_in") != Some(1) {
        assert!(Instant::now() < until, "not counted");
        std::thread::sleep(Duration::from_millis(1));
    }
    let events: Vec<_> = port.events.try_iter().collect();
    let told = |event: &&InletEvent| matches!(event, InletEvent::Note(why) if why.contains("said what is no message"));
    assert_eq!(events.iter().filter(told).count(), count, "{events:?}");
    assert_eq!(events.last(), Some(&InletEvent::LinkUp));
}

fn recv_all(socket: &OwnedFd) {
    let mut room = [0; 64];
    loop {
        let into = &mut [IoSliceMut::new(&mut room)];
        let nothing = &mut RecvAncillaryBuffer::default();
        match recvmsg(socket, into, nothing, RecvFlags::empty()) {
            Ok(came) if came.bytes > 0 => {}
            _ => return,
        }
    }
}

#[test]
fn a_process_that_reads_nothing_holds_up_no_sender() {
    let (keep, kept) = channel();
    let port = played(move |_, socket| {
        say(&socket, READY);
        let _ = keep.send(socket);
    });
    let mut batch = Batch::new();
    for _ in 0..200 {
        batch.push_bytes(&[5; 1000]);
        batch.end(Offload::NONE);
    }
    let picks: Vec<u16> = (0..200).collect();
    let dropped = || counter(&*port.port_counters, "user_in_full").expect("counter");
    let until = Instant::now() + PATIENCE;
    let mut longest = Duration::ZERO;
    while dropped() == 0 {
        assert!(Instant::now() < until, "its senders wait for ever");
        let start = Instant::now();
        let done = port.sink.deliver(&batch, &picks);
        longest = longest.max(start.elapsed());
        if done < picks.len() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    // Each call was short, however long it was until frames were given up.
    assert!(longest < Duration::from_millis(400), "{longest:?}");
    // Those that waited are lost with it, and the next process gets new ones.
    drop(kept.recv().expect("the first"));
    let second = kept.recv_timeout(PATIENCE).expect("the second");
    let until = Instant::now() + PATIENCE;
    while counter(&*port.port_counters, "user_down") == Some(0) {
        assert!(Instant::now() < until, "nothing was lost");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(second);
}
