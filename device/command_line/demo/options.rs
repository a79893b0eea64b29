//! What the demo is asked to do.

use clap::{Args, ValueEnum};
use rnic_abi::limits::{MAX_DATAGRAM_INLINE_BYTES, MAX_INLINE_BYTES};
use rnic_abi::work_request::{ATOMIC_BYTES, GRH_BYTES};
use rnic_ci::Accelerator;
use std::path::PathBuf;

/// Where the two hosts come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HostsKind {
    /// Two QEMU guests.
    Qemu,
    /// Two drivers in this process, each over a vfio-user socket with memory of its own.
    Model,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Op {
    Write,
    #[value(name = "write_imm")]
    WriteImm,
    Send,
    #[value(name = "send_imm")]
    SendImm,
    #[value(name = "send_inv")]
    SendInv,
    Read,
    #[value(name = "cmp_swap")]
    CompareSwap,
    #[value(name = "fetch_add")]
    FetchAdd,
}

impl Op {
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::WriteImm)
    }

    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    /// Something comes back from the responder's memory.
    pub const fn fetches(self) -> bool {
        matches!(self, Self::Read) || self.is_atomic()
    }

    /// Memory of the responder is named by the requester.
    pub const fn names_remote(self) -> bool {
        self.is_write() || self.fetches()
    }

    pub const fn has_immediate(self) -> bool {
        matches!(self, Self::WriteImm | Self::SendImm)
    }

    /// A receive work request is used up at the responder.
    pub const fn receives(self) -> bool {
        !matches!(self, Self::Write) && !self.fetches()
    }

    /// The name of the opcode in the InfiniBand specification's style.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "RDMA_WRITE",
            Self::WriteImm => "RDMA_WRITE_WITH_IMM",
            Self::Send => "SEND",
            Self::SendImm => "SEND_WITH_IMM",
            Self::SendInv => "SEND_WITH_INV",
            Self::Read => "RDMA_READ",
            Self::CompareSwap => "CMP_SWAP",
            Self::FetchAdd => "FETCH_ADD",
        }
    }
}

/// The transport service of both queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection: SEND and WRITE.
    Uc,
    /// Unreliable datagram: SEND of one packet.
    Ud,
}

impl Transport {
    fn takes(self, op: Op) -> bool {
        match self {
            Self::Rc => true,
            Self::Uc => !op.fetches() && op != Op::SendInv,
            Self::Ud => matches!(op, Op::Send | Op::SendImm),
        }
    }

    /// The name in front of an operation's, where it is not the usual one.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Rc => "",
            Self::Uc => "UC ",
            Self::Ud => "UD ",
        }
    }
}

/// The form of the send doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Doorbell {
    /// An 8-byte store.
    #[value(name = "8")]
    Value,
    /// A 64-byte line.
    #[value(name = "64")]
    Line,
    /// A 64-byte line that carries the work request itself.
    Wqe,
}

/// What goes wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    BadRkey,
    Bounds,
    Permission,
    /// The N-th packet that carries data is lost once: of a request, or of what is fetched.
    Drop(u32),
}

impl std::str::FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "bad-rkey" => Ok(Self::BadRkey),
            "bounds" => Ok(Self::Bounds),
            "permission" => Ok(Self::Permission),
            _ => {
                let number = text.strip_prefix("drop:").and_then(|number| number.parse().ok());
                let number = number.filter(|number| *number > 0).map(Self::Drop);
                number.ok_or_else(|| format!("{text:?} is none of bad-rkey, bounds, permission, drop:N (N from 1)"))
            }
        }
    }
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  rnic demo                                  the main job: two guests, one RDMA Write with Immediate
  rnic demo --hosts model                    the same without QEMU, in a fraction of a second
  rnic demo --length 10000 --mtu 1024        a message of ten packets: 13 and 12 crossings
  rnic demo --op read                        the payload crosses the other way: 4 and 1 crossings
  rnic demo --fault bad-rkey                 the dashed branch: NAK, and both queue pairs in ERROR
  rnic demo --capture wire.pcapng --json     machine-readable, with the packets beside it

Environment:
  RNIC_QEMU        the QEMU to use; an unfit one is an error [default: one on PATH that will do, else Debian's]
  RNIC_CACHE       cache folder [default: $XDG_CACHE_HOME/rnic or ~/.cache/rnic]
  RNIC_MIRROR      address of a Debian archive, as --mirror
  RNIC_RUN_FOLDER  where logs of guests go and stay [default: a temporary folder, kept after a failure]

What an interrupt leaves in the temporary folder (sockets and logs), the next run removes.

Exit: 0 data, immediate and crossings are right; 1 they are not, or the ledger holds a remainder; 2 usage;
3 the environment (QEMU, network, disk); 4 a time limit.")]
pub struct DemoOptions {
    #[arg(long, value_enum, default_value = "qemu")]
    pub hosts: HostsKind,
    #[arg(long, value_enum, default_value = "write_imm")]
    pub op: Op,
    #[arg(long, value_enum, default_value = "rc")]
    pub transport: Transport,
    /// Bytes of the message, at most 8388608 [default: 4096; of an atomic always 8].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=8 << 20))]
    length: Option<u32>,
    /// Path MTU in bytes.
    #[arg(long, default_value = "4096", value_name = "N", value_parser = ["256", "512", "1024", "2048", "4096"])]
    pub mtu: String,
    /// Of the payload's bytes.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// The responder arms its completion queue and waits for the event.
    #[arg(long)]
    pub armed: bool,
    /// The request asks for no completion.
    #[arg(long)]
    pub unsignaled: bool,
    /// The payload travels in the work request (at most 224 bytes).
    #[arg(long)]
    pub inline: bool,
    #[arg(long, value_enum, default_value = "64")]
    pub doorbell: Doorbell,
    /// Flush the adapters' caches first.
    #[arg(long)]
    pub cold: bool,
    /// bad-rkey, bounds, permission or drop:N.
    #[arg(long, value_name = "FAULT")]
    pub fault: Option<Fault>,
    /// Write every frame to this file as pcapng (`-`: standard output).
    ///
    /// What cannot be written any more (a full disk, a reader that has gone or is too slow) changes nothing but the capture,
    /// is told at the end, and makes the exit number 3.
    #[arg(long, value_name = "FILE")]
    pub capture: Option<PathBuf>,
    /// Print the bring-up too: regions, keys, the attributes of each queue pair transition.
    #[arg(long = "verbose")]
    pub details: bool,
    /// Keep logs, and leave the guests running until Ctrl-C.
    #[arg(long)]
    pub keep: bool,
    /// One JSON object on standard output, and nothing else.
    #[arg(long)]
    pub json: bool,
    /// Boot the guests with the adapters in place instead of restoring a snapshot.
    #[arg(long)]
    pub cold_boot: bool,
    /// Guest memory is not shared with the server: every DMA is a message that QEMU's own trace can count.
    #[arg(long)]
    pub unshared: bool,
    /// auto, tcg or kvm; KVM is proved by a short boot first.
    #[arg(long, default_value = "auto", value_name = "ACCEL")]
    pub accel: Accelerator,
    /// Use what is in the cache, fetch nothing.
    #[arg(long)]
    pub offline: bool,
    /// Address of the Debian archive [default: the machine's own apt configuration].
    #[arg(long, value_name = "URL")]
    pub mirror: Option<String>,
    /// Seconds that the operation may take, provisioning apart.
    #[arg(long, default_value_t = 120, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=86400))]
    pub time_limit: u64,
    /// Folder for QEMU's trace files, one a guest.
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub trace: Option<PathBuf>,
    /// Expect another story, to see that the check can fail.
    #[arg(long, hide = true)]
    pub expect_one_more: bool,
}

impl DemoOptions {
    /// Bytes of the message.
    pub fn length(&self) -> u32 {
        let usual = if self.op.is_atomic() { ATOMIC_BYTES } else { 4096 };
        self.length.unwrap_or(usual)
    }

    pub fn mtu_bytes(&self) -> u32 {
        self.mtu.parse().unwrap_or(4096)
    }

    /// What clap cannot check alone.
    pub fn check(&self) -> Result<(), String> {
        if self.op.is_atomic() && self.length.is_some_and(|length| length != ATOMIC_BYTES) {
            return Err(format!("an atomic works on {ATOMIC_BYTES} bytes: leave --length out"));
        }
        if self.hosts == HostsKind::Model && (self.cold_boot || self.accel != Accelerator::Auto) {
            return Err("--cold-boot and --accel are about QEMU: leave --hosts model out".to_owned());
        }
        self.check_transport()?;
        if self.inline && self.op.fetches() {
            return Err("what is fetched cannot be inline: use --op write or send".to_owned());
        }
        let most_inline = u32::from(match self.transport {
            Transport::Ud => MAX_DATAGRAM_INLINE_BYTES,
            _ => MAX_INLINE_BYTES,
        });
        if self.inline && self.length() > most_inline {
            return Err(format!("--inline takes at most {most_inline} bytes, not {}", self.length()));
        }
        if self.armed && !self.op.receives() {
            return Err("--armed waits for a receive completion, which only SENDs and write_imm make".to_owned());
        }
        let remote = self.is_refused();
        if remote && !self.op.names_remote() {
            return Err(
                "this fault is about an rkey, and a SEND has none: use --op write, write_imm or read".to_owned()
            );
        }
        if remote && self.length() == 0 {
            return Err("a message of no bytes names no remote memory that could be refused".to_owned());
        }
        if remote && self.unsignaled {
            return Err("a failing request completes even if unsignaled: leave --unsignaled out".to_owned());
        }
        if let Some(Fault::Drop(number)) = self.fault {
            let packets = self.packets();
            if number > packets {
                let plural = if packets == 1 { "" } else { "s" };
                return Err(format!("--fault drop:{number}, but the message has {packets} packet{plural}"));
            }
        }
        Ok(())
    }

    fn check_transport(&self) -> Result<(), String> {
        if !self.transport.takes(self.op) {
            let instead = if self.transport == Transport::Ud { "send or send_imm" } else { "send, write or write_imm" };
            return Err(format!("{} is no operation of this transport: use --op {instead}", self.op.name()));
        }
        if self.transport == Transport::Ud && self.packets() > 1 {
            return Err(format!(
                "a datagram is one packet: --length {} is more than --mtu {}",
                self.length(),
                self.mtu
            ));
        }
        if self.transport != Transport::Rc && self.fault.is_some() {
            return Err("nobody hears of a fault on an unreliable transport: use --transport rc".to_owned());
        }
        Ok(())
    }

    /// What stands in front of the message in the responder's buffer.
    pub fn header_bytes(&self) -> u32 {
        if self.transport == Transport::Ud { GRH_BYTES } else { 0 }
    }

    /// The responder is to refuse the request.
    pub fn is_refused(&self) -> bool {
        matches!(self.fault, Some(Fault::BadRkey | Fault::Bounds | Fault::Permission))
    }

    pub fn packets(&self) -> u32 {
        self.length().div_ceil(self.mtu_bytes()).max(1)
    }
}
