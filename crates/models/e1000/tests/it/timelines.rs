//! When interrupts come: timelines worked out by hand from the manual (§3.2.7, §3.4, §13.4.18,
//! §13.4.30, §13.4.31, §13.4.41, §13.4.44), on a fake clock. Times are nanoseconds; RDTR, RADV, TIDV
//! and TADV count 1024 ns, ITR 256 ns. The guest reads ICR the moment an interrupt comes.

use crate::common::*;

const TXDW: u32 = 1;
const LSC: u32 = 4;
const RXT0: u32 = 0x80;
const SRPD: u32 = 0x1_0000;
const RSRPD: u64 = 0x2c00;
const FPD: u32 = 1 << 31;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A frame of 1000 bytes comes.
    Rx,
    /// A frame of 60 bytes comes.
    Small,
    /// A frame is sent, with RS; with IDE too.
    Tx,
    TxDelayed,
    Write(u64, u32),
}
use Event::{Rx, Small, Tx, TxDelayed, Write};

struct Line {
    name: &'static str,
    setup: &'static [(u64, u32)],
    events: &'static [(u64, Event)],
    interrupts: &'static [(u64, u32)],
}

const RDTR: u64 = reg::RDTR;
const RADV: u64 = reg::RADV;
const TIDV: u64 = reg::TIDV;
const TADV: u64 = reg::TADV;
const ITR: u64 = reg::ITR;

const LINES: &[Line] = &[
    Line {
        name: "nothing set: every packet at once",
        setup: &[],
        events: &[(0, Rx), (100, Rx), (5_000, Tx)],
        interrupts: &[(0, RXT0), (100, RXT0), (5_000, TXDW)],
    },
    Line {
        name: "RDTR delays one packet",
        setup: &[(RDTR, 10)],
        events: &[(0, Rx)],
        interrupts: &[(10_240, RXT0)],
    },
    Line {
        name: "RDTR begins anew with every packet",
        setup: &[(RDTR, 10)],
        events: &[(0, Rx), (5_000, Rx), (10_000, Rx)],
        interrupts: &[(20_240, RXT0)],
    },
    Line {
        name: "a packet right at the expiry begins another delay",
        setup: &[(RDTR, 10)],
        events: &[(0, Rx), (10_240, Rx)],
        interrupts: &[(10_240, RXT0), (20_480, RXT0)],
    },
    Line {
        name: "RADV caps RDTR, and RDTR then waits for another packet",
        setup: &[(RDTR, 10), (RADV, 15)],
        events: &[
            (0, Rx),
            (5_000, Rx),
            (10_000, Rx),
            (15_000, Rx),
            (40_000, Rx),
        ],
        interrupts: &[(15_360, RXT0), (50_240, RXT0)],
    },
    Line {
        name: "RDTR first: RADV is called off with it",
        setup: &[(RDTR, 10), (RADV, 15)],
        events: &[(0, Rx), (11_000, Rx)],
        interrupts: &[(10_240, RXT0), (21_240, RXT0)],
    },
    Line {
        name: "case A of §3.2.7.1.2: only the absolute timer",
        setup: &[(RDTR, 16), (RADV, 15)],
        events: &[(0, Rx), (9_000, Rx), (15_000, Rx), (20_000, Rx)],
        interrupts: &[(15_360, RXT0), (35_360, RXT0)],
    },
    Line {
        name: "RDTR 0 disables the absolute timer too",
        setup: &[(RADV, 15)],
        events: &[(0, Rx), (3_000, Rx)],
        interrupts: &[(0, RXT0), (3_000, RXT0)],
    },
    Line {
        name: "RADV 0 is no cap",
        setup: &[(RDTR, 10), (RADV, 0)],
        events: &[(0, Rx), (10_000, Rx), (20_000, Rx), (30_000, Rx)],
        interrupts: &[(40_240, RXT0)],
    },
    Line {
        name: "FPD ends the delay, and nothing comes after",
        setup: &[(RDTR, 10), (RADV, 15)],
        events: &[(0, Rx), (3_000, Write(RDTR, FPD | 10))],
        interrupts: &[(3_000, RXT0)],
    },
    Line {
        name: "FPD with nothing pending does nothing",
        setup: &[(RDTR, 10)],
        events: &[(0, Write(RDTR, FPD | 10)), (1_000, Rx)],
        interrupts: &[(11_240, RXT0)],
    },
    Line {
        name: "a new RDTR is for the next packet",
        setup: &[(RDTR, 10)],
        events: &[(0, Rx), (2_000, Write(RDTR, 100)), (20_000, Rx)],
        interrupts: &[(10_240, RXT0), (122_400, RXT0)],
    },
    Line {
        name: "the longest RDTR: 65535 units",
        setup: &[(RDTR, 0xffff)],
        events: &[(0, Rx)],
        interrupts: &[(67_107_840, RXT0)],
    },
    Line {
        name: "a small packet is told at once, and takes the others along",
        setup: &[(RDTR, 10), (RSRPD, 64)],
        events: &[(0, Rx), (2_000, Small), (30_000, Rx)],
        interrupts: &[(2_000, SRPD | RXT0), (40_240, RXT0)],
    },
    Line {
        name: "another cause does not take a delayed packet along",
        setup: &[(RDTR, 10)],
        events: &[(0, Rx), (3_000, Write(reg::ICS, LSC))],
        interrupts: &[(3_000, LSC), (10_240, RXT0)],
    },
    Line {
        name: "ITR: the first at once, the next after the gap, a late one at once",
        setup: &[(ITR, 100)],
        events: &[(0, Rx), (5_000, Rx), (9_000, Rx), (60_000, Rx)],
        interrupts: &[(0, RXT0), (25_600, RXT0), (60_000, RXT0)],
    },
    Line {
        name: "ITR under steady load: one per gap",
        setup: &[(ITR, 100)],
        events: &[
            (0, Rx),
            (20_000, Rx),
            (40_000, Rx),
            (60_000, Rx),
            (80_000, Rx),
        ],
        interrupts: &[
            (0, RXT0),
            (25_600, RXT0),
            (51_200, RXT0),
            (76_800, RXT0),
            (102_400, RXT0),
        ],
    },
    Line {
        name: "ITR joins receiving and sending",
        setup: &[(ITR, 100)],
        events: &[(0, Tx), (1_000, Rx), (2_000, Tx)],
        interrupts: &[(0, TXDW), (25_600, TXDW | RXT0)],
    },
    Line {
        name: "ITR 0 in the middle of a gap lets out what waits",
        setup: &[(ITR, 100)],
        events: &[(0, Rx), (1_000, Rx), (5_000, Write(ITR, 0)), (6_000, Rx)],
        interrupts: &[(0, RXT0), (5_000, RXT0), (6_000, RXT0)],
    },
    Line {
        name: "a longer ITR counts from the last interrupt",
        setup: &[(ITR, 100)],
        events: &[(0, Rx), (1_000, Rx), (5_000, Write(ITR, 200))],
        interrupts: &[(0, RXT0), (51_200, RXT0)],
    },
    Line {
        name: "delay and gap, one behind the other",
        setup: &[(ITR, 100), (RDTR, 10)],
        events: &[(0, Rx), (12_000, Rx), (50_000, Rx)],
        interrupts: &[(10_240, RXT0), (35_840, RXT0), (61_440, RXT0)],
    },
    Line {
        name: "TIDV begins anew with every delayed packet",
        setup: &[(TIDV, 10)],
        events: &[(0, TxDelayed), (4_000, TxDelayed)],
        interrupts: &[(14_240, TXDW)],
    },
    Line {
        name: "TADV caps TIDV",
        setup: &[(TIDV, 10), (TADV, 12)],
        events: &[
            (0, TxDelayed),
            (5_000, TxDelayed),
            (10_000, TxDelayed),
            (30_000, TxDelayed),
        ],
        interrupts: &[(12_288, TXDW), (40_240, TXDW)],
    },
    Line {
        name: "a packet without IDE takes the delayed ones along",
        setup: &[(TIDV, 10), (TADV, 12)],
        events: &[(0, TxDelayed), (3_000, Tx)],
        interrupts: &[(3_000, TXDW)],
    },
    Line {
        name: "TIDV 0 is no delay",
        setup: &[(TADV, 12)],
        events: &[(0, TxDelayed)],
        interrupts: &[(0, TXDW)],
    },
    Line {
        name: "the two sides have timers of their own",
        setup: &[(RDTR, 10), (TIDV, 20), (RADV, 15), (TADV, 30)],
        events: &[(0, Rx), (0, TxDelayed), (9_000, TxDelayed), (9_000, Rx)],
        interrupts: &[(15_360, RXT0), (29_480, TXDW)],
    },
    Line {
        name: "all five at once",
        setup: &[(RDTR, 10), (RADV, 15), (TIDV, 20), (TADV, 25), (ITR, 80)],
        events: &[
            (0, Rx),
            (0, TxDelayed),
            (8_000, Rx),
            (16_000, Rx),
            (18_000, TxDelayed),
        ],
        // RADV at 15360; the third frame by RDTR at 26240 and TADV at 25600 both fall into the gap
        // of 20480 from there.
        interrupts: &[(15_360, RXT0), (35_840, RXT0 | TXDW)],
    },
];

fn run(line: &Line, msi: bool) -> Vec<(u64, u32)> {
    let mut m = Machine::default();
    m.tx_on(64);
    m.rx_on(64, 0x8000);
    m.r(reg::ICR);
    m.set_msi(msi);
    for &(at, value) in line.setup {
        m.w(at, value);
    }
    m.w(reg::IMS, TXDW | LSC | RXT0 | SRPD);
    m.messages();
    let (mut now, mut got, mut sent) = (0, Vec::new(), 0);
    let mut rises = m.rises();
    let mut look = |m: &mut Machine, now: u64| {
        let told = if msi {
            m.messages() > 0
        } else {
            let new = m.rises() != rises;
            rises = m.rises();
            new
        };
        if told {
            let causes = m.r(reg::ICR) & (TXDW | LSC | RXT0 | SRPD);
            got.push((now, causes));
        }
    };
    let end = 200_000_000;
    let events = line.events.iter().map(|(at, event)| (*at, Some(*event)));
    for (at, event) in events.chain([(end, None)]) {
        while let Some(due) = m.armed().filter(|due| *due <= at) {
            m.sleep(due - now);
            now = due;
            look(&mut m, now);
        }
        m.sleep(at - now);
        now = at;
        match event {
            Some(Rx) => assert_eq!(m.offer(&[&plain(MAC, 1000)]), 1),
            Some(Small) => assert_eq!(m.offer(&[&plain(MAC, 60)]), 1),
            Some(Tx | TxDelayed) => {
                let ide = if matches!(event, Some(TxDelayed)) {
                    IDE
                } else {
                    0
                };
                m.poke(TX_BUFFERS, &plain(PEER, 60));
                m.tx_desc(sent, TX_BUFFERS, legacy(60, EOP | IFCS | RS | ide));
                sent += 1;
                m.w(reg::TDT, sent);
            }
            Some(Write(at, value)) => m.w(at, value),
            None => {}
        }
        look(&mut m, now);
    }
    assert_eq!(
        m.armed(),
        None,
        "{}: an idle device waits for nothing",
        line.name
    );
    got
}

#[test]
fn interrupts_come_when_the_manual_says() {
    for line in LINES {
        for msi in [false, true] {
            assert_eq!(run(line, msi), line.interrupts, "{} (MSI {msi})", line.name);
        }
    }
}
