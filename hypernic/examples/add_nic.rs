//! How long it takes to add a NIC to a daemon that has many, and to take it away, over the control socket:
//! `cargo run --release -p hypernic --example add_nic [NICS [TIMES]]`.
#![forbid(unsafe_code)]

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use control::{Client, NicAdd, NicConfig, NicRemove};
use hypernic::config::HostConfig;
use hypernic::control::Server;
use hypernic::fds;
use hypernic::host::Host;
use parking_lot::RwLock;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let mut number = |usual: usize| match words.next() {
        Some(word) => word.parse(),
        None => Ok(usual),
    };
    let (nics, times) = (number(1000)?, number(1000)?);
    fds::raise_limit();
    let dir = tempfile::tempdir()?;
    let control = dir.path().join("control.sock");
    let mut text = format!("control = {control:?}\n[[switch]]\nname = \"lan\"\n");
    for n in 0..nics {
        let socket = dir.path().join(n.to_string());
        text +=
            &format!("[[nic]]\nname = \"n{n}\"\nsocket-path = {socket:?}\nport = \"switch:lan\"\n");
    }
    let config = HostConfig::parse("host.toml".as_ref(), &text)?;
    let host = Arc::new(RwLock::new(Host::start(&config)?));
    let server = Server::start(&control, Arc::clone(&host))?;
    let mut client = Client::connect(&control)?;
    let (mut added, mut removed) = (Vec::new(), Vec::new());
    for _ in 0..times {
        let nic = NicConfig {
            name: "new".into(),
            port: "switch:lan".into(),
            socket_path: Some(dir.path().join("new").to_string_lossy().into()),
            ..NicConfig::default()
        };
        let start = Instant::now();
        client.call(&NicAdd {
            nic,
            ..NicAdd::default()
        })?;
        added.push(start.elapsed());
        let start = Instant::now();
        client.call(&NicRemove {
            name: "new".into(),
            ..NicRemove::default()
        })?;
        removed.push(start.elapsed());
    }
    println!("{nics} NICs there, {times} times:");
    show("add", added);
    show("remove", removed);
    drop(client);
    server.stop();
    Ok(())
}

fn show(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |part: usize| {
        times
            .get(times.len() * part / 1000)
            .copied()
            .unwrap_or_default()
    };
    println!(
        "{what:<8} median {:?}, p99 {:?}, longest {:?}",
        at(500),
        at(990),
        at(999)
    );
}
