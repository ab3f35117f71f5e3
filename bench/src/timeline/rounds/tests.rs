use super::super::stamps;
use super::*;

const STAMPS: &str = "\
10 port_n0 port 0
13 port_n0 arrives 1
14 port_n0 interrupt 0
15 port_n0 signalled 0
16 port_n0 arrived 1
18 worker-0 woken 0
19 worker-0 turn 0
20 worker-0 read 192
21 worker-0 answered 0
30 worker-0 turn 0
31 worker-0 write 14360
32 worker-0 answered 0
33 worker-0 leaves 1
36 worker-0 left 1
37 worker-0 port 0
60 worker-0 turn 0
61 worker-0 write 208
";

fn around<R>(work: impl FnOnce(&Around<'_>) -> R) -> R {
    let perf = " 0.000000017: sched:sched_waking: comm=worker-0 pid=5 prio=120 target_cpu=000\n \
                0.000000018: sched:sched_switch: prev_comm=a prev_pid=3 x ==> next_comm=worker-0 next_pid=5 next_prio=1\n \
                0.000000022: sched:sched_waking: comm=CPU 0/TCG pid=9 prio=120 target_cpu=000\n \
                0.000000025: sched:sched_switch: prev_comm=a prev_pid=3 x ==> next_comm=CPU next_pid=9 next_prio=1\n";
    let wakes = Wakes::read(perf);
    let threads = Threads {
        daemon: [("worker-0".to_owned(), 5)].into(),
        vmm: vec![9],
    };
    work(&Around {
        wakes: &wakes,
        threads: &threads,
        name: &|place| format!("R{place}"),
    })
}

#[test]
fn a_round_trip_of_the_host_is_cut_into_steps_with_their_owners() {
    let (stamps, _) = stamps::read(STAMPS);
    let rounds = around(|around| around.of_host(&[(5, 40)], &stamps));
    let steps: Vec<_> = rounds[0]
        .iter()
        .map(|p| (p.what.as_str(), p.whose, p.took, p.wake, p.slept, p.vmm))
        .collect();
    use Whose::{Guest, Host, Port, PortWake, Worker};
    assert_eq!(
        steps,
        [
            ("looks at the TAP", PortWake, 5, 5, true, 0),
            ("frame read", Port, 3, 0, false, 0),
            ("frame in guest memory", Port, 1, 0, false, 0),
            ("interrupt's eventfd written", Port, 1, 0, false, 0),
            ("message noticed", Guest, 4, 2, true, 0),
            ("R192 read", Worker, 1, 0, false, 0),
            ("answered", Worker, 1, 0, false, 0),
            ("message noticed", Guest, 9, 0, false, 3),
            ("R14360 written", Worker, 1, 0, false, 0),
            ("answered", Worker, 1, 0, false, 0),
            ("frame ready for the TAP", Worker, 1, 0, false, 0),
            ("answer at the program", Host, 7, 0, false, 0),
        ]
    );
    let all: u64 = rounds[0].iter().map(|p| p.took).sum();
    assert_eq!(all, 35, "nothing is left out");
    let shares = shares(&rounds);
    assert_eq!((shares.all[0], shares.messages[0]), (0.035, 2.0));
    assert_eq!(shares.of[&Whose::WorkerWake], [0.002]);
    assert_eq!(shares.of[&Whose::Guest], [0.011]);
    assert_eq!(shares.vmm, [0.003]);
    assert!((shares.ours[0] - 0.017).abs() < 1e-9);
}

#[test]
fn round_trips_of_the_guest_are_told_apart_by_silence() {
    let later = |by: u64| -> String {
        let one = "1 worker-0 turn 0\n2 worker-0 write 14360\n3 worker-0 answered 0\n4 worker-0 leaves 1\n\
                   9 worker-0 left 1\n9 worker-0 interrupt 1\n10 worker-0 port 0\n11 worker-0 arrives 1\n\
                   12 worker-0 interrupt 0\n";
        let shift = |line: &str| {
            let (at, rest) = line.split_once(' ').unwrap();
            format!("{} {rest}\n", at.parse::<u64>().unwrap() + by)
        };
        one.lines().map(shift).collect()
    };
    // One more is only the driver's own doing.
    let text = later(0) + &later(5000) + "9000 worker-0 turn 0\n9001 worker-0 read 8\n";
    let (stamps, _) = stamps::read(&text);
    let rounds = around(|around| around.of_guest(&stamps, 1000));
    assert_eq!(rounds.len(), 2);
    assert_eq!(rounds[0], rounds[1]);
    assert_eq!(rounds[0].iter().map(|p| p.took).sum::<u64>(), 11);
    assert_eq!(rounds[0][3].whose, Whose::Host, "within the write");
    let of_interrupts = [4, 7].map(|at| rounds[0][at].what.as_str());
    assert_eq!(of_interrupts, ["interrupt raised", "frame in guest memory"]);
}

#[test]
fn what_is_typical_is_what_most_have() {
    let passed = |what: &str, took| Passed {
        what: what.to_owned(),
        whose: Whose::Worker,
        took,
        wake: 0,
        slept: took > 2000,
        vmm: 0,
    };
    let rounds = vec![
        vec![passed("a", 1000), passed("b", 1000)],
        vec![passed("a", 9000)],
        vec![passed("a", 3000), passed("b", 5000)],
    ];
    let (steps, count) = typical(&rounds);
    assert_eq!((steps.len(), count), (2, 2));
    assert_eq!((steps[0].took.median, steps[0].slept), (2.0, 0.5));
    assert_eq!((steps[1].took.min, steps[1].took.max), (1.0, 5.0));
    assert!(typical(&[]).0.is_empty());
}
