"""A small vfio-user client: what QEMU does for a guest, done for a driver that is an ordinary process.

The protocol is docs/interop/vfio-user.rst of QEMU. One request at a time; writes to a BAR are posted, as PCI has them
and as QEMU sends them. Host memory is a memfd that the server maps, so that the device reads and writes it directly.
"""

import array
import json
import mmap
import os
import socket
import struct

VERSION, DMA_MAP, GET_REGION_INFO, SET_IRQS, REGION_READ, REGION_WRITE, DMA_READ, DMA_WRITE = 1, 2, 5, 8, 9, 10, 11, 12
FLAG_REPLY, FLAG_NO_REPLY, FLAG_ERROR = 1, 1 << 4, 1 << 5
CONFIG_SPACE = 7  # the region index of configuration space; 0 to 5 are the BARs
MSIX = 2  # the interrupt index of MSI-X
IRQ_EVENTFD, IRQ_TRIGGER = 1 << 2, 1 << 5  # SET_IRQS: the data are eventfds, they are what a vector triggers

HEADER = struct.Struct("<HHIII")  # message id, command, size with this header, flags, error
TIMEOUT_S = 10


class Refused(Exception):
    """The server answered a request with an error number."""


class Memory:
    """Host memory that the device reaches by DMA: `iova` is where the device sees its first byte."""

    def __init__(self, iova, size):
        self.iova, self.size = iova, size
        self.fd = os.memfd_create("rnic-example", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, size)
        self.bytes = mmap.mmap(self.fd, size)

    def write(self, iova, data):
        at = iova - self.iova
        self.bytes[at : at + len(data)] = data

    def read(self, iova, length):
        at = iova - self.iova
        return self.bytes[at : at + length]


class Function:
    """One PCI function behind a vfio-user socket."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect(path)
        self.next_id = 1
        offer = {"capabilities": {"max_msg_fds": 8, "max_data_xfer_size": 1 << 20, "pgsizes": 4096}}
        reply = self.request(VERSION, struct.pack("<HH", 0, 0) + json.dumps(offer).encode() + b"\0")
        major, minor = struct.unpack_from("<HH", reply)
        if major != 0:
            raise Refused(f"the server speaks vfio-user {major}.{minor}, this client 0.x")

    # Messages

    def send(self, command, body, flags=0, fds=()):
        message_id, self.next_id = self.next_id, (self.next_id + 1) & 0xFFFF
        message = HEADER.pack(message_id, command, HEADER.size + len(body), flags, 0) + body
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        sent = self.socket.sendmsg([message], ancillary)
        if sent < len(message):
            self.socket.sendall(message[sent:])
        return message_id

    def request(self, command, body, fds=()):
        """Sends a request and returns the body of its reply."""
        message_id = self.send(command, body, fds=fds)
        while True:
            answered, told, flags, error, reply = self.receive()
            if not flags & FLAG_REPLY:
                self.serve(answered, told, reply)
                continue
            if answered != message_id:
                raise Refused(f"a reply to message {answered}, but {message_id} is the one that waits")
            if flags & FLAG_ERROR:
                raise Refused(f"vfio-user command {command}: {os.strerror(error)}")
            return reply

    def receive(self):
        message_id, command, size, flags, error = HEADER.unpack(self.exactly(HEADER.size))
        return message_id, command, flags, error, self.exactly(size - HEADER.size)

    def exactly(self, length):
        data = b""
        while len(data) < length:
            piece = self.socket.recv(length - len(data))
            if not piece:
                raise ConnectionError("the server closed the connection")
            data += piece
        return data

    def serve(self, message_id, command, body):
        """The server's own requests: DMA to memory that it could not map. All of ours is mapped, so there is none to serve."""
        reply = HEADER.pack(message_id, command, HEADER.size, FLAG_REPLY | FLAG_ERROR, 14)  # EFAULT
        self.socket.sendall(reply)

    # The function

    def map(self, memory):
        """Lets the device reach `memory`. No map, no DMA: that is the IOMMU's job on real hardware."""
        readable_writable = 3
        body = struct.pack("<IIQQQ", 32, readable_writable, 0, memory.iova, memory.size)
        self.request(DMA_MAP, body, fds=[memory.fd])

    def set_vector(self, vector, eventfd):
        """The device writes to `eventfd` when it raises MSI-X vector `vector`."""
        body = struct.pack("<IIIII", 20, IRQ_EVENTFD | IRQ_TRIGGER, MSIX, vector, 1)
        self.request(SET_IRQS, body, fds=[eventfd])

    def read(self, region, offset, length):
        reply = self.request(REGION_READ, struct.pack("<QII", offset, region, length))
        return int.from_bytes(reply[16:], "little")

    def write(self, region, offset, length, value):
        """A store of `length` bytes: posted to a BAR, answered for configuration space."""
        body = struct.pack("<QII", offset, region, length) + value.to_bytes(length, "little")
        if region == CONFIG_SPACE:
            self.request(REGION_WRITE, body)
        else:
            self.send(REGION_WRITE, body, flags=FLAG_NO_REPLY)

    def close(self):
        self.socket.close()
