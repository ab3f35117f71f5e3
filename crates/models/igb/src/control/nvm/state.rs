//! The NVM as plain data.

use intel::nvm::Wires;

use crate::control::nvm::{BYTES, Nvm, Phase};
use crate::state;
use crate::state::{StateError, check, field};

impl Nvm {
    pub(crate) fn save(&self) -> state::Nvm {
        let Nvm {
            bytes,
            wires,
            writable,
            phase,
            shift,
            bits,
            changed: _, // who loads it is told of all of it
        } = self;
        state::Nvm {
            bytes: bytes.to_vec(),
            sk: wires.sk,
            selected: wires.selected,
            data_out: wires.data_out,
            writable: *writable,
            phase: match *phase {
                Phase::Command => state::Phase::Command,
                Phase::Address { command, at, left } => state::Phase::Address {
                    command,
                    at: at as u16,
                    left,
                },
                Phase::Read { at } => state::Phase::Read(at as u16),
                Phase::Status => state::Phase::Status,
                Phase::Write { at } => state::Phase::Write(at as u16),
                Phase::Spent => state::Phase::Spent,
            },
            shift: *shift,
            bits: *bits,
        }
    }

    pub(crate) fn load(state: &state::Nvm) -> Result<Nvm, StateError> {
        let state::Nvm {
            bytes,
            sk,
            selected,
            data_out,
            writable,
            phase,
            shift,
            bits,
        } = state;
        let image = <&[u8; BYTES]>::try_from(bytes.as_slice()).map_err(|_| {
            let found = bytes.len() as u64;
            field("nvm.bytes", found, "the NVM has another size")
        })?;
        check(*bits < 8, "nvm.bits", *bits, "a byte has eight")?;
        let inside = |at: u16| {
            let at = usize::from(at);
            check(at < BYTES, "nvm.phase", at as u64, "beyond the NVM").map(|()| at)
        };
        Ok(Nvm {
            wires: Wires {
                sk: *sk,
                selected: *selected,
                data_out: *data_out,
            },
            writable: *writable,
            phase: match *phase {
                state::Phase::Command => Phase::Command,
                state::Phase::Address { command, at, left } => {
                    let possible = (1..=2).contains(&left) && at < 0x100;
                    check(possible, "nvm.phase", left, "an address has two bytes")?;
                    Phase::Address {
                        command,
                        at: at.into(),
                        left,
                    }
                }
                state::Phase::Read(at) => Phase::Read { at: inside(at)? },
                state::Phase::Status => Phase::Status,
                state::Phase::Write(at) => Phase::Write { at: inside(at)? },
                state::Phase::Spent => Phase::Spent,
            },
            shift: *shift,
            bits: *bits,
            changed: true,
            ..Nvm::of_image(image)
        })
    }
}
