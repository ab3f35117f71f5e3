//! A device that believes nothing of its server.

use guest_mem::Memory;
use vhost_user::codec::protocol;
use vhost_user::{Backend, ClientEvent, DirtyLog, Refused, Ring, Work};

/// What the server has told of a ring.
#[derive(Default)]
struct Told {
    ring: Option<Ring>,
    enabled: bool,
}

/// Checks what the server tells.
pub struct Device {
    memory: Memory,
    rings: Vec<Told>,
    features: u64,
    log: Option<DirtyLog>,
    connected: bool,
    /// What a ring is stopped at.
    stops: u32,
}

impl Device {
    pub fn new(memory: Memory, queues: u16) -> Self {
        Self {
            memory,
            rings: (0..queues).map(|_| Told::default()).collect(),
            features: 0,
            log: None,
            connected: false,
            stops: 0,
        }
    }

    /// Nobody has it: no ring runs, nothing is logged.
    pub fn is_left_alone(&self) {
        for (n, told) in self.rings.iter().enumerate() {
            assert!(told.ring.is_none(), "ring {n} runs for nobody");
            assert!(!told.enabled, "ring {n} is enabled for nobody");
        }
        assert!(self.log.is_none(), "it logs for nobody");
        assert!(!self.connected, "it was not told");
    }

    fn no_ring_runs(&self, what: &str) {
        let runs = self.rings.iter().any(|told| told.ring.is_some());
        assert!(!runs, "{what} while a ring runs");
    }

    /// A part of a ring lies in memory, where a ring's part can.
    fn is_there(&self, at: u64, len: u64, align: u64) {
        assert!(at.is_multiple_of(align), "{at:#x} is not aligned");
        let view = self.memory.view();
        let found = view.read_slices(at, len, &mut |_| {});
        assert!(found.is_ok(), "{at:#x}+{len:#x} is not mapped");
    }
}

impl Backend for Device {
    fn queues(&self) -> u16 {
        self.rings.len() as u16
    }

    fn features(&self) -> u64 {
        1 << 34 | 1 << 32
    }

    fn protocol_features(&self) -> u64 {
        protocol::RARP | protocol::MTU | protocol::CONFIG | protocol::DEVICE_STATE
    }

    fn set_features(&mut self, features: u64) -> Result<(), Refused> {
        self.no_ring_runs("features");
        assert_eq!(features & !self.features(), 0, "what was not offered");
        if features & 1 << 32 == 0 && features != 0 {
            return Err(Refused("no virtio 1"));
        }
        self.features = features;
        Ok(())
    }

    fn start(&mut self, queue: u16, ring: &Ring) -> Result<(), Refused> {
        let told = &self.rings[usize::from(queue)];
        assert!(told.ring.is_none(), "ring {queue} begins twice");
        let n = u64::from(ring.size);
        assert!((1..=32768).contains(&n));
        assert!(ring.packed || n.is_power_of_two());
        self.is_there(ring.descriptors, 16 * n, 16);
        if ring.packed {
            self.is_there(ring.driver, 4, 4);
            self.is_there(ring.device, 4, 4);
        } else {
            self.is_there(ring.driver, 6 + 2 * n, 2);
            self.is_there(ring.device, 6 + 8 * n, 4);
        }
        if ring.base % 7 == 6 {
            return Err(Refused("a base of its own"));
        }
        if let Some(note) = &ring.inflight_packed {
            // It is about to use a buffer, and may die there.
            let used = (ring.base >> 16) as u16;
            let index = (used & 0x7fff) + 1;
            let next = match index < ring.size {
                true => used & 0x8000 | index,
                false => !used & 0x8000,
            };
            note.note(used & 0x7fff, (7, 60, 0x8080), 1);
            note.commit(used, next);
        }
        if let Some(inflight) = &ring.inflight {
            let found = inflight.recover(ring.base as u16);
            assert!(found.iter().all(|head| *head < ring.size));
            inflight.begin(ring.base as u16);
        }
        self.rings[usize::from(queue)].ring = Some(ring.clone());
        Ok(())
    }

    fn stop(&mut self, queue: u16) -> u32 {
        let ring = self.rings[usize::from(queue)].ring.take();
        assert!(ring.is_some(), "ring {queue} ends and has not begun");
        self.stops = self.stops.wrapping_add(1);
        self.stops
    }

    fn enable(&mut self, queue: u16, enabled: bool) {
        let told = &mut self.rings[usize::from(queue)];
        assert_ne!(told.enabled, enabled, "ring {queue} is so already");
        told.enabled = enabled;
    }

    fn kicked(&mut self, queue: u16) {
        let ring = &self.rings[usize::from(queue)].ring;
        let ring = ring.as_ref().expect("a ring that runs");
        if let Some(log) = &self.log {
            log.mark(ring.device, 1);
        }
    }

    fn log_ring(&mut self, queue: u16, _: Option<u64>) {
        let ring = &self.rings[usize::from(queue)].ring;
        assert!(ring.is_some(), "ring {queue} does not run");
    }

    fn set_log(&mut self, log: Option<DirtyLog>) {
        self.log = log;
    }

    fn reset(&mut self) {
        self.no_ring_runs("a reset");
        assert!(self.rings.iter().all(|told| !told.enabled));
    }

    fn set_status(&mut self, status: u8) {
        assert_ne!(status, 0, "that is a reset");
    }

    fn needs_reset(&self) -> bool {
        self.stops % 2 == 1
    }

    fn config_read(&mut self, offset: usize, data: &mut [u8]) -> bool {
        data.fill(offset as u8);
        offset < 128
    }

    fn config_write(&mut self, offset: usize, _: &[u8], _: bool) -> Result<(), Refused> {
        if offset < 64 {
            Ok(())
        } else {
            Err(Refused("not there"))
        }
    }

    fn set_mtu(&mut self, mtu: u16) -> Result<(), Refused> {
        assert!(mtu >= 68);
        Ok(())
    }

    fn save(&mut self) -> Option<Vec<u8>> {
        self.no_ring_runs("saved");
        (self.stops % 3 != 2).then(|| vec![7; 100])
    }

    fn load(&mut self, state: &[u8]) -> Result<(), Refused> {
        self.no_ring_runs("loaded");
        if state.first() == Some(&7) {
            Ok(())
        } else {
            Err(Refused("no state"))
        }
    }

    fn client(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Connected => {
                assert!(!self.connected, "two at a time");
                self.connected = true;
            }
            ClientEvent::Gone(_) => {
                assert!(self.connected, "gone before it came");
                self.connected = false;
            }
            ClientEvent::Declined(line) => {
                assert!(self.connected && !line.is_empty() && !line.contains('\n'));
            }
            ClientEvent::Refused(line) => assert!(!line.is_empty()),
        }
    }

    fn work(&mut self) -> Work {
        Work::Idle
    }
}
