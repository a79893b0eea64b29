//! The virtual switch: what joins the adapters of a process, and the process to the world.
//!
//! In: Ethernet frames, at a port. Out: the same frames at the ports they are meant for, unless impaired on request.
//! The switch has no thread, no clock and no system call of its own: the ingress half of a frame's way runs in the
//! thread that transmits it, the egress half in the thread that receives it, and the time is an argument. So the same
//! calls with the same times and seeds give the same frames, byte for byte, and one thread can drive a whole fabric.
//!
//! It sees frames only. Forwarding reads MAC and IP addresses and nothing behind them; fault scripts alone look further.
//!
//! The modules stand in the order of a frame's way: port, forward, ring, egress queue, impair, capture.

mod port;
mod switch;
mod wake;

mod address;
mod forward;

mod inlets;
mod ring;

mod egress;
mod egress_queue;
mod fault_script;
mod held;
mod impair;
mod random;

mod capture;
mod counters;
mod planted;

#[cfg(test)]
mod checks;
#[cfg(test)]
#[path = "../../ci/search.rs"]
mod search;

pub use capture::{Capture, CaptureError, CaptureOptions, CapturePoints, CaptureState};
pub use counters::{DropReason, PortStatistics};
pub use egress_queue::{Marking, RateLimit};
pub use fault_script::{FaultScript, FaultScriptError};
pub use forward::{ForwardConfig, PortIndex};
pub use impair::{Displacement, Impairment, Reorder};
pub use port::{Forwarded, Port, StatisticsReader};
pub use random::Probability;
pub use switch::{PORTS_MAX, PortError, Switch, SwitchConfig};
pub use wake::{NeverSleeps, Wake};
