#!/usr/bin/env python3
"""An outside judge of RoCEv2 frames: scapy's ICRC and scapy's view of every header.

    scapy_roce.py verify FILE        pcap or pcapng in; one JSON line a RoCEv2 packet out; exit 1 if any is wrong
    scapy_roce.py make COUNT SEED    random valid packets out, one JSON line each, with a copy that has one bit flipped
    scapy_roce.py --self-test        the judge judges itself and packets with a known ICRC

The ICRC is computed by scapy's own code (scapy.contrib.roce). scapy decodes the BTH; the headers behind it are scapy
packets defined here. Nothing here is shared with the device.
"""

import argparse
import ipaddress
import json
import random
import struct
import sys
import tempfile

from scapy.contrib.roce import AETH, BTH, CNPPadding
from scapy.fields import (BitField, ByteField, IntField, LongField,
                          StrFixedLenField, XBitField, XIntField, XLongField)
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Padding, Raw
from scapy.utils import PcapNgWriter, PcapWriter, RawPcapReader

ROCE_PORT = 4791
ICRC_BYTES = 4


class LeafHeader(Packet):
    """A header whose successor is told by the opcode, not by its own fields."""

    def extract_padding(self, s):
        return b"", s


class RETH(LeafHeader):
    name = "RETH"
    fields_desc = [XLongField("va", 0), XIntField("rkey", 0), IntField("dma_length", 0)]


class AtomicETH(LeafHeader):
    name = "AtomicETH"
    fields_desc = [XLongField("va", 0), XIntField("rkey", 0),
                   LongField("swap_or_add", 0), LongField("compare", 0)]


class AtomicAckETH(LeafHeader):
    name = "AtomicAckETH"
    fields_desc = [LongField("original", 0)]


class ImmDt(LeafHeader):
    name = "ImmDt"
    fields_desc = [StrFixedLenField("immediate", b"\0" * 4, length=4)]


class IETH(LeafHeader):
    name = "IETH"
    fields_desc = [XIntField("rkey", 0)]


class DETH(LeafHeader):
    name = "DETH"
    fields_desc = [XIntField("qkey", 0), ByteField("reserved", 0), XBitField("source_qp", 0, 24)]


class XRCETH(LeafHeader):
    name = "XRCETH"
    fields_desc = [ByteField("reserved", 0), XBitField("srq_number", 0, 24)]


class FETH(LeafHeader):
    name = "FETH"
    fields_desc = [BitField("reserved", 0, 26), BitField("selectivity", 0, 2), BitField("placement_type", 0, 4)]


# JSON name and packet class of each header; sizes are those of the class.
HEADERS = {
    "xrceth": XRCETH, "deth": DETH, "feth": FETH, "reth": RETH, "aeth": AETH, "atomic_eth": AtomicETH,
    "atomic_ack": AtomicAckETH, "immdt": ImmDt, "ieth": IETH, "cnp": CNPPadding,
}
RESERVED_FIELDS = {"reserved", "reserved1", "reserved2"}

# The low five bits of the opcode: name, headers behind the BTH, whether a payload may follow.
OPERATIONS = {
    0x00: ("SEND_FIRST", [], True),
    0x01: ("SEND_MIDDLE", [], True),
    0x02: ("SEND_LAST", [], True),
    0x03: ("SEND_LAST_IMM", ["immdt"], True),
    0x04: ("SEND_ONLY", [], True),
    0x05: ("SEND_ONLY_IMM", ["immdt"], True),
    0x06: ("WRITE_FIRST", ["reth"], True),
    0x07: ("WRITE_MIDDLE", [], True),
    0x08: ("WRITE_LAST", [], True),
    0x09: ("WRITE_LAST_IMM", ["immdt"], True),
    0x0A: ("WRITE_ONLY", ["reth"], True),
    0x0B: ("WRITE_ONLY_IMM", ["reth", "immdt"], True),
    0x0C: ("READ_REQUEST", ["reth"], False),
    0x0D: ("READ_RESPONSE_FIRST", ["aeth"], True),
    0x0E: ("READ_RESPONSE_MIDDLE", [], True),
    0x0F: ("READ_RESPONSE_LAST", ["aeth"], True),
    0x10: ("READ_RESPONSE_ONLY", ["aeth"], True),
    0x11: ("ACKNOWLEDGE", ["aeth"], False),
    0x12: ("ATOMIC_ACKNOWLEDGE", ["aeth", "atomic_ack"], False),
    0x13: ("COMPARE_SWAP", ["atomic_eth"], False),
    0x14: ("FETCH_ADD", ["atomic_eth"], False),
    0x16: ("SEND_LAST_INVALIDATE", ["ieth"], True),
    0x17: ("SEND_ONLY_INVALIDATE", ["ieth"], True),
    0x1C: ("FLUSH", ["feth", "reth"], False),
    0x1D: ("ATOMIC_WRITE", ["reth"], True),
}
RESPONSES = range(0x0D, 0x13)


def opcode_table():
    table = {}
    for code, (name, headers, payload) in OPERATIONS.items():
        table[code] = ("RC_" + name, headers, payload)
        if code <= 0x0B:
            table[0x20 + code] = ("UC_" + name, headers, payload)
        if code <= 0x17:
            prefix = [] if code in RESPONSES else ["xrceth"]
            table[0xA0 + code] = ("XRC_" + name, prefix + headers, payload)
    table[0x64] = ("UD_SEND_ONLY", ["deth"], True)
    table[0x65] = ("UD_SEND_ONLY_IMM", ["deth", "immdt"], True)
    table[0x81] = ("CNP", ["cnp"], False)
    return table


OPCODES = opcode_table()


def as_json(value):
    return value.hex() if isinstance(value, bytes) else value


def dissect(frame):
    """scapy's dissection of a RoCEv2 frame without Ethernet padding, or None if it is something else."""
    packet = Ether(frame)
    if Padding in packet:
        packet = Ether(frame[:len(frame) - len(packet[Padding].load)])
    ip = packet.getlayer(IP) or packet.getlayer(IPv6)
    if ip is None or BTH not in packet or not isinstance(packet[BTH].underlayer, UDP):
        return None
    return packet if packet[UDP].dport == ROCE_PORT else None


def network_fields(packet):
    if IP in packet:
        ip = packet[IP]
        fields = {"ip_version": 4, "source": ip.src, "dest": ip.dst, "traffic_class": ip.tos, "ttl": ip.ttl,
                  "identification": ip.id, "dont_fragment": bool(ip.flags.DF)}
        following = ip.len - ip.ihl * 4
    else:
        ip = packet[IPv6]
        source, dest = (str(ipaddress.IPv6Address(address)) for address in (ip.src, ip.dst))
        fields = {"ip_version": 6, "source": source, "dest": dest, "traffic_class": ip.tc,
                  "flow_label": ip.fl, "hop_limit": ip.hlim}
        following = ip.plen
    fields["length_ok"] = following == packet[UDP].len == len(bytes(packet[UDP]))
    return fields


def header_checksum_ok(packet):
    """IPv4 only: scapy computes the checksum again."""
    if IP not in packet:
        return True
    header = packet[IP].copy()
    header.remove_payload()
    header.chksum = None
    return IP(bytes(header)).chksum == packet[IP].chksum


def extension_fields(opcode, rest):
    """The headers that the opcode calls for, and what is left; None if they do not fit."""
    name, headers, _ = OPCODES[opcode]
    fields = {"opcode_name": name}
    for header in headers:
        length = len(HEADERS[header]())
        if len(rest) < length:
            return None
        decoded = HEADERS[header](rest[:length])
        values = {key: as_json(value) for key, value in decoded.fields.items() if key not in RESERVED_FIELDS}
        fields[header] = values
        rest = rest[length:]
    return fields, rest


def describe(frame):
    """All that scapy sees in a RoCEv2 frame, or None if it is no RoCEv2 frame."""
    packet = dissect(frame)
    if packet is None:
        return None
    bth = packet[BTH]
    found = struct.pack("!I", bth.icrc)
    fields = {"source_mac": packet[Ether].src, "dest_mac": packet[Ether].dst}
    if Dot1Q in packet:
        tag = packet[Dot1Q]
        fields["vlan_tci"] = tag.prio << 13 | (tag.dei if hasattr(tag, "dei") else tag.id) << 12 | tag.vlan
    fields.update(network_fields(packet))
    fields.update({
        "udp_source_port": packet[UDP].sport, "udp_checksum": packet[UDP].chksum,
        "opcode": bth.opcode, "solicited_event": bool(bth.solicited), "migration_request": bool(bth.migreq),
        "pad_bytes": bth.padcount, "transport_version": bth.version, "partition_key": bth.pkey,
        "fecn": bool(bth.fecn), "becn": bool(bth.becn), "dest_qp": bth.dqpn, "ack_req": bool(bth.ackreq),
        "psn": bth.psn,
    })
    fields["icrc"] = found.hex()
    fields["icrc_ok"] = bth.compute_icrc(b"") == found
    fields["ip_checksum_ok"] = header_checksum_ok(packet)
    rest = bytes(bth.payload)
    extension = extension_fields(bth.opcode, rest) if bth.opcode in OPCODES else None
    fields["headers_ok"] = extension is not None and len(extension[1]) >= bth.padcount and bth.version == 0
    if fields["headers_ok"]:
        extension_part, rest = extension
        fields.update(extension_part)
        fields["payload_length"] = len(rest) - bth.padcount
        fields["pad_ok"] = len(rest) % 4 == 0 and not any(rest[len(rest) - bth.padcount:])
        fields["payload"] = rest[:fields["payload_length"]].hex()
    return fields


def is_right(fields):
    return all(fields.get(check, False) for check in
               ("icrc_ok", "ip_checksum_ok", "length_ok", "headers_ok", "pad_ok"))


def verify(path, with_payload):
    """Prints a line for each RoCEv2 packet in the capture; the number of wrong ones."""
    wrong = 0
    for index, (frame, metadata) in enumerate(RawPcapReader(path)):
        wire_length = getattr(metadata, "wirelen", None) or len(frame)
        try:
            fields = describe(frame)
        except (struct.error, TypeError, ValueError, IndexError) as error:
            fields = {"undecodable": repr(error)}
        if fields is None:
            continue
        if not with_payload:
            fields.pop("payload", None)
        fields = {"index": index, "captured_length": len(frame), "truncated": len(frame) < wire_length, **fields}
        wrong += not is_right(fields)
        print(json.dumps(fields))
    return wrong


def random_bits(dice, bits):
    """Any value, with the ends of the range more often than chance has it."""
    return dice.choice([0, (1 << bits) - 1, dice.getrandbits(bits), dice.getrandbits(bits), dice.getrandbits(bits)])


def random_header(dice, name):
    values = {
        "xrceth": lambda: {"srq_number": random_bits(dice, 24)},
        "deth": lambda: {"qkey": random_bits(dice, 32), "source_qp": random_bits(dice, 24)},
        "feth": lambda: {"selectivity": random_bits(dice, 2), "placement_type": random_bits(dice, 4)},
        "reth": lambda: {"va": random_bits(dice, 64), "rkey": random_bits(dice, 32),
                         "dma_length": random_bits(dice, 31)},
        "aeth": lambda: {"syndrome": random_bits(dice, 8), "msn": random_bits(dice, 24)},
        "atomic_eth": lambda: {"va": random_bits(dice, 64), "rkey": random_bits(dice, 32),
                               "swap_or_add": random_bits(dice, 64), "compare": random_bits(dice, 64)},
        "atomic_ack": lambda: {"original": random_bits(dice, 64)},
        "immdt": lambda: {"immediate": dice.randbytes(4)},
        "ieth": lambda: {"rkey": random_bits(dice, 32)},
        "cnp": dict,
    }
    return HEADERS[name](**values[name]())


def random_frame(dice):
    """The bytes of a valid RoCEv2 frame that scapy built."""
    mac = lambda: ":".join(f"{byte:02x}" for byte in bytes([dice.randrange(256) & 0xFE]) + dice.randbytes(5))
    packet = Ether(src=mac(), dst=mac())
    if dice.random() < 0.3:
        packet = packet / Dot1Q(prio=dice.randrange(8), vlan=dice.randrange(4096))
    if dice.random() < 0.5:
        packet = packet / IP(src=str(ipaddress.IPv4Address(dice.getrandbits(32))),
                             dst=str(ipaddress.IPv4Address(dice.getrandbits(32))), flags="DF",
                             id=dice.getrandbits(16), tos=dice.getrandbits(8), ttl=dice.getrandbits(8))
    else:
        packet = packet / IPv6(src=str(ipaddress.IPv6Address(dice.getrandbits(128))),
                               dst=str(ipaddress.IPv6Address(dice.getrandbits(128))),
                               tc=dice.getrandbits(8), fl=dice.getrandbits(20), hlim=dice.getrandbits(8))
    opcode = dice.choice(sorted(OPCODES))
    _, headers, may_carry = OPCODES[opcode]
    payload = dice.randbytes(dice.choice([0, 1, 2, 3, 4, 5, 8, 63, 256, 1024, 4096])) if may_carry else b""
    pad = -len(payload) % 4
    rest = b"".join(bytes(random_header(dice, header)) for header in headers) + payload + bytes(pad)
    # A checksum of 0 is RoCE's own; others let scapy compute one, which receivers have to bear.
    packet = packet / UDP(sport=dice.randrange(0xC000, 0x10000), dport=ROCE_PORT, chksum=dice.choice([0, 0, 0, None]))
    packet = packet / BTH(opcode=opcode, solicited=dice.getrandbits(1), migreq=dice.getrandbits(1), padcount=pad,
                          pkey=random_bits(dice, 16), fecn=dice.getrandbits(1), becn=dice.getrandbits(1),
                          dqpn=random_bits(dice, 24), ackreq=dice.getrandbits(1), psn=random_bits(dice, 24))
    if rest:
        packet = packet / Raw(rest)
    return bytes(packet)


def masked_bytes(frame):
    """Offsets of the bytes of which the ICRC covers no bit, or not every bit."""
    network = 18 if frame[12:14] == b"\x81\x00" else 14
    if frame[network] >> 4 == 4:
        masked, bth = {1, 8, 10, 11}, 28
    else:
        masked, bth = {0, 1, 2, 3, 7}, 48
    return {network + offset for offset in masked | {bth - 2, bth - 1, bth + 4}}, network


def with_flipped_bit(dice, frame):
    masked, network = masked_bytes(frame)
    offset = dice.choice([offset for offset in range(network, len(frame)) if offset not in masked])
    bit = dice.randrange(8)
    flipped = bytearray(frame)
    flipped[offset] ^= 1 << bit
    return bytes(flipped), offset, bit


def make(count, seed):
    dice = random.Random(seed)
    for _ in range(count):
        frame = random_frame(dice)
        flipped, offset, bit = with_flipped_bit(dice, frame)
        yield {"hex": frame.hex(), "fields": describe(frame),
               "flipped_hex": flipped.hex(), "flipped_byte": offset, "flipped_bit": bit}


# A congestion notification captured from a ConnectX-4 Lx: neither scapy nor this script made it.
HARDWARE_CNP = bytes.fromhex(
    "e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a001201000012b7002800008100ffff4000011800000000"
    "0000000000000000000000000000000082fd002a")


def self_test():
    cnp = describe(HARDWARE_CNP)
    assert cnp["icrc_ok"] and is_right(cnp) and cnp["opcode_name"] == "CNP" and cnp["dest_qp"] == 0x118, cnp
    dice = random.Random(1)
    for _ in range(100):
        flipped, offset, bit = with_flipped_bit(dice, HARDWARE_CNP)
        fields = describe(flipped)
        assert fields is None or not is_right(fields), (offset, bit, fields)
    padded = describe(HARDWARE_CNP + bytes(6))
    assert padded == cnp, padded
    for changed in (15, 22, 46):  # traffic class, TTL, FECN: not covered
        fields = bytearray(HARDWARE_CNP)
        fields[changed] ^= 1 if changed != 46 else 0x80
        assert describe(bytes(fields))["icrc_ok"], changed

    packets = list(make(400, 7))
    assert [line["hex"] for line in make(400, 7)] == [line["hex"] for line in packets], "a seed repeats itself"
    met = set()
    for line in packets:
        assert is_right(line["fields"]), line
        met.add(line["fields"]["opcode_name"])
        flipped = describe(bytes.fromhex(line["flipped_hex"]))
        assert flipped is None or not is_right(flipped), line
    assert len(met) == len(OPCODES), "400 packets met %d of %d opcodes" % (len(met), len(OPCODES))

    for writer in (PcapWriter, PcapNgWriter):
        with tempfile.NamedTemporaryFile(suffix=".capture") as capture:
            out = writer(capture.name)
            for line in packets[:20]:
                out.write(Ether(bytes.fromhex(line["hex"])))
            out.close()
            read = [describe(frame) for frame, _ in RawPcapReader(capture.name)]
        assert read == [line["fields"] for line in packets[:20]], writer.__name__
    print("self-test passed: %d packets, %d opcodes" % (len(packets), len(met)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--self-test", action="store_true")
    modes = parser.add_subparsers(dest="mode")
    verify_arguments = modes.add_parser("verify")
    verify_arguments.add_argument("file")
    verify_arguments.add_argument("--payload", action="store_true", help="print payloads too")
    make_arguments = modes.add_parser("make")
    make_arguments.add_argument("count", type=int)
    make_arguments.add_argument("seed", type=int)
    arguments = parser.parse_args()
    if arguments.self_test:
        self_test()
    elif arguments.mode == "verify":
        return 1 if verify(arguments.file, arguments.payload) else 0
    elif arguments.mode == "make":
        for line in make(arguments.count, arguments.seed):
            print(json.dumps(line))
    else:
        parser.error("say verify, make or --self-test")
    return 0


if __name__ == "__main__":
    sys.exit(main())
