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

mod page;
mod register;
mod table;

pub use page::render;
pub use register::{Access, Alias, Id, Register, Status};
pub use table::{File, Found, Place, Shared, Table};

/// Writes the table of a model: the constant of each register, which is its [`Id`], and `REGISTERS`,
/// the list of all. A row is name, offset, `[count * stride]` for an array, access, reset value,
/// writable mask, section and status; access and status are names the caller has in scope.
///
/// Before the rows, `differs` says in which fields of [`Register`] a chip has registers other than the rows do: rows of
/// several chips are written once.
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
///
/// mod next {
///     # use hypernic_regs::{Access::ReadWrite as RW, Status::Implemented as YES};
///     hypernic_regs::registers! { pub,
///         differs { RA { offset: 0x80, count: 24 } }
///         RA   0x40 [16 * 8] RW 0x0 0xffff_ffff "13.5.2" YES;
///     }
/// }
/// let ra = next::REGISTERS[0];
/// assert_eq!((ra.offset, ra.count, ra.stride), (0x80, 24, 8));
/// ```
#[macro_export]
macro_rules! registers {
    (@or $default:literal) => { $default };
    (@or $default:literal $given:literal) => { $given };
    ($vis:vis, differs { $($changed:ident { $($field:ident: $value:expr),* $(,)? })* }
     $($id:ident $offset:literal $([$count:literal * $stride:literal])? $access:ident
       $reset:literal $mask:literal $section:literal $status:ident $(($why:literal))?;)*) => {
        #[repr(u16)]
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Index { $($id),* }
        $(
            #[doc = concat!("Register ", stringify!($id), ", section ", $section, ".")]
            $vis const $id: $crate::Id = $crate::Id::new(Index::$id as u16);
        )*
        /// The table.
        $vis static REGISTERS: &[$crate::Register] = &{
            #[allow(unused_mut)] // where nothing differs
            let mut all = [$($crate::Register {
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
            $({
                let at = Index::$changed as usize;
                all[at] = $crate::Register { $($field: $value,)* ..all[at] };
            })*
            all
        };
    };
    ($vis:vis, $($rows:tt)*) => { $crate::registers! { $vis, differs {} $($rows)* } };
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
