//! Provisioning of QEMU and guest images, launching of guests, simulation workloads.
