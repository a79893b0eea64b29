//! Packets with a known ICRC: captures of hardware and packets of scapy, whose ICRC an independent program confirmed.
//!
//! K1 to K3 were captured from adapters; K4 and K5 are scapy's test packets; the rest was built with scapy.

/// Name and bytes in hexadecimal, from the IP header on if not stated otherwise; the last 4 bytes are the ICRC.
pub const ALL: [(&str, &str); 18] = [
    // a congestion notification captured from a ConnectX-4 Lx, from Ethernet on
    (
        "K1",
        "e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a001201000012b7002800008100ffff40000118000000000000000000000000000000000000000082fd002a",
    ),
    // a captured RoCEv1 WRITE_ONLY of 5 bytes, from Ethernet on
    (
        "K2",
        "7cfe90753cd87cfe90753cd889156020000000281b4000000000000000000000ffff0f00000200000000000000000000ffff0f0000020a70ffff0000010a80a788bc000055d4c0726000000047b3000000050000000001000000e3d856bb",
    ),
    // a captured RoCEv1 ACK, from Ethernet on
    (
        "K3",
        "7cfe90753cd87cfe90753cd889156020000000141b4000000000000000000000ffff0f00000200000000000000000000ffff0f0000021140ffff0000010900a788c00000000525f0c038",
    ),
    // scapy's UC packet over IPv4
    (
        "K4",
        "45010040047840004011b4d5c0a80007c0a80007c00012b7002c79892460ffff000000d300cf17104630818be28935d90e9a95505401be885e50000078f353f3",
    ),
    // scapy's UC packet over IPv6 (traffic class 226, flow label 0x1face, hop limit 255)
    (
        "K5",
        "6e21face002c11ff2022000000000000000000000000102320230000000000000000000000001024c00012b7002c9a5c2460ffff000000d300cf17104630818be28935d90e9a95505401be885e5000003e5b743b",
    ),
    ("D1", "4502003400014000401126b40a0000010a000002c0de12b7002000000470ffff000000118012345668656c6c6f00000007e3fdf6"),
    ("D2", "4502003000014000401126b80a0000010a000002c0de12b7001c000005c0ffff0000001180123456deadbeef551e8583"),
    (
        "D3",
        "4502004400014000401126a40a0000010a000002c0de12b7003000000a40ffff000000118012345600007f001122334400abcd01000000080001020304050607aca89e14",
    ),
    (
        "D4",
        "4502003c00014000401126ac0a0000010a000002c0de12b7002800000c40ffff000000118012345600007f001122300000abcd0100001000bcdc8cba",
    ),
    ("D5", "4502003400014000401126b40a0000010a000002c0de12b7002000001040ffff00000011001234561f00000701020304b7302517"),
    ("D6", "4502003000014000401126b80a0000010a000002c0de12b7001c00001140ffff00000011001234561f00000701b7e967"),
    ("D7", "4502003000014000401126b80a0000010a000002c0de12b7001c00001140ffff000000110012345660000007cb07b554"),
    ("D8", "4502003000014000401126b80a0000010a000002c0de12b7001c00001140ffff00000011001234562c0000074ee07785"),
    (
        "D9",
        "4502004800014000401126a00a0000010a000002c0de12b7003400001340ffff000000118012345600007f001122334800abcd01000000000000000100000000000000001defa464",
    ),
    (
        "D10",
        "602abcde00341140fd000000000000000000000000000001fd000000000000000000000000000002c0de12b7003412341440ffff000000118012345600007f001122334800abcd0100000000000000010000000000000000d2114134",
    ),
    (
        "D11",
        "4502003800014000401126b00a0000010a000002c0de12b7002400001240ffff00000011001234561f0000081122334455667788f75166a4",
    ),
    (
        "D12",
        "4502003800014000401126b00a0000010a000002c0de12b7002400006450ffff000000110012345611111111000000226162630073dd2c35",
    ),
    (
        "D13",
        "45c2003c00014000401125ec0a0000010a000002c0de12b7002800008100ffff400000110000000000000000000000000000000000000000c1be4853",
    ),
];

/// The vectors that are RoCEv2.
pub fn roce_v2() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, _)| *name).filter(|name| !["K2", "K3"].contains(name))
}

/// The vector's bytes as they are listed.
pub fn bytes(name: &str) -> Vec<u8> {
    let (_, hex) = ALL.iter().find(|(listed, _)| *listed == name).expect("the vector is listed");
    let digits: Vec<u32> = hex.chars().map(|digit| digit.to_digit(16).expect("a hexadecimal digit")).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

/// The vector as a whole Ethernet frame.
pub fn as_frame(name: &str) -> Vec<u8> {
    let packet = bytes(name);
    if name == "K1" {
        return packet;
    }
    let ether_type: [u8; 2] = if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1], &ether_type[..], &packet[..]].concat()
}
