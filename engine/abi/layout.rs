//! Macros that define the interface once: structures with their field table, constants with their names, and
//! codes that may carry unknown values.

/// Where one field stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldLayout {
    pub name: &'static str,
    /// The C type, arrays as `__u8[6]`.
    pub c_type: &'static str,
    pub offset_bytes: usize,
    pub size_bytes: usize,
}

/// One structure, for the generated header and the golden file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StructLayout {
    pub name: &'static str,
    pub size_bytes: usize,
    pub fields: &'static [FieldLayout],
}

/// One constant, for the generated header and the golden file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConstantLayout {
    pub name: &'static str,
    pub value: u64,
}

macro_rules! c_type {
    (u8) => {
        "__u8"
    };
    (U16) => {
        "__le16"
    };
    (U32) => {
        "__le32"
    };
    (U64) => {
        "__le64"
    };
    ($name:ident) => {
        concat!("struct ", stringify!($name))
    };
    ([u8; $n:literal]) => {
        concat!("__u8[", stringify!($n), "]")
    };
    ([U64; $n:literal]) => {
        concat!("__le64[", stringify!($n), "]")
    };
}

/// A structure of plain little-endian fields with no padding, and its field table.
macro_rules! structure {
    ($(#[$doc:meta])* $name:ident, $size:literal { $($(#[$fdoc:meta])* $field:ident: $ty:tt,)* }) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout, zerocopy::Unaligned,
        )]
        #[repr(C)]
        pub struct $name { $($(#[$fdoc])* pub $field: $ty,)* }

        const _: () = assert!(core::mem::size_of::<$name>() == $size, "the structure's size is part of the interface");

        impl $name {
            /// All bytes zero: what reserved fields hold.
            pub fn zeroed() -> Self {
                <Self as zerocopy::FromZeros>::new_zeroed()
            }

            pub const fn layout() -> $crate::layout::StructLayout {
                $crate::layout::StructLayout {
                    name: stringify!($name),
                    size_bytes: $size,
                    fields: &[$($crate::layout::FieldLayout {
                        name: stringify!($field),
                        c_type: c_type!($ty),
                        offset_bytes: core::mem::offset_of!($name, $field),
                        size_bytes: core::mem::size_of::<$ty>(),
                    },)*],
                }
            }
        }
    };
}

/// Constants of the interface with their table.
macro_rules! constants {
    ($($(#[$doc:meta])* $name:ident: $ty:ty = $value:expr;)*) => {
        $($(#[$doc])* pub const $name: $ty = $value;)*
        /// The constants of this module, by name.
        pub const CONSTANTS: &[$crate::layout::ConstantLayout] =
            &[$($crate::layout::ConstantLayout { name: stringify!($name), value: $name as u64 },)*];
    };
}

/// A code that comes from outside: known values have names, unknown ones are carried, never refused by a type.
macro_rules! open_code {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $value:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u8);

        #[allow(non_upper_case_globals)]
        impl $name {
            $($(#[$vdoc])* pub const $variant: Self = Self($value);)*

            /// The names of the known values.
            pub const NAMES: &'static [(&'static str, u8)] = &[$((stringify!($variant), $value),)*];

            pub fn name(self) -> Option<&'static str> {
                Self::NAMES.iter().find(|(_, value)| *value == self.0).map(|(name, _)| *name)
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!(stringify!($name), "({:#04x})"), self.0),
                }
            }
        }
    };
}
