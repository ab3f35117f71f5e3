//! One measurement: a stream for a while, and what it cost.

use std::time::Duration;

use serde_json::{Value, json};

use super::bed::{Bed, VCPU};
use super::lan::{Lan, Way};
use super::plan::{Job, Stream};
use crate::bed::Delta;
use crate::error::{Error, Result};
use crate::stats::Reading;

/// Payload of a small datagram: with all headers the smallest frame, 60 bytes without its checksum.
const SMALL: usize = 18;
const LARGE: usize = 1460;
/// Headers of a datagram's frame.
const HEADERS: usize = 42;
/// A write of `netperf`'s default.
const WRITE: usize = 16384;
/// Packets the guest's kernel is told to send, for each second of other streams.
const PER_SECOND: f64 = 60_000.0;
/// How often two networks take turns.
const TURNS: usize = 8;
/// What is still queued arrives in a moment.
const MOMENT: Duration = Duration::from_millis(100);

/// Runs a measurement once. `traced` has QEMU's own register accesses counted in a short run of their own.
///
/// # Errors
/// When a stream does not run or nothing came.
pub fn take(bed: &Bed, job: &Job, seconds: f64, traced: bool) -> Result<Reading> {
    let lan = job.setting.lan;
    let ((answer, hist), deltas) = bed.watch(lan, || match job.stream {
        Stream::Polls(_) => {
            let mut answer = Value::Null;
            let hist = bed.polls(lan, || {
                answer = stream(bed, job, seconds)?;
                Ok(())
            })?;
            Ok((answer, Some(hist)))
        }
        _ => stream(bed, job, seconds).map(|answer| (answer, None)),
    })?;
    let mut reading = judge(job, &answer, &deltas)?;
    if let Some(hist) = hist {
        let all: u64 = hist.values().sum();
        let part = |from: u64, to: u64| {
            let hits: u64 = hist.range(from..=to).map(|(_, n)| n).sum();
            hits as f64 / all.max(1) as f64 * 100.0
        };
        reading.value = part(1, 1);
        reading.raw["polls"] = json!({
            "0": part(0, 0), "1": part(1, 1), "2": part(2, 2), "3+": part(3, u64::MAX), "count": all,
        });
    }
    if traced && lan == Lan::Qemu && job.way == Way::Out {
        // Whether this QEMU has the trace is found out by asking for it.
        let short = seconds.min(0.4);
        let watched = bed.traced(|| bed.watch(lan, || stream(bed, job, short)));
        if let Ok(((_, deltas), reads, writes)) = watched {
            let frames = frames(&deltas).max(1) as f64;
            reading.raw["per"]["reads"] = json!(reads as f64 / frames);
            reading.raw["per"]["writes"] = json!(writes as f64 / frames);
        }
    }
    Ok(reading)
}

/// Has the packets sent.
fn stream(bed: &Bed, job: &Job, seconds: f64) -> Result<Value> {
    let lan = job.setting.lan;
    let to = match job.way {
        Way::Out => lan.host(),
        Way::In => lan.address(0),
        Way::Across => lan.address(1),
    };
    let time = format!("--to {to} --seconds {seconds}");
    let words = match job.stream {
        Stream::Small => format!("blast {time} --payload {SMALL}"),
        Stream::Large => format!("blast {time} --payload {LARGE}"),
        Stream::Tcp => format!("stream {time} --write {LARGE}"),
        Stream::TcpW => format!("stream {time} --write {WRITE}"),
        Stream::Rr => format!("rr {time}"),
        Stream::RrOver => return in_turns(bed, lan, seconds),
        Stream::Paced(pps) | Stream::Polls(pps) => {
            format!("blast {time} --payload {SMALL} --pps {pps}")
        }
        Stream::Echo(pps) => format!("echo {time} --pps {pps}"),
        Stream::Kernel => {
            let end = (job.way == Way::Across).then_some(1);
            let before = bed.received(end)?;
            let count = (PER_SECOND * seconds) as u64;
            let took = bed.kernel_sends(lan, job.way, count)?;
            std::thread::sleep(MOMENT);
            let received = bed.received(end)?.saturating_sub(before);
            return Ok(json!({"sent": count, "received": received, "seconds": took}));
        }
        Stream::Generated(pps) => {
            let before = bed.received(Some(0))?;
            let mut answer = bed.generate(lan, f64::from(pps), seconds)?;
            std::thread::sleep(MOMENT);
            answer["received"] = json!(bed.received(Some(0))?.saturating_sub(before));
            answer["sent"] = answer["tx_frames"].clone();
            answer["seconds"] = json!(seconds);
            return Ok(answer);
        }
    };
    match job.way {
        Way::In => bed.on_host(&words),
        Way::Out | Way::Across => bed.in_guest(0, &words),
    }
}

/// Requests and responses by a network and by `Lan::Tap` in turns, each first every other time: the median of how many
/// times the rate of the second the first had. What else the machine does falls on both alike.
fn in_turns(bed: &Bed, lan: Lan, seconds: f64) -> Result<Value> {
    let slice = (seconds / 2.0).min(0.4);
    let mut ratios = Vec::new();
    for turn in 0..TURNS {
        let mut rates = [0.0; 2];
        for place in [turn % 2, 1 - turn % 2] {
            let to = [lan, Lan::Tap][place].host();
            let answer = bed.in_guest(0, &format!("rr --to {to} --seconds {slice}"))?;
            let field = |name: &str| answer[name].as_f64().unwrap_or(0.0);
            rates[place] = field("transactions") / field("seconds").max(1e-9);
        }
        if rates[1] > 0.0 {
            ratios.push(rates[0] / rates[1]);
        }
    }
    let times = rig::paired::median(&ratios);
    let times = times.ok_or_else(|| Error::tool("rr", "no answer came back"))?;
    Ok(json!({"times": times, "each": ratios, "seconds": slice * TURNS as f64}))
}

/// Frames that crossed the network: what each guest sent, and what the first got if it is alone.
fn frames(deltas: &[Delta]) -> u64 {
    deltas.iter().map(|d| d.frames.0).sum()
}

/// Figures and counts for each packet.
fn judge(job: &Job, answer: &Value, deltas: &[Delta]) -> Result<Reading> {
    let field = |name: &str| {
        answer[name]
            .as_f64()
            .ok_or_else(|| Error::tool("sender", &answer.to_string()))
    };
    let seconds = field("seconds")?;
    let frames = match job.way {
        Way::Across => frames(deltas),
        Way::In | Way::Out => deltas.iter().take(1).map(Delta::total).sum(),
    };
    let size = match job.stream {
        Stream::Large => LARGE + HEADERS,
        _ => SMALL + HEADERS,
    };
    let mut raw = json!({"seconds": seconds, "frames": frames, "each": answer["each"]});
    let value = match job.stream {
        Stream::Small | Stream::Kernel | Stream::Large => {
            // What left the guest, which is not all that its program sent where a queue was full.
            let sent = deltas.first().map_or(0, |d| d.frames.0) as f64;
            let kpps = sent.min(field("sent")?) / seconds / 1e3;
            raw["received_kpps"] = json!(field("received")? / seconds / 1e3);
            raw["mbit"] = json!(kpps * size as f64 * 8.0 / 1e3);
            kpps
        }
        Stream::Paced(_) | Stream::Polls(_) | Stream::Generated(_) => {
            let kpps = field("received")? / seconds / 1e3;
            let sent = field("sent")? / seconds / 1e3;
            // A full receiver makes its sender on the switch wait: what it could not send was offered all the same.
            raw["offered_kpps"] = match job.stream {
                Stream::Generated(pps) => json!(f64::from(pps) / 1e3),
                _ => json!(sent),
            };
            raw["taken_kpps"] = json!(sent);
            raw["at_nic_kpps"] =
                json!(deltas.first().map_or(0, |d| d.frames.1) as f64 / seconds / 1e3);
            raw["mbit"] = json!(kpps * size as f64 * 8.0 / 1e3);
            kpps
        }
        Stream::Tcp | Stream::TcpW => {
            let mbit = field("bytes")? * 8.0 / seconds / 1e6;
            raw["mbit"] = json!(mbit);
            raw["kpps"] = json!(frames as f64 / seconds / 1e3);
            mbit
        }
        Stream::Rr => field("transactions")? / seconds / 1e3,
        Stream::RrOver => field("times")?,
        Stream::Echo(_) => {
            let times: Vec<f64> = answer["us"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_f64)
                .collect();
            let at = |p| rig::paired::percentile(&times, p);
            let middle = at(50.0).ok_or_else(|| Error::tool("echo", "no answer came back"))?;
            raw["p0"] = json!(at(0.0));
            raw["p99"] = json!(at(99.0));
            raw["answered"] = json!(field("answered")? / field("sent")?.max(1.0));
            raw["us"] = json!(times);
            middle
        }
    };
    if frames == 0 {
        return Err(Error::tool("guest", "its NIC counted no frame"));
    }
    if let Some(spent) = deltas.first().and_then(|d| d.cpu.get(VCPU)) {
        raw["vcpu_seconds"] = json!(spent);
    }
    raw["per"] = counts(job, deltas, frames as f64);
    raw["daemon"] = json!(
        deltas
            .iter()
            .flat_map(|d| &d.counters)
            .filter(|(_, n)| **n > 0)
            .collect::<std::collections::BTreeMap<_, _>>()
    );
    Ok(Reading { value, raw })
}

/// Counts for each frame; what is not counted is absent.
fn counts(job: &Job, deltas: &[Delta], frames: f64) -> Value {
    let interrupts: u64 = deltas.iter().map(|d| d.interrupts).sum();
    let mut per = json!({"interrupts": interrupts as f64 / frames});
    if !job.setting.lan.ours() {
        return per;
    }
    let Some(ours) = deltas.first() else {
        return per;
    };
    let each = |n: u64| json!(n as f64 / frames);
    per["reads"] = each(ours.counter("region_reads"));
    per["writes"] = each(ours.counter("region_writes"));
    // With a status block an RTL8168C counts its calls for buffers with those to send.
    let calls = ours.counter("tx_doorbells").max(ours.counter("csb_kicks"));
    let lan = job.setting.lan;
    per["notifications"] = each(match lan {
        // Of its registers, a driver that is up writes those alone.
        lan if lan.ours_pv() => ours.counter("kicks") + ours.counter("region_writes"),
        lan if lan.realtek() => calls,
        _ => ours.counter("tx_doorbells") + ours.counter("rx_doorbells"),
    });
    let raised = match lan.over_vhost_user() {
        true => "queue_calls",
        false => "irq_triggers",
    };
    per["raised"] = each(ours.counter(raised));
    per["messages"] = each(ours.counter("messages"));
    per["calls"] = each(ours.syscalls());
    per
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::lan::{Driver, Load, Setup};
    use super::super::plan::Setting;
    use super::*;

    fn job(way: Way, stream: Stream) -> Job {
        let setting = Setting {
            name: "itr=0",
            lan: Lan::Tap,
            driver: Driver {
                load: Load::Plain,
                rate: Some(0),
            },
            offloads: false,
            setup: Setup::Usual,
        };
        Job {
            vcpus: 1,
            driver: setting.driver,
            setting,
            way,
            stream,
        }
    }

    fn delta(frames: (u64, u64), counters: &[(&str, u64)]) -> Delta {
        Delta {
            frames,
            interrupts: 50,
            counters: counters
                .iter()
                .map(|(n, v)| ((*n).to_owned(), *v))
                .collect::<BTreeMap<_, _>>(),
            ..Delta::default()
        }
    }

    #[test]
    fn costs_are_for_each_frame_that_left() {
        let counters = [
            ("region_reads", 300),
            ("region_writes", 200),
            ("tx_doorbells", 100),
            ("messages", 550),
        ];
        let deltas = [delta((100, 0), &counters), delta((0, 0), &[])];
        let answer = json!({"sent": 120, "refused": 0, "received": 90, "seconds": 0.01});
        let reading = judge(&job(Way::Out, Stream::Small), &answer, &deltas).unwrap();
        assert!((reading.value - 10.0).abs() < 1e-9, "{reading:?}");
        assert!((reading.raw["mbit"].as_f64().unwrap() - 4.8).abs() < 1e-9);
        let per = |name: &str| reading.raw["per"][name].as_f64().unwrap();
        assert_eq!(
            (per("reads"), per("writes"), per("notifications")),
            (3.0, 2.0, 1.0)
        );
        assert_eq!((per("messages"), per("interrupts")), (5.5, 1.0));
    }

    #[test]
    fn a_receivers_rate_is_what_its_program_got() {
        let answer = json!({"sent": 1000, "received": 700, "seconds": 0.1});
        let job = job(Way::In, Stream::Paced(10_000));
        let reading = judge(&job, &answer, &[delta((0, 800), &[])]).unwrap();
        assert!((reading.value - 7.0).abs() < 1e-9);
        assert!((reading.raw["offered_kpps"].as_f64().unwrap() - 10.0).abs() < 1e-9);
    }

    #[test]
    fn what_a_generator_could_not_send_was_offered() {
        let answer = json!({"sent": 1000, "received": 700, "seconds": 0.1});
        let job = job(Way::In, Stream::Generated(50_000));
        let reading = judge(&job, &answer, &[delta((0, 800), &[])]).unwrap();
        assert!((reading.raw["offered_kpps"].as_f64().unwrap() - 50.0).abs() < 1e-9);
        assert!((reading.raw["taken_kpps"].as_f64().unwrap() - 10.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_is_not_a_figure() {
        let answer = json!({"sent": 10, "received": 0, "seconds": 0.1});
        assert!(
            judge(
                &job(Way::Out, Stream::Small),
                &answer,
                &[delta((0, 0), &[])]
            )
            .is_err()
        );
        assert!(judge(&job(Way::Out, Stream::Small), &json!({}), &[]).is_err());
    }
}
