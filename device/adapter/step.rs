//! One bounded step of the engine thread: messages, frames in, frames out, timers.

use super::{Adapter, Taker};
use rnic_wire::Frame;

/// Requests of a client that one step serves.
const REQUESTS: u32 = 256;
/// Frames that one step receives, and that each function transmits: about 64 KiB each at path MTU 4096.
const FRAMES: usize = 16;
/// Steps between two looks at the Ethernet function's socket while the thread is too busy to sleep: a look is a system
/// call, and the RNIC's steps do not wait for it.
const ETHERNET_LOOK: u32 = 16;

/// What the thread keeps between steps.
#[derive(Debug, Default)]
pub struct StepState {
    frame: Frame,
    steps: u32,
}

impl Adapter {
    /// Runs everything once. True when there may be more to do.
    pub fn step(&mut self, state: &mut StepState) -> bool {
        self.function.tick();
        let mut more = self.serve_client();
        self.function.run_timers();
        more |= self.function.deliver_completions();
        more |= self.receive_frames(&mut state.frame);
        more |= self.transmit_frames(&mut state.frame);
        more |= self.client.send_messages(&mut self.function.link);
        more |= self.step_ethernet(state);
        self.check_sharing();
        more
    }

    fn serve_client(&mut self) -> bool {
        if self.client.may_be_left_out() {
            return false;
        }
        let more = self.client.serve(&mut self.function, REQUESTS);
        if self.function.take_revoked() {
            self.client.revoke_dma();
            self.port.discard_turned();
        }
        self.function.complete_marks(&self.ethernet.link);
        more
    }

    fn receive_frames(&mut self, frame: &mut Frame) -> bool {
        let now_ns = self.function.now_ns();
        for _ in 0..FRAMES {
            if !self.function.engine.can_receive() || !self.link_has_room() {
                return false;
            }
            match self.port.receive(&self.function.engine, frame, now_ns) {
                None => return false,
                Some(Taker::Rnic) => {
                    if self.packets.is_watched() {
                        self.packets.record(now_ns, self.function.link.last_sequence(), None, frame);
                    }
                    self.function.engine.handle_frame(now_ns, &mut self.function.link, frame);
                }
                Some(Taker::Ethernet) => self.ethernet.device.handle_frame(frame),
            }
        }
        true
    }

    /// Transmission is pulled: a frame is built only when there is room for it everywhere it could go. Receivers are woken
    /// when no more follow.
    fn transmit_frames(&mut self, frame: &mut Frame) -> bool {
        let more = self.transmit_rnic(frame);
        if !more {
            self.port.switch.wake_receivers();
        }
        more
    }

    fn transmit_rnic(&mut self, frame: &mut Frame) -> bool {
        let now_ns = self.function.now_ns();
        if !self.function.engine.has_output() {
            return false;
        }
        let room = self.port.room().min(FRAMES);
        for _ in 0..room {
            if !self.link_has_room() {
                return false;
            }
            let function = &mut self.function;
            if !function.engine.poll_transmit(now_ns, &mut function.link, frame) {
                return false;
            }
            if self.packets.is_watched() {
                let sender = function.engine.last_sender();
                self.packets.record(now_ns, function.link.last_sequence(), Some(sender), frame);
            }
            self.port.transmit(&self.function.engine, frame, now_ns);
        }
        room > 0
    }

    fn link_has_room(&self) -> bool {
        rnic_pcie::DmaPort::has_room(&self.function.link)
    }

    /// The Ethernet function's part: a few comparisons where nothing is to be done.
    fn step_ethernet(&mut self, state: &mut StepState) -> bool {
        self.ethernet.set_time(self.function.now_ns());
        state.steps = state.steps.wrapping_add(1);
        let mut more = false;
        if self.ethernet_client.is_due() || state.steps.is_multiple_of(ETHERNET_LOOK) {
            more |= self.ethernet_client.serve(&mut self.ethernet, REQUESTS);
            if self.ethernet.take_revoked() {
                self.ethernet_client.revoke_dma();
            }
        }
        more |= self.ethernet.deliver_completions();
        if self.ethernet.has_work() {
            more |= self.transmit_ethernet(&mut state.frame);
            self.port.switch.wake_receivers();
            more |= self.ethernet.work();
        }
        more | self.ethernet_client.send_messages(&mut self.ethernet.link)
    }

    fn transmit_ethernet(&mut self, frame: &mut Frame) -> bool {
        if !rnic_pcie::DmaPort::has_room(&self.ethernet.link) {
            return false;
        }
        let now_ns = self.function.now_ns();
        let room = self.port.room().min(FRAMES);
        for _ in 0..room {
            if !self.ethernet.poll_transmit(frame) {
                return false;
            }
            self.port.transmit_ethernet(&self.function.engine, frame, now_ns);
        }
        room > 0
    }

    /// Each function asks its client itself: the other one may not be driven, or have another client.
    fn check_sharing(&mut self) {
        let Self { function, client, ethernet, ethernet_client, .. } = self;
        let now_ns = function.now_ns();
        client.check_sharing(&mut function.pci.sharing, &mut function.link, now_ns);
        ethernet_client.check_sharing(&mut ethernet.pci.sharing, &mut ethernet.link, now_ns);
    }
}
