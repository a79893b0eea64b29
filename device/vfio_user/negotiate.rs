//! VERSION: the first message of a client, and what it says about itself.

use super::message::{MAX_DATA_BYTES, MAX_MESSAGE_FDS, Version};
use super::reply::Reply;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use zerocopy::FromBytes;

/// The protocol version this server speaks.
pub const MAJOR: u16 = 0;
pub const MINOR: u16 = 0;

/// A client that needs more to describe itself is not a client of this protocol.
const MAX_JSON_BYTES: usize = 16 << 10;

/// What the client has said it can do, with the protocol's defaults for what it left out.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClientCapabilities {
    /// The most file descriptors it takes in one message.
    pub max_msg_fds: u64,
    /// The most data it takes in one message.
    pub max_data_xfer_size: u64,
    pub max_dma_maps: u64,
    /// Page sizes of its maps, or'ed together.
    pub pgsizes: u64,
    /// It may send REGION_WRITE_MULTI.
    pub write_multiple: bool,
}

impl Default for ClientCapabilities {
    fn default() -> Self {
        Self { max_msg_fds: 1, max_data_xfer_size: 1 << 20, max_dma_maps: 65535, pgsizes: 4096, write_multiple: false }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ClientVersionData {
    capabilities: ClientCapabilities,
}

/// What this server offers. Nothing else: QEMU calls any further key spurious.
#[derive(Serialize)]
struct ServerCapabilities {
    max_msg_fds: usize,
    max_data_xfer_size: usize,
    write_multiple: bool,
}

#[derive(Serialize)]
struct ServerVersionData {
    capabilities: ServerCapabilities,
}

/// Why a client's VERSION was refused.
#[derive(Debug, thiserror::Error)]
pub enum VersionRefusal {
    #[error("VERSION has a body of {0} bytes, too short for a version")]
    Short(usize),
    #[error("the client speaks version {major}.{minor} of the protocol, this server {MAJOR}.{MINOR}")]
    Major { major: u16, minor: u16 },
    #[error("the capabilities are {0} bytes of JSON; at most {MAX_JSON_BYTES} are read")]
    Long(usize),
    #[error("the capabilities do not end in a NUL")]
    NoNul,
    #[error("the capabilities are not what the protocol describes: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the client can receive no data at all (max_data_xfer_size is 0)")]
    NoData,
}

/// Reads a client's VERSION.
pub fn client_capabilities(body: &[u8]) -> Result<ClientCapabilities, VersionRefusal> {
    let (version, data) = Version::read_from_prefix(body).map_err(|_| VersionRefusal::Short(body.len()))?;
    if version.major != MAJOR {
        return Err(VersionRefusal::Major { major: version.major, minor: version.minor });
    }
    if data.is_empty() {
        return Ok(ClientCapabilities::default());
    }
    if data.len() > MAX_JSON_BYTES {
        return Err(VersionRefusal::Long(data.len()));
    }
    let Some((0, json)) = data.split_last() else { return Err(VersionRefusal::NoNul) };
    let capabilities = serde_json::from_slice::<ClientVersionData>(json)?.capabilities;
    if capabilities.max_data_xfer_size == 0 {
        return Err(VersionRefusal::NoData);
    }
    Ok(capabilities)
}

/// Writes the server's VERSION. The minor version is 0 whatever the client proposes: QEMU takes no other.
pub fn answer(reply: &mut Reply) -> Result<(), Errno> {
    let data = ServerVersionData {
        capabilities: ServerCapabilities {
            max_msg_fds: MAX_MESSAGE_FDS,
            max_data_xfer_size: MAX_DATA_BYTES,
            write_multiple: true,
        },
    };
    let json = serde_json::to_vec(&data).map_err(|_| Errno::IO)?;
    reply.put(&Version { major: MAJOR, minor: MINOR });
    reply.put_bytes(&json);
    reply.put_bytes(&[0]);
    Ok(())
}
