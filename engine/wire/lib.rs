//! RoCEv2 wire formats: Ethernet to ICRC, and the opcode table.
