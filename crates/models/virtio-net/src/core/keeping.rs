//! From when on a device keeps what outlives its process.

use std::sync::atomic::Ordering;

use model::Kept;

use crate::core::device::{Device, Role};
use crate::core::kept::KeptRing;

impl Device {
    /// From now on keeps in `words` what another process must know that goes on. `false`: it does already.
    pub fn keep(&self, words: Kept) -> bool {
        let mut tx = self.tx.lock();
        let mut rx = self.rx.lock();
        let mut ctrl = self.ctrl.lock();
        if self.kept.set(words.clone()).is_err() {
            return false;
        }
        self.unsaved.keep();
        for queue in 0..self.queues() {
            let ring = match self.role(queue) {
                Some(Role::Rx(pair)) => &mut rx.rings[pair],
                Some(Role::Tx(pair)) => &mut tx.rings[pair],
                Some(Role::Ctrl) => &mut ctrl.ring,
                None => continue,
            };
            if let Some(ring) = ring {
                ring.keep(KeptRing::new(&words, queue));
                ring.delivers();
            }
        }
        true
    }

    /// What has changed is saved. Whether queues are served by that which were not.
    pub fn settled(&self) -> bool {
        self.unsaved.settle();
        self.hold.swap(false, Ordering::AcqRel)
    }

    /// Until what was set up is saved, queues are not served.
    pub(crate) fn hold_on(&self) {
        if self.kept.get().is_some() {
            self.hold.store(true, Ordering::Release);
        }
    }
}
