//! A guest that speaks just enough.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use frame::{Batch, Caps, Sink, Wake};
use wire::{Offload, Sum};

pub const PATIENCE: Duration = Duration::from_secs(20);
const BROADCAST: [u8; 6] = [0xff; 6];

/// Gives every frame to every guest, as a switch that floods would.
pub struct Hub(Mutex<Vec<Sender<Vec<u8>>>>);

impl Hub {
    pub fn new(guests: usize) -> (Self, Vec<Receiver<Vec<u8>>>) {
        let (to, from) = (0..guests).map(|_| channel()).unzip();
        (Self(Mutex::new(to)), from)
    }
}

impl Sink for Hub {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        for &pick in picks {
            let frame = batch.get(pick.into()).expect("picked").to_vec();
            for guest in &*self.0.lock().expect("lock") {
                let _ = guest.send(frame.clone());
            }
        }
        picks.len()
    }
    fn caps(&self) -> Caps {
        Caps::NONE
    }
    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

pub struct Guest {
    mac: [u8; 6],
    pub ip: Ipv4Addr,
    pub router: Ipv4Addr,
    pub dns: Ipv4Addr,
    pub bootfile: String,
    sink: Arc<dyn Sink>,
    inbox: Receiver<Vec<u8>>,
}

/// The MAC libslirp has for an address of its own.
fn mac_of(ip: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = ip.octets();
    [0x52, 0x55, a, b, c, d]
}

pub fn arp_request(mac: [u8; 6], me: Ipv4Addr, who: Ipv4Addr) -> Vec<u8> {
    let mut f = [&BROADCAST[..], &mac, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &mac].concat();
    f.extend(me.octets());
    f.extend([0; 6]);
    f.extend(who.octets());
    f
}

fn ipv4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut h = vec![0x45, 0, 0, 0, 0, 7, 0, 0, 64, protocol, 0, 0];
    h[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    h.extend(src.octets());
    h.extend(dst.octets());
    let sum = Sum::of(&h).finish();
    h[10..12].copy_from_slice(&sum.to_be_bytes());
    h.extend(payload);
    h
}

/// Fills the checksum at `at` of a TCP or UDP segment.
fn seal(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, at: usize, segment: &mut [u8]) {
    let mut sum = Sum::pseudo_v4(src, dst, protocol, segment.len() as u32);
    sum.add(segment);
    segment[at..at + 2].copy_from_slice(&sum.finish_nonzero().to_be_bytes());
}

fn word(b: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([b[at], b[at + 1]])
}

fn long(b: &[u8], at: usize) -> u32 {
    u32::from(word(b, at)) << 16 | u32::from(word(b, at + 2))
}

impl Guest {
    pub fn new(mac: [u8; 6], sink: Arc<dyn Sink>, inbox: Receiver<Vec<u8>>) -> Self {
        let none = Ipv4Addr::UNSPECIFIED;
        Self {
            mac,
            ip: none,
            router: none,
            dns: none,
            bootfile: String::new(),
            sink,
            inbox,
        }
    }

    fn send(&self, frame: &[u8]) {
        let mut batch = Batch::new();
        batch.push_bytes(frame);
        batch.end(Offload::NONE);
        assert_eq!(self.sink.deliver(&batch, &[0]), 1, "room");
    }

    fn send_ip(&self, mac: [u8; 6], src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, payload: &[u8]) {
        let head = [&mac[..], &self.mac, &[8, 0]].concat();
        self.send(&[head, ipv4(src, dst, protocol, payload)].concat());
    }

    /// Waits for a frame to us that `pick` likes. Answers ARP meanwhile.
    fn try_wait<T>(&self, mut pick: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let f = self.inbox.recv_timeout(left).ok()?;
            if f[..6] != self.mac && f[..6] != BROADCAST {
                continue;
            }
            if f[12..14] == [8, 6] && f[20..22] == [0, 1] && f[38..42] == self.ip.octets() {
                let mut reply = [&f[6..12], &self.mac, &f[12..20], &[0, 2], &self.mac].concat();
                reply.extend(self.ip.octets());
                reply.extend(&f[22..32]);
                self.send(&reply);
            }
            if let Some(found) = pick(&f) {
                return Some(found);
            }
        }
    }

    fn wait<T>(&self, what: &str, pick: impl FnMut(&[u8]) -> Option<T>) -> T {
        self.try_wait(pick)
            .unwrap_or_else(|| panic!("{what} did not come"))
    }

    fn bootp(&self, kind: u8, options: &[u8]) -> Vec<u8> {
        let mut p = vec![0u8; 236];
        p[..4].copy_from_slice(&[1, 1, 6, 0]);
        p[4..8].copy_from_slice(&[9, 9, 9, self.mac[5]]);
        p[28..34].copy_from_slice(&self.mac);
        p.extend([99, 130, 83, 99, 53, 1, kind]);
        p.extend(options);
        p.extend([255; 1]);
        let mut udp = vec![0, 68, 0, 67, 0, 0, 0, 0];
        udp.extend(p);
        let len = udp.len() as u16;
        udp[4..6].copy_from_slice(&len.to_be_bytes());
        let (none, all) = (Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST);
        seal(none, all, 17, 6, &mut udp);
        self.send_ip(BROADCAST, none, all, 17, &udp);
        self.wait("DHCP answer", |f| {
            (f[12..14] == [8, 0] && f[23] == 17 && word(f, 36) == 68 && f[42..][4..8] == p_id(self))
                .then(|| f[42..].to_vec())
        })
    }

    /// Gets an address.
    pub fn dhcp(&mut self) {
        let offer = self.bootp(1, &[]);
        let offered: [u8; 4] = offer[16..20].try_into().expect("yiaddr");
        let wish = [&[50, 4][..], &offered].concat();
        let ack = self.bootp(3, &wish);
        assert_eq!(option(&ack, 53), [5], "acknowledged");
        self.ip = Ipv4Addr::from(<[u8; 4]>::try_from(&ack[16..20]).expect("yiaddr"));
        let address = |code| match option(&ack, code) {
            // A restricted network names neither router nor name server.
            [] => Ipv4Addr::new(10, 0, 2, 2),
            ip => Ipv4Addr::from(<[u8; 4]>::try_from(ip).expect("IP")),
        };
        self.router = address(3);
        self.dns = address(6);
        let file = ack[108..236].split(|&b| b == 0).next().unwrap_or(&[]);
        self.bootfile = String::from_utf8_lossy(file).into_owned();
        self.send(&arp_request(self.mac, self.ip, self.router));
        let mac = self.wait("ARP reply", |f| {
            (f[12..14] == [8, 6] && f[20..22] == [0, 2]).then(|| f[22..28].to_vec())
        });
        assert_eq!(mac, mac_of(self.router));
    }

    pub fn ping(&self, to: Ipv4Addr, seq: u16) {
        let mut echo = vec![8, 0, 0, 0, 0x55, self.mac[5]];
        echo.extend(seq.to_be_bytes());
        echo.extend(b"are you there?");
        let sum = Sum::of(&echo).finish();
        echo[2..4].copy_from_slice(&sum.to_be_bytes());
        self.send_ip(mac_of(to), self.ip, to, 1, &echo);
        self.wait("echo reply", |f| {
            let ours = f[12..14] == [8, 0] && f[23] == 1 && f[34] == 0;
            (ours && f[38..40] == [0x55, self.mac[5]] && word(f, 40) == seq).then_some(())
        });
    }

    /// Asks for an IPv6 router; returns the first 8 bytes of the prefix it announces.
    pub fn solicit_router(&self) -> Vec<u8> {
        let me = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
        let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
        let mut ask = vec![133, 0, 0, 0, 0, 0, 0, 0];
        let mut sum = Sum::pseudo_v6(me, all, 58, ask.len() as u32);
        sum.add(&ask);
        ask[2..4].copy_from_slice(&sum.finish().to_be_bytes());
        let mut f = [&[0x33, 0x33, 0, 0, 0, 2][..], &self.mac, &[0x86, 0xdd]].concat();
        f.extend([0x60, 0, 0, 0, 0, ask.len() as u8, 58, 255]);
        f.extend(me.octets());
        f.extend(all.octets());
        f.extend(ask);
        self.send(&f);
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let f = self.inbox.recv_timeout(left).expect("a router");
            if f[12..14] == [0x86, 0xdd] && f[20] == 58 && f[54] == 134 {
                let mut options = &f[70..];
                while options[0] != 3 {
                    options = &options[usize::from(options[1]) * 8..];
                }
                return options[16..24].to_vec();
            }
        }
    }

    pub fn udp(&self, from: u16, to: Ipv4Addr, port: u16, payload: &[u8]) {
        let mut udp = Vec::new();
        for w in [from, port, 8 + payload.len() as u16, 0] {
            udp.extend(w.to_be_bytes());
        }
        udp.extend(payload);
        seal(self.ip, to, 17, 6, &mut udp);
        self.send_ip(mac_of(to), self.ip, to, 17, &udp);
    }

    /// The next datagram to our port `port`.
    pub fn udp_reply(&self, port: u16) -> Vec<u8> {
        self.wait("datagram", |f| {
            let ours = f[12..14] == [8, 0] && f[23] == 17 && word(f, 36) == port;
            ours.then(|| f[42..34 + usize::from(word(f, 38))].to_vec())
        })
    }
}

fn p_id(guest: &Guest) -> [u8; 4] {
    [9, 9, 9, guest.mac[5]]
}

fn option(bootp: &[u8], code: u8) -> &[u8] {
    let mut rest = &bootp[240..];
    while let [c, len, behind @ ..] = rest {
        if *c == 255 {
            break;
        }
        let (value, next) = behind.split_at((*len).into());
        if *c == code {
            return value;
        }
        rest = next;
    }
    &[]
}

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// One connection, in order and without loss, as it is between us and libslirp.
pub struct Tcp<'g> {
    guest: &'g mut Guest,
    local: u16,
    peer: Ipv4Addr,
    port: u16,
    seq: u32,
    ack: u32,
}

struct Segment {
    flags: u8,
    seq: u32,
    port: u16,
    peer: Ipv4Addr,
    data: Vec<u8>,
}

fn segment(f: &[u8], local: u16) -> Option<Segment> {
    if f[12..14] != [8, 0] || f[23] != 6 || word(f, 36) != local {
        return None;
    }
    let end = 14 + usize::from(word(f, 16));
    let start = 34 + usize::from(f[46] >> 4) * 4;
    Some(Segment {
        flags: f[47],
        seq: long(f, 38),
        port: word(f, 34),
        peer: Ipv4Addr::from(long(f, 26)),
        data: f[start..end].to_vec(),
    })
}

impl<'g> Tcp<'g> {
    pub fn connect(guest: &'g mut Guest, local: u16, peer: Ipv4Addr, port: u16) -> Self {
        Self::try_connect(guest, local, peer, port).expect("connected")
    }

    /// `None` when refused, by a reset or (libslirp for some errors) by ICMP.
    pub fn try_connect(
        guest: &'g mut Guest,
        local: u16,
        peer: Ipv4Addr,
        port: u16,
    ) -> Option<Self> {
        let mut tcp = Self {
            guest,
            local,
            peer,
            port,
            seq: 1000,
            ack: 0,
        };
        tcp.emit(SYN, &[]);
        tcp.seq += 1;
        let answer = tcp.guest.wait("answer to a SYN", |f| {
            let icmp = f[12..14] == [8, 0] && f[23] == 1 && f[34] == 3;
            match segment(f, local) {
                None if icmp => Some(None),
                None => None,
                found => Some(found),
            }
        });
        let answer = answer.filter(|s| s.flags & RST == 0)?;
        assert_eq!(answer.flags & (SYN | ACK), SYN | ACK);
        tcp.ack = answer.seq.wrapping_add(1);
        tcp.emit(ACK, &[]);
        Some(tcp)
    }

    /// Waits for a client to connect to our port.
    pub fn accept(guest: &'g mut Guest, local: u16) -> Self {
        let syn = guest.wait("SYN", |f| segment(f, local).filter(|s| s.flags & SYN != 0));
        let mut tcp = Self {
            guest,
            local,
            peer: syn.peer,
            port: syn.port,
            seq: 5000,
            ack: syn.seq.wrapping_add(1),
        };
        tcp.emit(SYN | ACK, &[]);
        tcp.seq += 1;
        tcp.guest
            .wait("ACK", |f| segment(f, local).filter(|s| s.flags & SYN == 0));
        tcp
    }

    fn emit(&self, flags: u8, data: &[u8]) {
        let mut s = Vec::new();
        s.extend(self.local.to_be_bytes());
        s.extend(self.port.to_be_bytes());
        s.extend(self.seq.to_be_bytes());
        s.extend(self.ack.to_be_bytes());
        s.extend([5 << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
        s.extend(data);
        seal(self.guest.ip, self.peer, 6, 16, &mut s);
        let mac = mac_of(self.peer);
        self.guest.send_ip(mac, self.guest.ip, self.peer, 6, &s);
    }

    pub fn send(&mut self, data: &[u8]) {
        self.emit(ACK | 8, data);
        self.seq += data.len() as u32;
    }

    /// Everything until the peer ends the connection.
    pub fn read_to_end(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let local = self.local;
            let s = self.guest.wait("data", |f| segment(f, local));
            assert_eq!(s.flags & RST, 0, "reset");
            if s.seq == self.ack {
                self.ack = self.ack.wrapping_add(s.data.len() as u32);
                all.extend(&s.data);
                if s.flags & FIN != 0 {
                    self.ack = self.ack.wrapping_add(1);
                    self.emit(ACK | FIN, &[]);
                    return all;
                }
            }
            if !s.data.is_empty() {
                self.emit(ACK, &[]);
            }
        }
    }

    /// The peer ends the connection one way or the other.
    pub fn wait_for_the_end(&self) {
        let local = self.local;
        self.guest.wait("FIN or RST", |f| {
            segment(f, local).filter(|s| s.flags & (FIN | RST) != 0)
        });
    }
}
