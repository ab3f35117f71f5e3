//! Threads of a process that confines itself, thread by thread.
//!
//! What a thread may ask the kernel for, its children inherit. A worker may ask for little, and things that it has made on
//! other threads (a file mapped, a descriptor closed) need more. So in a confined process one thread, which may do what
//! the process may, makes all others, and does for them the few calls that they cannot make themselves. A program that
//! never calls [`confine`] has plain threads.
#![forbid(unsafe_code)]

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle, ThreadId};

/// What a thread does, from which follows what it may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It serves NICs.
    Data,
    /// It brings frames in from something that is open already.
    Port,
    /// It brings frames in, and makes connections for that.
    Network,
}

type Order = Box<dyn FnOnce() + Send>;

struct Maker {
    enter: fn(Kind),
    orders: Sender<Order>,
    thread: ThreadId,
}

static MAKER: OnceLock<Maker> = OnceLock::new();

/// From now on, a thread that says its kind is confined by `enter`, and threads are made by one that is not.
///
/// # Errors
/// That thread cannot be had.
pub fn confine(enter: fn(Kind)) -> io::Result<()> {
    let (orders, todo) = channel::<Order>();
    let thread = Builder::new().name("threads".into()).spawn(move || {
        for order in todo {
            // Its giver finds no answer.
            let _ = catch_unwind(AssertUnwindSafe(order));
        }
    })?;
    let thread = thread.thread().id();
    let maker = Maker {
        enter,
        orders,
        thread,
    };
    // A second call changes nothing; its thread ends with its channel.
    let _ = MAKER.set(maker);
    Ok(())
}

/// This thread is of that kind from now on, and so are those that it makes without [`spawn`].
pub fn enter(kind: Kind) {
    if let Some(maker) = MAKER.get() {
        (maker.enter)(kind);
    }
}

/// Starts a thread. It may do what the process may, until it calls [`enter`].
///
/// # Errors
/// None can be had.
pub fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let builder = Builder::new().name(name.into());
    apart(move || builder.spawn(run))
}

/// What `work` gives. In a confined process another thread does it, and this one waits: `work` must not wait for a peer.
pub fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let maker = MAKER.get();
    let Some(maker) = maker.filter(|maker| maker.thread != std::thread::current().id()) else {
        return work();
    };
    let (done, result) = channel();
    let order = move || {
        let _ = done.send(catch_unwind(AssertUnwindSafe(work)));
    };
    // The thread lives as long as the process, and each order answers.
    let sent = maker.orders.send(Box::new(order));
    let answer = sent.ok().and_then(|()| result.recv().ok());
    match answer.expect("the thread that makes threads lives") {
        Ok(value) => value,
        Err(panic) => resume_unwind(panic),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread::current;

    static ENTERED: AtomicUsize = AtomicUsize::new(0);

    #[test]
    fn threads_are_made_by_one_and_confined_when_they_say_what_they_are() {
        // Plain, until the program confines itself.
        enter(Kind::Data);
        assert_eq!(apart(|| current().id()), current().id());
        confine(|kind| {
            assert_eq!(kind, Kind::Data);
            ENTERED.fetch_add(1, Ordering::Relaxed);
        })
        .expect("a thread");
        assert_eq!(ENTERED.load(Ordering::Relaxed), 0);
        let maker = apart(|| current().id());
        assert_ne!(maker, current().id());
        // Work of its own needs nobody else.
        assert_eq!(apart(|| apart(|| current().id())), maker);
        let thread = spawn("a", || {
            enter(Kind::Data);
            (
                current().name().map(str::to_owned),
                apart(|| current().id()),
            )
        });
        let (name, its_maker) = thread.expect("a thread").join().expect("no panic");
        assert_eq!((name.as_deref(), its_maker), (Some("a"), maker));
        assert_eq!(ENTERED.load(Ordering::Relaxed), 1);
        // What fails there fails here, and the maker goes on.
        let failed = catch_unwind(|| apart(|| panic!("on purpose")));
        assert!(failed.is_err() && apart(|| current().id()) == maker);
    }
}
