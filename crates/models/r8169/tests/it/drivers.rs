//! What four drivers do, access by access: Linux, FreeBSD, iPXE and U-Boot. They stand on the chip's documents and on the
//! drivers' habits, not on the model.

use crate::common::*;
use hypernic_r8169::Config;
use model::{PciState, PmeWrite};
use model_testkit::packet::{magic, v4_with};

const COUNT: u32 = 256;
const LEN: u32 = 0x3fff;

/// Frames that each test moves each way.
const FRAMES: u32 = 1000;

fn frame(to: [u8; 6], n: u32) -> Vec<u8> {
    let mut frame = plain(to, 60 + (n as usize * 37) % 1400);
    frame[20..24].copy_from_slice(&n.to_le_bytes());
    frame
}

/// A driver's rings: both have this many descriptors.
struct Rings {
    len: u32,
    size: u32,
    next_tx: u32,
    dirty_tx: u32,
    next_rx: u32,
    got: Vec<Vec<u8>>,
}

impl Rings {
    fn new(m: &Machine, len: u32, size: u32) -> Self {
        let rings = Rings {
            len,
            size,
            next_tx: 0,
            dirty_tx: 0,
            next_rx: 0,
            got: Vec::new(),
        };
        for i in 0..len {
            m.tx_desc(i, rings.end(i), 0, 0);
            rings.give(m, i);
        }
        rings
    }

    fn end(&self, index: u32) -> u32 {
        if index + 1 == self.len { EOR } else { 0 }
    }

    fn give(&self, m: &Machine, index: u32) {
        let at = RX_BUFFERS + u64::from(index) * RX_STEP;
        m.rx_desc(index, OWN | self.end(index) | self.size, at);
    }

    /// Puts a frame into the ring; `false` when it is full.
    fn queue(&mut self, m: &Machine, bytes: &[u8]) -> bool {
        if self.next_tx - self.dirty_tx == self.len {
            return false;
        }
        let index = self.next_tx % self.len;
        let at = TX_BUFFERS + u64::from(index) * 0x1000;
        m.poke(at, bytes);
        let bits = OWN | self.end(index) | BOTH | bytes.len() as u32;
        m.tx_desc(index, bits, 0, at);
        self.next_tx += 1;
        true
    }

    fn reap(&mut self, m: &Machine) {
        while self.dirty_tx != self.next_tx && m.tx_words(self.dirty_tx % self.len).0 & OWN == 0 {
            self.dirty_tx += 1;
        }
    }

    fn receive(&mut self, m: &Machine, most: u32) -> u32 {
        let mut done = 0;
        while done < most {
            let (word, _) = m.rx_words(self.next_rx);
            if word & OWN != 0 {
                break;
            }
            assert_eq!(word & BOTH, BOTH);
            let len = (word & LEN) as usize - 4;
            self.got.push(m.buffer(self.next_rx, len));
            self.give(m, self.next_rx);
            self.next_rx = (self.next_rx + 1) % self.len;
            done += 1;
        }
        done
    }
}

/// The order of accesses in `rtl_init_one`, `rtl_open` and `rtl_hw_start`.
fn linux_start(m: &mut Machine, rings: u32, mask: u16) -> Rings {
    assert_eq!(m.r32(reg::TX_CONFIG) >> 20 & 0xfcf, 0x3c4);
    m.w16(reg::IMR, 0);
    m.w16(reg::ISR, 0xffff);
    m.w8(reg::CHIP_CMD, 0x10);
    assert_eq!(m.r8(reg::CHIP_CMD) & 0x10, 0);
    let rings = Rings::new(m, rings, LEN);
    m.w8(reg::CFG9346, 0xc0);
    m.w16(reg::CPLUS_CMD, 0x2060);
    m.w16(reg::MITIGATE, 0);
    m.w8(reg::CONFIG1, 0x10);
    let config3 = m.r8(reg::CONFIG3);
    m.w8(reg::CONFIG3, config3 & !1);
    m.w8(reg::MAX_TX, 0x3f);
    m.w16(reg::RX_MAX_SIZE, 0x4000);
    m.w32(reg::TX_HIGH, 0);
    m.w32(reg::TX_LOW, TX_RING as u32);
    m.w32(reg::RX_HIGH, 0);
    m.w32(reg::RX_LOW, RX_RING as u32);
    m.w8(reg::CFG9346, 0);
    m.r16(reg::CPLUS_CMD);
    m.w8(reg::CHIP_CMD, 0x0c);
    m.w32(reg::RX_CONFIG, 0x0000_e700);
    m.w32(reg::TX_CONFIG, 0x0300_0700);
    m.w32(reg::MAR4, u32::MAX);
    m.w32(reg::MAR0, u32::MAX);
    m.w32(reg::RX_CONFIG, 0x0000_e70e);
    m.w16(reg::IMR, mask);
    rings
}

const LINUX_MASK: u16 = ROK | RER | TOK | TER | LINK_CHG;

/// One interrupt: four accesses. `false`: it was not ours.
fn linux_interrupt(m: &mut Machine, rings: &mut Rings) -> bool {
    let status = m.r16(reg::ISR);
    assert_ne!(status, 0xffff);
    if status & LINUX_MASK == 0 {
        return false;
    }
    m.w16(reg::IMR, 0);
    m.w16(reg::ISR, status);
    loop {
        rings.reap(m);
        if rings.next_tx != rings.dirty_tx {
            m.w8(reg::TX_POLL, 0x40);
        }
        if rings.receive(m, 64) < 64 {
            break;
        }
    }
    m.w16(reg::IMR, LINUX_MASK);
    true
}

#[test]
fn linux_moves_every_frame_both_ways() {
    for msix in [false, true] {
        let mut m = Machine::new();
        m.pci(false, msix);
        let mut rings = linux_start(&mut m, COUNT, LINUX_MASK);
        let (mut sent, mut offered, mut spurious) = (0, 0, 0);
        let pending = |m: &Machine| {
            if msix {
                !m.vectors().is_empty()
            } else {
                m.line()
            }
        };
        while sent < FRAMES || offered < FRAMES {
            for _ in 0..7 {
                if sent < FRAMES && rings.queue(&m, &frame(PEER, sent)) {
                    sent += 1;
                    m.w8(reg::TX_POLL, 0x40);
                }
                if offered < FRAMES && m.offer(&[&frame(MAC, offered)]) == 1 {
                    offered += 1;
                }
            }
            let mut rounds = 0;
            while pending(&m) {
                spurious += u32::from(!linux_interrupt(&mut m, &mut rings));
                rounds += 1;
                assert!(rounds < 10, "interrupts without end");
            }
        }
        assert_eq!(
            rings.got,
            (0..FRAMES).map(|n| frame(MAC, n)).collect::<Vec<_>>()
        );
        let want: Vec<_> = (0..FRAMES).map(|n| frame(PEER, n)).collect();
        assert_eq!(m.wire.take(), want);
        assert_eq!((spurious, rings.dirty_tx), (0, FRAMES));
    }
}

#[test]
fn linux_hears_of_the_link_and_goes_down_and_up() {
    let mut m = Machine::new();
    for round in 0..20 {
        let mut rings = linux_start(&mut m, COUNT, LINUX_MASK);
        // phy_start: out of power-down, auto-negotiation anew.
        m.phy_write(0x1f, 0);
        m.phy_write(0, 0x1340);
        // At first the link stood; later the PHY was asleep.
        assert_eq!(m.line(), round == 0);
        linux_interrupt(&mut m, &mut rings);
        assert_eq!(m.phy_read(1) & 4, 0);
        m.sleep(10_000_000);
        assert!(m.line(), "nothing polls the PHY");
        linux_interrupt(&mut m, &mut rings);
        assert_eq!(m.phy_read(1) & 0x24, 0x24);
        assert!(rings.queue(&m, &frame(PEER, round)));
        m.w8(reg::TX_POLL, 0x40);
        assert_eq!(m.wire.take(), [frame(PEER, round)]);
        assert_eq!(m.offer(&[&frame(MAC, round)]), 1);
        linux_interrupt(&mut m, &mut rings);
        assert_eq!(rings.got, [frame(MAC, round)]);
        // rtl8169_close.
        m.w16(reg::IMR, 0);
        m.w16(reg::ISR, 0xffff);
        let config = m.r32(reg::RX_CONFIG);
        m.w32(reg::RX_CONFIG, config & !0x3f);
        let command = m.r8(reg::CHIP_CMD);
        m.w8(reg::CHIP_CMD, command | 0x80);
        m.w8(reg::CHIP_CMD, 0x10);
        assert_eq!(m.r8(reg::CHIP_CMD), 0);
        m.phy_write(0, 0x0800);
        assert_eq!(m.offer(&[&frame(MAC, 0)]), 1, "lost, as on a wire");
        assert_eq!(m.rx_words(1).0 & OWN, OWN);
    }
}

/// `rtl8169_set_rx_mode` etc. change while frames come; `ethtool -d` reads all.
#[test]
fn linux_reads_all_registers_while_frames_come() {
    let mut m = Machine::new();
    let mut rings = linux_start(&mut m, COUNT, LINUX_MASK);
    for n in 0..50 {
        m.offer(&[&frame(MAC, n)]);
        for i in 0..64 {
            m.r32(4 * i);
        }
        assert!(m.line());
        linux_interrupt(&mut m, &mut rings);
    }
    assert_eq!(rings.got.len(), 50);
}

/// FreeBSD's `re(4)` with MSI (`re_init_locked`, `re_intr_msi`). TimerInt is set once, to 65 us. After received frames, their causes are
/// masked, and a write to TCTR has the timer look again: an interrupt of the timer that finds frames goes on so, and one that
/// finds none lets the causes in again. Sent packets are moderated by IntrMitigate.
struct FreeBsd {
    m: Machine,
    rings: Rings,
    /// The timer looks for frames.
    timed: bool,
    interrupts: u32,
    by_timer: u32,
}

impl FreeBsd {
    const RX: u16 = ROK | RER | 0x50;
    const TX: u16 = TOK | TER | TDU;
    const ALL: u16 = Self::RX | Self::TX | LINK_CHG | TIMEOUT | SYS_ERR;
    const CYCLES: u32 = 65 * 125;

    fn new() -> Self {
        let mut m = Machine::with(Config::new(MAC), Wire::default());
        m.pci(true, false);
        Self::on(m)
    }

    fn on(mut m: Machine) -> Self {
        m.w8(reg::CHIP_CMD, 0x10);
        assert_eq!(m.r8(reg::CHIP_CMD) & 0x10, 0);
        let rings = Rings::new(&m, COUNT, 2048);
        m.w16(reg::CPLUS_CMD, 0x2068);
        m.w8(reg::CFG9346, 0xc0);
        m.w8(reg::CFG9346, 0);
        m.w32(reg::RX_HIGH, 0);
        m.w32(reg::RX_LOW, RX_RING as u32);
        m.w32(reg::TX_HIGH, 0);
        m.w32(reg::TX_LOW, TX_RING as u32);
        m.w8(reg::CHIP_CMD, 0x0c);
        m.w32(reg::TX_CONFIG, 0x0300_0700);
        // Transmission only.
        m.w16(reg::MITIGATE, 0x5100);
        m.w32(reg::TIMER_INT, Self::CYCLES);
        m.w16(reg::RX_MAX_SIZE, 2048);
        m.w32(reg::RX_CONFIG, 0x0000_e70e);
        m.w16(reg::ISR, 0xffff);
        m.w16(reg::IMR, Self::ALL);
        m.messages();
        FreeBsd {
            m,
            rings,
            timed: false,
            interrupts: 0,
            by_timer: 0,
        }
    }

    fn interrupt(&mut self) {
        self.interrupts += 1;
        let status = self.m.r16(reg::ISR);
        self.m.w16(reg::IMR, 0);
        self.m.w16(reg::ISR, status);
        let mut mask = Self::ALL;
        if self.timed {
            mask &= !Self::RX;
        }
        if status & (TIMEOUT | Self::RX) != 0 {
            self.by_timer += u32::from(status & TIMEOUT != 0);
            self.rings.receive(&self.m, COUNT);
            self.timed = status & Self::RX != 0;
            if self.timed {
                self.m.w32(reg::TIMER, 1);
                mask &= !Self::RX;
            } else {
                mask = Self::ALL;
            }
        }
        if status & Self::TX != 0 {
            self.rings.reap(&self.m);
            if self.rings.next_tx != self.rings.dirty_tx {
                self.m.w8(reg::TX_POLL, 0x40);
            }
        }
        self.m.w16(reg::IMR, mask);
    }

    fn serve(&mut self) {
        let mut rounds = 0;
        while self.m.messages() > 0 {
            self.interrupt();
            rounds += 1;
            assert!(rounds < 10, "interrupts without end");
        }
    }
}

#[test]
fn freebsd_receives_by_its_one_shot_timer() {
    let mut driver = FreeBsd::new();
    let (mut sent, mut came) = (0, 0);
    while sent < FRAMES || came < FRAMES {
        // Streams and single frames. When nothing is sent, only the timer has it look for frames.
        let many = [9, 1, 30][(came / 50 % 3) as usize];
        let sends = came / 150 % 2 == 0 || came == FRAMES;
        for _ in 0..many {
            if came < FRAMES {
                assert_eq!(driver.m.offer(&[&frame(MAC, came)]), 1);
                came += 1;
            }
            if sends && sent < FRAMES && driver.rings.queue(&driver.m, &frame(PEER, sent)) {
                driver.m.w8(reg::TX_POLL, 0x40);
                sent += 1;
            }
        }
        driver.m.sleep(20_000);
        driver.serve();
    }
    // What came last is found by the timer, and what was sent last told by IntrMitigate.
    for _ in 0..20 {
        driver.m.sleep(20_000);
        driver.serve();
    }
    let want: Vec<_> = (0..FRAMES).map(|n| frame(MAC, n)).collect();
    assert_eq!(driver.rings.got, want);
    let want: Vec<_> = (0..FRAMES).map(|n| frame(PEER, n)).collect();
    assert_eq!(driver.m.wire.take(), want);
    assert_eq!(driver.rings.dirty_tx, FRAMES);
    assert!(driver.by_timer > 5, "{}", driver.by_timer);
    assert!(driver.interrupts < FRAMES / 3, "{}", driver.interrupts);
    // At rest it hears of the next frame at once.
    assert!(!driver.timed);
    assert_eq!(driver.m.offer(&[&frame(MAC, 0)]), 1);
    assert!(driver.m.messages() > 0);
}

/// It suspends without a reset of the bus: down, D3, PME; and everything anew.
#[test]
fn freebsd_suspends_and_resumes() {
    let mut driver = FreeBsd::new();
    for round in 0..3 {
        assert_eq!(driver.m.offer(&[&frame(MAC, round)]), 1);
        driver.serve();
        assert_eq!(driver.rings.got, [frame(MAC, round)]);
        // re_stop, re_setwol: a magic packet.
        driver.m.w16(reg::IMR, 0);
        driver.m.w16(reg::ISR, 0xffff);
        driver.m.w8(reg::CHIP_CMD, 0);
        driver.m.w8(reg::CFG9346, 0xc0);
        driver.m.w8(reg::CONFIG3, 0x20);
        driver.m.w8(reg::CFG9346, 0);
        let asleep = |d3, enable, clear| PciState {
            bus_master: true,
            msi: true,
            d3,
            pme: Some(PmeWrite { enable, clear }),
            ..PciState::default()
        };
        driver.m.set_pci(asleep(true, true, true));
        driver.m.offer(&[&frame(MAC, 7)]);
        assert_eq!(driver.m.pme(), (true, false));
        driver.m.offer(&[&magic([0xff; 6], MAC, 0)]);
        assert_eq!(driver.m.pme(), (true, true));
        driver.m.set_pci(asleep(false, false, true));
        assert_eq!(driver.m.pme(), (false, false));
        driver = FreeBsd::on(driver.m);
    }
}

/// iPXE polls ISR with IMR 0 and looks at its rings only if there is something in it. Four descriptors of 1530 bytes.
#[test]
fn ipxe_polls_the_latched_causes() {
    let mut m = Machine::new();
    m.w8(reg::CHIP_CMD, 0x10);
    assert_eq!(m.r8(reg::CHIP_CMD) & 0x10, 0);
    m.w16(reg::RX_MAX_SIZE, 1530);
    assert_eq!(m.r16(reg::RX_MAX_SIZE), 1530);
    let mac: Vec<u8> = (0..6).map(|i| m.r8(reg::IDR0 + i)).collect();
    assert_eq!(mac, MAC);
    m.w16(reg::CPLUS_CMD, 0x0018);
    let mut rings = Rings::new(&m, 4, 1530);
    // Low first.
    m.w32(reg::TX_LOW, TX_RING as u32);
    m.w32(reg::TX_HIGH, 0);
    m.w32(reg::RX_LOW, RX_RING as u32);
    m.w32(reg::RX_HIGH, 0);
    m.w8(reg::CHIP_CMD, 0x0c);
    m.w32(reg::RX_CONFIG, 0x0000_e70f);
    m.w32(reg::MAR0, u32::MAX);
    m.w32(reg::MAR4, u32::MAX);
    let mut sent = 0;
    for n in 0..100 {
        assert_eq!(m.r16(reg::ISR), 0, "nothing to see");
        assert_eq!(m.offer(&[&frame(MAC, n)]), 1);
        sent += u32::from(rings.queue(&m, &frame(PEER, sent)));
        m.w8(reg::TX_POLL, 0x40);
        let isr = m.r16(reg::ISR);
        assert_eq!(isr & (ROK | TOK), ROK | TOK);
        m.w16(reg::ISR, isr);
        rings.reap(&m);
        rings.receive(&m, 4);
    }
    assert_eq!((rings.got.len(), sent), (100, 100));
    assert_eq!(
        m.wire.take(),
        (0..100).map(|n| frame(PEER, n)).collect::<Vec<_>>()
    );
    assert!(!m.line());
}

/// U-Boot has one transmit descriptor and four receive descriptors and looks at nothing but OWN.
#[test]
fn uboot_watches_own_alone() {
    let mut m = Machine::new();
    m.phy_write(0, 0x1200);
    // It waits for auto-negotiation.
    m.sleep(10_000_000);
    assert_eq!(m.phy_read(1) & 0x20, 0x20);
    m.w8(reg::CHIP_CMD, 0x10);
    m.w8(reg::CFG9346, 0xc0);
    m.w8(reg::CHIP_CMD, 0x0c);
    m.w8(reg::MAX_TX, 0x3f);
    m.w16(reg::RX_MAX_SIZE, 0x0800);
    m.w32(reg::RX_CONFIG, 0x0000_e70f);
    m.w32(reg::TX_CONFIG, 0x0300_0700);
    m.w16(reg::CPLUS_CMD, 0);
    let mut rx = Rings::new(&m, 4, 1536);
    m.tx_desc(0, EOR, 0, 0);
    m.w32(reg::TX_LOW, TX_RING as u32);
    m.w32(reg::TX_HIGH, 0);
    m.w32(reg::RX_LOW, RX_RING as u32);
    m.w32(reg::RX_HIGH, 0);
    m.w8(reg::CFG9346, 0);
    m.w32(reg::RX_MISSED, 0);
    for n in 0..100 {
        let out = v4_with([10, 0, 0, 1], [10, 0, 0, 2], false, 7, 9, 20 + n as usize);
        m.poke(TX_BUFFERS, &out);
        m.tx_desc(0, OWN | EOR | BOTH | out.len() as u32, 0, TX_BUFFERS);
        m.w8(reg::TX_POLL, 0x40);
        assert_eq!(m.tx_words(0).0 & OWN, 0);
        assert_eq!(m.wire.take()[0][..out.len()], out);
        assert_eq!(m.offer(&[&frame(MAC, n)]), 1);
        assert_eq!(rx.receive(&m, 1), 1);
    }
    assert_eq!(rx.got, (0..100).map(|n| frame(MAC, n)).collect::<Vec<_>>());
}
