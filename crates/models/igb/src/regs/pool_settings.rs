//! What the registers of a PF that has pools say of its queues (§7.10.3, §8.14).

use regs::File;

use crate::regs as r;
use crate::regs::bits::vmolr;
use crate::regs::pools;
use crate::regs::settings::Settings;

impl Settings {
    /// Those of a PF with `vfs` VFs.
    pub(crate) fn of_pf(file: &File, vfs: u32) -> Settings {
        let settings = Self::of_port(file);
        if !pools::are_on(file) {
            return settings;
        }
        if vfs == 0 {
            return Settings {
                several: true,
                ..settings
            };
        }
        let vmolr = file.get_at(r::VMOLR, vfs);
        let (max_len, max_tagged) = pools::lengths(file, vfs);
        Settings {
            max_len,
            max_tagged,
            strip_crc: vmolr & vmolr::STRCRC != 0,
            strip_vlan: vmolr & vmolr::STRVLAN != 0,
            replicas: pools::replicas(file),
            pools: Some(vfs),
            several: pools::are_several(file, vfs),
            ..settings
        }
    }

    /// Those of one queue of a PF that has pools: the tag is its pool's (VMVIR).
    pub(crate) fn of_queue(&self, file: &File, queue: u32) -> Settings {
        if self.pools.is_none() && !self.several {
            return *self;
        }
        let pool = queue % pools::POOLS;
        Settings {
            tag: pools::tag(file, pool),
            insert_vlan: self.insert_vlan && pools::may_tag(file, pool),
            ..*self
        }
    }

    /// The pool of a queue of a PF, if what that sends may be for another one of them (DTXSWC).
    pub(crate) fn looks_inside(&self, file: &File, queue: u32) -> Option<u32> {
        let inside = self.several && pools::reach_others(file);
        inside.then_some(queue % pools::POOLS)
    }

    /// Whether the pool of a queue may send (VFTE). Where there is but one beside VFs the switch sees to
    /// it.
    pub(crate) fn pool_sends(&self, file: &File, queue: u32) -> bool {
        !self.several || file.get(r::VFTE) >> (queue % pools::POOLS) & 1 != 0
    }

    /// Those of one pool, for a frame that may be for several.
    pub(crate) fn of_pool(&self, file: &File, pool: u32, for_many: bool) -> Settings {
        let has = file.get_at(r::VMOLR, pool);
        let (max_len, max_tagged) = pools::lengths(file, pool);
        let settings = Settings {
            max_len,
            max_tagged,
            strip_crc: has & vmolr::STRCRC != 0,
            strip_vlan: has & vmolr::STRVLAN != 0,
            replicas: pools::replicas(file),
            ..*self
        };
        match for_many {
            true => settings.of_replicas(),
            false => settings,
        }
    }
}
