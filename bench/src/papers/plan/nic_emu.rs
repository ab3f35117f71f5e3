//! The figures of nic-emu.

use super::super::lan::{Lan, Load, Way};
use super::settings::ADAPTIVE;
use super::terms::{Experiment, Look, Setting, Stream, experiment, line, set};

pub fn nic_emu() -> Vec<Experiment> {
    let parties = [
        ADAPTIVE,
        set("QEMU's e1000", Lan::Qemu, Load::Stock, None),
        set("QEMU's virtio-net", Lan::Virtio, Load::Stock, None),
    ]
    .map(|setting| Setting {
        offloads: true,
        ..setting
    });
    let ways = [(Way::In, "to the guest"), (Way::Out, "from the guest")];
    let mut tcp = Vec::new();
    for (way, words) in ways {
        for party in parties {
            let mut line = line(party, 1, way, Stream::TcpW, "n6.1");
            line.label = format!("{}, {words}", line.label);
            tcp.push(line);
        }
    }
    let echo = |id: &'static str, title, pps| {
        let lines = parties.map(|party| line(party, 1, Way::In, Stream::Echo(pps), id));
        experiment(id, title, Look::Times, lines.to_vec())
    };
    vec![
        experiment(
            "n6.1",
            "TCP as iperf3 has it, with every offload",
            Look::Bars,
            tcp,
        ),
        echo("n6.2", "Round trips at 10 000 a second", 10_000),
        echo("n6.3", "Round trips at 100 000 a second", 100_000),
    ]
}
