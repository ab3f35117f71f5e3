//! Types that describe themselves in Varlink's interface language.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

/// A type as the interface language writes it.
pub trait Idl {
    /// Its name, or a form of a type that has one.
    fn idl() -> String;

    /// It is not there, and nothing is said of it.
    fn is_absent(&self) -> bool {
        false
    }
}

/// A type with a definition of its own.
pub trait Defined: Idl {
    /// What it is, without its name: `(a: int, b: ?string)`.
    fn members() -> String;
    /// What it is for.
    const DOC: &'static [&'static str];

    /// Its definition in an interface.
    fn definition() -> String {
        let members = Self::members();
        format!(
            "{}type {} {members}\n",
            comments("", Self::DOC),
            Self::idl()
        )
    }
}

macro_rules! basic {
    ($($name:literal: $($type:ty),*;)*) => {$($(
        impl Idl for $type {
            fn idl() -> String {
                $name.into()
            }
        }
    )*)*};
}
basic! {
    "bool": bool;
    "int": i64, u64, u32, u16, u8;
    "float": f64;
    "string": String;
    "object": Value;
}

impl<T: Idl> Idl for Vec<T> {
    fn idl() -> String {
        format!("[]{}", T::idl())
    }
}

impl<T: Idl> Idl for Box<T> {
    fn idl() -> String {
        T::idl()
    }
}

impl<T: Idl> Idl for Option<T> {
    fn idl() -> String {
        format!("?{}", T::idl())
    }

    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

impl<T: Idl> Idl for BTreeMap<String, T> {
    fn idl() -> String {
        format!("[string]{}", T::idl())
    }
}

/// Lines of a comment.
pub(crate) fn comments(indent: &str, lines: &[&str]) -> String {
    let mut text = String::new();
    for line in lines {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{indent}#{line}");
    }
    text
}

/// The members of a record, each with its comment.
pub(crate) fn fields(fields: &[(&str, String, &[&str])]) -> String {
    if fields.is_empty() {
        return "()".into();
    }
    let one = |(name, idl, doc): &(&str, String, &[&str])| {
        format!("{}  {name}: {idl}", comments("  ", doc))
    };
    let all: Vec<_> = fields.iter().map(one).collect();
    format!("(\n{}\n)", all.join(",\n"))
}

/// Makes records: structs that go over the socket, with their definitions. A word that a record does not have is
/// refused in what is `asked`, so that a mistyped limit is not taken for none; in what is `told` it is ignored. What is
/// `whole` is told too, and has no value by default.
macro_rules! records {
    ($($way:ident $(#[doc = $doc:literal])* $name:ident { $($(#[doc = $about:literal])* $field:ident: $type:ty,)* })*) => {$(
        $crate::idl::record! { $way
            $(#[doc = $doc])*
            pub struct $name { $(
                $(#[doc = $about])*
                #[serde(skip_serializing_if = "crate::idl::Idl::is_absent")]
                pub $field: $type,
            )* }
        }

        impl $crate::idl::Idl for $name {
            fn idl() -> String {
                stringify!($name).into()
            }
        }

        impl $crate::idl::Defined for $name {
            const DOC: &'static [&'static str] = &[$($doc),*];

            fn members() -> String {
                let all: &[(&str, String, &[&str])] = &[$(
                    (stringify!($field), <$type as $crate::idl::Idl>::idl(), &[$($about),*]),
                )*];
                $crate::idl::fields(all)
            }
        }
    )*};
}
pub(crate) use records;

macro_rules! record {
    (asked $($rest:tt)*) => {
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        $($rest)*
    };
    (whole $($rest:tt)*) => {
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        $($rest)*
    };
    (told $($rest:tt)*) => {
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        $($rest)*
    };
}
pub(crate) use record;

/// Makes enumerations, which go over the socket as words.
macro_rules! words {
    ($($(#[doc = $doc:literal])* $name:ident { $($(#[doc = $about:literal])* $word:ident = $text:literal,)* })*) => {$(
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name {
            $($(#[doc = $about])* #[serde(rename = $text)] $word,)*
        }

        impl $name {
            /// The word.
            pub const fn word(self) -> &'static str {
                match self {
                    $($name::$word => $text,)*
                }
            }
        }

        impl $crate::idl::Idl for $name {
            fn idl() -> String {
                stringify!($name).into()
            }
        }

        impl $crate::idl::Defined for $name {
            const DOC: &'static [&'static str] = &[$($doc),*];

            fn members() -> String {
                format!("({})", [$($text),*].join(", "))
            }
        }
    )*};
}
pub(crate) use words;
