//! The I/O BAR (manual §13.2.2).

use model::Env;

use crate::control::Registers;

impl Registers {
    pub(crate) fn io_read(&mut self, env: &Env, offset: u64, data: &mut [u8]) {
        match self.io.target(offset, data.len()) {
            Some(at) => self.read_bytes(env, at, data),
            None => self.io.read(offset, data),
        }
    }

    pub(crate) fn io_write(&mut self, env: &Env, offset: u64, data: &[u8]) {
        match self.io.target(offset, data.len()) {
            Some(at) => self.write_bytes(env, at, data),
            None => self.io.write(offset, data),
        }
    }
}
