//! Features, status, configuration space and what else is said of the whole device.

use super::{Session, offered_features, offered_protocol};
use crate::answer::{Refusal, Reply};
use crate::backend::Backend;
use crate::codec::{Config, MAX_CONFIG, feature};

/// Bits of the virtio device status.
const NEEDS_RESET: u8 = 0x40;

impl Session {
    pub(super) fn set_features(
        &mut self,
        backend: &mut dyn Backend,
        features: u64,
    ) -> Result<Reply, Refusal> {
        if features & !offered_features(backend) != 0 {
            return Err("it has features that were not offered".into());
        }
        let own = !(feature::LOG_ALL | feature::PROTOCOL);
        if features & own != self.features & own {
            if self.ring_runs() {
                return Err("it changes features while a ring runs".into());
            }
            backend
                .set_features(features & own)
                .map_err(|refused| Refusal::Soft(refused.0))?;
        }
        let changed = features ^ self.features;
        self.features = features;
        if changed & feature::LOG_ALL != 0 {
            self.tell_log(backend);
        }
        if features & feature::PROTOCOL == 0 {
            for queue in 0..self.queues() {
                self.enable(backend, queue, true)?;
            }
        }
        Ok(Reply::Done)
    }

    pub(super) fn set_protocol(
        &mut self,
        backend: &mut dyn Backend,
        features: u64,
    ) -> Result<Reply, Refusal> {
        if features & !offered_protocol(backend) != 0 {
            return Err("it has protocol features that were not offered".into());
        }
        self.protocol = features;
        Ok(Reply::Done)
    }

    /// All rings end, and the device is as new. Memory and negotiated features stay.
    pub(super) fn reset(&mut self, backend: &mut dyn Backend) {
        for queue in 0..self.queues() {
            self.stop_ring(backend, queue);
            self.forget_ring(queue);
            self.forget_note(queue);
            if std::mem::take(&mut self.ring(queue).enabled) {
                backend.enable(queue, false);
            }
        }
        self.status = 0;
        self.counters.resets += 1;
        backend.reset();
        // The next SET_FEATURES is news to the device, whatever it says.
        self.features &= feature::LOG_ALL | feature::PROTOCOL;
    }

    pub(super) fn set_status(
        &mut self,
        backend: &mut dyn Backend,
        status: u64,
    ) -> Result<Reply, Refusal> {
        let Ok(status) = u8::try_from(status) else {
            return Err("a device status has 8 bits".into());
        };
        if status == 0 {
            self.reset(backend);
        } else {
            self.status = status;
            backend.set_status(status);
        }
        Ok(Reply::Done)
    }

    pub(super) fn status(&self, backend: &dyn Backend) -> u64 {
        let broken = if backend.needs_reset() {
            NEEDS_RESET
        } else {
            0
        };
        u64::from(self.status | broken)
    }

    pub(super) fn get_config(backend: &mut dyn Backend, config: &Config<'_>) -> Reply {
        let mut data = [0; MAX_CONFIG];
        let data = &mut data[..config.data.len()];
        let read = backend.config_read(config.offset as usize, data);
        // A reply without data says that there is none.
        let data = if read { &*data } else { &[] };
        let mut bytes = Vec::with_capacity(Config::LEN + data.len());
        for word in [config.offset, data.len() as u32, config.flags] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        bytes.extend_from_slice(data);
        Reply::Bytes(bytes)
    }

    pub(super) fn set_config(
        backend: &mut dyn Backend,
        config: &Config<'_>,
    ) -> Result<Reply, Refusal> {
        let migration = match config.flags {
            0 => false,
            1 => true,
            _ => return Err("its flags are not known".into()),
        };
        backend
            .config_write(config.offset as usize, config.data, migration)
            .map(|()| Reply::Done)
            .map_err(|refused| Refusal::Soft(refused.0))
    }

    pub(super) fn set_mtu(backend: &mut dyn Backend, mtu: u64) -> Result<Reply, Refusal> {
        let mtu = u16::try_from(mtu)
            .ok()
            // The least that virtio allows.
            .filter(|mtu| *mtu >= 68)
            .ok_or(Refusal::Soft("an MTU is 68 to 65535"))?;
        backend
            .set_mtu(mtu)
            .map(|()| Reply::Done)
            .map_err(|refused| Refusal::Soft(refused.0))
    }
}
