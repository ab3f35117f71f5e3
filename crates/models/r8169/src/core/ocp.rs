//! What lies behind OCP and ERI in the 8168H: registers of its MAC, of its PHY and of its microcontroller. Those that drivers
//! wait for answer; the others keep what is written.

use crate::core::phy::{Effect, Phy};

/// 16-bit registers of a space; addresses are even.
const REGISTERS: usize = 0x8000;
/// 32-bit registers of ERI that any driver names.
const WORDS: usize = 0x400;

/// Where the registers of IEEE 802.3 clause 22 are among the PHY's.
const STANDARD: u16 = 0xa400;
const STANDARD_END: u16 = 0xa420;
/// The PHY's state: 3 is ready.
const STATE: u16 = 0xa420;
const READY: u16 = 3;
/// What the link is.
const PHYSR: u16 = 0xa434;
/// A patch of the PHY's microcode is asked for here, and granted there.
const PATCH_REQUEST: u16 = 0xb820;
const REQUESTED: u16 = 1 << 4;
const PATCH_STATUS: u16 = 0xb800;
const GRANTED: u16 = 1 << 6;
/// Energy-efficient Ethernet: what there is, and what is offered. No partner has it.
const EEE_ABLE: u16 = 0xa5c4;
const EEE_OFFER: u16 = 0xa5d0;
const EEE_SPEEDS: u16 = 0x0006;

/// ERI's station address.
const ERI_MAC: u16 = 0x0e0;
/// ERI's packet filter, in which a magic packet wakes.
pub(crate) const ERI_FILTER: u16 = 0x0dc;
pub(crate) const ERI_MAGIC: u32 = 1 << 16;

mod physr {
    pub const LINK: u16 = 1 << 2;
    pub const FULL_DUPLEX: u16 = 1 << 3;
    pub const M100: u16 = 1 << 4;
    pub const M1000: u16 = 1 << 5;
}

/// The three spaces. Untouched memory of theirs costs nothing.
#[derive(Clone, Debug)]
pub(crate) struct Ocp {
    mac: Box<[u16]>,
    phy: Box<[u16]>,
    eri: Box<[u32]>,
}

/// The place of an address in its space.
fn at(address: u16) -> usize {
    usize::from(address / 2) % REGISTERS
}

fn word(address: u16) -> usize {
    usize::from(address / 4) % WORDS
}

impl Ocp {
    /// As after power-up.
    pub fn new(mac: [u8; 6]) -> Self {
        let mut new = Self {
            mac: vec![0; REGISTERS].into(),
            phy: vec![0; REGISTERS].into(),
            eri: vec![0; WORDS].into(),
        };
        let [a, b, c, d, e, f] = mac;
        new.eri[word(ERI_MAC)] = u32::from_le_bytes([a, b, c, d]);
        new.eri[word(ERI_MAC + 4)] = u32::from_le_bytes([e, f, 0, 0]);
        new.phy[at(EEE_ABLE)] = EEE_SPEEDS;
        new.phy[at(EEE_OFFER)] = EEE_SPEEDS;
        new
    }

    pub fn read_mac(&self, address: u16) -> u16 {
        self.mac[at(address)]
    }

    pub fn write_mac(&mut self, address: u16, value: u16) {
        self.mac[at(address)] = value;
    }

    pub fn read_phy(&self, phy: &Phy, address: u16) -> u16 {
        let address = address & !1;
        let stored = self.phy[at(address)];
        match address {
            STANDARD..STANDARD_END => phy.read_standard(usize::from(address - STANDARD) / 2),
            STATE => stored & !7 | READY,
            PHYSR => status(phy),
            PATCH_STATUS if self.phy[at(PATCH_REQUEST)] & REQUESTED != 0 => stored | GRANTED,
            PATCH_STATUS => stored & !GRANTED,
            _ => stored,
        }
    }

    pub fn write_phy(&mut self, phy: &mut Phy, address: u16, value: u16) -> Effect {
        let address = address & !1;
        if let STANDARD..STANDARD_END = address {
            return phy.write_standard(usize::from(address - STANDARD) / 2, value);
        }
        self.phy[at(address)] = value;
        Effect::None
    }

    /// The word with this address, in which the lower two bits do not count.
    pub fn eri(&self, address: u16) -> u32 {
        self.eri[word(address)]
    }

    /// Writes those bytes of it whose bits in `lanes` are set.
    pub fn write_eri(&mut self, address: u16, value: u32, lanes: u8) {
        let mask = (0..4).filter(|i| lanes >> i & 1 != 0);
        let mask = mask.fold(0, |mask, i| mask | 0xff << (8 * i));
        let stored = &mut self.eri[word(address)];
        *stored = *stored & !mask | value & mask;
    }

    /// What is not 0, by its place: MAC, PHY, ERI.
    pub fn entries(&self) -> [Vec<(u16, u32)>; 3] {
        let of = |space: &[u16]| {
            let all = (0..).zip(space);
            let set = all.filter(|(_, value)| **value != 0);
            set.map(|(at, value)| (at, u32::from(*value))).collect()
        };
        let eri = (0..).zip(&self.eri).filter(|(_, value)| **value != 0);
        let eri = eri.map(|(at, value)| (at, *value)).collect();
        [of(&self.mac), of(&self.phy), eri]
    }

    /// What [`Ocp::entries`] has given.
    ///
    /// # Errors
    /// The place or value that cannot be.
    pub fn of_entries([mac, phy, eri]: [&[(u16, u32)]; 3]) -> Result<Self, u32> {
        let mut new = Self {
            mac: vec![0; REGISTERS].into(),
            phy: vec![0; REGISTERS].into(),
            eri: vec![0; WORDS].into(),
        };
        for (space, entries) in [(&mut new.mac, mac), (&mut new.phy, phy)] {
            for (at, value) in entries {
                let place = space.get_mut(usize::from(*at)).ok_or(u32::from(*at))?;
                *place = u16::try_from(*value).map_err(|_| *value)?;
            }
        }
        for (at, value) in eri {
            *new.eri.get_mut(usize::from(*at)).ok_or(u32::from(*at))? = *value;
        }
        Ok(new)
    }
}

fn status(phy: &Phy) -> u16 {
    let Some(speed) = phy.speed().filter(|_| phy.link()) else {
        return 0;
    };
    let mbits = match speed.mbits {
        1000 => physr::M1000,
        100 => physr::M100,
        _ => 0,
    };
    let full = if speed.full { physr::FULL_DUPLEX } else { 0 };
    physr::LINK | mbits | full
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_of_a_space_is_saved_and_loaded() {
        let mut ocp = Ocp::new([1, 2, 3, 4, 5, 6]);
        let mut phy = Phy::new(true, 0xc800);
        ocp.write_mac(0xfffe, 7);
        ocp.write_mac(0, 8);
        ocp.write_phy(&mut phy, 0xfffe, 9);
        ocp.write_eri(0xffc, 0x1234_5678, 0b0101);
        let [mac, phys, eri] = ocp.entries();
        let again = Ocp::of_entries([&mac, &phys, &eri]).expect("its own");
        assert_eq!(again.read_mac(0xfffe), 7);
        assert_eq!(again.read_phy(&phy, 0xfffe), 9);
        assert_eq!(again.eri(0xffc), 0x0034_0078);
        assert_eq!(again.entries(), ocp.entries());
        assert_eq!(
            Ocp::of_entries([&[(0x8000, 1)], &[], &[]]).err(),
            Some(0x8000)
        );
        assert_eq!(
            Ocp::of_entries([&[(0, 0x1_0000)], &[], &[]]).err(),
            Some(0x1_0000)
        );
        assert_eq!(
            Ocp::of_entries([&[], &[], &[(0x400, 1)]]).err(),
            Some(0x400)
        );
    }
}
