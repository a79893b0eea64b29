//! A verbs-like driver for rnic over several ways to reach the device.
