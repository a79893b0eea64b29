//! Management without a command line: conversations on arbitrary bytes, sockets with hostile clients, answers of adapters.

mod answers;
mod session_property;
mod sockets;
