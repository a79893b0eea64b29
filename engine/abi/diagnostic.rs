//! Every rule that a driver or a peer can break, with its number. The number stands in command completions, in
//! error CQEs (`vendor_err`), in events and in the LAST_DIAGNOSTIC register.

/// What a rule says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    pub number: u32,
    pub name: &'static str,
    /// What is wrong.
    pub sentence: &'static str,
    /// Section of the datasheet that states the rule.
    pub section: &'static str,
    /// What usually causes it.
    pub usual_cause: &'static str,
}

macro_rules! rules {
    ($($name:ident = $number:literal, $sentence:literal, $section:literal, $cause:literal;)*) => {
        /// A broken rule, by number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum Diagnostic { $(#[doc = $sentence] $name = $number,)* }

        /// The table of rules, by number.
        pub const RULES: &[Rule] = &[$(Rule {
            number: $number, name: stringify!($name), sentence: $sentence, section: $section, usual_cause: $cause,
        },)*];

        impl Diagnostic {
            /// The rule of this number.
            pub const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

rules! {
    RegisterAccess = 100, "a register access of this size, alignment or offset does not exist", "Registers", "a 1- or 2-byte access, or an offset beyond the last register";
    RegisterReadOnly = 101, "the register is read-only", "Registers", "a write to a capability register";
    RegisterWhileEnabled = 102, "the register can be written only while the device is disabled", "Registers", "the command ring was changed without a reset";
    CommandRingInvalid = 103, "the command ring is not usable: its addresses must be aligned to 4096 and its log size at most 8", "Command queue", "CONTROL.ENABLE was set before the ring registers";
    CommandDoorbellRange = 104, "the command doorbell is further ahead than the ring has slots", "Command queue", "the producer index was not kept modulo 2^16";
    DeviceDisabled = 105, "the device is disabled", "Registers", "a doorbell before CONTROL.ENABLE";
    DeviceFatal = 106, "the device has stopped after an error; reset it", "Reset and errors", "the command rings became unreachable";

    DoorbellAccess = 200, "no doorbell has this offset, size or alignment", "Doorbells", "memcpy to a doorbell page: use aligned 8-byte stores";
    DoorbellReserved = 201, "reserved bits of the doorbell are not zero", "Doorbells", "an index above 16 bits";
    DoorbellForeignPage = 202, "the queue was created with another doorbell page", "Doorbells", "a doorbell of another context";
    DoorbellNoQueue = 203, "no queue has this number", "Doorbells", "the queue is destroyed, or the number is in the wrong bits";
    DoorbellBeyondRing = 204, "the producer index is further ahead than the ring has slots", "Send queue", "the ring was overrun";
    DoorbellState = 205, "the queue pair's state does not take this doorbell", "Queue pair states", "posting before RTS (send) or INIT (receive)";
    DoorbellTornLine = 206, "a 64-byte line arrived in pieces and counts as its first 8 bytes", "Doorbells", "a foreign store between, or stores out of ascending order";
    ArmStale = 207, "the arm's sequence is not the one that is due: the next one after an event, else the last one again", "Completion queue", "the sequence was not advanced after an event, or without one";
    ArmConsumerAhead = 208, "the consumer index is ahead of the producer", "Completion queue", "the index was not kept modulo 2^32";
    EqUpdateForeign = 209, "event queues are updated on doorbell page 0 only", "Event queue", "an update on a user's page";
    EqConsumerAhead = 210, "the event queue's consumer index is ahead of its producer", "Event queue", "the index was not kept modulo 2^32";

    CommandOpcodeUnknown = 300, "no command has this opcode", "Command queue", "a driver newer than the device";
    CommandReserved = 301, "a reserved field of the command is not zero", "Command queue", "a slot that was not cleared";
    CommandFetchFault = 302, "the command could not be read from host memory", "Command queue", "the ring is not mapped for DMA, or bus mastering is off";
    ParameterRange = 303, "a parameter is outside its range", "Commands", "a limit of QUERY_DEVICE was ignored";
    ObjectMissing = 304, "the object does not exist", "Commands", "a number that was never created or is destroyed";
    ObjectExists = 305, "the object's number is in use", "Commands", "the number was not freed before";
    TableMissing = 306, "the object's table has not been set, or is too small for its number", "Context tables", "SET_TABLE was forgotten";
    TableInUse = 307, "the table cannot be replaced while objects live in it", "Context tables", "SET_TABLE after the first create";
    ObjectBusy = 308, "the object is still used by others", "Commands", "a CQ destroyed before its QPs, or an EQ before its CQs";
    PageListInvalid = 309, "the page list is not usable: page_shift 12..30, levels 0..2, root and pages aligned", "Page lists", "an unaligned ring, or a shift of another unit";
    DoorbellPageRange = 310, "the doorbell page does not exist", "Doorbells", "a page number beyond REG_DOORBELL_PAGES";
    VectorRange = 311, "the MSI-X vector does not exist", "Event queue", "more event queues than vectors";
    VectorUnusable = 312, "the MSI-X vector has no receiver", "Event queue", "MSI-X is off or the vector was not set up";
    QpTypeUnsupported = 313, "the queue pair type is not supported", "Queue pairs", "a type of a later version; see the feature bits";
    GidExists = 314, "another entry of the GID table holds this GID in the same VLAN", "Commands", "an address was moved to another index without removing it first";
    MulticastGid = 315, "the group's GID is not a multicast address", "Unreliable transports", "the bytes in another order";
    MulticastQueuePair = 316, "only datagram queue pairs take the packets of groups", "Unreliable transports", "a queue pair of another type";
    MulticastFull = 317, "there is no room for another group, or for another queue pair in it", "Unreliable transports", "a limit of QUERY_DEVICE was ignored";
    XrcQueue = 318, "an XRC shared receive queue belongs to no queue pair: the requests that XRC targets get name it", "Extended reliable connections", "QP_SRQ with a queue that was created with SRQ_XRC";
    ModifyTransition = 320, "no transition leads from the present state to this one", "Queue pair states", "a step of RESET, INIT, RTR, RTS was left out";
    ModifyMissing = 321, "a required attribute is missing", "Queue pair states", "see the table of transitions";
    ModifyIllegal = 322, "an attribute is not allowed in this transition", "Queue pair states", "see the table of transitions";
    ModifyCurrentState = 323, "the queue pair is not in the given current state", "Queue pair states", "the queue pair went to ERR meanwhile";
    ModifyValue = 324, "the value of an attribute is outside its range", "Queue pair states", "a path MTU above the port's, a GID index without entry";
    AccessNeedsLocalWrite = 325, "remote write or atomic access needs local write access", "Memory regions", "LOCAL_WRITE is missing";
    RegionWraps = 326, "the region wraps around the address space or is larger than its page list can be", "Memory regions", "start plus length beyond 2^64";
    ModifyUnsupported = 327, "the attribute belongs to a feature that the device does not have", "Queue pair states", "an alternate path or its migration state";
    ContextFault = 330, "a context could not be read from or written to its table", "Context tables", "the table's memory was unmapped";
    ContextInvalid = 331, "what came back from a context table is not what the device wrote", "Context tables", "the driver or a stray DMA wrote into the table";


    WqeFetchFault = 400, "work requests could not be read from the ring", "Send queue", "the ring is not mapped for DMA";
    WqeOpcode = 401, "the work request's opcode is unknown or not allowed on this queue pair", "Work requests", "an opcode of another transport";
    WqeReserved = 402, "reserved bits of the work request are not zero", "Work requests", "a slot that was not cleared";
    WqeQpn = 403, "the work request names another queue", "Work requests", "a doorbell before the slot was written, or a slot of another ring";
    WqeIndex = 404, "the work request's slot index is not its place in the ring", "Work requests", "the doorbell came before the ring was written";
    WqeLength = 405, "the work request's length does not fit its contents, its slots or the producer index", "Work requests", "the segment count is in another unit";
    WqeInline = 406, "the inline data are longer than allowed", "Work requests", "MAX_INLINE_BYTES was ignored";
    MessageTooLong = 407, "the message is longer than 2^31 bytes", "Work requests", "the sum of the elements";
    AtomicLength = 408, "the elements of an atomic or an ATOMIC_WRITE are not 8 bytes together", "Work requests", "an element of another type";
    WqeInlineRead = 409, "the work request has no payload that could be inline", "Work requests", "a flag that was left from another request";
    ReceiveFetchFault = 410, "a receive work request could not be read from its ring", "Receive queue", "the ring is not mapped for DMA";
    ReadNotEnabled = 411, "the queue pair's max_rd_atomic is 0: it may have no READ or atomic outstanding", "Queue pair states", "max_rd_atomic was not set, or not agreed with the peer";
    ReadTooLong = 412, "the READ's responses would take 2^23 PSNs or more", "Requester", "2 GiB at a path MTU of 256";
    DatagramTooLong = 413, "the datagram is longer than the port's MTU", "Unreliable transports", "a message that needs a connection";
    DatagramAddress = 414, "the datagram's address cannot be used: GID index without entry, flow label, service level, QPN or P_Key index out of range", "Unreliable transports", "an address handle of a GID that was removed";
    SrqIndex = 415, "the index ring of a shared receive queue names a slot that it does not have", "Shared receive queues", "an index ring that was not written before the doorbell";
    SrqFetchFault = 416, "the index ring of a shared receive queue could not be read", "Shared receive queues", "the ring is not mapped for DMA";
    FlushPlacement = 417, "the FLUSH says neither FLUSH_GLOBAL nor FLUSH_PERSISTENT", "Work requests", "a placement of zero";
    LKeyInvalid = 420, "the local key is not valid", "Memory regions", "a key that was never registered, or was deregistered";
    LKeyRange = 421, "the local range lies outside its region", "Memory regions", "address or length of an element";
    LKeyRight = 422, "the region does not grant local write", "Memory regions", "a receive buffer in a read-only region";
    LKeyPd = 423, "the region belongs to another protection domain", "Memory regions", "queue pair and region of different PDs";
    RKeyInvalid = 430, "the remote key is not valid", "Memory regions", "the peer uses a stale or mistyped rkey";
    RKeyRange = 431, "the remote range lies outside its region", "Memory regions", "the peer's address or length";
    RKeyRight = 432, "the region does not grant the remote right", "Memory regions", "REMOTE_WRITE, REMOTE_READ or REMOTE_ATOMIC was not given";
    RKeyPd = 433, "the region belongs to another protection domain than the queue pair", "Memory regions", "the peer's key belongs to another application";
    PayloadFault = 440, "host memory did not answer a payload transfer", "Reset and errors", "the region's memory was unmapped, or bus mastering is off";
    TranslationFault = 441, "a page list could not be read or holds an unaligned address", "Page lists", "the list's memory was unmapped or reused";
    InvalidateRefused = 442, "the key cannot be invalidated: it is not valid, of another protection domain, or was registered without INVALIDATE", "Memory regions", "a key that was invalidated before, or ACCESS_INVALIDATE is missing";
    BindWindow = 443, "the key is not a window that this queue pair may bind now: unknown, of another protection domain, or a type 2 window that is bound", "Memory windows", "a type 2 window that was not invalidated before";
    BindRegion = 444, "no window can be bound to this region: not valid, of another protection domain, zero-based, or without MW_BIND, or LOCAL_WRITE for a window to write through", "Memory windows", "MW_BIND was not given at registration";
    BindRange = 445, "the window lies outside its region, or a type 2 window has no bytes", "Memory windows", "address or length of the bind";
    BindAccess = 446, "the window cannot have these rights", "Memory windows", "a local right, or a zero-based window of type 1";
    RegisterState = 447, "the key is not a free fast region of the queue pair's protection domain", "Memory regions", "the region was not invalidated before it was registered again";
    RegisterShape = 448, "the fast registration's rights, range or page list are not usable, or it has more pages than were allocated", "Memory regions", "a list longer than max_pages";
    NotPrivileged = 449, "the work request is for privileged queue pairs", "Memory regions", "REG_MR from a process";

    ReceiveTooSmall = 500, "the message is longer than the receive work request", "Receive queue", "peers disagree on message sizes";
    InvalidRequest = 501, "the peer's request is not valid here: opcode sequence, length or right of the queue pair", "Responder", "the peer's queue pair has another MTU, or a right was not enabled";
    RemoteInvalidRequest = 502, "the peer answered: invalid request", "Requester", "see the peer's diagnostics";
    RemoteAccessError = 503, "the peer answered: remote access error", "Requester", "wrong rkey, range or right";
    RemoteOperationalError = 504, "the peer answered: remote operational error", "Requester", "see the peer's diagnostics";
    RetryExceeded = 505, "the peer did not answer within the retries", "Requester", "the peer is gone, in another state, or the path is wrong";
    RnrRetryExceeded = 506, "the peer had no receive work request within the retries", "Requester", "the peer does not post receives fast enough";
    CqOverrun = 507, "the completion queue is full", "Completion queue", "the queue is smaller than the work in flight";
    EqOverrun = 508, "the event queue is full and an event was lost", "Event queue", "the queue is smaller than its objects";
    CqRingFault = 509, "a completion could not be written", "Completion queue", "the ring is not mapped for DMA";
    MsnDisagrees = 510, "an acknowledgement's MSN does not agree with its PSN; the PSN decided", "Requester", "a peer that counts messages in another way";
    Flushed = 511, "the queue pair is in the error state", "Queue pair states", "an earlier failure of the same queue pair";
    EventRingFault = 512, "an event could not be written", "Event queue", "the ring is not mapped for DMA";
    RdAtomicLimit = 513, "the peer has more READs and atomics outstanding than max_dest_rd_atomic", "Responder", "the peer's max_rd_atomic is larger than this side's max_dest_rd_atomic";
    AtomicAlignment = 514, "the peer's atomic or ATOMIC_WRITE is not aligned to 8 bytes", "Responder", "an address of the peer's work request";
    BadResponse = 515, "the peer's response is of another kind than the request, or out of place in its message", "Requester", "a peer with another MTU, or a broken one";
    ReadResponseLength = 516, "a READ response is longer or shorter than what is missing", "Requester", "a peer with another MTU, or a broken one";
    XrcTarget = 517, "the peer's XRC request names a shared receive queue that is not an XRC one here, or another one than the message began with", "Extended reliable connections", "an SRQ number that was not agreed, or a queue that is destroyed";
    XrcDomain = 518, "the peer's XRC request names a shared receive queue of another XRC domain", "Extended reliable connections", "target and queue were created for different domains";
}

/// How much a broken rule costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The device goes on, without what broke the rule, and nothing but the diagnostic tells the driver. A strict device
    /// stops instead.
    Warning,
    /// A command, a work request, a queue or the device fails, and its driver is told.
    Error,
}

impl Severity {
    /// The name in reports and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl Diagnostic {
    pub const fn severity(self) -> Severity {
        use Diagnostic::*;
        match self {
            RegisterAccess | RegisterReadOnly | RegisterWhileEnabled | CommandRingInvalid | CommandDoorbellRange
            | DeviceDisabled | DoorbellAccess | DoorbellReserved | DoorbellForeignPage | DoorbellNoQueue
            | DoorbellBeyondRing | DoorbellState | DoorbellTornLine | ArmStale | ArmConsumerAhead | EqUpdateForeign
            | EqConsumerAhead | VectorUnusable | PayloadFault | EqOverrun | MsnDisagrees | EventRingFault => {
                Severity::Warning
            }
            _ => Severity::Error,
        }
    }

    pub const fn number(self) -> u32 {
        self as u32
    }

    /// The rule behind the number.
    pub fn rule(self) -> &'static Rule {
        rule(self.number()).unwrap_or(&RULES[0])
    }
}

impl Rule {
    /// How much breaking it costs.
    pub fn severity(&self) -> Severity {
        Diagnostic::from_number(self.number).map_or(Severity::Error, Diagnostic::severity)
    }
}

/// Looks a number up.
pub fn rule(number: u32) -> Option<&'static Rule> {
    RULES.binary_search_by_key(&number, |rule| rule.number).ok().map(|at| &RULES[at])
}
