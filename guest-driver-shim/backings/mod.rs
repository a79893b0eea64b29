//! The ways to a device: in this process, over a vfio-user socket, through QEMU under qtest, and as a program inside
//! a Linux guest.

pub mod guest;
pub mod in_process;
pub mod qtest;
pub mod socket;
