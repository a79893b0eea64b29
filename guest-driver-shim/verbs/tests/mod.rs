//! The driver against bytes written by hand and against a small model of the hardware.

mod commands;
mod completion_property;
mod model;
mod queues;
mod ring_model;
mod shared_receives;
mod work_requests;
