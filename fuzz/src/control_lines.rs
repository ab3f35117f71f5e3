//! The control socket: what a client may write, and what it is answered.

use control::{Call, MAX_REQUEST, Messages, Request, refusal};
use hypernic::config::HostConfig;

use crate::input::Input;

/// A host beside which things are added.
const HOST: &str = "control = \"/run/c\"\n[[switch]]\nname = \"lan\"\nports = [\"null\"]\n[[nic]]\nname = \"n0\"\n\
    socket-path = \"/run/n0\"\nport = \"switch:lan\"\n";

/// One connection. The first byte says in what pieces the text comes, the second how much space is before it, so that
/// the first message is as long as it may be, or longer.
///
/// What is between two zeros is one message, however it comes; one that is too long ends the connection. A message is
/// a call or has a named error. A call means the same when it is written again. What it asks for can be, and is then
/// told in words that make the same again, or is refused in one line.
pub fn control_lines(data: &[u8]) {
    let mut input = Input::new(data);
    let (pieces, space) = (input.u8(), input.u8());
    let text = input.rest();
    let mut sent = vec![b' '; padding(space, text.len())];
    sent.extend_from_slice(text);
    sent.push(0);
    let mut wanted = sent.split(|byte| *byte == 0);
    let mut messages = Messages::new(MAX_REQUEST);
    for part in sent.chunks(1 + usize::from(pieces) * 17) {
        messages.push(part);
        loop {
            match messages.pop() {
                Ok(Some(message)) => {
                    assert_eq!(Some(&message[..]), wanted.next(), "another message");
                    one(&message);
                }
                Ok(None) => break,
                Err(_) => {
                    let next = wanted.next().unwrap_or_default();
                    return assert!(next.len() > MAX_REQUEST, "{} bytes", next.len());
                }
            }
        }
    }
    assert!(
        messages.is_empty() && wanted.next() == Some(&[]),
        "a message is missing"
    );
}

/// Bytes of space before `len` bytes of text, often those that make the message as long as it may be.
fn padding(space: u8, len: usize) -> usize {
    match space {
        0..192 => 0,
        192..224 => (4096 - 16 + usize::from(space & 31)).saturating_sub(len),
        _ => (MAX_REQUEST - 16 + usize::from(space & 31)).saturating_sub(len),
    }
}

fn one(message: &[u8]) {
    let call = Request::parse(message);
    let call = call.and_then(|request| Call::parse(&request.method, request.parameters));
    let call = match call {
        Ok(call) => call,
        Err(failure) => {
            let told = refusal(failure.clone());
            assert_eq!(
                told.iter().position(|byte| *byte == 0),
                Some(told.len() - 1)
            );
            return assert!(failure.is_malformed());
        }
    };
    let written = call.to_request().to_message();
    let again = Request::parse(&written[..written.len() - 1]).expect("a call");
    let again = Call::parse(&again.method, again.parameters);
    assert_eq!(again.as_ref(), Ok(&call), "said and understood");
    carry_out(&call);
}

/// A daemon that has one NIC and one switch, and makes nothing.
fn carry_out(call: &Call) {
    let host = HostConfig::parse("h.toml".as_ref(), HOST).expect("good");
    let refused = match call {
        Call::VfSet(call) => match hypernic::control::changes(&call.change) {
            Ok(changes) => {
                assert!(!changes.is_empty() && changes.len() <= 9);
                return;
            }
            Err(message) => message,
        },
        Call::NicAdd(call) => match host.clone().nic_beside(&call.nic) {
            Ok(nic) => return assert_eq!(host.nic_beside(&nic.words()), Ok(nic)),
            Err(message) => message,
        },
        Call::ChipAdd(call) => match host.chip_beside(&call.chip) {
            Ok(with) => {
                let words = with.chip_words(&call.chip.name).expect("it can be told");
                let again = host.chip_beside(&words).expect("and made again");
                return assert_eq!(again.chip_words(&call.chip.name), Some(words));
            }
            Err(message) => message,
        },
        Call::SwitchAdd(call) => match host.switch_beside(&call.switch) {
            Ok(switch) => return assert_eq!(host.switch_beside(&switch.words()), Ok(switch)),
            Err(message) => message,
        },
        Call::PortAdd(call) => match host.port_beside(&call.switch, &call.port) {
            Ok(Some(port)) => {
                let again = host.port_beside(&call.switch, &port.to_string());
                return assert_eq!(again, Ok(Some(port)));
            }
            Ok(None) => return assert_ne!(call.switch, "lan"),
            Err(message) => message,
        },
        _ => return,
    };
    assert!(!refused.is_empty(), "no reason");
}
