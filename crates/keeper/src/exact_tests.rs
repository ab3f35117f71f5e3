//! A server that dies at every step it takes, and its client that must not notice.

use std::cell::Cell;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::*;

thread_local! {
    /// Steps until this thread's worker dies.
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

struct Death;

/// Dies here, if it is the step.
pub(super) fn step() {
    LEFT.with(|left| {
        let now = left.get();
        left.set(now.saturating_sub(1));
        if now == 0 {
            resume_unwind(Box::new(Death));
        }
    });
}

/// Lets `work` take so many steps. `None`: it died.
fn living<T>(steps: u64, work: impl FnOnce() -> T) -> Option<T> {
    LEFT.set(steps);
    let result = catch_unwind(AssertUnwindSafe(work));
    LEFT.set(u64::MAX);
    match result {
        Ok(done) => Some(done),
        Err(death) if death.is::<Death>() => None,
        Err(other) => resume_unwind(other),
    }
}

/// A message: its length, then that many bytes.
fn message(n: u8, len: usize) -> Vec<u8> {
    let mut bytes = (len as u16).to_ne_bytes().to_vec();
    bytes.resize(2 + len, n);
    bytes
}

/// Answers all that is there, each message by one that says how many came before and what their sum is: an answer that is
/// made twice, or not at all, makes all that follow wrong.
fn serve(link: &mut Link, socket: &UnixStream) {
    loop {
        assert!(link.flush(socket.as_fd()).is_ok());
        if link.arrival().is_empty() && link.receive(socket.as_fd()) != Ok(Arrival::Data) {
            return;
        }
        let [mut count, mut sum, _] = link.notes();
        if let Some((files, bytes)) = link.held() {
            let [was, total] =
                [0, 8].map(|at| u64::from_ne_bytes(std::array::from_fn(|n| bytes[at + n])));
            assert!(files == [3, was as i32] && was % 3 == 0 && bytes.len() == 16);
            assert!(
                was <= count && total <= sum && was + 5 >= count,
                "of another time"
            );
        }
        let bytes = [link.rest(), link.arrival()].concat();
        let mut left = &bytes[..];
        while let Some((len, body)) = left.split_first_chunk::<2>() {
            let len = usize::from(u16::from_ne_bytes(*len));
            let Some(body) = body.get(..len) else { break };
            count += 1;
            sum += body.iter().map(|byte| u64::from(*byte)).sum::<u64>();
            let answer = [count.to_ne_bytes(), sum.to_ne_bytes()].concat();
            assert!(link.reply(&answer));
            left = &left[2 + len..];
        }
        let rest = left.to_vec();
        // Now and then it is something else.
        let held = (count % 3 == 0).then(|| [count.to_ne_bytes(), sum.to_ne_bytes()].concat());
        let held = match &held {
            Some(bytes) => Held::New(&[3, count as i32], &[&bytes[..8], &bytes[8..]]),
            None => Held::Same,
        };
        link.commit(&rest, [count, sum, 0], held);
    }
}

/// What a client says in one go: whole messages, parts of them, several.
fn script() -> Vec<Vec<u8>> {
    let (a, b) = (message(1, 5), message(2, 300));
    vec![
        a.clone(),
        [a.clone(), b.clone(), a.clone()].concat(),
        b[..7].to_vec(),
        b[7..].to_vec(),
        [&a[..], &b[..1]].concat(),
        [&b[1..], &a[..]].concat(),
        message(3, 0),
    ]
}

/// Runs the script against a server that dies after `steps` steps of the round `dies`, and again after as many of the next
/// life. Returns what the client heard, and whether anybody died.
fn run(memory: &'static Memory, dies: usize, steps: u64) -> (Vec<u8>, bool) {
    let mut heard = Vec::new();
    let mut died = false;
    let (mut client, server) = UnixStream::pair().expect("a pair");
    client.set_nonblocking(true).expect("non-blocking");
    server.set_nonblocking(true).expect("non-blocking");
    let mut link = Link::resume(memory);
    link.reset();
    for (round, said) in script().iter().enumerate() {
        client.write_all(said).expect("said");
        let first = if round == dies { steps } else { u64::MAX };
        if living(first, || serve(&mut link, &server)).is_none() {
            died = true;
            // All that is left is the memory and the socket. The next one dies as early, then one lives.
            link = Link::resume(memory);
            if living(steps, || serve(&mut link, &server)).is_none() {
                link = Link::resume(memory);
                serve(&mut link, &server);
            }
        }
        let mut piece = [0; 4096];
        while let Ok(n @ 1..) = client.read(&mut piece) {
            heard.extend_from_slice(&piece[..n]);
        }
    }
    (heard, died)
}

#[test]
fn wherever_a_worker_dies_each_message_is_answered_once() {
    let memory = Link::memory().expect("memory");
    let (undisturbed, _) = run(memory, usize::MAX, 0);
    assert_eq!(undisturbed.len(), 16 * 9, "an answer for each message");
    let mut deaths = 0;
    for dies in 0..script().len() {
        for steps in 0.. {
            let (heard, died) = run(memory, dies, steps);
            assert!(heard == undisturbed, "dead at step {steps} of round {dies}");
            if !died {
                break;
            }
            deaths += 1;
        }
    }
    // Each round is some calls and a commit; if steps were not counted, this would say so.
    assert!(deaths > 150, "{deaths}");
}

#[test]
fn answers_wait_for_a_client_that_does_not_read_and_stay_in_order_around_the_end() {
    let memory = Link::memory().expect("memory");
    let (mut client, server) = UnixStream::pair().expect("a pair");
    rustix::net::sockopt::set_socket_send_buffer_size(&server, 4096).expect("small");
    let mut link = Link::resume(memory);
    let (mut said, mut heard) = (0u32, 0u32);
    let mut blocked = 0;
    client.set_nonblocking(true).expect("non-blocking");
    while said < 60_000 {
        while said < 60_000 && link.reply(&said.to_ne_bytes()) {
            said += 1;
        }
        link.commit(&[], [0; NOTES], Held::Same);
        // Every now and then another worker goes on.
        if said.is_multiple_of(7) {
            link = Link::resume(memory);
        }
        while !link.flush(server.as_fd()).expect("open") {
            blocked += 1;
            let mut word = [0; 4];
            while let Ok(4) = client.read(&mut word) {
                assert_eq!(u32::from_ne_bytes(word), heard);
                heard += 1;
            }
        }
    }
    assert!(blocked > 10, "{blocked}");
}

#[test]
fn descriptors_that_came_are_there_until_the_arrival_is_committed() {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
    let memory = Link::memory().expect("memory");
    let (client, server) = UnixStream::pair().expect("a pair");
    let (read, write) = rustix::pipe::pipe().expect("a pipe");
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let both = [read.as_fd(), write.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&both)));
    let piece = [std::io::IoSlice::new(b"two")];
    rustix::net::sendmsg(&client, &piece, &mut control, SendFlags::empty()).expect("sent");
    let mut link = Link::resume(memory);
    assert_eq!(link.receive(server.as_fd()), Ok(Arrival::Data));
    let numbers = link.descriptors();
    assert_eq!(numbers.len(), 2);
    let link = Link::resume(memory);
    assert_eq!(
        (link.arrival(), link.descriptors()),
        (&b"two"[..], numbers.clone())
    );
    let mut link = link;
    link.commit(&[], [0; NOTES], Held::Same);
    assert!(link.descriptors().is_empty() && link.arrival().is_empty());
    for number in numbers {
        drop(crate::sys::take_over(number).expect("open"));
    }
    drop(client);
    assert_eq!(link.receive(server.as_fd()), Ok(Arrival::Closed));
}
