//! The page: what to choose, who keeps up with whom, and every figure with its spread.

use serde_json::{Value, json};

use super::bed::Bed;
use super::party::{PARTIES, Party, index};
use super::scene::{Found, Scene};
use crate::error::Result;
use crate::page::Page;
use crate::plot::{self, Bar, Whose};
use crate::stats::{Column, figure};

/// What one of ours has to reach beside another: scenes, ours, the other, the ratio.
const TARGETS: [(&[&str], &str, &str, f64); 10] = [
    (&["rtt"], "82540em", "qemu-e1000", 1.3),
    (&["rtt"], "82576", "qemu-igb", 1.1),
    (&["rtt"], "82576-pages", "qemu-igb", 1.1),
    (STREAMS, "82576", "qemu-igb", 1.0),
    (STREAMS, "82576-pages", "qemu-igb", 1.0),
    (STREAMS, "82576", "qemu-virtio-rx1500", 0.8),
    (&["rtt"], "virtio-vfio", "qemu-virtio", 1.1),
    (&["rtt"], "virtio-vhost", "qemu-virtio", 1.1),
    (STREAMS, "virtio-vfio", "qemu-virtio", 1.0),
    (STREAMS, "virtio-vhost", "qemu-virtio", 1.0),
];
const STREAMS: &[&str] = &["tx1500", "rx1500", "tx9000", "rx9000"];

pub(super) fn begin() -> Page {
    Page::new("which_nic", "Which NIC to choose")
}

/// The median of something in the raw data of a column.
fn raw(column: &Column, key: &str) -> f64 {
    let values = column.readings().filter_map(|r| r.raw[key].as_f64());
    rig::paired::median(&values.collect::<Vec<_>>()).unwrap_or(f64::NAN)
}

fn column<'a>(found: &'a [Found], scene: &str, at: usize) -> Option<&'a Column> {
    let found = found.iter().find(|found| found.scene.id == scene)?;
    found.columns.get(at)
}

pub(super) fn fill(page: &mut Page, bed: &Bed, found: &[Found], rounds: usize) -> Result<()> {
    let kernel = bed.guest.run("uname -r")?;
    let accel = bed.rig.accel()?.to_string();
    page.environment("qemu", bed.rig.qemu().version());
    page.environment("accelerator", accel.clone());
    page.environment("guest_kernel", bed.guest.run("uname -rv")?.trim());
    let there = (0..PARTIES.len()).filter(|at| bed.absent(*at).is_none());
    page.text(&format!(
        "One guest (Linux {}, under {accel}, {}) with all {} NICs, each with a TAP of its own in one namespace; a run touches one \
         of them. Medians of {} rounds, the order of NICs turned round each time. Where the guest's processor is emulated, as \
         under tcg, what its driver does weighs more than on hardware.",
        kernel.trim(),
        bed.rig.qemu().version(),
        there.count(),
        rounds
    ));
    missing(page, bed);
    summary(page, found);
    let slow: Vec<String> = (0..PARTIES.len())
        .filter(|at| bed.absent(*at).is_none())
        .filter(|at| bed.mtu_of(*at) > 1500 && bed.mtu_of(*at) < 9000)
        .map(|at| format!("{}: {}", PARTIES[at].title, bed.mtu_of(at)))
        .collect();
    if !slow.is_empty() {
        page.text(&format!(
            "Drivers that take no MTU of 9000 run with the largest they take: {}.",
            slow.join(", ")
        ));
    }
    targets(page, found);
    for found in found {
        each(page, found);
    }
    let data: Vec<Value> = found
        .iter()
        .map(|found| {
            let columns: Vec<Value> = found.columns.iter().map(Column::json).collect();
            json!({"scene": found.scene.id, "unit": found.scene.unit, "columns": columns})
        })
        .collect();
    page.data("scenes", data);
    Ok(())
}

/// What is not here, and what is another way.
fn missing(page: &mut Page, bed: &Bed) {
    let mut list: Vec<String> = PARTIES
        .iter()
        .enumerate()
        .filter_map(|(at, party)| Some(format!("{}: not here, {}", party.title, bed.absent(at)?)))
        .collect();
    if index("qemu-passt").is_some_and(|at| bed.absent(at).is_none()) {
        list.push(
            "passt has no TAP: it ends the guest's connections and begins others from sockets of the host. Frames that come for the              guest are not measured with it, for it hands on ports and not addresses."
                .to_owned(),
        );
    }
    page.list(&list);
}

fn summary(page: &mut Page, found: &[Found]) {
    let heads = found.iter().map(|found| match found.scene.id {
        "rtt" => "RTT µs",
        "tx1500" => "sends",
        "rx1500" => "receives",
        "small_tx" => "60 B sent",
        "small_rx" => "60 B received",
        "tx9000" => "sends, 9000",
        _ => "receives, 9000",
    });
    let mut head = vec!["NIC"];
    head.extend(heads);
    head.extend(["CPU s/Gbit sent", "received"]);
    let rows: Vec<Vec<String>> = PARTIES
        .iter()
        .enumerate()
        .map(|(at, party)| {
            let mut row = vec![party.title.to_owned()];
            row.extend(found.iter().map(|found| figure(found.columns[at].median())));
            row.extend(["tx1500", "rx1500"].map(|scene| {
                let cpu = column(found, scene, at).map(|column| raw(column, "cpu_s_per_gbit"));
                figure(cpu.unwrap_or(f64::NAN))
            }));
            row
        })
        .collect();
    page.heading("All figures");
    page.text(
        "TCP in Gbit/s of payload (one stream of iperf3), small frames in thousands a second, processor seconds of QEMU and daemon for \
         each Gbit at MTU 1500.",
    );
    page.table(&head, &rows);
}

fn targets(page: &mut Page, found: &[Found]) {
    let mut rows = Vec::new();
    for (scenes, ours, other, bound) in TARGETS {
        for scene in scenes {
            let at = |id| index(id).and_then(|at| column(found, scene, at));
            let Some(ratio) = at(ours).zip(at(other)).and_then(|(a, b)| a.over(b)) else {
                continue;
            };
            let less = found.iter().any(|f| f.scene.id == *scene && f.scene.less);
            let (met, word) = if less {
                (ratio.median <= bound, "at most")
            } else {
                (ratio.median >= bound, "at least")
            };
            rows.push(vec![
                (*scene).to_owned(),
                format!("{ours} / {other}"),
                ratio.words(),
                format!("{word} {bound}"),
                if met { "met" } else { "missed" }.to_owned(),
            ]);
        }
    }
    page.heading("Targets");
    page.table(&["", "ratio of", "found", "target", ""], &rows);
}

fn each(page: &mut Page, found: &Found) {
    let Scene {
        id, title, unit, ..
    } = found.scene;
    page.heading(title);
    let rows: Vec<Vec<String>> = PARTIES
        .iter()
        .zip(&found.columns)
        .map(|(party, column)| {
            let like = party.like.and_then(index).map(|at| &found.columns[at]);
            let ratio = like.map_or("–".to_owned(), |like| column.ratio_words(like));
            vec![party.title.to_owned(), column.words(), ratio]
        })
        .collect();
    page.table(&["NIC", unit, "of QEMU's like it"], &rows);
    let bars = PARTIES
        .iter()
        .zip(&found.columns)
        .filter_map(|(party, column)| {
            let found = column.summary()?;
            Some(Bar {
                name: plain(party),
                whose: Whose::ours(party.is_ours()),
                median: found.median,
                spread: (found.min, found.max),
            })
        });
    page.plot(plot::bars(id, title, unit, bars.collect()));
}

fn plain(party: &Party) -> String {
    party.title.replace('`', "")
}
