//! Down and up, out and in again, while frames keep coming from both ends.

use std::time::{Duration, Instant};

use hypernic_tests::{Wired, guests, peer};
use rig::Job;

/// How often the far end sends a frame while the driver is tortured.
const PAUSE: Duration = Duration::from_millis(1);

/// The guest's own traffic, which ends with [`stop`]: it keeps going whatever happens to the link.
fn talk(wired: &Wired) -> Job {
    wired
        .guest
        .spawn(&format!(
            "rm -f /tmp/stop; while [ ! -e /tmp/stop ]; do \
             ping -q -n -i 0.005 -c 200 -s 1000 {} >/dev/null 2>&1 || usleep 50000; done",
            peer::IP
        ))
        .unwrap()
}

fn stop(wired: &Wired, job: &Job) {
    wired.guest.run("touch /tmp/stop").unwrap();
    wired.guest.finish(job, 3 * hypernic_tests::LONG).unwrap();
}

fn down_and_up(wired: &Wired, rounds: u32) {
    let interface = &wired.interface;
    let start = Instant::now();
    let job = talk(wired);
    let flood = wired.peer.flood(wired.target(None), 1500, PAUSE);
    for round in 1..=rounds {
        // What has an address of the other family loses it with the link.
        wired
            .guest
            .run(&format!(
                "ip link set {interface} down; ip link set {interface} up"
            ))
            .unwrap();
        wired.settled().unwrap();
        if round % 10 == 1 {
            wired
                .echo(peer::IP)
                .unwrap_or_else(|e| panic!("after {round} rounds: {e}"));
            println!("{round} rounds: {:.1} s", start.elapsed().as_secs_f64());
        }
    }
    drop(flood);
    stop(wired, &job);
    wired.echo(peer::IP).unwrap();
    wired.assert_quiet();
}

fn out_and_in(wired: &Wired, rounds: u32) {
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
    wired.exchange(1500).unwrap();
    wired.assert_quiet();
}

/// Nothing was lost track of on the way.
fn nothing_leaked(wired: &Wired) {
    let counters = wired.daemon.counters().unwrap();
    for counter in ["rx_bad_ring", "tx_bad_ring", "rx_dma_fault", "tx_dma_fault"] {
        assert_eq!(counters.nic("n0", counter), 0, "{counter}\n{counters}");
    }
    let irqs = wired
        .guest
        .run("grep -c eth /proc/interrupts || true")
        .unwrap();
    assert_eq!(irqs.trim(), "1", "one interrupt handler");
    assert_eq!(
        guests::complaints(&wired.guest).unwrap(),
        Vec::<String>::new()
    );
}

#[test]
fn down_and_up_and_driver_reloads_under_traffic() {
    let wired = Wired::new("torture").unwrap();
    down_and_up(&wired, 5);
    out_and_in(&wired, 2);
    nothing_leaked(&wired);
}

#[test]
#[ignore = "long: make test-long"]
fn long_down_and_up_a_hundred_times_under_traffic() {
    let wired = Wired::new("hundred").unwrap();
    down_and_up(&wired, 100);
    nothing_leaked(&wired);
}

#[test]
#[ignore = "long: make test-long"]
fn long_the_driver_out_and_in_twenty_times_under_traffic() {
    let wired = Wired::new("twenty").unwrap();
    out_and_in(&wired, 20);
    nothing_leaked(&wired);
}
