//! Two drivers on two adapters, towards each other.

use crate::bench::raw_driver::*;
use crate::bench::serving::Serving;
use crate::bench::transaction::over_socket;

pub const IPS: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 0, 0, 2]];
pub const QPNS: [u32; 2] = [0x11, 0x12];

/// Two drivers on two adapters.
pub struct Pair {
    pub a: RawDriver,
    pub b: RawDriver,
}

impl Pair {
    pub fn attach(serving: &Serving) -> Pair {
        let [a, b] = ["A", "B"].map(|name| over_socket(&serving.socket(name)));
        Pair { a: RawDriver::new(a, QPNS[0], IPS[0]), b: RawDriver::new(b, QPNS[1], IPS[1]) }
    }

    pub fn reset(&mut self) {
        self.a.reset();
        self.b.reset();
    }

    /// Both up, A's objects made as said.
    pub fn up(&mut self, making: Making) {
        self.up_both(making, Making::default());
    }

    pub fn up_both(&mut self, a: Making, b: Making) {
        for (driver, making) in [(&mut self.a, &a), (&mut self.b, &b)] {
            driver.enable(making);
            driver.create(making);
        }
        self.a.connect(QPNS[1], IPS[1], &a);
        self.b.connect(QPNS[0], IPS[0], &b);
    }
}
