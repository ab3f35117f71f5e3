//! DMA: by mapping where the client gave a file descriptor, by message where it did not.

use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use guest_mem::{Fault, FaultKind, Memory};
use parking_lot::{Condvar, Mutex};
use rustix::event::EventfdFlags;

use crate::codec::{Command, DmaAccess, HEADER_LEN, Header};
use crate::stream::Sender;
use peer::event;

/// Requests that may wait at once; a device that queues more is told so.
const MAX_QUEUED: usize = 256;

/// Most data of one message, and of all messages on their way at once. QEMU (seen with 11.1.3)
/// cannot go on with a reply that its socket's send buffer takes only in part: from about 200 KiB
/// on, the connection hangs for good.
const MAX_CHUNK: usize = 32 << 10;
const MAX_ON_THE_WAY: usize = 64 << 10;

/// Messages on their way at once.
const MAX_OUTSTANDING: usize = 16;

/// Longest single request.
const MAX_LEN: usize = 64 << 20;

/// Names a request of [`Dma::read`] or [`Dma::write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DmaToken(u64);

/// Why a DMA failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DmaError {
    /// Nothing is mapped there, or not for this direction.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The client refused, with this errno.
    #[error("the client refused the DMA message with errno {0}")]
    Refused(u32),
    /// The client's reply did not fit the request.
    #[error("the client's reply does not fit the request")]
    BadReply,
    /// No client is connected, or it left before it answered.
    #[error("no client is connected")]
    Disconnected,
    /// The region was unmapped before the client answered.
    #[error("the region was unmapped before the client answered")]
    Unmapped,
    /// The client did not answer in time.
    #[error("the client did not answer in time")]
    TimedOut,
    /// Too many requests wait, or one is too long.
    #[error("too many requests are waiting, or one is longer than 64 MiB")]
    Busy,
    /// A blocking call on the thread that has to carry the answer.
    #[error("a blocking DMA on the thread that serves the client would never end")]
    WouldDeadlock,
}

type Outcome = Result<Vec<u8>, DmaError>;

#[derive(Default)]
struct Waiter {
    outcome: Mutex<Option<Outcome>>,
    done: Condvar,
}

struct Request {
    token: DmaToken,
    write: bool,
    iova: u64,
    data: Vec<u8>,
    waiter: Option<Arc<Waiter>>,
}

#[derive(Default)]
struct Queue {
    requests: VecDeque<Request>,
    next_token: u64,
    connected: bool,
}

struct DmaState {
    memory: Memory,
    queue: Mutex<Queue>,
    filled: AtomicBool,
    /// Made when a device wants to ask for memory: most devices never do, and a descriptor for each
    /// of a thousand of them is a thousand.
    wake: OnceLock<OwnedFd>,
}

thread_local! {
    /// The server (by the address of its shared part) that this thread is inside of.
    static INSIDE: Cell<usize> = const { Cell::new(0) };
}

/// A device's way to guest memory. Clones are the same; any thread may use them.
///
/// [`memory`](Self::memory) is the fast way, and the only one a hot path should know. Requests
/// through [`read`](Self::read) and [`write`](Self::write) reach every region, also those without a
/// file descriptor, by asking the client; the answer comes later, through
/// [`Device::dma_done`](crate::Device::dma_done).
#[derive(Clone)]
pub struct Dma(Arc<DmaState>);

impl Dma {
    pub(crate) fn new(memory: Memory) -> Self {
        Self(Arc::new(DmaState {
            memory,
            queue: Mutex::default(),
            filled: AtomicBool::new(false),
            wake: OnceLock::new(),
        }))
    }

    /// Makes what wakes the server, and has it watched, unless that was done.
    pub(crate) fn make_wake(
        &self,
        watch: impl FnOnce(BorrowedFd<'_>) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        if self.0.wake.get().is_none() {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            let fd = rustix::event::eventfd(0, flags)?;
            watch(fd.as_fd())?;
            // A second one, of another thread's, is closed, and what is closed is not watched.
            let _ = self.0.wake.set(fd);
        }
        Ok(())
    }

    /// The mapped part of guest memory.
    pub fn memory(&self) -> &Memory {
        &self.0.memory
    }

    /// Reads `len` bytes at `iova`; the result arrives as `dma_done` with this token.
    ///
    /// # Errors
    /// [`DmaError::Busy`] or [`DmaError::Disconnected`] at once; everything else arrives later.
    pub fn read(&self, iova: u64, len: usize) -> Result<DmaToken, DmaError> {
        if len > MAX_LEN {
            return Err(DmaError::Busy);
        }
        self.enqueue(false, iova, vec![0; len], None)
    }

    /// Writes `data` at `iova`; the end arrives as `dma_done` with this token.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn write(&self, iova: u64, data: Vec<u8>) -> Result<DmaToken, DmaError> {
        self.enqueue(true, iova, data, None)
    }

    /// Reads into `data` and waits for it, at most `timeout`. For threads other than the one that
    /// serves the client, and not while holding a [`View`](guest_mem::View): an unmap that waits
    /// for the view would keep the answer from coming.
    ///
    /// # Errors
    /// Any [`DmaError`].
    pub fn read_blocking(
        &self,
        iova: u64,
        data: &mut [u8],
        timeout: Duration,
    ) -> Result<(), DmaError> {
        if self.0.memory.view().read(iova, data).is_ok() {
            return Ok(());
        }
        let got = self.wait(false, iova, vec![0; data.len()], timeout)?;
        data.copy_from_slice(&got);
        Ok(())
    }

    /// Writes `data` and waits until the client has it, at most `timeout`. The same rules as for
    /// [`read_blocking`](Self::read_blocking).
    ///
    /// # Errors
    /// Any [`DmaError`].
    pub fn write_blocking(
        &self,
        iova: u64,
        data: &[u8],
        timeout: Duration,
    ) -> Result<(), DmaError> {
        if self.0.memory.view().write(iova, data).is_ok() {
            return Ok(());
        }
        self.wait(true, iova, data.to_vec(), timeout).map(drop)
    }

    fn wait(&self, write: bool, iova: u64, data: Vec<u8>, timeout: Duration) -> Outcome {
        if INSIDE.get() == self.key() {
            return Err(DmaError::WouldDeadlock);
        }
        let waiter = Arc::new(Waiter::default());
        self.enqueue(write, iova, data, Some(Arc::clone(&waiter)))?;
        self.wake();
        let mut outcome = waiter.outcome.lock();
        waiter
            .done
            .wait_while_for(&mut outcome, |o| o.is_none(), timeout);
        outcome.take().unwrap_or(Err(DmaError::TimedOut))
    }

    fn enqueue(
        &self,
        write: bool,
        iova: u64,
        data: Vec<u8>,
        waiter: Option<Arc<Waiter>>,
    ) -> Result<DmaToken, DmaError> {
        let mut queue = self.0.queue.lock();
        if !queue.connected {
            return Err(DmaError::Disconnected);
        }
        if queue.requests.len() >= MAX_QUEUED || data.len() > MAX_LEN {
            return Err(DmaError::Busy);
        }
        let token = DmaToken(queue.next_token);
        queue.next_token += 1;
        queue.requests.push_back(Request {
            token,
            write,
            iova,
            data,
            waiter,
        });
        drop(queue);
        self.0.filled.store(true, Ordering::Release);
        if INSIDE.get() != self.key() {
            self.wake();
        }
        Ok(token)
    }

    fn key(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// Marks this thread as the one that serves the client, until the guard is dropped.
    pub(crate) fn enter(&self) -> Inside {
        Inside(INSIDE.replace(self.key()))
    }

    pub(crate) fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.wake.get().map(AsFd::as_fd)
    }

    fn wake(&self) {
        if let Some(fd) = self.wake_fd() {
            let _ = event::signal(fd);
        }
    }
}

pub(crate) struct Inside(usize);

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.0);
    }
}

/// A finished request.
pub(crate) struct Done {
    token: DmaToken,
    waiter: Option<Arc<Waiter>>,
    outcome: Outcome,
}

impl Done {
    /// Wakes the thread that waits, or gives the result back for the device.
    pub fn deliver(self) -> Option<(DmaToken, Outcome)> {
        match self.waiter {
            Some(waiter) => {
                *waiter.outcome.lock() = Some(self.outcome);
                waiter.done.notify_one();
                None
            }
            None => Some((self.token, self.outcome)),
        }
    }
}

/// A request that is being carried out.
struct Active {
    request: Request,
    /// Bytes asked for so far, and bytes answered.
    asked: usize,
    answered: usize,
}

struct Chunk {
    id: u16,
    token: DmaToken,
    offset: usize,
    len: usize,
}

/// Carries requests out, on the server's thread.
pub(crate) struct Engine {
    dma: Dma,
    active: VecDeque<Active>,
    chunks: Vec<Chunk>,
    done: VecDeque<Done>,
    next_id: u16,
    max_data: usize,
    pub messages: u64,
    pub bytes: u64,
}

impl Engine {
    pub fn new(dma: Dma) -> Self {
        Self {
            dma,
            active: VecDeque::new(),
            chunks: Vec::with_capacity(MAX_OUTSTANDING),
            done: VecDeque::new(),
            next_id: 0,
            max_data: MAX_CHUNK,
            messages: 0,
            bytes: 0,
        }
    }

    pub fn connect(&mut self, max_data: usize) {
        self.max_data = max_data.clamp(1, MAX_CHUNK);
        self.dma.0.queue.lock().connected = true;
    }

    /// Nothing is asked for that has not been answered and delivered.
    pub fn is_idle(&self) -> bool {
        self.active.is_empty()
            && self.done.is_empty()
            && self.dma.0.queue.lock().requests.is_empty()
    }

    /// The client is gone: everything fails.
    pub fn disconnect(&mut self) {
        let waiting: Vec<Request> = {
            let mut queue = self.dma.0.queue.lock();
            queue.connected = false;
            queue.requests.drain(..).collect()
        };
        self.chunks.clear();
        let active = self.active.drain(..).map(|a| a.request);
        for request in active.chain(waiting) {
            self.done.push_back(Done {
                token: request.token,
                waiter: request.waiter,
                outcome: Err(DmaError::Disconnected),
            });
        }
    }

    /// A region is going away: what is asked of it is over.
    pub fn unmapped(&mut self, iova: u64, len: u64) {
        let last = iova.saturating_add(len.saturating_sub(1));
        let mut at = 0;
        while let Some(active) = self.active.get(at) {
            let request = &active.request;
            let end = request
                .iova
                .saturating_add((request.data.len() as u64).saturating_sub(1));
            if request.iova <= last && end >= iova {
                self.finish(at, Err(DmaError::Unmapped));
            } else {
                at += 1;
            }
        }
    }

    /// The device has asked for something that was not looked at yet.
    pub fn has_new(&self) -> bool {
        self.dma.0.filled.load(Ordering::Acquire)
    }

    /// The next finished request.
    pub fn take_done(&mut self) -> Option<Done> {
        self.done.pop_front()
    }

    /// Takes new requests and sends what may be sent.
    pub fn pump(&mut self, tx: &mut Sender) {
        if self.dma.0.filled.swap(false, Ordering::AcqRel) {
            let requests: Vec<Request> = self.dma.0.queue.lock().requests.drain(..).collect();
            for request in requests {
                self.start(request);
            }
        }
        let mut at = 0;
        let mut on_the_way: usize = self.chunks.iter().map(|c| c.len).sum();
        while self.chunks.len() < MAX_OUTSTANDING && on_the_way < MAX_ON_THE_WAY {
            let Some(active) = self.active.get_mut(at) else {
                break;
            };
            let left = active.request.data.len() - active.asked;
            if left == 0 {
                at += 1;
                continue;
            }
            let len = left.min(self.max_data);
            let offset = active.asked;
            active.asked += len;
            on_the_way += len;
            let mut id = self.next_id;
            while self.chunks.iter().any(|c| c.id == id) {
                id = id.wrapping_add(1);
            }
            self.next_id = id.wrapping_add(1);
            self.chunks.push(Chunk {
                id,
                token: active.request.token,
                offset,
                len,
            });
            let access = DmaAccess {
                iova: active.request.iova.wrapping_add(offset as u64),
                count: len as u64,
            }
            .to_bytes();
            self.messages += 1;
            self.bytes += len as u64;
            if active.request.write {
                let header = Header::command(id, Command::DmaWrite, access.len() + len);
                let data = &active.request.data[offset..offset + len];
                tx.push_data(&header, &access, len).copy_from_slice(data);
            } else {
                tx.push(
                    &Header::command(id, Command::DmaRead, access.len()),
                    &access,
                );
            }
        }
    }

    /// Carries a request out by mapping if that works, and queues it for messages if not.
    fn start(&mut self, mut request: Request) {
        let view = self.dma.0.memory.view();
        let mapped = if request.write {
            view.write(request.iova, &request.data)
        } else {
            view.read(request.iova, &mut request.data)
        };
        drop(view);
        let outcome = match mapped {
            Ok(()) => Ok(()),
            Err(fault) if fault.kind == FaultKind::NoFd => {
                self.active.push_back(Active {
                    request,
                    asked: 0,
                    answered: 0,
                });
                return;
            }
            Err(fault) => Err(fault.into()),
        };
        let data = std::mem::take(&mut request.data);
        self.done.push_back(Done {
            token: request.token,
            waiter: request.waiter,
            outcome: outcome.map(|()| if request.write { Vec::new() } else { data }),
        });
    }

    /// Takes a reply. False when there is no request for it.
    pub fn reply(&mut self, header: &Header, payload: &[u8]) -> bool {
        let Some(at) = self.chunks.iter().position(|c| c.id == header.id) else {
            return false;
        };
        let chunk = self.chunks.swap_remove(at);
        let Some(at) = self
            .active
            .iter()
            .position(|a| a.request.token == chunk.token)
        else {
            // Its request is over already (unmapped).
            return true;
        };
        let active = &mut self.active[at];
        let expected = if active.request.write {
            Command::DmaWrite
        } else {
            Command::DmaRead
        };
        if header.is_error() {
            self.finish(at, Err(DmaError::Refused(header.error)));
            return true;
        }
        let fits = DmaAccess::parse(payload).is_ok_and(|a| a.count == chunk.len as u64);
        let data = payload.get(DmaAccess::LEN..).unwrap_or_default();
        let whole = active.request.write || data.len() == chunk.len;
        if header.command != expected as u16 || !fits || !whole {
            self.finish(at, Err(DmaError::BadReply));
            return true;
        }
        debug_assert_eq!(header.size as usize, HEADER_LEN + payload.len());
        if !active.request.write {
            active.request.data[chunk.offset..chunk.offset + chunk.len].copy_from_slice(data);
        }
        active.answered += chunk.len;
        if active.answered == active.request.data.len() {
            self.finish(at, Ok(()));
        }
        true
    }

    /// Ends a request. Replies to its other messages will find no request.
    fn finish(&mut self, at: usize, outcome: Result<(), DmaError>) {
        if let Some(active) = self.active.remove(at) {
            let request = active.request;
            let data = if request.write {
                Vec::new()
            } else {
                request.data
            };
            self.done.push_back(Done {
                token: request.token,
                waiter: request.waiter,
                outcome: outcome.map(|()| data),
            });
        }
    }
}
