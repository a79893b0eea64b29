//! The device under a driver of the tests' own: over mapped memory, over reads that are answered late, and by message.

mod driver;
mod faults;
mod property;
mod queues;
mod registers;
mod rig;

use driver::Buffer;
use rig::Answers;
