//! The control queue's commands: receive mode and address table.

use super::filter::ReceiveFilter;
use virtio_bindings::virtio_net::{
    VIRTIO_NET_CTRL_MAC, VIRTIO_NET_CTRL_MAC_TABLE_SET, VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_ALLMULTI,
    VIRTIO_NET_CTRL_RX_PROMISC, VIRTIO_NET_ERR, VIRTIO_NET_OK,
};

/// The answer to a command that was not carried out.
pub const REFUSED: u8 = VIRTIO_NET_ERR as u8;

/// Carries a command out; the answer is the byte that goes back. What is not known changes nothing.
pub fn execute(filter: &mut ReceiveFilter, command: &[u8]) -> u8 {
    let done = match command {
        [class, kind, body @ ..] => match (u32::from(*class), u32::from(*kind)) {
            (VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_PROMISC) => set(&mut filter.promiscuous, body),
            (VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_ALLMULTI) => set(&mut filter.all_multicast, body),
            (VIRTIO_NET_CTRL_MAC, VIRTIO_NET_CTRL_MAC_TABLE_SET) => filter.set_table(body),
            _ => false,
        },
        _ => false,
    };
    if done { VIRTIO_NET_OK as u8 } else { REFUSED }
}

fn set(mode: &mut bool, body: &[u8]) -> bool {
    match body {
        [value @ (0 | 1)] => {
            *mode = *value == 1;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_commands_are_carried_out_and_others_refused() {
        let mut filter = ReceiveFilter::new([2, 0, 0, 0, 0, 1]);
        assert_eq!(execute(&mut filter, &[0, 0, 0]), 0);
        assert_eq!(execute(&mut filter, &[0, 1, 1]), 0);
        assert!(!filter.promiscuous && filter.all_multicast);
        let before = filter.clone();
        let refused: [&[u8]; 8] =
            [&[], &[0], &[0, 0], &[0, 0, 2], &[0, 0, 1, 1], &[0, 2, 1], &[1, 0, 9], &[4, 0, 1, 0]];
        for command in refused {
            assert_eq!(execute(&mut filter, command), 1, "{command:?}");
        }
        assert_eq!(filter, before);
    }
}
