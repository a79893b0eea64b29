//! What the exit number says.

use std::process::ExitCode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Everything was as it should be.
    Success,
    /// Data, immediate or crossings were not, or the ledger holds something that no list accounts for.
    Mismatch,
    /// The command line was not understood.
    Usage,
    /// Something that is needed is missing: QEMU, network, disk, a socket.
    Environment,
    /// A time limit passed.
    TimeLimit,
    /// A signal asked for the end.
    Signal,
    /// A command in a guest ended with this.
    Commands(u8),
    /// Something failed before the command in the guest ended.
    NotTheCommands,
}

impl Exit {
    pub fn code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Success => 0,
            Self::Mismatch => 1,
            Self::Usage => 2,
            Self::Environment => 3,
            Self::TimeLimit => 4,
            Self::NotTheCommands => 125,
            Self::Signal => 130,
            Self::Commands(status) => status,
        })
    }
}
