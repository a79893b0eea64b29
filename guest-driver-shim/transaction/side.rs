//! A side from its opening to its connection, and its end.

use super::buffer::{CANARY, HostBuffer};
use super::report::{Report, Transition, given, state_name};
use super::spec::{Fault, Operation, Role, TransactionSpec, Transport};
use crate::backing::Backing;
use crate::exchange::Endpoint;
use crate::verbs::*;
use rnic_abi::command::*;
use rnic_abi::work_request::ATOMIC_BYTES;

/// The vector of completion events; 0 is that of asynchronous ones.
const COMPLETION_VECTOR: u16 = 1;
const LOG_EQ_ENTRIES: u8 = 6;
/// The Q_Key of both sides, where datagrams have one.
pub(super) const QKEY: u32 = 0x1111_1111;
/// The longest message that keeps this test body's copies reasonable.
const LONGEST_MESSAGE_BYTES: u32 = 1 << 26;

#[derive(Debug, thiserror::Error)]
pub enum TransactionError {
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    #[error("the transaction cannot be: {0}")]
    Spec(String),
    #[error("{step} comes before {needed}")]
    Order { step: &'static str, needed: &'static str },
}

pub(super) type Result<T> = std::result::Result<T, TransactionError>;

/// One side of a transaction.
pub struct Side {
    pub(super) device: Device,
    pub(super) spec: TransactionSpec,
    pub(super) role: Role,
    pub(super) objects: Option<Objects>,
    pub(super) report: Report,
}

/// What bring-up makes.
#[derive(Debug)]
pub(super) struct Objects {
    pub eqn: Eqn,
    pub cqn: Cqn,
    pub qpn: Qpn,
    pub pd: Pdn,
    pub buffer: HostBuffer,
    pub region: MemoryRegion,
    pub posted: bool,
}

fn check_spec(spec: &TransactionSpec) -> Result<()> {
    let refuse = |what: String| Err(TransactionError::Spec(what));
    if spec.length_bytes > LONGEST_MESSAGE_BYTES {
        return refuse(format!("{} bytes are more than {LONGEST_MESSAGE_BYTES}", spec.length_bytes));
    }
    if !matches!(spec.path_mtu_bytes, 256 | 512 | 1024 | 2048 | 4096) {
        return refuse(format!("there is no path MTU of {} bytes", spec.path_mtu_bytes));
    }
    if !(1..=8).contains(&spec.elements) {
        return refuse(format!("{} elements are not 1 to 8", spec.elements));
    }
    if spec.fault.is_some() && (!spec.operation.names_remote() || spec.length_bytes == 0) {
        return refuse(format!("{:?} needs at least one byte of the peer's memory", spec.fault));
    }
    if !spec.transport.allows(spec.operation) {
        return refuse(format!("{:?} is no operation of {:?}", spec.operation, spec.transport));
    }
    if spec.transport == Transport::Ud && spec.length_bytes > spec.path_mtu_bytes {
        return refuse(format!("a datagram of {} bytes is more than one packet", spec.length_bytes));
    }
    if spec.transport != Transport::Rc && spec.fault.is_some() {
        return refuse(format!("nobody hears of a fault on {:?}", spec.transport));
    }
    if spec.operation.is_atomic() && spec.length_bytes != ATOMIC_BYTES {
        return refuse(format!("an atomic works on {ATOMIC_BYTES} bytes, not {}", spec.length_bytes));
    }
    if spec.inline && spec.operation.fetches() {
        return refuse(format!("{:?} has no payload that could be inline", spec.operation));
    }
    Ok(())
}

/// The sides' keys and addresses differ, so that a device which takes one for the other is caught.
fn first_key_index(role: Role) -> u32 {
    match role {
        Role::Requester => 0x11,
        Role::Responder => 0x12,
    }
}

fn buffer_address(role: Role) -> u64 {
    match role {
        Role::Requester => 0x7f00_0000_0000,
        Role::Responder => 0x5500_0000_0000,
    }
}

/// The address of the peer.
pub(super) fn way_to(peer: &Endpoint) -> AddressVector {
    AddressVector { dest_gid: peer.gid, dest_mac: peer.mac, hop_limit: 64, ..AddressVector::zeroed() }
}

impl Side {
    /// Opens the device.
    pub fn open(backing: Box<dyn Backing>, spec: TransactionSpec, role: Role) -> Result<Self> {
        check_spec(&spec)?;
        let name = backing.name();
        let device = Device::open(
            backing,
            OpenOptions {
                command_limit: spec.limit(),
                first_key_index: first_key_index(role),
                ..OpenOptions::default()
            },
        )?;
        let report = Report {
            role,
            backing: name,
            spec: spec.clone(),
            own: Endpoint::default(),
            peer: None,
            cqn: 0,
            eqn: 0,
            key: 0,
            pages: Vec::new(),
            transitions: Vec::new(),
            completion: None,
            event: None,
            flushed: Vec::new(),
            other_events: Vec::new(),
            verdict: None,
        };
        Ok(Self { device, spec, role, objects: None, report })
    }

    /// Registers memory, creates the queues, takes the queue pair to INIT and, at the responder, posts the receive.
    pub fn bring_up(&mut self) -> Result<Endpoint> {
        let (gid, mac) = (self.spec.own_gid(self.role), self.device.mac()?);
        self.device.set_gid(0, gid, mac, None)?;
        let vector = (self.device.vectors() > COMPLETION_VECTOR).then_some(COMPLETION_VECTOR);
        let eqn = self.device.create_event_queue(None, vector, LOG_EQ_ENTRIES)?;
        let doorbell_page = self.spec.doorbell_page;
        let log_entries = self.spec.log_cq_entries;
        let cqn =
            self.device.create_completion_queue(CqSpec { cqn: None, log_entries, eqn: Some(eqn), doorbell_page })?;
        let pd = self.device.allocate_pd()?;
        let header_bytes = self.spec.header_bytes(self.role);
        let (address, message_bytes) =
            (buffer_address(self.role), u64::from(self.spec.length_bytes.max(1)) + u64::from(header_bytes));
        let buffer = HostBuffer::new(self.device.backing(), self.spec.layout, address, message_bytes)?;
        let described = buffer.region(self.region_access());
        self.report.pages.clone_from(&described.pages);
        let region = self.device.register_memory(pd, described)?;
        let mut initial = vec![CANARY; header_bytes as usize];
        initial.extend(self.spec.initial(self.role));
        buffer.write_message(self.device.backing(), &initial)?;
        let qpn = self.device.create_queue_pair(QpSpec {
            qpn: Some(self.spec.own_qpn(self.role)),
            qp_type: self.spec.transport.qp_type(),
            pd,
            send_cq: cqn,
            receive_cq: cqn,
            log_send_slots: self.spec.log_send_slots,
            log_receive_entries: self.spec.log_receive_entries,
            log_receive_stride: self.spec.elements.next_power_of_two().ilog2() as u8,
            doorbell_page,
            signal_all: false,
            privileged: false,
            selective: false,
        })?;
        self.report.own = Endpoint {
            gid,
            mac,
            qpn: qpn.0,
            psn: self.spec.psn,
            address: region.start(),
            rkey: region.key,
            length_bytes: region.length_bytes(),
        };
        (self.report.cqn, self.report.eqn, self.report.key) = (cqn.0, eqn.0, region.key);
        self.objects = Some(Objects { eqn, cqn, qpn, pd, buffer, region, posted: false });
        let [datagram_init, ..] = self.datagram_steps();
        self.modify(match self.spec.transport {
            Transport::Ud => datagram_init,
            _ => init_attributes(ACCESS_LOCAL_WRITE | self.remote_right()),
        })?;
        if self.role == Role::Responder && self.spec.operation.consumes_receive() {
            self.post_receive()?;
        }
        Ok(self.report.own)
    }

    /// INIT to RTR to RTS, towards the peer.
    pub fn connect(&mut self, peer: Endpoint) -> Result<()> {
        self.report.peer = Some(peer);
        if self.spec.transport == Transport::Ud {
            let [_, rtr, rts] = self.datagram_steps();
            return self.modify(rtr).and_then(|()| self.modify(rts));
        }
        let rtr = rtr_attributes(RtrAttributes {
            path_mtu_bytes: self.spec.path_mtu_bytes,
            dest_qpn: peer.qpn,
            rq_psn: peer.psn,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 12,
            av: way_to(&peer),
        });
        let rts = rts_attributes(RtsAttributes {
            sq_psn: self.spec.psn,
            timeout: self.spec.timeout,
            retry_cnt: self.spec.retry_cnt,
            rnr_retry: self.spec.rnr_retry,
            max_rd_atomic: 1,
        });
        let of_transport = |step| if self.spec.transport == Transport::Uc { unreliable(step) } else { step };
        let (rtr, rts) = (of_transport(rtr), of_transport(rts));
        self.modify(rtr).and_then(|()| self.modify(rts))
    }

    fn datagram_steps(&self) -> [QpAttributes; 3] {
        datagram_attributes(self.spec.transport.qp_type(), QKEY, self.spec.psn)
    }

    /// Destroys everything in order, disables the device and gives the backing back.
    pub fn close(mut self) -> Result<Box<dyn Backing>> {
        if let Some(objects) = self.objects.take() {
            self.device.destroy_queue_pair(objects.qpn)?;
            self.device.destroy_completion_queue(objects.cqn)?;
            self.device.destroy_event_queue(objects.eqn)?;
            self.device.deregister_memory(objects.region)?;
            self.device.release_pd(objects.pd);
            objects.buffer.release(self.device.backing());
        }
        Ok(self.device.close()?)
    }

    pub fn report(&self) -> &Report {
        &self.report
    }

    /// The queue pair's state, as the device reports it now.
    pub fn queue_pair_state(&mut self) -> Result<&'static str> {
        let reported = self.device.query_queue_pair(Qpn(self.report.own.qpn))?.attributes;
        Ok(state_name(reported.state))
    }

    /// The device, for what a step does not do.
    pub fn device(&mut self) -> &mut Device {
        &mut self.device
    }

    fn region_access(&self) -> u32 {
        match (self.role, self.spec.fault) {
            (Role::Responder, Some(Fault::NoRemoteRight)) => ACCESS_LOCAL_WRITE,
            (Role::Responder, _) if self.spec.operation == Operation::SendInv => ACCESS_LOCAL_WRITE | ACCESS_INVALIDATE,
            (Role::Responder, _) => ACCESS_LOCAL_WRITE | self.remote_right(),
            (Role::Requester, _) if self.spec.operation.fetches() => ACCESS_LOCAL_WRITE,
            (Role::Requester, _) => 0,
        }
    }

    /// What the peer may do here.
    fn remote_right(&self) -> u32 {
        match self.spec.operation {
            Operation::Read => ACCESS_REMOTE_READ,
            Operation::CompareSwap | Operation::FetchAdd => ACCESS_REMOTE_ATOMIC,
            _ => ACCESS_REMOTE_WRITE,
        }
    }

    /// A transition, and what the device says about it afterwards.
    fn modify(&mut self, attributes: QpAttributes) -> Result<()> {
        let qpn = Qpn(self.report.own.qpn);
        self.device.modify_queue_pair(qpn, attributes)?;
        let reported = self.device.query_queue_pair(qpn)?.attributes;
        self.report.transitions.push(Transition {
            to: state_name(attributes.state),
            given: given(&attributes),
            reported: state_name(reported.state),
        });
        Ok(())
    }
}
