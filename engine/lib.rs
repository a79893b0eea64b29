//! The adapter's engine: a pure state machine between doorbells, host memory and the wire.
