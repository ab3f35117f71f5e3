//! A model with a bug costs its own guest the NIC, and no other guest anything.

use std::sync::Arc;

use drivers::SocketBus;
use drivers::e1000::poll::{Poll, PollConfig, TxFrame};
use frame::{Batch, Caps, Wake};
use hypernic::config::HostConfig;
use hypernic::host::Host;
use model::{Env, Nic, Receive};
use registry::{Function, MODELS, Model, Models, Settings};
use vfio_user::Client;

use crate::common::{count, until};

/// Its receive side panics at the first frame.
struct Bug;

impl Receive for Bug {
    fn deliver(&self, _: &Env, _: &Batch<'_>, _: &[u16]) -> usize {
        panic!("a bug, for the test");
    }
    fn caps(&self) -> Caps {
        Caps::NONE
    }
    fn want_room(&self, _: &Arc<dyn Wake>) {}
    fn poll(&self, _: &Env) {}
}

fn with_bug(settings: &Settings, function: &Function) -> Nic {
    Nic {
        receive: Arc::new(Bug),
        ..(MODELS.0[0].make)(settings, function)
    }
}

static BUGGY: Model = Model {
    name: "buggy",
    aliases: &[],
    make: with_bug,
    ..*MODELS.0[0]
};

#[test]
fn a_receiver_that_panics_takes_itself_off_and_not_its_sender() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name);
    let mut text = String::from("[[switch]]\nname = \"lan\"\n");
    for (name, model) in [("a", "e1000"), ("bad", "buggy"), ("b", "e1000")] {
        text += &format!(
            "[[nic]]\nname = \"{name}\"\nmodel = \"{model}\"\nsocket-path = {:?}\nport = \"switch:lan\"\n",
            path(name)
        );
    }
    let table = Models(Box::leak(Box::new([MODELS.0[0], &BUGGY])));
    let config = HostConfig::parse_with(table, "bug.toml".as_ref(), &text).expect("good");
    let host = Host::start(&config).expect("a host");
    let driver = |name| {
        let bus = SocketBus::connect(path(name)).expect("it is served");
        Poll::new(bus, &PollConfig::new()).expect("a driver")
    };
    let (mut a, mut b) = (driver("a"), driver("b"));
    let mut bad = Client::connect(path("bad")).expect("it is served");
    for round in 0..3 {
        let from = a.mac();
        let sent = a.send(1, |_, buffer| {
            let mut frame = [round; 60];
            frame[..6].fill(0xff);
            frame[6..12].copy_from_slice(&from);
            buffer.write(0, &frame);
            TxFrame::plain(60)
        });
        assert_eq!(sent.expect("sent"), 1);
        until("the broadcast, past the one that failed", || {
            let got = b.receive(8, |_| {}).expect("received");
            (got > 0).then_some(())
        });
    }
    // Its VMM learns of it by the end of the connection.
    until("the end of the one that failed", || bad.info().err());
    until("the mark of its counters", || {
        (count(&host, "nic", "bad", "failed") == 1).then_some(())
    });
    host.stop();
}
