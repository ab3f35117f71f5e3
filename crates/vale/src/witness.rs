//! Witnesses: they are shown the frames that a switch loses. Usually there is none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use frame::Batch;
use parking_lot::RwLock;

/// Is shown frames that a switch loses, in the thread of their sender.
pub trait Witness: Send + Sync {
    /// Frames were lost at this port, and this counter of the port rose.
    fn lost(&self, port: &str, batch: &Batch<'_>, picks: &[u16], counter: &'static str);
}

/// Those who are shown what something loses: a switch has them, and what else loses frames may.
#[derive(Default)]
pub struct Witnesses {
    any: AtomicBool,
    all: RwLock<Vec<Arc<dyn Witness>>>,
}

impl Witnesses {
    /// Whether there is a witness. Frames take no short ways then.
    #[inline]
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Shows it what is lost from now on.
    pub fn add(&self, witness: Arc<dyn Witness>) {
        let mut all = self.all.write();
        all.push(witness);
        self.any.store(true, Ordering::Relaxed);
    }

    /// Shows it no more.
    pub fn remove(&self, witness: &Arc<dyn Witness>) {
        let mut all = self.all.write();
        all.retain(|one| !Arc::ptr_eq(one, witness));
        self.any.store(!all.is_empty(), Ordering::Relaxed);
    }

    /// Shows frames to all of them.
    pub fn show(&self, port: &str, batch: &Batch<'_>, picks: &[u16], counter: &'static str) {
        if self.any() && !picks.is_empty() {
            for one in &*self.all.read() {
                one.lost(port, batch, picks, counter);
            }
        }
    }
}
