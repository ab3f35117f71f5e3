//! Down and up, out and in again, while frames keep coming from both ends.

use std::time::{Duration, Instant};

use rig::Job;

use crate::patience::LONG;
use crate::peer;
use crate::wired::Wired;

/// How often the far end sends a frame while the driver is tortured.
pub const PAUSE: Duration = Duration::from_millis(1);

/// The guest's own traffic, which ends with [`stop`]: it keeps going whatever happens to the link.
fn talk(wired: &Wired) -> Job {
    wired
        .guest
        .spawn(&format!(
            "rm -f /tmp/stop; while [ ! -e /tmp/stop ]; do \
             ping -q -n -i 0.005 -c 200 -s 1000 {} >/dev/null 2>&1 || usleep 50000; done",
            peer::IP
        ))
        .expect("it lives on")
}

fn stop(wired: &Wired, job: &Job) {
    wired.guest.run("touch /tmp/stop").expect("it lives on");
    wired.guest.finish(job, 3 * LONG).expect("it lives on");
}

/// Takes the interface down and up, again and again, while frames keep coming from both ends; bytes go through unchanged
/// now and then, and in the end.
///
/// # Panics
/// When they do not, or the guest complains.
pub fn down_and_up(wired: &Wired, rounds: u32) {
    let interface = &wired.interface;
    let start = Instant::now();
    let job = talk(wired);
    let flood = wired.peer.flood(wired.target(None), 1500, PAUSE);
    for round in 1..=rounds {
        wired
            .guest
            .run(&format!(
                "ip link set {interface} down; ip link set {interface} up"
            ))
            .expect("it lives on");
        wired.settled().expect("it lives on");
        if round % 10 == 1 {
            wired
                .echo(peer::IP)
                .unwrap_or_else(|e| panic!("after {round} rounds: {e}"));
            println!("{round} rounds: {:.1} s", start.elapsed().as_secs_f64());
        }
    }
    drop(flood);
    stop(wired, &job);
    wired.echo(peer::IP).expect("it lives on");
    wired.assert_quiet();
}

/// The same with the driver, which is unloaded and loaded.
///
/// # Panics
/// As [`down_and_up`].
pub fn out_and_in(wired: &Wired, rounds: u32) {
    let start = Instant::now();
    let job = talk(wired);
    let flood = wired.peer.flood(wired.target(None), 1500, PAUSE);
    for round in 1..=rounds {
        wired
            .reload_driver("")
            .and_then(|()| wired.echo(peer::IP))
            .unwrap_or_else(|e| panic!("after {round} rounds: {e}"));
        println!("{round} rounds: {:.1} s", start.elapsed().as_secs_f64());
    }
    drop(flood);
    stop(wired, &job);
    wired.exchange(1500).expect("it lives on");
    wired.assert_quiet();
}
