//! The command line of rnic.
fn main() {}
