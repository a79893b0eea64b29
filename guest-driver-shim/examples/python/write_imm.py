#!/usr/bin/env python3
"""One RDMA Write with Immediate between two adapters of `rnic serve`, by a driver written from the datasheet alone.

    rnic serve &
    python3 write_imm.py                    # sockets of adapters A and B in $XDG_RUNTIME_DIR/rnic
    python3 write_imm.py --break 7          # breaks rule 7 of the list below, prints what the device said
    python3 write_imm.py --list             # lists the rules that it can break

Needs Python 3.10 or newer and nothing else.
Exit codes: 0 the write arrived (or with --break: the device told what was wrong), 1 it did not, 2 wrong use.
"""

import argparse
import os
import select
import sys
import tempfile

import rnic
from rnic import LOCAL_WRITE, REMOTE_WRITE, RTR, RTS, INIT, TO_INIT, TO_RTR, TO_RTS, Adapter, CommandRefused, until

LENGTH, IMMEDIATE = 4096, 0x2A
PATTERN = bytes((7 * n + n // 256) & 0xFF for n in range(LENGTH))


def commands_1_to_9(host, access):
    """The walk-through up to CREATE_QP; the queue pair is in RESET."""
    host.set_pci_command()
    assert host.enable(), f"the device did not start: diagnostic {host.last_diagnostic()}"
    host.set_tables()
    host.set_gid()
    host.create_eq()
    host.create_cq()
    host.register_key(access)
    host.create_qp()


def connect(a, b, rnr_retry=7):
    for host, peer in ((a, b), (b, a)):
        host.modify_qp(TO_INIT, INIT)
    for host, peer in ((a, b), (b, a)):
        host.modify_qp(TO_RTR, RTR, peer)
        host.modify_qp(TO_RTS, RTS, peer, rnr_retry)


def both_up(a, b, rnr_retry=7):
    commands_1_to_9(a, access=0)
    commands_1_to_9(b, access=LOCAL_WRITE | REMOTE_WRITE)
    connect(a, b, rnr_retry)


def write_imm(a, b):
    """The operation of the walk-through, with the event and the vector. Returns what is wrong, or None."""
    both_up(a, b)
    vector = os.eventfd(0)
    b.function.set_vector(0, vector)
    b.post_receive()
    b.arm(sequence=1)
    b.register(rnic.STATUS)  # a read: everything before it has taken effect

    a.memory.write(rnic.BUFFER, PATTERN)
    a.post_write_imm(LENGTH, b.start, b.key, IMMEDIATE)
    a.ring_line(a.send_doorbell())

    if not select.select([vector], [], [], rnic.PATIENCE_S)[0]:
        return "vector 0 of host B was not raised"
    event, received, sent = b.next_event(), b.next_completion(), a.next_completion()
    print(f"host B: event {event}")
    print(f"host B: completion {received}")
    print(f"host A: completion {sent}")
    expected = {
        "event type and queue": ((event["type"], event["object"]), (0, rnic.CQN)),
        "receive opcode and status": ((received["opcode"], received["status"]), (0x81, 0)),
        "immediate": ((received["immediate"], received["flags"] & 1), (IMMEDIATE, 1)),
        "length": (received["byte_len"], LENGTH),
        "send opcode and status": ((sent["opcode"], sent["status"]), (5, 0)),
        "data": (b.memory.read(rnic.BUFFER, LENGTH), PATTERN),
        "memory behind the data": (b.memory.read(rnic.BUFFER + LENGTH, 4096), bytes(4096)),
    }
    wrong = [name for name, (got, wanted) in expected.items() if got != wanted]
    return f"wrong: {', '.join(wrong)}" if wrong else None


# Breaking it. Each function breaks one rule and returns (diagnostic, who told it, object).


def refused(command, *arguments):
    """A command that the device must refuse: the completion names the rule."""
    try:
        command(*arguments)
    except CommandRefused as refusal:
        return refusal.diagnostic, "the command's completion", None
    return None


def register_of(host, name):
    """What LAST_DIAGNOSTIC says, once the device has said anything."""
    number, number_of = until(lambda: host.last_diagnostic() if host.last_diagnostic()[0] else None, "a diagnostic")
    return number, f"REG_LAST_DIAGNOSTIC of {name}", number_of


def failed_completion(a):
    entry = a.next_completion()
    return (entry["vendor_err"], "vendor_err of A's completion", entry["qpn"]) if entry["status"] else None


def send(a, b, **mistakes):
    """Rings one WRITE_IMM, with what is wrong about it."""
    a.post_write_imm(**({"length": LENGTH, "remote": b.start, "rkey": b.key, "immediate": IMMEDIATE} | mistakes))
    a.ring(rnic.DB_SEND, a.send_doorbell())


def rings_before_registers(a, b):
    "CONTROL.ENABLE with a command ring that is not aligned to 4096"
    a.set_pci_command()
    a.enable(command_ring=rnic.COMMANDS + 128)
    return register_of(a, "A")


def no_bus_master(a, b):
    "a command while bus mastering is off"
    a.set_pci_command(bus_master=False)
    a.enable()
    a.set_register(rnic.COMMAND_DOORBELL, 1)
    return register_of(a, "A")


def read_only_register(a, b):
    "a write to REG_MAC"
    a.set_pci_command()
    a.enable()
    a.set_register(rnic.MAC, 0, 8)
    return register_of(a, "A")


def no_table(a, b):
    "CREATE_CQ before SET_TABLE"
    a.set_pci_command()
    a.enable()
    a.create_eq()
    return refused(a.create_cq)


def unaligned_ring(a, b):
    "a completion ring that is not aligned to its entry size"
    a.set_pci_command()
    a.enable()
    a.set_tables()
    a.create_eq()
    return refused(a.create_cq, rnic.CQ_RING + 8)


def remote_without_local(a, b):
    "a region with remote write but without local write"
    a.set_pci_command()
    a.enable()
    a.set_tables()
    return refused(a.register_key, REMOTE_WRITE)


def step_left_out(a, b):
    "MODIFY_QP from RESET to RTR"
    commands_1_to_9(a, 0)
    commands_1_to_9(b, 0)
    return refused(a.modify_qp, TO_RTR, RTR, b)


def attribute_left_out(a, b):
    "MODIFY_QP from INIT to RTR without RQ_PSN"
    commands_1_to_9(a, 0)
    commands_1_to_9(b, 0)
    a.modify_qp(TO_INIT, INIT)
    return refused(a.modify_qp, TO_RTR & ~rnic.ATTR_RQ_PSN, RTR, b)


def doorbell_before_rts(a, b):
    "a send doorbell in INIT"
    commands_1_to_9(a, 0)
    a.modify_qp(TO_INIT, INIT)
    send(a, b)
    return register_of(a, "A")


def foreign_page(a, b):
    "a send doorbell on the page of another context"
    both_up(a, b)
    a.post_write_imm(LENGTH, b.start, b.key, IMMEDIATE)
    a.ring(rnic.DB_SEND, a.send_doorbell(), page=rnic.DOORBELL_PAGE + 1)
    return register_of(a, "A")


def beyond_the_ring(a, b):
    "a send doorbell further ahead than the ring has slots"
    both_up(a, b)
    a.ring(rnic.DB_SEND, a.qpn << 8 | 65 << 32)
    return register_of(a, "A")


def four_byte_store(a, b):
    "a doorbell written by two stores of 4 bytes"
    both_up(a, b)
    a.post_write_imm(LENGTH, b.start, b.key, IMMEDIATE)
    a.function.write(rnic.DOORBELLS, rnic.DOORBELL_PAGE * rnic.PAGE + rnic.DB_SEND, 4, a.qpn << 8)
    return register_of(a, "A")


def torn_line(a, b):
    "a doorbell line of which five stores of eight arrive"
    both_up(a, b)
    b.post_receive()
    a.post_write_imm(LENGTH, b.start, b.key, IMMEDIATE)
    a.ring_line(a.send_doorbell(), stores=5)
    told = register_of(a, "A")
    assert a.next_completion()["status"] == 0, "a torn line still counts as its first 8 bytes"
    return told


def stale_arm(a, b):
    "an arm whose sequence skips one"
    both_up(a, b)
    a.arm(sequence=1)
    a.arm(sequence=3)
    return register_of(a, "A")


def wrong_qpn(a, b):
    "a WQE that names another queue pair"
    both_up(a, b)
    send(a, b, qpn=0x99)
    return failed_completion(a)


def wrong_slot(a, b):
    "a WQE whose slot index is not its place"
    both_up(a, b)
    send(a, b, slot=9)
    return failed_completion(a)


def reserved_bits(a, b):
    "a WQE with a reserved field that is not zero"
    both_up(a, b)
    send(a, b, reserved=0x8000)
    return failed_completion(a)


def outside_the_region(a, b):
    "a source that ends behind its region"
    both_up(a, b)
    send(a, b, local=a.start + rnic.BUFFER_BYTES - 100)
    return failed_completion(a)


def stale_rkey(a, b):
    "an rkey whose low byte is of an earlier use; the peer tells in an event"
    both_up(a, b)
    b.post_receive()
    send(a, b, rkey=b.key + 1)
    failed = failed_completion(a)
    assert failed and failed[0] == 503, f"the requester should be told RemoteAccessError, and was told {failed}"
    events = [b.next_event()]
    while events[-1]["type"] != 0x13:  # QP_ACCESS_ERR, behind a COMM_EST perhaps
        events.append(b.next_event())
    return events[-1]["data"], "the event QP_ACCESS_ERR of B", events[-1]["object"]


def no_receive(a, b):
    "a WRITE_IMM for which no receive is posted, with rnr_retry 0"
    both_up(a, b, rnr_retry=0)
    send(a, b)
    return failed_completion(a)


def vector_without_receiver(a, b):
    "an event for a vector that has no receiver"
    both_up(a, b)
    b.post_receive()
    b.arm(sequence=1)
    b.register(rnic.STATUS)
    send(a, b)
    return register_of(b, "B")


BREAKS = [
    rings_before_registers, no_bus_master, read_only_register, no_table, unaligned_ring, remote_without_local, step_left_out,
    attribute_left_out, doorbell_before_rts, foreign_page, beyond_the_ring, four_byte_store, torn_line, stale_arm, wrong_qpn,
    wrong_slot, reserved_bits, outside_the_region, stale_rkey, no_receive, vector_without_receiver,
]  # fmt: skip


def arguments():
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = os.path.join(runtime, "rnic") if runtime else os.path.join(tempfile.gettempdir(), f"rnic-{os.getuid()}")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--a", default=os.path.join(folder, "A.sock"), help="socket of the requester's adapter")
    parser.add_argument("--b", default=os.path.join(folder, "B.sock"), help="socket of the responder's adapter")
    parser.add_argument("--break", dest="broken", type=int, metavar="N", help="break rule N instead (see --list)")
    parser.add_argument("--list", action="store_true", help="list the rules that --break breaks")
    options = parser.parse_args()
    if options.broken is not None and not 1 <= options.broken <= len(BREAKS):
        parser.error(f"--break {options.broken}: there are rules 1 to {len(BREAKS)}")
    return options


def main():
    options = arguments()
    if options.list:
        for number, mistake in enumerate(BREAKS, 1):
            print(f"{number:3} {mistake.__name__:24} {mistake.__doc__}")
        return 0
    try:
        a = Adapter(options.a, (10, 0, 0, 1), qpn=0x11, key=0x1100, start=0x7F00_0000_0000)
        b = Adapter(options.b, (10, 0, 0, 2), qpn=0x12, key=0x2200, start=0x7F00_0008_0000)
    except OSError as error:
        print(f"no adapter at {options.a} and {options.b}: {error}; start `rnic serve`", file=sys.stderr)
        return 1
    b.mac = a.mac = bytes(6)  # until SET_GID has read them
    if options.broken is None:
        wrong = write_imm(a, b)
        print("the write arrived: data, immediate, completions and event are right" if wrong is None else wrong)
        return 0 if wrong is None else 1
    mistake = BREAKS[options.broken - 1]
    told = mistake(a, b)
    if not told:
        print(f"{mistake.__doc__}: the device said nothing", file=sys.stderr)
        return 1
    number, by, number_of = told
    print(f"broke: {mistake.__doc__}")
    print(f"diagnostic {number}, told by {by}" + (f", object {number_of:#x}" if number_of is not None else ""))
    print(f"see: rnic explain-error {number}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
