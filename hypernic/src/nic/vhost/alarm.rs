//! One timer for two: the model's, and the door's own.

use std::sync::Arc;
use std::time::Duration;

use model::{Clock, Nanos, Timer};
use parking_lot::Mutex;

use crate::worker::Task;

/// For whom a deadline is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nic) enum Due {
    /// The model.
    Model,
    /// Rings whose driver does not kick.
    Poll,
}

const ALL: [Due; 2] = [Due::Model, Due::Poll];

/// The timer of a task, for several.
pub(in crate::nic) struct Alarm {
    task: Arc<dyn Timer>,
    clock: Arc<dyn Clock>,
    set: Mutex<[Option<Nanos>; ALL.len()]>,
}

impl Alarm {
    pub fn new(task: &Arc<Task>, clock: &Arc<dyn Clock>) -> Self {
        Self::over(Arc::clone(task) as Arc<dyn Timer>, clock)
    }

    fn over(task: Arc<dyn Timer>, clock: &Arc<dyn Clock>) -> Self {
        Self {
            task,
            clock: Arc::clone(clock),
            set: Mutex::default(),
        }
    }

    pub fn set(&self, whose: Due, deadline: Option<Nanos>) {
        let mut set = self.set.lock();
        let before = soonest(&*set);
        set[whose as usize] = deadline;
        let now = soonest(&*set);
        if now != before {
            self.task.arm(now);
        }
    }

    pub fn set_after(&self, whose: Due, time: Duration) {
        let deadline = self.clock.now() + time.as_nanos() as Nanos;
        self.set(whose, Some(deadline));
    }

    /// The task's deadline has come: whose it was. The others' is set.
    pub fn take(&self) -> impl Iterator<Item = Due> + use<> {
        let mut set = self.set.lock();
        let now = self.clock.now();
        let mut came = [false; ALL.len()];
        for (came, slot) in came.iter_mut().zip(&mut *set) {
            *came = slot.take_if(|deadline| *deadline <= now).is_some();
        }
        self.task.arm(soonest(&*set));
        ALL.into_iter().filter(move |due| came[*due as usize])
    }
}

impl Timer for Alarm {
    fn arm(&self, deadline: Option<Nanos>) {
        self.set(Due::Model, deadline);
    }
}

fn soonest(set: &[Option<Nanos>]) -> Option<Nanos> {
    set.iter().flatten().min().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Fake {
        now: Mutex<Nanos>,
        armed: Mutex<Option<Nanos>>,
    }

    impl Clock for Fake {
        fn now(&self) -> Nanos {
            *self.now.lock()
        }
    }

    impl Timer for Fake {
        fn arm(&self, deadline: Option<Nanos>) {
            *self.armed.lock() = deadline;
        }
    }

    #[test]
    fn each_has_its_own_deadline_and_the_sooner_one_is_set() {
        let fake = Arc::new(Fake::default());
        let clock: Arc<dyn Clock> = fake.clone();
        let alarm = Alarm::over(fake.clone(), &clock);
        alarm.arm(Some(50));
        alarm.set_after(Due::Poll, Duration::from_nanos(20));
        assert_eq!(*fake.armed.lock(), Some(20));
        *fake.now.lock() = 30;
        assert_eq!(alarm.take().collect::<Vec<_>>(), [Due::Poll]);
        assert_eq!(*fake.armed.lock(), Some(50));
        assert_eq!(alarm.take().count(), 0);
        assert_eq!(*fake.armed.lock(), Some(50), "set again");
        alarm.set(Due::Poll, Some(60));
        alarm.arm(None);
        assert_eq!(*fake.armed.lock(), Some(60));
        *fake.now.lock() = 60;
        assert_eq!(alarm.take().collect::<Vec<_>>(), [Due::Poll]);
        assert_eq!(*fake.armed.lock(), None);
    }
}
