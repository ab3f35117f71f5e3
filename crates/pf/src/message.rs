//! The words in the mailbox (82576 datasheet §7.10.2.9.1; Linux `igb/e1000_mbx.h`, `igbvf/mbx.h`).

use wire::MacAddr;

/// Words of the mailbox memory, VMBMEM.
pub const WORDS: usize = 16;

/// The message was done as asked.
pub(crate) const ACK: u32 = 0x8000_0000;
/// The message was refused.
pub(crate) const NACK: u32 = 0x4000_0000;
/// The VF has completed a reset and may go on sending.
pub(crate) const CTS: u32 = 0x2000_0000;

const RESET: u32 = 1;
const SET_MAC: u32 = 2;
const SET_MULTICAST: u32 = 3;
const SET_VLAN: u32 = 4;
const SET_LPE: u32 = 5;
const SET_PROMISC: u32 = 6;
/// From the physical function: something about the port has changed.
const PF_CONTROL: u32 = 0x100;

const FILTER_CLEAR: u32 = 1;
const FILTER_ADD: u32 = 2;
const PROMISC_MULTICAST: u32 = 2;

/// Hashes that fit behind the first word.
pub(crate) const MAX_HASHES: usize = 30;

/// What a VF may ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// It has been reset, and wants its address.
    Reset,
    /// It wants this address.
    SetMac(MacAddr),
    /// It wants no further addresses.
    ClearMacs,
    /// It wants this address as well.
    AddMac(MacAddr),
    /// It wants these groups, by their hashes of 12 bits. It may have more of them than told here.
    Multicast { hashes: Vec<u16>, more: bool },
    /// It wants to be a member of a VLAN, or no longer.
    Vlan { id: u16, join: bool },
    /// The longest frame it wants, in bytes, FCS included.
    MaxFrame(u32),
    /// It wants all groups, or no longer; and what else its driver set, which is never granted.
    Promisc { multicast: bool, other: bool },
    /// What no driver sends.
    Unknown,
    /// A reply of ours that was sent back.
    Echo,
}

fn mac(words: &[u32; WORDS]) -> MacAddr {
    let [a, b, c, d] = words[1].to_le_bytes();
    let [e, f, ..] = words[2].to_le_bytes();
    MacAddr([a, b, c, d, e, f])
}

impl Request {
    pub(crate) fn decode(words: &[u32; WORDS]) -> Request {
        let first = words[0];
        let info = first >> 16 & 0xff;
        if first & (ACK | NACK) != 0 {
            return Request::Echo;
        }
        // As igb does: a reset has nothing beside it.
        if first == RESET {
            return Request::Reset;
        }
        match first & 0xffff {
            SET_MAC => match info {
                0 => Request::SetMac(mac(words)),
                FILTER_CLEAR => Request::ClearMacs,
                FILTER_ADD => Request::AddMac(mac(words)),
                _ => Request::Unknown,
            },
            SET_MULTICAST => {
                let n = info as usize;
                let halves = words[1..]
                    .iter()
                    .flat_map(|w| [*w as u16, (*w >> 16) as u16]);
                Request::Multicast {
                    hashes: halves.take(n.min(MAX_HASHES)).map(|h| h & 0xfff).collect(),
                    more: n > MAX_HASHES,
                }
            }
            SET_VLAN => Request::Vlan {
                id: (words[1] & 0xfff) as u16,
                join: info != 0,
            },
            SET_LPE => Request::MaxFrame(words[1]),
            SET_PROMISC => Request::Promisc {
                multicast: info & PROMISC_MULTICAST != 0,
                other: info & !PROMISC_MULTICAST != 0,
            },
            _ => Request::Unknown,
        }
    }
}

/// What is put into a VF's mailbox: the first words, the others stay as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    words: [u32; 3],
    len: u8,
}

impl Message {
    /// The words, from the first on.
    pub fn words(&self) -> &[u32] {
        &self.words[..self.len.into()]
    }

    fn one(word: u32) -> Message {
        Message {
            words: [word, 0, 0],
            len: 1,
        }
    }

    /// The reply to a reset.
    pub(crate) fn address(mac: MacAddr) -> Message {
        let [a, b, c, d, e, f] = mac.0;
        let words = [
            RESET | ACK,
            u32::from_le_bytes([a, b, c, d]),
            u32::from_le_bytes([e, f, 0, 0]),
        ];
        Message { words, len: 3 }
    }

    /// The reply to anything else, which is the request's first word and the outcome.
    pub(crate) fn outcome(first: u32, done: bool) -> Message {
        // What is granted of a promiscuous mode is taken out of the word, as igb does.
        let first = match first & 0xffff {
            SET_PROMISC => first & !(PROMISC_MULTICAST << 16),
            _ => first,
        };
        Message::one(first | CTS | if done { ACK } else { NACK })
    }

    /// The reply to a VF that has not completed a reset.
    pub(crate) fn not_yet(first: u32) -> Message {
        Message::one(first | NACK)
    }

    /// The answer to an acknowledgement of a VF that has not completed a reset.
    pub(crate) fn nack() -> Message {
        Message::one(NACK)
    }

    /// Something about the port has changed.
    pub(crate) fn control(clear_to_send: bool) -> Message {
        Message::one(PF_CONTROL | if clear_to_send { CTS } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(first: &[u32]) -> [u32; WORDS] {
        let mut words = [0; WORDS];
        words[..first.len()].copy_from_slice(first);
        words
    }

    #[test]
    fn words_of_linux_drivers_are_understood() {
        let decode = |first: &[u32]| Request::decode(&words(first));
        let mac = MacAddr([2, 4, 6, 8, 10, 12]);
        assert_eq!(decode(&[1]), Request::Reset);
        let set = [2, 0x0806_0402, 0x0c0a];
        assert_eq!(decode(&set), Request::SetMac(mac));
        let add = [2 | 2 << 16, 0x0806_0402, 0x0c0a];
        assert_eq!(decode(&add), Request::AddMac(mac));
        assert_eq!(decode(&[2 | 1 << 16]), Request::ClearMacs);
        let three = [3 | 3 << 16, 0x0abc_0123, 0xfdef];
        assert_eq!(
            decode(&three),
            Request::Multicast {
                hashes: vec![0x123, 0xabc, 0xdef],
                more: false
            }
        );
        assert_eq!(
            decode(&[4 | 1 << 16, 100]),
            Request::Vlan {
                id: 100,
                join: true
            }
        );
        assert_eq!(decode(&[5, 9018]), Request::MaxFrame(9018));
        assert_eq!(
            decode(&[6 | 2 << 16]),
            Request::Promisc {
                multicast: true,
                other: false
            }
        );
        // A reset with anything beside it, and unknown messages.
        assert_eq!(decode(&[1 | 1 << 16]), Request::Unknown);
        assert_eq!(decode(&[0]), Request::Unknown);
        assert_eq!(decode(&[1 | ACK]), Request::Echo);
        assert_eq!(
            Message::address(mac).words(),
            [0x8000_0001, 0x0806_0402, 0x0c0a]
        );
    }

    proptest! {
        #[test]
        fn no_words_give_more_than_the_mailbox_holds(all in proptest::array::uniform16(any::<u32>())) {
            if let Request::Multicast { hashes, more } = Request::decode(&all) {
                prop_assert!(hashes.len() <= MAX_HASHES);
                prop_assert!(hashes.iter().all(|hash| *hash < 4096));
                prop_assert_eq!(more, all[0] >> 16 & 0xff > 30);
            }
        }
    }
}
