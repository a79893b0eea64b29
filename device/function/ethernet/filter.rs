//! Which frames from the switch are for this function, as the driver set it over the control queue.

/// Addresses of each kind that are kept; beyond that all of the kind are taken.
const ADDRESSES: usize = 64;

pub type Mac = [u8; 6];
const BROADCAST: Mac = [0xff; 6];

/// Receive mode and address table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiveFilter {
    own: Mac,
    pub promiscuous: bool,
    pub all_multicast: bool,
    unicast: AddressList,
    multicast: AddressList,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct AddressList {
    addresses: Vec<Mac>,
    /// There were more than are kept.
    all: bool,
}

impl AddressList {
    fn set(&mut self, bytes: &[u8]) {
        self.addresses.clear();
        self.all = bytes.len() / size_of::<Mac>() > ADDRESSES;
        let addresses = bytes.chunks_exact(size_of::<Mac>()).filter_map(|chunk| Mac::try_from(chunk).ok());
        self.addresses.extend(addresses.take(ADDRESSES));
    }

    fn takes(&self, address: &Mac) -> bool {
        self.all || self.addresses.contains(address)
    }
}

impl ReceiveFilter {
    /// Takes everything until the driver says what it wants.
    pub fn new(own: Mac) -> Self {
        Self {
            own,
            promiscuous: true,
            all_multicast: false,
            unicast: AddressList::default(),
            multicast: AddressList::default(),
        }
    }

    /// Sets the table: for each kind a little-endian count of 32 bits and the addresses. False, with nothing changed,
    /// where the bytes end too early.
    pub fn set_table(&mut self, bytes: &[u8]) -> bool {
        let Some((unicast, rest)) = list(bytes) else { return false };
        let Some((multicast, _)) = list(rest) else { return false };
        self.unicast.set(unicast);
        self.multicast.set(multicast);
        true
    }

    pub fn takes(&self, frame: &[u8]) -> bool {
        let Some(destination) = frame.first_chunk::<6>() else { return false };
        self.promiscuous
            || *destination == self.own
            || *destination == BROADCAST
            || match destination[0] & 1 {
                1 => self.all_multicast || self.multicast.takes(destination),
                _ => self.unicast.takes(destination),
            }
    }
}

/// The addresses of one kind, and what follows them.
fn list(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, rest) = bytes.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*count)).ok()?.checked_mul(size_of::<Mac>())?;
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Mac = [2, 0, 0, 0, 0, 1];

    fn table(unicast: &[Mac], multicast: &[Mac]) -> Vec<u8> {
        let list = |addresses: &[Mac]| [(addresses.len() as u32).to_le_bytes().to_vec(), addresses.concat()].concat();
        [list(unicast), list(multicast)].concat()
    }

    #[test]
    fn modes_and_table_decide_beside_the_own_address() {
        let (other, group) = ([2, 0, 0, 0, 0, 9], [0x33, 0x33, 0, 0, 0, 1]);
        let mut filter = ReceiveFilter::new(OWN);
        assert!(filter.takes(&other), "everything before the driver has said anything");
        filter.promiscuous = false;
        let taken = |filter: &ReceiveFilter| [OWN, BROADCAST, other, group].map(|address| filter.takes(&address));
        assert_eq!(taken(&filter), [true, true, false, false]);
        filter.all_multicast = true;
        assert_eq!(taken(&filter), [true, true, false, true]);
        filter.all_multicast = false;
        assert!(filter.set_table(&table(&[], &[group])));
        assert_eq!(taken(&filter), [true, true, false, true]);
        assert!(filter.set_table(&table(&[other], &[])));
        assert_eq!(taken(&filter), [true, true, true, false]);
        assert!(!filter.takes(&OWN[..5]));
    }

    #[test]
    fn a_table_that_is_too_long_takes_all_of_its_kind_and_one_cut_short_is_refused() {
        let mut filter = ReceiveFilter::new(OWN);
        filter.promiscuous = false;
        let many: Vec<Mac> = (0..100).map(|last| [1, 0, 0, 0, 0, last]).collect();
        let whole = table(&[], &many);
        for length in 0..whole.len() {
            assert!(!filter.set_table(&whole[..length]));
        }
        assert!(!filter.takes(&many[99]));
        assert!(filter.set_table(&whole));
        assert!(filter.takes(&[1, 9, 9, 9, 9, 9]) && !filter.takes(&[2, 9, 9, 9, 9, 9]));
        assert!(!filter.set_table(&[0xff; 12]), "a count beyond the bytes");
    }
}
