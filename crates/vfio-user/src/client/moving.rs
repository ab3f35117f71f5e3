//! What a VMM says to a device that moves to another host.

use super::connection::Client;
use super::error::ClientError;
use crate::codec::feature::{self, MigrationState};
use crate::codec::{
    Command, DeviceFeature, LogControl, LogRange, LogReport, Malformed, MigrationData, StateChange,
};
use guest_mem::log_bytes;

impl Client {
    /// Says something about a feature, by [`feature::GET`], [`feature::SET`] or [`feature::PROBE`], and returns the data of the
    /// reply.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn feature(&mut self, flags: u32, data: &[u8]) -> Result<Vec<u8>, ClientError> {
        let ask = DeviceFeature {
            argsz: (DeviceFeature::LEN + data.len()) as u32,
            flags,
        };
        let payload = [&ask.to_bytes()[..], data].concat();
        let reply = self.request(Command::DeviceFeature, &payload, &[])?;
        let found = DeviceFeature::parse(&reply.payload)?;
        if found.flags != flags || found.argsz as usize != reply.payload.len() {
            return Err(Malformed("DeviceFeature: the reply is to something else").into());
        }
        Ok(reply.payload[DeviceFeature::LEN..].to_vec())
    }

    /// The migration states the device has: see [`feature::MIGRATION`].
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn migration(&mut self) -> Result<u64, ClientError> {
        let data = self.feature(feature::GET | feature::MIGRATION, &[])?;
        word(&data)
    }

    /// Bytes of the device's state, about.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn state_size(&mut self) -> Result<u64, ClientError> {
        let data = self.feature(feature::GET | feature::DATA_SIZE, &[])?;
        word(&data)
    }

    /// What the device does.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn migration_state(&mut self) -> Result<MigrationState, ClientError> {
        let data = self.feature(feature::GET | feature::STATE, &[])?;
        state(&data)
    }

    /// Has the device do something else, and says what it does now.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn set_migration_state(
        &mut self,
        to: MigrationState,
    ) -> Result<MigrationState, ClientError> {
        let change = StateChange {
            state: to as u32,
            fd: -1,
        };
        let data = self.feature(feature::SET | feature::STATE, &change.to_bytes())?;
        state(&data)
    }

    /// Reads the state of a device that is in [`MigrationState::StopCopy`], by so many bytes at once.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn read_state(&mut self, at_once: u32) -> Result<Vec<u8>, ClientError> {
        let ask = MigrationData {
            argsz: MigrationData::LEN as u32,
            size: at_once,
        };
        let mut all = Vec::new();
        loop {
            let reply = self.request(Command::MigrationRead, &ask.to_bytes(), &[])?;
            let found = MigrationData::parse(&reply.payload)?;
            let data = &reply.payload[MigrationData::LEN..];
            if data.len() != found.size as usize || found.size > at_once {
                return Err(Malformed("MigrationData: another length than it says").into());
            }
            all.extend_from_slice(data);
            if found.size < at_once || at_once == 0 {
                return Ok(all);
            }
        }
    }

    /// Gives a device that is in [`MigrationState::Resuming`] a state, by so many bytes at once.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn write_state(&mut self, all: &[u8], at_once: usize) -> Result<(), ClientError> {
        for data in all.chunks(at_once.max(1)) {
            let head = MigrationData {
                argsz: (MigrationData::LEN + data.len()) as u32,
                size: data.len() as u32,
            };
            let payload = [&head.to_bytes()[..], data].concat();
            self.request(Command::MigrationWrite, &payload, &[])?;
        }
        Ok(())
    }

    /// Has it noted what the device writes, in ranges of a start and a length or, without any, everywhere. Returns the page size.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn start_log(&mut self, page_size: u64, ranges: &[(u64, u64)]) -> Result<u64, ClientError> {
        let control = LogControl {
            page_size,
            ranges: ranges.len() as u32,
            reserved: 0,
        };
        let mut data = control.to_bytes().to_vec();
        for &(iova, len) in ranges {
            data.extend(LogRange { iova, len }.to_bytes());
        }
        let data = self.feature(feature::SET | feature::LOG_START, &data)?;
        Ok(LogControl::parse(&data)?.page_size)
    }

    /// Ends that.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn stop_log(&mut self) -> Result<(), ClientError> {
        self.feature(feature::SET | feature::LOG_STOP, &[])
            .map(drop)
    }

    /// What the device has written in a range since this was asked last: a bit for each `page_size` bytes.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub fn take_log(
        &mut self,
        iova: u64,
        len: u64,
        page_size: u64,
    ) -> Result<Vec<u8>, ClientError> {
        let ask = LogReport {
            iova,
            len,
            page_size,
        };
        let data = self.feature(feature::GET | feature::LOG_REPORT, &ask.to_bytes())?;
        let bitmap = data.get(LogReport::LEN..).unwrap_or_default();
        if log_bytes(iova, len, page_size) != Some(bitmap.len() as u64) {
            return Err(Malformed("LogReport: another length than asked for").into());
        }
        Ok(bitmap.to_vec())
    }
}

fn word(data: &[u8]) -> Result<u64, ClientError> {
    let word = data.first_chunk().map(|word| u64::from_ne_bytes(*word));
    word.ok_or(Malformed("DeviceFeature: the reply is too short").into())
}

fn state(data: &[u8]) -> Result<MigrationState, ClientError> {
    let state = StateChange::parse(data)?.state;
    MigrationState::from_u32(state).ok_or(Malformed("StateChange: no such state").into())
}
