//! The device process: vfio-user server, functions, engine threads, management.
