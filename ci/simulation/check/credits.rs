//! End-to-end credits, read from the frames: a receiver promises no more than is posted, a sender begins no more messages that
//! need a receive than it was promised, and one to ask with.

use super::packet::{ahead, step};
use crate::message::Message;
use std::collections::VecDeque;
use std::rc::Rc;

/// The codes of an acknowledgement's credits, as the specification has them; the last one promises nothing.
const PROMISES: [u32; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144,
    8192, 12_288, 16_384, 24_576, 32_768,
];

/// What an acknowledgement with this syndrome promises.
pub fn promise(syndrome: u8) -> Option<u32> {
    PROMISES.get(usize::from(syndrome & 31)).copied()
}

/// An acknowledgement of everything before `unacked` leaves: `posted` receives are not known to have completed, and some of
/// them belong to messages that it acknowledges.
pub fn check_promise(
    syndrome: u8,
    unacked: u32,
    posted: usize,
    arriving: &VecDeque<Rc<Message>>,
    shares: bool,
) -> Result<(), String> {
    let Some(promised) = promise(syndrome) else { return Ok(()) };
    if shares {
        return Err(format!("promises {promised} receives, which are not its own"));
    }
    // Credits count from the messages that are whole on: the one that is arriving is among those that they are for.
    let taken = |message: &&Rc<Message>| ahead(unacked, step(message.first_psn, message.packets)) >= 0;
    let free = posted - posted.min(arriving.iter().filter(taken).count());
    if promised as usize > free {
        return Err(format!("promises {promised} receives with {unacked:#x}, and {free} are posted"));
    }
    Ok(())
}

/// A packet leaves for the first time, of a message that takes a receive: `unacked` is the oldest that is unacknowledged.
/// True where it is the question. What has begun on a promise goes on, also when the promise is taken back.
pub fn check_begin(
    promised: u32,
    unacked: u32,
    outstanding: &VecDeque<Rc<Message>>,
    message: &Message,
    (packet, asked): (u32, bool),
) -> Result<bool, String> {
    let before = |earlier: &&Rc<Message>| {
        let takes = earlier.operation.consumes_receive() && earlier.number < message.number;
        takes && ahead(step(earlier.first_psn, earlier.packets), unacked) > 0
    };
    let taking = outstanding.iter().filter(before).count();
    if packet == 0 && taking > promised as usize {
        return Err(format!("{taking} messages need receives before it, and {promised} are promised"));
    }
    let asks = taking >= promised as usize;
    let unheard = ahead(unacked, message.first_psn) <= 0;
    if packet > 0 && asked && asks && unheard && message.takes_receive(0) {
        return Err(format!("packet {packet} of a message that {promised} promised receives do not cover"));
    }
    Ok(asks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::named;
    use rnic_abi::WorkOpcode;

    fn send(number: u64, first_psn: u32, packets: u32) -> Rc<Message> {
        let message = Message::without_packets(number, named(WorkOpcode::SEND), 0, first_psn, None);
        Rc::new(Message { packets, ..message })
    }

    #[test]
    fn no_more_is_promised_than_is_posted_and_not_taken() {
        let arriving = VecDeque::from([send(0, 0xff_ffff, 2), send(1, 1, 1)]);
        assert!(check_promise(0x02, 0, 2, &arriving, false).is_ok(), "the first one is not whole");
        assert!(check_promise(0x02, 1, 2, &arriving, false).unwrap_err().contains("1 are posted"));
        assert!(
            check_promise(0x01, 1, 2, &arriving, false).is_ok() && check_promise(0x01, 2, 2, &arriving, false).is_err()
        );
        assert!(
            check_promise(0x00, 0, 2, &arriving, true).is_err() && check_promise(0x1f, 2, 0, &arriving, true).is_ok()
        );
        assert_eq!((promise(0x05), promise(0x1e), promise(0x1f)), (Some(6), Some(32_768), None));
    }

    #[test]
    fn one_message_beyond_the_promise_may_ask_with_its_first_packet() {
        let outstanding = VecDeque::from([send(0, 0, 1), send(1, 1, 2), send(2, 3, 1)]);
        assert_eq!(check_begin(1, 0, &outstanding, &outstanding[1], (0, false)), Ok(true));
        assert!(
            check_begin(1, 0, &outstanding, &outstanding[1], (1, true)).is_err(),
            "the question is its first packet"
        );
        assert!(check_begin(1, 2, &outstanding, &outstanding[1], (1, true)).is_ok(), "it is answered");
        assert!(check_begin(1, 0, &outstanding, &outstanding[1], (1, false)).is_ok(), "it began on a promise");
        assert!(check_begin(1, 0, &outstanding, &outstanding[2], (0, false)).is_err());
        assert_eq!(check_begin(2, 1, &outstanding, &outstanding[2], (0, false)), Ok(false));
    }
}
