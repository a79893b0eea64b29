"""A driver for the rnic adapter, written from docs/hardware-abi.md alone.

Section names in the comments are those of that document. Nothing here is generated and nothing is shared with the Rust
driver: two drivers that agree with one document say that the document is enough.
"""

import struct
import time

from vfio_user import CONFIG_SPACE, Function, Memory

# Registers (BAR 0)
REGISTERS = 0
MAGIC, VERSION, STATUS, CONTROL, MAC = 0x000, 0x004, 0x010, 0x014, 0x018
COMMAND_RING, COMMAND_COMPLETION_RING, COMMAND_RING_LOG_SLOTS, COMMAND_DOORBELL = 0x040, 0x048, 0x050, 0x054
LAST_DIAGNOSTIC, LAST_DIAGNOSTIC_OBJECT = 0x060, 0x064
STATUS_ENABLED = 1
# Doorbells (BAR 2)
DOORBELLS = 2
PAGE = 0x1000
DB_SEND, DB_RECEIVE, DB_CQ_ARM, DB_EQ_UPDATE, DB_SEND_LINE_0 = 0x000, 0x008, 0x010, 0x018, 0x400
EQ_UPDATE_ARM = 1
# Command queue
QUERY_DEVICE, SET_TABLE, SET_GID, CREATE_EQ, CREATE_CQ, CREATE_QP, MODIFY_QP, REGISTER_KEY = 1, 2, 4, 8, 0x10, 0x18, 0x19, 0x20
COMMAND_BYTES = 128
TABLE_QP, TABLE_CQ, TABLE_KEY = 1, 2, 4
NO_VLAN = 0xFFFF
# Queue pair states and attributes
INIT, RTR, RTS = 1, 2, 3
ATTR_STATE, ATTR_ACCESS_FLAGS, ATTR_PKEY_INDEX, ATTR_PORT, ATTR_AV, ATTR_PATH_MTU = 0x1, 0x8, 0x10, 0x20, 0x80, 0x100
ATTR_TIMEOUT, ATTR_RETRY_CNT, ATTR_RNR_RETRY, ATTR_RQ_PSN, ATTR_MAX_QP_RD_ATOMIC = 0x200, 0x400, 0x800, 0x1000, 0x2000
ATTR_MIN_RNR_TIMER, ATTR_SQ_PSN, ATTR_MAX_DEST_RD_ATOMIC, ATTR_DEST_QPN = 0x8000, 0x10000, 0x20000, 0x100000
TO_INIT = ATTR_STATE | ATTR_ACCESS_FLAGS | ATTR_PKEY_INDEX | ATTR_PORT
TO_RTR = ATTR_STATE | ATTR_AV | ATTR_PATH_MTU | ATTR_DEST_QPN | ATTR_RQ_PSN | ATTR_MAX_DEST_RD_ATOMIC | ATTR_MIN_RNR_TIMER
TO_RTS = ATTR_STATE | ATTR_TIMEOUT | ATTR_RETRY_CNT | ATTR_RNR_RETRY | ATTR_SQ_PSN | ATTR_MAX_QP_RD_ATOMIC
# Memory regions and work requests
LOCAL_WRITE, REMOTE_WRITE = 1, 2
WRITE_IMM, SIGNALED = 5, 1

# The memory map of the walk-through, the same on both hosts
BASE = 0x1_0000_0000
COMMANDS, COMPLETIONS = BASE, BASE + 0x1000
QP_TABLE, CQ_TABLE, KEY_TABLE = BASE + 0x1_0000, BASE + 0x2_0000, BASE + 0x3_0000
EQ_RING, CQ_RING, CONSUMER_RECORD = BASE + 0x4_0000, BASE + 0x4_1000, BASE + 0x4_2000
SEND_RING, RECEIVE_RING, BUFFER = BASE + 0x4_3000, BASE + 0x4_4000, BASE + 0x10_0000
MEMORY_BYTES, BUFFER_BYTES = 0x20_0000, 0x1_0000
LOG_SLOTS = {"command": 4, "eq": 6, "cq": 6, "sq": 6, "rq": 6}

EQN, CQN, PDN, DOORBELL_PAGE = 0, 3, 7, 1
FIRST_PSN = 1000
PATIENCE_S = 5


class CommandRefused(Exception):
    """A command completed with a status other than OK."""

    def __init__(self, opcode, status, diagnostic):
        super().__init__(f"command {opcode:#x} was refused: status {status}, diagnostic {diagnostic}")
        self.diagnostic = diagnostic


class DeviceSilent(Exception):
    """The device did not do within PATIENCE_S what the driver waited for."""


def until(ready, what):
    """Polls `ready` until it gives something; every wait of a driver has a limit."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        value = ready()
        if value is not None:
            return value
        time.sleep(0.0005)
    raise DeviceSilent(f"{what}: nothing within {PATIENCE_S} s")


def phase(index, log_entries):
    """Rings: 1 in the first pass over the ring, alternating from pass to pass."""
    return 1 - ((index >> log_entries) & 1)


def page_list(root):
    """Page lists: level 0, one contiguous run."""
    return struct.pack("<QBBHI", root, 12, 0, 0, 0)


class Adapter:
    """One host: its memory, its adapter, one completion queue, one queue pair, one region."""

    def __init__(self, path, ip, qpn, key, start):
        self.gid = bytes(10) + b"\xff\xff" + bytes(ip)
        self.qpn, self.key, self.start = qpn, key, start
        self.memory = Memory(BASE, MEMORY_BYTES)
        self.function = Function(path)
        self.function.map(self.memory)
        self.command_index = self.cq_index = self.eq_index = 0
        self.send_index = self.receive_index = 0

    # The PCI function, registers

    def set_pci_command(self, memory_space=True, bus_master=True):
        self.function.write(CONFIG_SPACE, 0x04, 2, 0x0400 | memory_space << 1 | bus_master << 2)

    def register(self, offset, size=4):
        return self.function.read(REGISTERS, offset, size)

    def set_register(self, offset, value, size=4):
        self.function.write(REGISTERS, offset, size, value)

    def last_diagnostic(self):
        return self.register(LAST_DIAGNOSTIC), self.register(LAST_DIAGNOSTIC_OBJECT)

    def enable(self, command_ring=COMMANDS):
        """Registers: reset what was before, give the rings, enable. Returns whether the device says ENABLED."""
        magic = self.register(MAGIC)
        if magic != 0x43494E52 or self.register(VERSION) >> 16 != 1:
            raise DeviceSilent(f"not an rnic of interface 1: magic {magic:#x}")
        self.set_register(CONTROL, 0)
        until(lambda: True if not self.register(STATUS) & STATUS_ENABLED else None, "the reset")
        self.set_register(LAST_DIAGNOSTIC, 0)
        self.set_register(COMMAND_RING, command_ring, 8)
        self.set_register(COMMAND_COMPLETION_RING, COMPLETIONS, 8)
        self.set_register(COMMAND_RING_LOG_SLOTS, LOG_SLOTS["command"])
        self.set_register(CONTROL, 1)
        return bool(self.register(STATUS) & STATUS_ENABLED)

    # Command queue

    def command(self, opcode, body=b""):
        index, slots = self.command_index, 1 << LOG_SLOTS["command"]
        at = (index & (slots - 1)) * COMMAND_BYTES
        slot = struct.pack("<BBHIQ", opcode, 0, 0, 0x5EED_0000 | index, 0) + body
        self.memory.write(COMMANDS + at, slot.ljust(COMMAND_BYTES, b"\0"))
        self.command_index = (index + 1) & 0xFFFF
        self.set_register(COMMAND_DOORBELL, self.command_index)

        def completed():
            last_word = struct.unpack("<I", self.memory.read(COMPLETIONS + at + COMMAND_BYTES - 4, 4))[0]
            return True if last_word & 1 == phase(index, LOG_SLOTS["command"]) else None

        until(completed, f"the completion of command {opcode:#x}")
        answer = self.memory.read(COMPLETIONS + at, COMMAND_BYTES)
        token, echoed, status, _, diagnostic, _ = struct.unpack_from("<IBBHII", answer)
        assert (token, echoed) == (0x5EED_0000 | index, opcode), "the completion is of another command"
        if status:
            raise CommandRefused(opcode, status, diagnostic)
        return answer[16:]

    # The commands of the walk-through, 1 to 10

    def set_tables(self):
        limits = struct.unpack_from("<10B9H5I", self.command(QUERY_DEVICE))
        qp_bytes, cq_bytes, key_bytes = limits[15:18]
        for kind, log, root, entry in (
            (TABLE_QP, 6, QP_TABLE, qp_bytes),
            (TABLE_CQ, 4, CQ_TABLE, cq_bytes),
            (TABLE_KEY, 8, KEY_TABLE, key_bytes),
        ):
            assert entry << log <= 0x1_0000, "a context table does not fit where this driver puts it"
            self.command(SET_TABLE, struct.pack("<BBHI", kind, log, 0, 0) + page_list(root))

    def set_gid(self):
        mac = self.register(MAC, 8).to_bytes(8, "little")[:6]
        self.mac = mac
        self.command(SET_GID, struct.pack("<HBBH6s16sI", 0, 1, 0, NO_VLAN, mac, self.gid, 0))

    def create_eq(self, vector=0):
        self.command(CREATE_EQ, struct.pack("<IHBBQ", EQN, vector, LOG_SLOTS["eq"], 0, 0) + page_list(EQ_RING))

    def create_cq(self, ring=CQ_RING):
        body = struct.pack("<IIIBBH", CQN, EQN, DOORBELL_PAGE, LOG_SLOTS["cq"], 0, 0) + page_list(ring)
        self.command(CREATE_CQ, body + struct.pack("<QQ", CONSUMER_RECORD, 0))

    def register_key(self, access):
        body = struct.pack("<IIIIQQ", self.key, PDN, access, 0, self.start, BUFFER_BYTES)
        self.command(REGISTER_KEY, body + page_list(BUFFER))

    def create_qp(self):
        logs = struct.pack("<BBBBBBH", 0, 0, LOG_SLOTS["sq"], LOG_SLOTS["rq"], 0, 0, 0)
        body = struct.pack("<I", self.qpn) + logs + struct.pack("<IIIII", PDN, CQN, CQN, DOORBELL_PAGE, 0)
        self.command(CREATE_QP, body + page_list(SEND_RING) + page_list(RECEIVE_RING))

    def modify_qp(self, mask, state, peer=None, rnr_retry=7):
        to = struct.pack("<16s6sHIBBBBI", peer.gid, peer.mac, 0, 0, 0, 64, 0, 0, 0) if peer else bytes(36)
        path_mtu, access, timeout, rnr_timer = 5, LOCAL_WRITE | REMOTE_WRITE, 17, 12
        body = struct.pack("<IIBBBBIHBB", self.qpn, mask, state, 0, path_mtu, 1, access, 0, 1, 1)
        body += struct.pack("<BBBBIIII", rnr_timer, timeout, 7, rnr_retry, FIRST_PSN, FIRST_PSN, peer.qpn if peer else 0, 0)
        self.command(MODIFY_QP, body + to + bytes(20))

    # Doorbells

    def ring(self, doorbell, value, page=DOORBELL_PAGE):
        self.function.write(DOORBELLS, page * PAGE + doorbell, 8, value)

    def ring_line(self, value, stores=8):
        """A 64-byte line as eight ascending stores of 8 bytes (`stores` fewer: a torn line)."""
        for store in range(stores):
            self.ring(DB_SEND_LINE_0 + 8 * store, value if store == 0 else 0)

    def send_doorbell(self):
        return self.qpn << 8 | self.send_index << 32

    # Work requests

    def post_write_imm(self, length, remote, rkey, immediate, qpn=None, slot=None, reserved=0, local=None):
        """Writes a WQE of one slot. The named arguments behind `immediate` are there to be wrong on purpose."""
        index = self.send_index
        wqe = struct.pack("<B3sHBBIHH", WRITE_IMM, (qpn or self.qpn).to_bytes(3, "little"),
                          index if slot is None else slot, 3, SIGNALED, immediate, 0, reserved)
        wqe += struct.pack("<QII", remote, rkey, 0)
        wqe += struct.pack("<QII", self.start if local is None else local, length, self.key)
        self.memory.write(SEND_RING + (index & 63) * 64, wqe.ljust(64, b"\0"))
        self.send_index = (index + 1) & 0xFFFF

    def post_receive(self):
        index = self.receive_index
        self.memory.write(RECEIVE_RING + (index & 63) * 16, struct.pack("<QII", self.start, 8192, self.key))
        self.receive_index = (index + 1) & 0xFFFF
        self.ring(DB_RECEIVE, self.qpn << 8 | self.receive_index << 32)

    def arm(self, sequence):
        """Asks for one event: first the event queue, then the completion queue."""
        self.ring(DB_EQ_UPDATE, EQN << 8 | self.eq_index << 32 | EQ_UPDATE_ARM, page=0)
        self.ring(DB_CQ_ARM, CQN << 8 | self.cq_index << 32 | sequence)

    # Completions and events

    def next_completion(self):
        at = CQ_RING + (self.cq_index & 63) * 64

        def arrived():
            last_word = struct.unpack("<I", self.memory.read(at + 60, 4))[0]
            return True if last_word & 1 == phase(self.cq_index, LOG_SLOTS["cq"]) else None

        until(arrived, "a completion")
        names = ("qpn", "wqe_index", "opcode", "status", "byte_len", "immediate", "src_qpn", "vendor_err", "flags")
        entry = dict(zip(names, struct.unpack_from("<IHBBIIIIH", self.memory.read(at, 64))))
        self.cq_index += 1
        self.memory.write(CONSUMER_RECORD, struct.pack("<II", self.cq_index, 0))
        return entry

    def next_event(self):
        at = EQ_RING + (self.eq_index & 63) * 16

        def arrived():
            last_word = struct.unpack("<I", self.memory.read(at + 12, 4))[0]
            return True if last_word & 1 == phase(self.eq_index, LOG_SLOTS["eq"]) else None

        until(arrived, "an event")
        event_type, _, _, number, data, _ = struct.unpack("<BBHIII", self.memory.read(at, 16))
        self.eq_index += 1
        return {"type": event_type, "object": number, "data": data}
