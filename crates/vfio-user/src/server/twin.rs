//! Our own commands: DMA messages, on the twin socket or the main one.

use std::os::fd::AsFd;

use super::state::Server;
use super::watched::Source;
use crate::device::Device;
use crate::stream::{Filled, Received};

impl Server {
    pub(super) fn serve_twin(&mut self) {
        let Some(twin) = self.connection.as_mut().and_then(|c| c.twin.as_mut()) else {
            return;
        };
        let mut broken = match twin.rx.fill(twin.socket.as_fd()) {
            Ok(Filled::Data | Filled::Empty) => false,
            Ok(Filled::Closed) | Err(_) => true,
        };
        loop {
            match twin.rx.next(&mut self.fds) {
                Ok(Some(Received {
                    header, payload, ..
                })) => {
                    let known = header.is_reply() && self.session.engine.reply(&header, payload);
                    self.session.counters.unexpected_reply += u64::from(!known);
                }
                Ok(None) => break,
                Err(_) => {
                    self.session.counters.malformed_size += 1;
                    broken = true;
                    break;
                }
            }
        }
        self.bury_fds();
        if broken {
            self.drop_twin();
            // What was asked there is never answered; the main socket serves from here on.
            self.session.engine.disconnect();
            self.session.engine.connect(self.session.max_data);
        }
    }

    pub(super) fn drop_twin(&mut self) {
        if let Some(twin) = self.connection.as_mut().and_then(|c| c.twin.take()) {
            self.end(twin.socket.as_fd());
            let c = &mut self.session.counters;
            c.recv_calls += twin.rx.calls;
            c.send_calls += twin.tx.calls;
            c.bytes_in += twin.rx.bytes;
            c.surplus_fds += twin.rx.surplus_fds;
            c.bytes_out += twin.tx.bytes;
        }
    }

    /// Sends DMA requests and hands finished ones to the device. True if there were any.
    pub(super) fn pump_dma(&mut self, device: &mut dyn Device) -> bool {
        if self.session.ready
            && let Some(connection) = &mut self.connection
        {
            let (socket, tx, out, source) = match &mut connection.twin {
                Some(twin) => (
                    &twin.socket,
                    &mut twin.tx,
                    &mut twin.watching_out,
                    Source::Twin,
                ),
                None => (
                    &connection.socket,
                    &mut connection.tx,
                    &mut connection.watching_out,
                    Source::Main,
                ),
            };
            self.session.engine.pump(tx);
            // A broken socket shows at the next read.
            let done = tx.backlog() == 0 || tx.flush(socket.as_fd()).unwrap_or(true);
            if *out == done {
                *out = !done;
                let _ = self.rewatch(source);
            }
        }
        self.deliver_dma(device)
    }

    pub(super) fn deliver_dma(&mut self, device: &mut dyn Device) -> bool {
        let mut any = false;
        while let Some(done) = self.session.engine.take_done() {
            if let Some((token, outcome)) = done.deliver() {
                any = true;
                device.dma_done(token, outcome);
            }
        }
        any
    }
}
