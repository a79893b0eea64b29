"""One end of a reliable connection on Linux' rdma_rxe, told what to do line by line.

Each line of the input is a word and its arguments; each is answered by one line: what it asked for, `ok`, or `error` and
a sentence. Bytes are in hexadecimal. The tests of the adapter hold the other end.
"""

import socket
import sys
import time

from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR
import pyverbs.enums as e

MEMORY_BYTES = 1 << 16
RIGHTS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC
OPCODES = {
    "send": e.IBV_WR_SEND,
    "send_imm": e.IBV_WR_SEND_WITH_IMM,
    "write": e.IBV_WR_RDMA_WRITE,
    "write_imm": e.IBV_WR_RDMA_WRITE_WITH_IMM,
    "read": e.IBV_WR_RDMA_READ,
    "cmp_swap": e.IBV_WR_ATOMIC_CMP_AND_SWP,
    "fetch_add": e.IBV_WR_ATOMIC_FETCH_AND_ADD,
}
PATIENCE_S = 30


class Peer:
    def __init__(self):
        self.context = Context(name="rxe0")
        self.pd = PD(self.context)
        self.mr = MR(self.pd, MEMORY_BYTES, RIGHTS)
        self.cq = CQ(self.context, 64)
        self.qp = None

    def open(self):
        """A new queue pair in RESET: its number, and where its memory is."""
        init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=QPCap(16, 16, 1, 1), sq_sig_all=0)
        self.qp = QP(self.pd, init)
        return f"{self.qp.qp_num} {self.mr.buf} {self.mr.rkey}"

    def connect(self, qpn, gid, psn, own_psn, timeout):
        attributes = QPAttr(port_num=1)
        attributes.qp_access_flags = RIGHTS
        attributes.path_mtu = e.IBV_MTU_1024
        attributes.dest_qp_num = int(qpn)
        attributes.rq_psn, attributes.sq_psn = int(psn), int(own_psn)
        attributes.max_dest_rd_atomic = attributes.max_rd_atomic = 1
        attributes.min_rnr_timer = 12
        attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = int(timeout), 6, 7
        route = GlobalRoute(dgid=GID(gid), sgid_index=1)
        attributes.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        self.qp.to_rts(attributes)
        return "ok"

    def fill(self, offset, content):
        content = bytes.fromhex(content)
        self.mr.write(content, len(content), int(offset))
        return "ok"

    def holds(self, offset, length):
        return self.mr.read(int(length), int(offset)).hex()

    def receive(self, offset, length):
        element = SGE(self.mr.buf + int(offset), int(length), self.mr.lkey)
        self.qp.post_recv(RecvWR(wr_id=2, sg=[element], num_sge=1))
        return "ok"

    def post(self, operation, offset, length, address, key, immediate, first, second):
        element = SGE(self.mr.buf + int(offset), int(length), self.mr.lkey)
        work = SendWR(wr_id=1, opcode=OPCODES[operation], num_sge=1, sg=[element], send_flags=e.IBV_SEND_SIGNALED,
                      imm_data=socket.htonl(int(immediate)))
        if operation in ("cmp_swap", "fetch_add"):
            work.set_wr_atomic(int(key), int(address), int(first), int(second))
        elif not operation.startswith("send"):
            work.set_wr_rdma(int(key), int(address))
        self.qp.post_send(work)
        return "ok"

    def complete(self):
        """The next completion: work request, status, bytes, immediate."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            count, found = self.cq.poll()
            if count:
                with_immediate = found[0].wc_flags & e.IBV_WC_WITH_IMM
                immediate = socket.ntohl(found[0].imm_data) if with_immediate else 0
                return f"{found[0].wr_id} {found[0].status} {found[0].byte_len} {immediate}"
        return f"error no completion within {PATIENCE_S} s"


def main():
    words = {}
    peer = Peer()
    for name in ("open", "connect", "fill", "holds", "receive", "post", "complete"):
        words[name] = getattr(peer, name)
    print("ready", flush=True)
    for line in sys.stdin:
        word, *arguments = line.split()
        try:
            answer = words[word](*arguments)
        except Exception as error:  # pylint: disable=broad-except
            answer = f"error {word}: {error}".replace("\n", " ")
        print(answer, flush=True)


main()
