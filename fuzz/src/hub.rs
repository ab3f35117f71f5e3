//! A PF of the 82576 whose registers rule VFs: any accesses of either side, resets, SR-IOV, saved
//! states, and what the switch receives of it all.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use eswitch::{Fabric, FunctionPolicy, Owner, Pool, StormWindows, VlanSet};
use guest_mem::Memory;
use igb::{Enforcer, Hub};
use intel_offsets::igb::long::{
    CTRL, CTRL_EXT, DTXSWC, MBVFICR, MRQC, P2VMAILBOX, RAL, RAL2, RCTL, RPLOLR, RTTBCNRC, RTTDQSEL,
    STATUS, TCTL, VFLRE, VFRE, VFTA, VFTE, VLVF, VMBMEM, VMOLR, VMRCTL, VMVIR, VT_CTL, WVBR,
};
use intel_offsets::igbvf::long::V2PMAILBOX;
use intel_offsets::igbvf::mailbox::{PFU, REQ, RSTD, RSTI, VFU};
use model::{Env, Nic, PciState, ResetKind};
use model_testkit::{Silent, Time};
use registry::{Function, Settings};

use crate::input::Input;
use crate::nic::nic;

const RST: u32 = 1 << 26;
const PFRSTD: u32 = 1 << 14;

/// VFs of the chip.
const VFS: u32 = 3;
/// What one time of carrying out may tell: each VF's pool, the PF's, and what holds for all.
const ALL: u64 = VFS as u64 + 2;

/// Registers that rule, and how many words follow the first.
const PLACES: [(u64, u64); 35] = [
    (CTRL, 0),
    (CTRL_EXT, 0),
    (RCTL, 0),
    (TCTL, 0),
    (VMBMEM, 127),
    (P2VMAILBOX, 7),
    (MBVFICR, 0),
    (0xc84, 0),
    (VFLRE, 0),
    (VFRE, 0),
    (VFTE, 0),
    (0x2408, 0),
    (DTXSWC, 0),
    (RTTDQSEL, 0),
    (RTTBCNRC, 0),
    (VMVIR, 7),
    (0x5200, 127),
    (RAL, 31),
    (RAL2, 15),
    (MRQC, 0),
    (VT_CTL, 0),
    (VMOLR, 7),
    (VLVF, 31),
    (VFTA, 127),
    (RPLOLR, 0),
    // Queues and vectors, of its VFs too.
    (0xc000, 255),
    (0xe000, 255),
    (0x1520, 4),
    (0x1680, 24),
    (0x1700, 7),
    (VMRCTL, 11),
    (0x5db0, 0),
    (0x5db8, 1),
    (0xa000, 127),
    (0x1508, 0),
];

/// The tags in a set, 0 to 4095.
fn tags(set: &VlanSet) -> impl Iterator<Item = u16> {
    (0..4096).filter(|id| set.contains(id | 0x1000))
}

/// The policies that the switch received.
#[derive(Default)]
struct Book {
    policies: BTreeMap<Owner, FunctionPolicy>,
    for_all: (Fabric<Owner>, StormWindows),
    told: u64,
}

#[derive(Default)]
struct Clerk(Mutex<Book>);

impl Clerk {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Enforcer for Clerk {
    fn enforce(&self, owner: Owner, policy: &FunctionPolicy) {
        let mut book = self.book();
        book.told += 1;
        let known = book.policies.insert(owner, policy.clone());
        assert_ne!(
            known.as_ref(),
            Some(policy),
            "{owner:?} is told what it knows"
        );
    }

    fn enforce_all(&self, fabric: &Fabric<Owner>, storm: &StormWindows) {
        let mut book = self.book();
        book.told += 1;
        let for_all = (fabric.clone(), *storm);
        assert_ne!(book.for_all, for_all, "told what is known");
        book.for_all = for_all;
    }
}

/// A function and what is around it.
struct Fixture {
    nic: Nic,
    env: Env,
    time: Arc<Time>,
}

impl Fixture {
    fn of(last: u8, function: &Function) -> Fixture {
        let nic = nic("82576", &Settings::new(mac(last)), function);
        let time = Arc::new(Time::at(2_000_000_000));
        let env = Env {
            memory: Memory::new(),
            irq: Arc::new(Silent),
            clock: time.clone(),
            timer: time.clone(),
        };
        let mut fixture = Fixture { nic, env, time };
        fixture.pci(0);
        fixture
    }

    fn pci(&mut self, vfs: u16) {
        let state = PciState {
            bus_master: true,
            msix: true,
            vfs,
            ..PciState::default()
        };
        self.nic.control.pci(&self.env, state);
    }

    fn r(&mut self, at: u64) -> u32 {
        let mut bytes = [0; 4];
        self.nic.control.read(&self.env, 0, at, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn w(&mut self, at: u64, value: u32) {
        let bytes = value.to_le_bytes();
        self.nic.control.write(&self.env, 0, at, &bytes);
    }

    /// The end of a turn.
    fn settle(&mut self, pass: u64) {
        let now = self.time.now.fetch_add(pass, Ordering::Relaxed) + pass;
        if self.time.take_due(now) {
            self.nic.control.tick(&self.env);
        }
        self.nic.control.attend(&self.env);
        self.nic.control.take_work();
    }
}

struct Chip {
    hub: Arc<Hub>,
    clerk: Arc<Clerk>,
    pf: Fixture,
    vfs: Vec<Fixture>,
    /// VFs that SR-IOV's registers have enabled.
    enabled: u32,
    /// How many changes the switch may have received since the last turn ended.
    may_tell: u64,
    told: u64,
    counters: Vec<u64>,
}

/// What a PF's registers, its VFs and PCI's say, and what becomes of it at the switch and at the VFs.
///
/// A VF moves frames only where all registers that have a say allow it, with the addresses, VLANs,
/// tag, rate and checks that stand beside its pool; its own reset silences it at once; a mailbox's
/// buffer is never both sides'; the PF finds a VF's queues behind its own addresses; the switch receives
/// only what is new, and a bounded number of times a turn; a saved PF goes on as it was; after a reset of
/// the PF everything works.
pub fn hub(data: &[u8]) {
    let mut input = Input::new(data);
    let mut chip = Chip::new();
    for _ in 0..200 {
        let Some(op) = input.op() else { break };
        chip.step(op, &mut input);
    }
    chip.settle(0);
    chip.check();
    chip.start_anew();
}

impl Chip {
    fn new() -> Chip {
        let clerk = Arc::new(Clerk::default());
        let hub = Hub::new(VFS, Arc::clone(&clerk) as Arc<dyn Enforcer>);
        let pf = Fixture::of(9, &Function::PfWithVfs(Arc::clone(&hub)));
        let vf = |n| {
            let channel = hub.channel(n).expect("there are so many");
            Fixture::of(n as u8, &Function::Vf(Arc::clone(channel)))
        };
        let vfs = (0..VFS).map(vf).collect();
        let mut chip = Chip {
            hub,
            clerk,
            pf,
            vfs,
            enabled: 0,
            may_tell: 0,
            told: 0,
            counters: Vec::new(),
        };
        // What the switch received while the chip was made belongs to another turn.
        chip.may_tell = 10 * ALL;
        chip.settle(0);
        chip
    }

    fn there(&self) -> u32 {
        match self.enabled {
            0 => VFS,
            vfs => vfs,
        }
    }

    fn policy(&self, vf: u32) -> FunctionPolicy {
        let book = self.clerk.book();
        let policy = book.policies.get(&Owner::Vf(vf));
        policy.cloned().unwrap_or_default()
    }

    fn pool(&self, vf: u32) -> Pool {
        self.policy(vf).pool
    }

    /// Turns end for all, and the switch has not received too many changes.
    fn settle(&mut self, pass: u64) {
        for fixture in self.vfs.iter_mut().chain([&mut self.pf]) {
            fixture.settle(pass);
        }
        let told = self.clerk.book().told;
        let most = self.may_tell + 3 * ALL;
        let now = told - self.told;
        assert!(
            now <= most,
            "the switch was told {now} times, {most} at most"
        );
        (self.told, self.may_tell) = (told, 0);
    }

    fn step(&mut self, op: u8, input: &mut Input<'_>) {
        let more = u32::from(op >> 4);
        let vf = more % VFS;
        let fixture = &mut self.vfs[vf as usize];
        match op & 15 {
            0..=3 => {
                let (base, words) = PLACES[usize::from(input.u8()) % PLACES.len()];
                let at = base + 4 * (u64::from(more) * 37 % (words + 1));
                let value = input.value();
                if at == CTRL && value & RST != 0 {
                    self.may_tell += ALL;
                }
                self.pf.w(at, value);
            }
            4 => {
                let at = u64::from(input.u16()) * 2;
                let bytes = input.u64().to_le_bytes();
                let bytes = &bytes[..1 << (more & 3)];
                // Any part of CTRL may be its reset.
                self.may_tell += ALL;
                self.pf.nic.control.write(&self.pf.env, 0, at, bytes);
            }
            5 => {
                self.pf.r(u64::from(input.u16()) * 2);
            }
            6 => {
                let at = match input.u8() {
                    at @ 0..=63 => VMBMEM + 4 * u64::from(at & 15),
                    at @ 64..=127 => [0, 0x1524, 0x1740, 0x2818][usize::from(at & 3)],
                    _ => V2PMAILBOX,
                };
                self.may_tell += 1;
                fixture.w(at, input.value());
            }
            7 => {
                let flags = fixture.r(V2PMAILBOX);
                assert_ne!(flags & (VFU | PFU), VFU | PFU, "both have the buffer");
                assert_ne!(flags & (RSTI | RSTD), RSTI | RSTD, "in reset and not");
            }
            8 => {
                self.may_tell += 1;
                fixture.w(CTRL, RST);
                assert!(self.is_silent(vf), "it has been reset");
            }
            9 => {
                self.settle(u64::from(input.u8()) * 1_000_000);
                self.check();
            }
            10 => {
                self.enabled = (more % 6).min(VFS);
                self.pf.pci((more % 6) as u16);
            }
            11 if more == 15 => {
                self.may_tell += 2 * ALL;
                self.enabled = 0;
                let Fixture { nic, env, .. } = &mut self.pf;
                nic.control.reset(env, ResetKind::Bus);
                self.pf.pci(0);
            }
            11 => {
                self.may_tell += 1;
                fixture.nic.control.reset(&fixture.env, ResetKind::Bus);
                fixture.pci(0);
                assert!(self.is_silent(vf), "the bus has reset it");
            }
            12 => self.go_on(),
            13 => {
                self.hub.spoofed(more, 3);
                self.settle(0);
                let told = self.pf.r(WVBR);
                let wanted = u32::from(more < VFS) << more;
                assert_eq!(told & wanted, wanted, "WVBR");
                assert_eq!(self.pf.r(WVBR), 0, "cleared by reading");
            }
            14 => self.set_up(vf),
            _ => {
                fixture.w(V2PMAILBOX, VFU);
                fixture.w(V2PMAILBOX, REQ);
                let causes = self.pf.r(MBVFICR);
                let gone = !0 << self.there() & 0xff;
                assert_eq!(causes & (gone | gone << 16), 0, "those are not there");
            }
        }
    }

    fn is_silent(&self, vf: u32) -> bool {
        let pool = self.pool(vf);
        !pool.sends && !pool.receives
    }

    /// What Linux's driver does, and what it grants a VF that asks for its address.
    fn set_up(&mut self, vf: u32) {
        let pf = &mut self.pf;
        pf.w(CTRL, 1 << 6);
        pf.w(MRQC, 3);
        pf.w(VT_CTL, 1 << 30 | VFS << 7);
        pf.w(RCTL, 1 << 1 | 1 << 18);
        pf.w(TCTL, 1 << 1);
        pf.w(CTRL_EXT, PFRSTD);
        let at = RAL + 8 * u64::from(15 - vf);
        pf.w(at, 0x7600_5452);
        pf.w(at + 4, 1 << 31 | 1 << (18 + vf) | vf << 8);
        for which in [VFRE, VFTE] {
            let bits = pf.r(which);
            pf.w(which, bits | 1 << vf);
        }
    }

    /// The PF is saved, and goes on as what was saved: nothing changes at the switch.
    fn go_on(&mut self) {
        self.settle(0);
        let (policies, for_all) = {
            let book = self.clerk.book();
            (book.policies.clone(), book.for_all.clone())
        };
        let Fixture { nic, env, .. } = &mut self.pf;
        let blob = nic.control.save(env);
        nic.control.load(env, &blob).expect("its own state");
        assert_eq!(nic.control.save(env), blob, "saved, loaded and saved");
        self.settle(0);
        let book = self.clerk.book();
        assert_eq!(book.for_all, for_all);
        assert!(book.policies == policies, "other pools after a load");
    }

    /// What holds at the end of a turn, read from the registers anew.
    fn check(&mut self) {
        let there = self.there();
        let pf = &mut self.pf;
        let ready = pf.r(CTRL_EXT) & PFRSTD != 0 && matches!(pf.r(MRQC) & 7, 3 | 5);
        let (rctl, tctl) = (pf.r(RCTL), pf.r(TCTL));
        let [vfre, vfte, checks] = [VFRE, VFTE, DTXSWC].map(|at| pf.r(at));
        let iov = pf.r(STATUS) >> 14 & 0x1f;
        let enabled = self.enabled;
        assert_eq!(iov, if enabled > 0 { 16 | enabled } else { 0 });
        let vlvf: Vec<u32> = (0..32).map(|n| pf.r(VLVF + 4 * n)).collect();
        let entry = |n: u64| match n {
            0..16 => RAL + 8 * n,
            n => RAL2 + 8 * (n - 16),
        };
        let words: Vec<_> = (0..24)
            .map(|n| (pf.r(entry(n)), pf.r(entry(n) + 4)))
            .collect();
        let chosen = pf.r(RTTDQSEL);
        for vf in 0..VFS {
            let FunctionPolicy { pool, rate, .. } = self.policy(vf);
            assert!(pool.enabled || !pool.sends && !pool.receives);
            let on = |bits: u32| bits >> vf & 1 != 0;
            let may = ready && vf < there;
            assert_eq!(pool.receives, may && on(vfre) && rctl & 2 != 0);
            assert_eq!(pool.sends, may && on(vfte) && tctl & 2 != 0);
            let grant = self.hub.channel(vf).expect("a VF").grant();
            assert_eq!(grant.enabled, pool.sends || pool.receives);
            assert!(grant.max_frame <= 9728);
            if !grant.enabled {
                // It has its addresses and nothing else.
                assert!(may || pool.macs.is_empty());
                let nobody = Pool {
                    enabled: !pool.macs.is_empty(),
                    macs: pool.macs.clone(),
                    filters_vlans: pool.filters_vlans,
                    vlans: pool.vlans.clone(),
                    ..Pool::default()
                };
                assert_eq!((pool, rate), (nobody, None));
                continue;
            }
            for mac in &pool.macs {
                let stands = |(low, high): &(u32, u32)| {
                    low.to_le_bytes() == mac.0[..4]
                        && high.to_le_bytes()[..2] == mac.0[4..]
                        && high >> 31 == 1
                        && on(high >> 18)
                };
                assert!(words.iter().any(stands), "{mac} is not its own");
            }
            assert_eq!(pool.filters_vlans, rctl >> 18 & 1 == 1);
            for id in tags(&pool.vlans) {
                let stands = |entry: &u32| {
                    entry >> 31 == 1 && on(entry >> 12) && entry & 0xfff == u32::from(id)
                };
                assert!(vlvf.iter().any(stands), "VLAN {id} is not its own");
            }
            let pf = &mut self.pf;
            assert_eq!(pool.check_mac, on(checks));
            assert_eq!(pool.check_vlan, on(checks >> 8));
            assert_eq!(pool.own, on(checks >> 16));
            assert_eq!(pool.outward, checks >> 31 == 0);
            let vmolr = pf.r(VMOLR + 4 * u64::from(vf));
            assert_eq!(pool.vlans.contains(0), vmolr >> 24 & 1 == 1);
            let vmvir = pf.r(VMVIR + 4 * u64::from(vf));
            let tag = (vmvir >> 30 == 1).then_some(vmvir as u16);
            assert_eq!(
                (pool.only_vlan, grant.tag),
                (tag.map(|tci| tci & 0xfff), tag)
            );
            let limited = [vf, vf + 8].map(|queue| {
                pf.w(RTTDQSEL, queue);
                let value = pf.r(RTTBCNRC);
                value >> 31 == 1 && value & 0x0fff_ffff != 0
            });
            assert_eq!(rate.is_some(), pool.sends && limited != [false; 2]);
        }
        self.pf.w(RTTDQSEL, chosen);
        self.check_windows(there);
        self.check_fabric(&vlvf, there);
        self.check_counters();
    }

    /// Behind the PF's addresses are the queues of its VFs, or none of them.
    fn check_windows(&mut self, there: u32) {
        let shown = self.enabled > 0 || matches!(self.pf.r(MRQC) & 7, 3 | 5);
        for vf in 0..if shown { there } else { 0 } {
            for queue in 0..2 {
                for offset in [0, 8, 0x10, 0x18, 0x28] {
                    let number = u64::from(vf) + 8 * queue;
                    let [rx, tx] =
                        [0xc000, 0xe000].map(|at| self.pf.r(at + 0x40 * number + offset));
                    let own = &mut self.vfs[vf as usize];
                    let own = [0x2800, 0x3800].map(|at| own.r(at + 0x100 * queue + offset));
                    assert_eq!([rx, tx], own, "queue {queue} of VF {vf}, {offset:#x}");
                }
            }
        }
    }

    fn check_fabric(&mut self, vlvf: &[u32], there: u32) {
        let (fabric, _) = self.clerk.book().for_all.clone();
        let on = matches!(self.pf.r(MRQC) & 7, 3 | 5);
        let local = |id: u16| {
            let mut entries = vlvf.iter();
            entries.any(|e| e >> 31 == 1 && e >> 20 & 1 == 1 && e & 0xfff == u32::from(id))
        };
        assert!(tags(&fabric.local).all(local));
        let filters = on && self.pf.r(RCTL) >> 18 & 1 == 1;
        assert_eq!(fabric.known.is_some(), filters);
        if let Some(known) = &fabric.known {
            let table = std::array::from_fn(|at| self.pf.r(VFTA + 4 * at as u64));
            assert_eq!(*known, VlanSet::of_table(&table));
        }
        let rules: Vec<_> = (0..4).map(|n| self.pf.r(VMRCTL + 4 * n)).collect();
        let active = rules.iter().filter(|rule| **rule & 0xf != 0).count();
        assert_eq!(fabric.mirrors.len(), if on { active } else { 0 });
        for mirror in &fabric.mirrors {
            let all = mirror.of.iter().chain([&mirror.to]);
            for owner in all {
                assert!(!matches!(owner, Owner::Vf(vf) if *vf >= there), "{owner:?}");
            }
        }
    }

    /// Counters never fall.
    fn check_counters(&mut self) {
        let mut now = Vec::new();
        for fixture in self.vfs.iter().chain([&self.pf]) {
            fixture.nic.control.counters(&mut |_, n| now.push(n));
        }
        let fell = self.counters.iter().zip(&now).any(|(old, new)| new < old);
        assert!(!fell, "a counter has fallen");
        self.counters = now;
    }

    /// Whatever was written: the PF's reset, and all is as new.
    fn start_anew(&mut self) {
        self.enabled = 0;
        let Fixture { nic, env, .. } = &mut self.pf;
        nic.control.reset(env, ResetKind::Bus);
        self.pf.pci(0);
        self.may_tell += 2 * ALL;
        self.settle(0);
        assert_eq!(self.clerk.book().for_all, Default::default());
        assert!((0..VFS).all(|vf| self.is_silent(vf)), "the PF is in reset");
        for vf in 0..VFS {
            self.may_tell += 1;
            self.set_up(vf);
            // PFRSTD has let it go on; what it may it may after its own reset.
            self.vfs[vf as usize].w(CTRL, RST);
            self.set_up(vf);
        }
        self.settle(0);
        self.check();
        for vf in 0..VFS {
            let pool = self.pool(vf);
            assert!(pool.sends && pool.receives, "VF {vf} has not come back");
            let fixture = &mut self.vfs[vf as usize];
            fixture.r(V2PMAILBOX);
            fixture.w(V2PMAILBOX, VFU);
            fixture.w(V2PMAILBOX, REQ);
            assert_eq!(self.pf.r(MBVFICR) >> vf & 1, 1, "VF {vf} is not heard");
        }
    }
}

fn mac(n: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 0x76, 0, n]
}
