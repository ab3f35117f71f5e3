//! What a model holds must not grow with what a guest shows it. In a process of its own,
//! because it looks at the whole process.

use std::process::Command;

use drivers::ModelBus;

/// What this process holds, in pages.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let field = statm.split_whitespace().nth(1).expect("resident");
    field.parse().expect("a number")
}

/// Whether this process has only the test `name` to run. If not, a process that has only that runs it here and now.
fn alone(name: &str) -> bool {
    const ALONE: &str = "HYPERNIC_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let out = Command::new(std::env::current_exe().expect("our own path"))
        .args([name, "--exact", "--test-threads=1"])
        .env(ALONE, "1")
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&out.stderr)
    );
    false
}

#[test]
fn neither_ever_new_buffers_nor_a_large_ring_cost_memory() {
    if !alone("memory::neither_ever_new_buffers_nor_a_large_ring_cost_memory") {
        return;
    }
    let (_, villain) = villain::guests()
        .find(|(v, _)| v.id == "ever_new_buffers")
        .expect("listed");
    let (mut bus, recorder) =
        ModelBus::recorded(e1000::new(e1000::Config::new([2, 0, 0, 0, 0, 1])));
    let mut run = || {
        villain(&mut bus).expect("bus");
        recorder.take();
        resident()
    };
    run();
    let before = run();
    for _ in 0..5 {
        run();
    }
    // 80,000 more buffers: an entry of 64 bytes for each would be 5 MiB.
    assert!(run() < before + 1024, "memory grows with every new buffer");

    // A ring of 65,528 descriptors: what is noted of each must not be kept.
    let (_, largest) = villain::guests()
        .find(|(v, _)| v.id == "largest_ring_each_bell")
        .expect("listed");
    let before = resident();
    largest(&mut bus).expect("bus");
    assert!(resident() < before + 512, "a large ring leaves its notes");
}
