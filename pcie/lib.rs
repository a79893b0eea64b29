//! The PCIe boundary of an emulated function: DMA, TLPs, MSI-X, and the ledger of crossings.
