//! The numbers by which objects are named, parsed once and never mixed.

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The number as an index; the owner checks it against its bound.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

number! {
    /// A queue pair.
    Qpn
}
number! {
    /// A completion queue.
    Cqn
}
number! {
    /// An event queue.
    Eqn
}
number! {
    /// A shared receive queue.
    Srqn
}
number! {
    /// A protection domain.
    Pdn
}

number! {
    /// An XRC domain: targets and shared receive queues of one domain belong together.
    XrcDomain
}

/// A memory key: index in bits 31:8, the driver's byte in 7:0. An lkey or an rkey, by where it is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub u32);

impl Key {
    /// The entry of the key table.
    pub const fn table_index(self) -> u32 {
        self.0 >> 8
    }
}
