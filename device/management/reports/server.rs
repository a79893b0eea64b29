//! Who serves.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerReport {
    pub name: String,
    pub process: u32,
    pub version: String,
    /// Seconds since 1970.
    pub started_unix_s: u64,
    pub strict: bool,
    pub adapters: Vec<AdapterRow>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterRow {
    pub name: String,
    pub socket: PathBuf,
    pub mac: String,
    /// A guest is attached; absent when the adapter does not say.
    pub attached: Option<bool>,
    /// Of the Ethernet function.
    pub ethernet_socket: PathBuf,
    pub ethernet_attached: Option<bool>,
}
