//! One table per model: every register it knows, and the words behind them.
//!
//! The table answers three askers at once: the model (reset values, writable masks), the generated
//! page in `docs/registers/`, and the tests that walk every register. What a model does beyond
//! storing (side effects) stays in the model.
//!
//! ```
//! use hypernic_regs::{Access, File, Register, Status, Table};
//!
//! static REGISTERS: [Register; 2] = [
//!     Register { name: "CTRL", offset: 0, count: 1, stride: 4, access: Access::ReadWrite,
//!                reset: 0x8, mask: 0xff, section: "13.4.1", status: Status::Implemented },
//!     Register { name: "RA", offset: 0x40, count: 16, stride: 8, access: Access::ReadWrite,
//!                reset: 0, mask: !0, section: "13.5.2", status: Status::Implemented },
//! ];
//! let file = File::new(Table::new(&REGISTERS, 0x1000));
//! let ra1 = file.table().find(0x48).expect("RA[1]");
//! assert_eq!((ra1.id.index(), ra1.element), (1, 1));
//! assert_eq!(file.write(ra1.id, 0, 7), 7);
//! assert!(file.table().find(0x44).is_none());
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod page;
mod table;

pub use page::render;
pub use table::{File, Found, Id, Table};

/// Writes the table of a model: the constant of each register, which is its [`Id`], and `REGISTERS`,
/// the list of all. A row is name, offset, `[count * stride]` for an array, access, reset value,
/// writable mask, section and status; access and status are names the caller has in scope.
///
/// ```
/// use hypernic_regs::Access::ReadWrite as RW;
/// use hypernic_regs::Status::Implemented as YES;
///
/// hypernic_regs::registers! { pub,
///     CTRL 0x00 RW 0x8 0xff "13.4.1" YES;
///     RA   0x40 [16 * 8] RW 0x0 0xffff_ffff "13.5.2" YES;
/// }
/// assert_eq!((RA.index(), REGISTERS[1].stride), (1, 8));
/// ```
#[macro_export]
macro_rules! registers {
    (@or $default:literal) => { $default };
    (@or $default:literal $given:literal) => { $given };
    ($vis:vis, $($id:ident $offset:literal $([$count:literal * $stride:literal])? $access:ident
       $reset:literal $mask:literal $section:literal $status:ident $(($why:literal))?;)*) => {
        #[repr(u16)]
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Index { $($id),* }
        $(
            #[doc = concat!("Register ", stringify!($id), ", section ", $section, ".")]
            $vis const $id: $crate::Id = $crate::Id::new(Index::$id as u16);
        )*
        /// The table.
        $vis static REGISTERS: &[$crate::Register] = &[$($crate::Register {
            name: stringify!($id),
            offset: $offset,
            count: $crate::registers!(@or 1 $($count)?),
            stride: $crate::registers!(@or 4 $($stride)?),
            access: $access,
            reset: $reset,
            mask: $mask,
            section: $section,
            status: $status $(($why))?,
        }),*];
    };
}

/// Another address of a register, or of the first elements of an array: the same bits, with the
/// same side effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alias {
    /// Its name.
    pub name: &'static str,
    /// Byte offset of the (first) register; a multiple of 4.
    pub offset: u32,
    /// So many elements, from the first on, answer there.
    pub count: u32,
    /// Bytes from one to the next.
    pub stride: u32,
    /// The register it is.
    pub of: Id,
}

/// What reading and writing a register does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Writes are ignored.
    ReadOnly,
    /// Reads give what was written, within the mask.
    ReadWrite,
    /// Reads give 0; a write acts.
    WriteOnly,
    /// A read clears it.
    ReadClear,
    /// A read clears it; writing 1 clears that bit.
    ReadClearWrite1Clear,
    /// Reads give what the device has set; writing 1 clears that bit.
    ReadWrite1Clear,
    /// Writing 1 sets that bit, writing 0 does nothing.
    Write1Set,
    /// Writing 1 clears that bit of another register; reads give 0.
    Write1Clear,
    /// A write of a command acts and the register then holds its result.
    Command,
    /// Plain memory that the model keeps elsewhere; a [`File`] has no words for it.
    Memory,
}

impl Access {
    /// The short form used on register pages.
    pub const fn short(self) -> &'static str {
        match self {
            Access::ReadOnly => "RO",
            Access::ReadWrite => "RW",
            Access::WriteOnly => "WO",
            Access::ReadClear => "RC",
            Access::ReadClearWrite1Clear => "RC/W1C",
            Access::ReadWrite1Clear => "RW1C",
            Access::Write1Set => "RW1S",
            Access::Write1Clear => "W1C",
            Access::Command => "RW (command)",
            Access::Memory => "RW (memory)",
        }
    }
}

/// How much of a register's function there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It does what the manual says.
    Implemented,
    /// It keeps what is written and has no effect, for this reason.
    Stored(&'static str),
    /// It reads 0 and ignores writes, for this reason.
    Absent(&'static str),
}

/// One register, or an array of equal ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// The manual's name.
    pub name: &'static str,
    /// Byte offset of the (first) register; a multiple of 4.
    pub offset: u32,
    /// Elements of the array; 1 for a single register.
    pub count: u32,
    /// Bytes from one element to the next.
    pub stride: u32,
    /// What reads and writes do.
    pub access: Access,
    /// Value after reset.
    pub reset: u32,
    /// Bits that keep what is written.
    pub mask: u32,
    /// Section of the manual.
    pub section: &'static str,
    /// How much of it there is.
    pub status: Status,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_access_has_a_short_form_of_its_own() {
        let all = [
            Access::ReadOnly,
            Access::ReadWrite,
            Access::WriteOnly,
            Access::ReadClear,
            Access::ReadClearWrite1Clear,
            Access::Write1Set,
            Access::Write1Clear,
            Access::Command,
            Access::Memory,
        ];
        let mut short = all.map(Access::short).to_vec();
        short.sort_unstable();
        short.dedup();
        assert_eq!(short.len(), all.len());
    }
}
