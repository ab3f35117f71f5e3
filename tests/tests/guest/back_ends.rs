//! The port `vhost-user:` before the back ends of others: DPDK's, Open vSwitch's and passt. A test sends through one port
//! and receives from another what crossed the back end, every byte of it. Rates are printed, never asserted.

mod dpdk;
mod ovs;
mod passt;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use frame::{Batch, Caps, Counted, Finisher, Sink, Wake};
use port::{InletThread, counter};
use port_vhost_user::{Endpoint, VhostUserConfig, open};
use wire::{Csum, Gso, Offload};

/// Frames under way at once: no ring runs over.
const WINDOW: usize = 256;
/// And offered at once.
const BURST: usize = 32;
/// What has not come by then is lost.
const PATIENCE: Duration = Duration::from_secs(15);
/// For what takes a while on a machine that does other things, too.
const LONG: Duration = Duration::from_secs(60);

/// Keeps what comes.
#[derive(Default)]
struct Got(Mutex<Vec<(Vec<u8>, Offload)>>);

impl Sink for Got {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let frames = picks.iter().filter_map(|pick| batch.get((*pick).into()));
        let frames = frames.map(|frame| (frame.to_vec(), *frame.notes()));
        self.0.lock().unwrap().extend(frames);
        picks.len()
    }

    fn caps(&self) -> Caps {
        Caps::ALL
    }

    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

/// A port, and the thread of what comes.
struct End {
    sink: Arc<dyn Sink>,
    counters: Arc<dyn Counted>,
    got: Arc<Got>,
    _thread: InletThread,
}

/// How a back end is reached, and with what.
#[derive(Debug, Clone, Copy)]
struct Way {
    /// The port listens.
    listens: bool,
    packed: bool,
    pairs: usize,
}

impl End {
    fn open(path: PathBuf, way: Way) -> Self {
        let endpoint = if way.listens {
            Endpoint::Listen(path)
        } else {
            Endpoint::Connect(path)
        };
        let mut port = open(VhostUserConfig {
            pairs: way.pairs,
            packed: way.packed,
            retry_max: Duration::from_millis(200),
            ..VhostUserConfig::new(endpoint)
        })
        .unwrap();
        let got = Arc::new(Got::default());
        let inlet = port.inlet.take().unwrap();
        let name = port.name.clone();
        let on_event = move |event| println!("{name}: {event:?}");
        let to = Arc::clone(&got);
        let thread = InletThread::spawn("port", inlet, to, on_event).unwrap();
        Self {
            sink: port.sink,
            counters: port.counters,
            got,
            _thread: thread,
        }
    }

    fn count(&self, name: &str) -> u64 {
        counter(&*self.counters, name).unwrap()
    }

    fn take(&self) -> Vec<(Vec<u8>, Offload)> {
        std::mem::take(&mut self.got.0.lock().unwrap())
    }

    /// Sends some of these frames; returns how many.
    fn send(&self, frames: &[(Vec<u8>, Offload)]) -> usize {
        let mut batch = Batch::new();
        for (bytes, notes) in frames.iter().take(BURST) {
            batch.push_bytes(bytes);
            batch.end(*notes);
        }
        let mut room = Vec::new();
        self.sink.deliver(&batch, batch.all_picks(&mut room))
    }

    fn meets(&self, times: u64) {
        let end = Instant::now() + LONG;
        while self.count("vhost_connects") < times {
            assert!(Instant::now() < end, "no back end came\n{}", self.shown());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn shown(&self) -> String {
        let mut text = String::new();
        self.counters.counters(&mut |name, value| {
            if value > 0 {
                text += &format!("{name} {value}, ");
            }
        });
        text
    }

    /// Nothing that the back end did was wrong.
    fn is_content(&self) {
        for name in [
            "vhost_broken_ring",
            "vhost_bad_header",
            "vhost_runt",
            "vhost_cannot_take",
            "vhost_too_long",
        ] {
            assert_eq!(self.count(name), 0, "{name}\n{}", self.shown());
        }
    }
}

/// The one's complement sum of words.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|two| {
        let low = two.get(1).copied().unwrap_or(0);
        u32::from(u16::from_be_bytes([two[0], low]))
    });
    let all = words.fold(0_u64, |all, word| all + u64::from(word));
    let folded = (all & 0xffff) + (all >> 16);
    ((folded & 0xffff) + (folded >> 16)) as u16
}

/// A frame of a flow: IPv4, UDP or TCP, with a payload that follows from flow and number.
fn frame(flow: u8, number: u32, payload: usize, tcp: bool) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let header = if tcp { 20 } else { 8 };
    let len = (20 + header + payload) as u16;
    let mut ip = vec![0x45, 0];
    ip.extend(len.to_be_bytes());
    ip.extend([0, 0, 0x40, 0, 64, if tcp { 6 } else { 17 }, 0, 0]);
    ip.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    let check = !sum(&ip);
    ip[10..12].copy_from_slice(&check.to_be_bytes());
    frame.extend(ip);
    frame.extend([100, flow, 0, 80]);
    if tcp {
        frame.extend(number.to_be_bytes());
        frame.extend([0, 0, 0, 0, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    } else {
        frame.extend(((8 + payload) as u16).to_be_bytes());
        frame.extend([0, 0]);
    }
    let start = frame.len();
    frame.extend((0..payload).map(|n| (n as u32).wrapping_mul(31).wrapping_add(number) as u8));
    frame[start..start + 4].copy_from_slice(&number.to_be_bytes());
    frame[start + 4] = flow;
    frame
}

/// Flow and number of such a frame, if it is unchanged.
fn read(bytes: &[u8], tcp: bool) -> (u8, u32) {
    let start = if tcp { 54 } else { 42 };
    let number = u32::from_be_bytes(bytes[start..start + 4].try_into().unwrap());
    let flow = bytes[start + 4];
    let mut expected = frame(flow, number, bytes.len() - start, tcp);
    if tcp {
        // Where a part of the sum was, another part may be.
        expected[50..52].copy_from_slice(&bytes[50..52]);
    }
    assert!(
        bytes == expected,
        "flow {flow}, number {number}: changed on its way"
    );
    (flow, number)
}

/// What has come of each flow: the last number.
#[derive(Default)]
struct Order(BTreeMap<u8, u32>);

impl Order {
    fn next(&mut self, (flow, number): (u8, u32)) {
        let before = self.0.insert(flow, number);
        let later = before.is_none_or(|before| before < number);
        assert!(later, "flow {flow}: {number} after {before:?}");
    }
}

const FLOWS: u32 = 16;
const PAYLOADS: [usize; 6] = [18, 100, 500, 1000, 1400, 1472];

/// Sends frames of several lengths and flows from one end to the other. All come, in the order of their flow and unchanged.
fn crosses(from: &End, to: &End, frames: u32) {
    let start = Instant::now();
    to.take();
    let (mut sent, mut got, mut last) = (0_u32, 0, Instant::now());
    let mut order = Order::default();
    while got < frames {
        if sent < frames && ((sent - got) as usize) < WINDOW - BURST {
            let end = frames.min(sent + BURST as u32);
            let batch: Vec<_> = (sent..end)
                .map(|n| {
                    let payload = PAYLOADS[n as usize % PAYLOADS.len()];
                    (frame((n % FLOWS) as u8, n, payload, false), Offload::NONE)
                })
                .collect();
            sent += from.send(&batch) as u32;
        }
        let came = to.take();
        if came.is_empty() {
            assert!(
                last.elapsed() < PATIENCE,
                "{got} of {sent} frames came\nfrom: {}\nto: {}",
                from.shown(),
                to.shown()
            );
            std::thread::sleep(Duration::from_micros(50));
            continue;
        }
        last = Instant::now();
        got += came.len() as u32;
        for (bytes, _) in came {
            order.next(read(&bytes, false));
        }
    }
    let rate = f64::from(frames) / start.elapsed().as_secs_f64();
    println!("  {frames} frames, none lost, {rate:.0}/s");
}

/// The sum of the pseudo header.
fn pseudo(bytes: &[u8], len: u16) -> [u8; 2] {
    let mut header = bytes[26..34].to_vec();
    header.extend([0, 6]);
    header.extend(len.to_be_bytes());
    sum(&header).to_be_bytes()
}

/// A large segment of TCP, whole, its checksum still to be written.
fn segment(number: u32) -> (Vec<u8>, Offload) {
    let mut bytes = frame(1, number, 30_000, true);
    // As Linux leaves it.
    let owed = pseudo(&bytes, 20 + 30_000);
    bytes[50..52].copy_from_slice(&owed);
    let notes = Offload {
        csum: Some(Csum {
            start: 34,
            offset: 16,
        }),
        gso: Gso::Tcp4,
        gso_size: 1448,
        hdr_len: 54,
        ..Offload::NONE
    };
    (bytes, notes)
}

/// Segments of TCP cross whole, with what is still to be done to them.
fn segments_cross(from: &End, to: &End) {
    assert!(from.sink.caps().tso4, "the back end takes them");
    to.take();
    let mut order = Order::default();
    for number in 0..200 {
        let sent = segment(number);
        assert_eq!(from.send(std::slice::from_ref(&sent)), 1);
        let end = Instant::now() + PATIENCE;
        let came = loop {
            match to.take().pop() {
                Some(came) => break came,
                None => assert!(
                    Instant::now() < end,
                    "lost\n{}\n{}",
                    from.shown(),
                    to.shown()
                ),
            }
            std::thread::sleep(Duration::from_micros(50));
        };
        order.next(read(&came.0, true));
        assert_eq!(came.0.len(), sent.0.len());
        let (notes, wanted) = (came.1, sent.1);
        assert_eq!(
            (notes.csum, notes.gso, notes.gso_size),
            (wanted.csum, wanted.gso, wanted.gso_size)
        );
        // Others leave the length out, as some NICs want it: whoever cuts the segment computes the sum anew.
        let good = [pseudo(&sent.0, 20 + 30_000), pseudo(&sent.0, 0)];
        assert!(good.iter().any(|good| came.0[50..52] == *good));
    }
    println!("  200 segments of 30 kB, whole");
}

/// A segment with ECN to a back end that does not know that comes cut, and only the first part has CWR.
fn segments_with_ecn_come_cut(from: &End, to: &End) {
    const CWR: u8 = 0x80;
    assert!(!from.sink.caps().ecn, "the back end takes them");
    to.take();
    let (mut bytes, notes) = segment(7);
    bytes[47] |= CWR;
    let mut batch = Batch::new();
    batch.push_bytes(&bytes);
    batch.end(Offload { ecn: true, ..notes });
    let refused = |_, why| panic!("{why}");
    let sent = Finisher::new().deliver(&*from.sink, &batch, &[0], refused);
    assert_eq!(sent, 1);
    let parts = (bytes.len() - 54).div_ceil(usize::from(notes.gso_size));
    let end = Instant::now() + PATIENCE;
    let mut came = Vec::new();
    while came.len() < parts {
        assert!(Instant::now() < end, "{} of {parts} came", came.len());
        came.extend(to.take());
        std::thread::sleep(Duration::from_micros(50));
    }
    let payload: Vec<u8> = came
        .iter()
        .flat_map(|(part, _)| part[54..].to_vec())
        .collect();
    assert!(payload == bytes[54..], "changed on its way");
    let cwr: Vec<_> = came.iter().map(|(part, _)| part[47] & CWR != 0).collect();
    assert!(cwr[0] && !cwr[1..].contains(&true), "{cwr:?}");
    println!("  a segment with ECN, in {parts} parts");
}

/// Keeps sending while `what` is done to the back end. What comes is unchanged and in order, and nothing comes twice.
fn goes_on_while(from: &End, to: &End, what: impl FnOnce()) {
    let dealt = || {
        let names = ["frames_out", "vhost_down", "vhost_stalled"];
        names.map(|name| from.count(name)).iter().sum::<u64>()
    };
    let before = dealt();
    let ends = std::sync::atomic::AtomicBool::new(false);
    let (sent, got) = std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let (mut sent, mut got) = (0_u32, 0_u32);
            let mut order = Order::default();
            let mut quiet = 0;
            while quiet < 200 {
                let more = !ends.load(std::sync::atomic::Ordering::Relaxed);
                if more {
                    let batch: Vec<_> = (sent..sent + 16)
                        .map(|n| (frame((n % FLOWS) as u8, n, 200, false), Offload::NONE))
                        .collect();
                    sent += from.send(&batch) as u32;
                }
                std::thread::sleep(Duration::from_millis(2));
                let came = to.take();
                quiet = if came.is_empty() && !more {
                    quiet + 1
                } else {
                    0
                };
                got += came.len() as u32;
                for (bytes, _) in came {
                    order.next(read(&bytes, false));
                }
            }
            (sent, got)
        });
        what();
        ends.store(true, std::sync::atomic::Ordering::Relaxed);
        traffic.join().unwrap()
    });
    println!(
        "  under traffic: {sent} sent, {got} came; dropped: {} down, {} in its rings, {} late",
        from.count("vhost_down"),
        from.count("vhost_unsent"),
        from.count("vhost_stalled")
    );
    assert!(got > 0, "some cross before or after");
    assert_eq!(dealt() - before, u64::from(sent), "each is counted once");
}
