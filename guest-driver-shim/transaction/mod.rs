//! One side of one RDMA operation.
