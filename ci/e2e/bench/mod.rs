//! What steps are made of: the laboratory, the program, adapters in this process, drivers of them, and outside judges.

pub mod agent;
pub mod capture;
pub mod fabric;
pub mod headers;
pub mod in_process;
pub mod judges;
pub mod laboratory;
pub mod processes;
pub mod program;
pub mod qtest;
pub mod raw_driver;
pub mod rows;
pub mod serving;
pub mod station;
pub mod tampered;
pub mod trace_judge;
pub mod transaction;
