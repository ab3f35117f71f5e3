//! What others tell a NIC that stands still, kept until it goes on.

/// What is kept for a NIC that stands still.
#[derive(Default)]
pub(in crate::nic) struct Moves {
    pub halted: bool,
    /// A VMM has it.
    pub attached: bool,
    /// It is to go on as another one.
    pub loaded: bool,
    pub tick: bool,
    pub look: bool,
    pub link: bool,
    /// The address to announce, where the model does not know one.
    pub mac: [u8; 6],
    pub announced: u64,
    pub lost: u64,
}

impl Moves {
    pub fn new(mac: [u8; 6]) -> Self {
        Self {
            mac,
            ..Self::default()
        }
    }

    /// A deadline has come, and it stands still.
    pub fn owes_tick(&mut self) -> bool {
        self.tick |= self.halted;
        self.halted
    }

    /// Another function has changed something, and it stands still.
    pub fn owes_look(&mut self) -> bool {
        self.look |= self.halted;
        self.halted
    }

    /// Its cable was moved, and it stands still.
    pub fn owes_link(&mut self) -> bool {
        self.link |= self.halted;
        self.halted
    }

    /// Configuration space has changed, and it stands still: it is told how it is when it goes on.
    pub fn owes_pci(&self) -> bool {
        self.halted
    }

    /// It was reset.
    pub fn forget(&mut self) {
        (self.loaded, self.tick) = (false, false);
    }

    pub fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("announced", self.announced);
        visit("announcements_lost", self.lost);
    }
}
