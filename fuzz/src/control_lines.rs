//! The control socket: what a client may write, and what it is answered.

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use control::{
    Fate, MAX_REPLY, MAX_REQUEST, Reply, Request, Storm, Vf, VfChange, hear, parse, read_line,
    write_line,
};

use crate::input::Input;

/// Nothing here takes so long: all is written before it is read.
const PATIENCE: Duration = Duration::from_secs(20);

/// One connection. The first byte says what follows the text: the end of the line, another line,
/// nothing; the second how much space is before it, so that the line comes in several pieces or is
/// too long.
///
/// A whole line of the right length has one answer, of one line, which says what was meant; anything
/// else has none. What is behind the line changes nothing. What was understood is written as it
/// was understood, and the daemon makes changes of it or says why not.
pub fn control_lines(data: &[u8]) {
    let mut input = Input::new(data);
    let (shape, space) = (input.u8(), input.u8());
    let text = input.rest();
    // Out of descriptors is not what is tested here.
    let Ok((mut server, mut client)) = UnixStream::pair() else {
        return;
    };
    let mut sent = vec![b' '; padding(space, text.len())];
    sent.extend_from_slice(text);
    match shape & 7 {
        0 => {}
        1 => sent.extend_from_slice(b"\n{\"do\":\"vf-show\",\"nic\":null}\n"),
        _ => sent.push(b'\n'),
    }
    // The socket holds all of it.
    if client.set_nonblocking(true).is_err() || client.write_all(&sent).is_err() {
        return;
    }
    let _ = client.set_nonblocking(false);
    let _ = client.shutdown(Shutdown::Write);
    let mut asked = None;
    let heard = hear(&mut server, PATIENCE, |request| {
        asked = Some(request.clone());
        carry_out(request)
    });
    let line = sent.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let whole = sent.contains(&b'\n') && line.len() <= MAX_REQUEST;
    assert_eq!(heard.is_ok(), whole, "{} bytes", line.len());
    let Ok((reply, fate)) = heard else {
        return assert!(asked.is_none(), "carried out without a line");
    };
    write_line(&mut server, &reply, PATIENCE).expect("the client reads");
    drop(server);
    let answer = read_line(&mut client, MAX_REPLY, PATIENCE).expect("an answer");
    assert!(answer.iter().all(|byte| *byte >= b' '), "more than a line");
    assert_eq!(parse::<Reply>(&answer).as_ref(), Ok(&reply));
    let more = read_line(&mut client, MAX_REPLY, PATIENCE);
    assert!(more.is_err(), "more than one answer");
    match &reply {
        Reply::Refused { message } => assert!(!message.is_empty(), "no reason"),
        _ => assert_eq!(fate, Fate::Done),
    }
    assert_eq!(asked.is_none(), fate == Fate::Malformed);
    assert_eq!(asked, parse(line).ok(), "another request");
    if let Some(request) = asked {
        let said = serde_json(&request);
        assert_eq!(parse(&said), Ok(request), "said and understood");
    }
}

/// Bytes of space before `len` bytes of text, often those that make the line as long as it may be.
fn padding(space: u8, len: usize) -> usize {
    match space {
        0..192 => 0,
        192..224 => (4096 - 16 + usize::from(space & 31)).saturating_sub(len),
        _ => (MAX_REQUEST - 16 + usize::from(space & 31)).saturating_sub(len),
    }
}

/// A value as it goes over the socket.
fn serde_json(request: &Request) -> Vec<u8> {
    let (mut to, mut from) = UnixStream::pair().expect("a pair");
    write_line(&mut to, request, PATIENCE).expect("it fits");
    read_line(&mut from, MAX_REPLY, PATIENCE).expect("a line")
}

/// A daemon that has every function that is asked for.
fn carry_out(request: &Request) -> Reply {
    match request {
        Request::VfSet { change, .. } => match hypernic::control::changes(change) {
            Ok(changes) => {
                assert!(!changes.is_empty() && changes.len() <= 9);
                Reply::Done {}
            }
            Err(message) => Reply::Refused { message },
        },
        Request::VfRevive { nic } => Reply::Refused {
            message: format!("there is no virtual function \"{nic}\""),
        },
        Request::VfLeave { .. } | Request::VfReset { .. } => Reply::Done {},
        Request::VfShow { nic } => Reply::Vfs(vec![Vf {
            nic: nic.clone().unwrap_or_default(),
            chip: "p0".into(),
            index: 3,
            policy: VfChange {
                mac: nic.clone(),
                storm: Some(Storm::default()),
                ..VfChange::default()
            },
            address: String::new(),
            ready: true,
            down: nic.clone(),
            refused: Vec::new(),
        }]),
    }
}
