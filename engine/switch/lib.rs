//! The virtual switch: port, forward, egress queue, impairments, capture.
