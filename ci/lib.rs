//! Provisioning of QEMU, of a guest image and of outside judges, and the launching of guests.
//!
//! What comes in: the machine's own apt configuration, or a mirror; and, for a guest, the vfio-user socket of an
//! adapter that somebody else serves. What goes out: running QEMU guests with that adapter attached, a way to send a
//! program into them and to talk to it, and tools such as tshark that judge captures.
//!
//! Nothing is installed on the host and nothing needs root: everything goes into one cache folder. In the order of use:
//!
//! * [`debian`]: packages by suite, signatures verified, unpacked into folders named after their content
//! * [`qemu`]: a QEMU that is new enough, its control socket, qtest and trace
//! * [`workshop`]: a root with Debian's compiler, in which kernels, modules and libraries are built
//! * [`debug_kernel`]: a kernel that finds faults, built from Debian's source
//! * [`image`]: the guest's kernel and initial file system
//! * [`rdma`]: the image in which stock RDMA programs run, with our kernel module and provider
//! * [`guest`]: snapshot, restore, hot-plug, a program inside
//! * [`tools`]: tshark and scapy
//! * [`doctor`]: what is missing for all of this, and the cure
//! * [`Lab`]: all of these together
//!
//! This crate knows no crate of the device.

pub mod cache;
pub mod child;
pub mod deadline;
pub mod debian;
pub mod debug_kernel;
pub mod doctor;
mod error;
pub mod guest;
mod held_folder;
pub mod image;
mod lab;
mod options;
mod planted;
mod progress;
#[cfg(test)]
mod properties;
pub mod qemu;
pub mod rdma;
#[cfg(test)]
mod search;
pub mod tools;
pub mod workshop;

pub use error::{Error, Result};
pub use held_folder::HeldFolder;
pub use lab::Lab;
pub use options::{Accelerator, GuestKernel, Options};
pub use progress::{Progress, Silent, StandardError, tell};
