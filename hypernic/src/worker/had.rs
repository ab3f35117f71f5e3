//! What the kernel says of this thread: how long it ran, how long it could not, and how often it slept.

use std::cell::OnceCell;
use std::fs::File;
use std::io::IoSliceMut;

use model::Nanos;
use rustix::io::{ReadWriteFlags, preadv2};

/// What a thread has had.
#[derive(Clone, Copy, Debug)]
pub(super) struct Had {
    /// How long it has run, or would have if there had been a processor for it.
    pub(super) awake: Nanos,
    /// How often it gave its processor up to wait for something.
    pub(super) slept: u64,
}

/// Its times, and its status.
type Files = [File; 2];

thread_local! {
    /// This thread's. They are opened once: a worker cannot open files.
    static FILES: OnceCell<Option<Files>> = const { OnceCell::new() };
}

/// To be called before the thread is confined.
pub(super) fn open() {
    with(|_| Some(()));
}

fn with<T>(read: impl FnOnce(&Files) -> Option<T>) -> Option<T> {
    let open = |name| File::open(format!("/proc/thread-self/{name}"));
    let files = || Some([open("schedstat").ok()?, open("status").ok()?]);
    FILES.with(|kept| read(kept.get_or_init(files).as_ref()?))
}

/// What such a file says now.
fn read<'b>(file: &File, bytes: &'b mut [u8]) -> Option<&'b [u8]> {
    let mut into = [IoSliceMut::new(bytes)];
    // The call with which a worker reads other things too.
    let len = preadv2(file, &mut into, 0, ReadWriteFlags::empty()).ok()?;
    bytes.get(..len)
}

/// How long it has run, and how long it was ready and another thread ran: the first two numbers of `schedstat`.
fn times(line: &[u8]) -> Option<(Nanos, Nanos)> {
    let mut numbers = std::str::from_utf8(line).ok()?.split(' ').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// How long this thread was ready and had no processor. `None`: the kernel does not say.
pub(super) fn ready() -> Option<Nanos> {
    let ready = with(|[stats, _]| times(read(stats, &mut [0; 80])?));
    ready.map(|(_, ready)| ready)
}

/// What this thread has had. `None`: the kernel does not say.
#[cold]
pub(super) fn had() -> Option<Had> {
    with(|[stats, status]| {
        let (ran, ready) = times(read(stats, &mut [0; 80])?)?;
        let mut bytes = [0; 4096];
        let status = std::str::from_utf8(read(status, &mut bytes)?).ok()?;
        let mut lines = status.lines();
        let slept = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        Some(Had {
            awake: ran + ready,
            slept: slept.trim().parse().ok()?,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_number_is_taken() {
        let ready = |line| times(line).map(|(_, ready)| ready);
        assert_eq!(ready(b"123456789 4321 77\n"), Some(4321));
        for bad in [&b""[..], b"1", b"1 x 3", b"\xff 1 2"] {
            assert_eq!(ready(bad), None, "{bad:?}");
        }
    }
}
