//! How to run the rings in poll mode.

use crate::e1000::config::Config;

/// Most bytes one descriptor is given. The chip takes 16288 (manual 3.3.3).
pub(super) const LONGEST_PIECE: u32 = 16128;

/// How to run the rings beyond what [`Config`] says.
#[derive(Clone, Debug)]
pub struct PollConfig {
    /// Device, rings and offloads. `report_every` and `refill` are the lots in which descriptors
    /// come back.
    pub device: Config,
    /// The longest frame to be sent, in bytes; before segmentation.
    pub longest: u32,
    /// Take descriptors back by reading TDH, which is a question to the device, and ask for no
    /// reports at all. With a CSB it is a look at the block.
    pub reclaim_by_head: bool,
    /// Use a Communication Status Block: the device must offer one.
    pub csb: bool,
}

impl PollConfig {
    /// Rings of 256, frames of MTU size, buffers as far apart as a packet buffer's bookkeeping
    /// puts them (which also spreads them over the cache), reports and refills by 32.
    pub fn new() -> Self {
        Self {
            device: Config {
                tx_ring: 256,
                rx_ring: 256,
                tx_stride: 2048 + 256,
                rx_stride: 2048 + 256,
                ..Config::poll()
            },
            longest: 1514,
            reclaim_by_head: false,
            csb: false,
        }
    }

    /// The same with rings of so many descriptors: a multiple of 8, from 80 to 4096 as the stock
    /// driver takes them.
    #[must_use]
    pub fn rings(mut self, tx: u32, rx: u32) -> Self {
        self.device.tx_ring = tx;
        self.device.rx_ring = rx;
        self.device.report_every = (tx / 4).clamp(1, 32);
        self.device.refill = (rx / 4).clamp(1, 32);
        self
    }

    /// The same for frames of up to `longest` bytes sent, and received whole in one buffer up to
    /// `received` bytes where the chip has one of that size.
    #[must_use]
    pub fn frames(mut self, longest: u32, received: u32) -> Self {
        self.longest = longest;
        let sizes = [2048, 4096, 8192, 16384];
        // The CRC is stripped before it reaches memory.
        let size = sizes.into_iter().find(|&size| received <= size);
        self.device.rx_buffer = size.unwrap_or(16384);
        self.device.rx_stride = self.device.rx_buffer + 256;
        self.device.long_packets = received > 1518;
        if longest > self.device.tx_buffer {
            self.device.tx_buffer = longest.next_multiple_of(64).min(LONGEST_PIECE);
            self.device.tx_stride = self.device.tx_buffer + 256;
        }
        self
    }
}

impl Default for PollConfig {
    fn default() -> Self {
        Self::new()
    }
}
