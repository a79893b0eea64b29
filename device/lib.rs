//! The device process: vfio-user server, functions, engine threads, management.

mod planted;
pub mod vfio_user;
