//! One VF, as its PF knows it.

use eswitch::{
    AddressFilter, Bucket, FunctionPolicy, HashSet12, Limit, Nanos, Pool, Rate, VlanSet,
};
use wire::MacAddr;

use crate::granted::Granted;
use crate::message::{Message, Request, WORDS};
use crate::policy::{LinkState, Misdeeds, Policy};
use crate::record::{Down, Log, What};
use crate::settings::Settings;

/// Longest frame of a VF that has asked for nothing: 1500 bytes of payload, a tag, the FCS.
const STANDARD_FRAME: u16 = 1522;
/// Longest frame the chip receives (82576 datasheet §1.3: 9.5 KB).
const LONGEST_FRAME: u32 = 9728;
/// Shortest an Ethernet frame can be.
const SHORTEST_FRAME: u32 = 64;
/// Addresses a VF may have beside the first.
const FURTHER_MACS: usize = 15;
/// VLANs there are.
const VLANS: usize = 4094;
/// A VF that has not completed a reset is told so this often (igb: 2 s).
const NACK_GAP: Nanos = 2_000_000_000;

#[derive(Debug)]
pub(crate) struct Vf {
    pub(crate) policy: Policy,
    pub(crate) settings: Settings,
    pub(crate) down: Option<Down>,
    /// It has completed a reset.
    pub(crate) clear_to_send: bool,
    /// A message that came before its time.
    pub(crate) waiting: Option<Box<[u32; WORDS]>>,
    /// There was no room in the mailbox for what it is to be told.
    pub(crate) ping_due: bool,
    pub(crate) log: Log,
    pub(crate) refused: [u64; What::ALL.len()],
    pub(crate) messages: u64,
    pub(crate) delayed: u64,
    /// What it may send by the policies of all.
    pub(crate) tx_rate: Option<u64>,
    mac: MacAddr,
    further: Vec<MacAddr>,
    hashes: Vec<u16>,
    all_groups: bool,
    vlans: VlanSet,
    max_frame: u16,
    last_nack: Option<Nanos>,
    /// It has read its mailbox since, and is to be told again when the gap is over.
    pub(crate) nack_due: bool,
    bucket: Bucket,
    misdeeds: Option<Bucket>,
    /// What it had under the process before, until it has come.
    pub(crate) resumes: Option<Granted>,
}

impl Vf {
    pub(crate) fn new(policy: Policy, now: Nanos) -> Vf {
        let bucket = bucket(policy.mailbox_rate, policy.mailbox_burst, now);
        let mac = policy.mac;
        let mut vf = Vf {
            settings: Settings {
                eswitch: FunctionPolicy {
                    storm: policy.storm,
                    ..FunctionPolicy::default()
                },
                link: false,
                tag: None,
                max_frame: STANDARD_FRAME,
                interrupts: policy.interrupts,
            },
            policy,
            down: None,
            clear_to_send: false,
            waiting: None,
            ping_due: false,
            log: Log::default(),
            refused: [0; What::ALL.len()],
            messages: 0,
            delayed: 0,
            tx_rate: None,
            mac,
            further: Vec::new(),
            hashes: Vec::new(),
            all_groups: false,
            vlans: VlanSet::none(),
            max_frame: STANDARD_FRAME,
            last_nack: None,
            nack_due: false,
            bucket,
            misdeeds: None,
            resumes: None,
        };
        vf.forgive(now);
        vf
    }

    /// Nothing is held against it.
    pub(crate) fn forgive(&mut self, now: Nanos) {
        // The bucket counts in seconds, the policy in minutes: one token is a sixtieth of a misdeed.
        let bucket = |m: Misdeeds| {
            let most = m.most.max(1).saturating_mul(60);
            bucket(m.per_minute, most, now)
        };
        self.misdeeds = self.policy.misdeeds.map(bucket);
    }

    /// As it comes out of a reset, until its driver says more.
    pub(crate) fn reset(&mut self) {
        self.clear_to_send = false;
        self.waiting = None;
        self.ping_due = false;
        self.mac = self.policy.mac;
        self.further.clear();
        self.hashes.clear();
        self.all_groups = false;
        self.vlans = VlanSet::none();
        self.max_frame = STANDARD_FRAME;
        self.last_nack = None;
        self.nack_due = false;
    }

    /// What its driver has been granted.
    pub(crate) fn granted(&self) -> Granted {
        Granted {
            clear_to_send: self.clear_to_send,
            mac: self.mac.0,
            further: self.further.iter().map(|mac| mac.0).collect(),
            hashes: self.hashes.clone(),
            all_groups: self.all_groups,
            vlans: self.vlans.iter().filter(|vlan| *vlan != 0).collect(),
            max_frame: self.max_frame,
            waiting: self.waiting.as_ref().map(|words| words.to_vec()),
        }
    }

    /// Goes on with what it was granted by another process, as far as its policy still allows that. `taken` says whether an
    /// address is another's.
    pub(crate) fn resume(&mut self, granted: Granted, taken: impl Fn(MacAddr) -> bool) {
        self.reset();
        self.clear_to_send = granted.clear_to_send;
        let words = granted.waiting.and_then(|words| words.try_into().ok());
        self.waiting = words.map(Box::new);
        let more = granted.all_groups;
        let groups = Request::Multicast {
            hashes: granted.hashes.into_iter().take(2 * WORDS).collect(),
            more,
        };
        // What a VMM brings along may have any length.
        let further = granted.further.into_iter().take(FURTHER_MACS);
        let addresses = further.map(|mac| Request::AddMac(MacAddr(mac)));
        let vlans = granted.vlans.into_iter().take(VLANS);
        let vlans = vlans.map(|id| Request::Vlan { id, join: true });
        let all = [
            Request::SetMac(MacAddr(granted.mac)),
            Request::MaxFrame(granted.max_frame.into()),
            groups,
        ];
        for request in all.into_iter().chain(addresses).chain(vlans) {
            // What is refused now its driver finds out as after any change of its policy. It has not asked, so it is no misdeed.
            if let Some(what) = self.follow(request, &taken) {
                let total = &mut self.refused[what as usize];
                *total = total.saturating_add(1);
            }
        }
    }

    /// Whether frames for this address are its own.
    pub(crate) fn has(&self, mac: MacAddr) -> bool {
        self.mac == mac || self.policy.mac == mac || self.further.contains(&mac)
    }

    /// Brings the settings up to date; `false` when they were.
    pub(crate) fn renew(&mut self, port_up: bool) -> bool {
        let link = match self.policy.state {
            LinkState::Auto => port_up,
            LinkState::Enable => true,
            LinkState::Disable => false,
        };
        let settings = Settings {
            eswitch: FunctionPolicy {
                pool: self.pool(),
                rate: self.tx_rate.map(Rate::of_bits),
                storm: self.policy.storm,
            },
            link: link && self.down.is_none(),
            tag: self.policy.vlan,
            max_frame: self.max_frame,
            interrupts: self.policy.interrupts,
        };
        let changed = settings != self.settings;
        self.settings = settings;
        changed
    }

    /// What it receives and may send.
    fn pool(&self) -> Pool {
        let enabled = self.clear_to_send && self.down.is_none();
        let mut macs = Vec::with_capacity(1 + self.further.len());
        macs.push(self.mac);
        macs.extend_from_slice(&self.further);
        let groups = if self.all_groups {
            AddressFilter::All
        } else if self.hashes.is_empty() {
            AddressFilter::None
        } else {
            AddressFilter::Hashes(HashSet12::of(self.hashes.iter().copied()))
        };
        let vlans = match self.policy.vlan {
            Some(vlan) => VlanSet::none().with(vlan.id),
            None => self.vlans.clone().with_untagged(),
        };
        Pool {
            enabled,
            receives: enabled,
            sends: enabled,
            macs,
            broadcast: true,
            groups,
            filters_vlans: true,
            vlans,
            check_mac: self.policy.spoof_check,
            check_vlan: self.policy.spoof_check,
            ..Pool::default()
        }
    }

    /// Whether its next message may be answered.
    pub(crate) fn admit(&mut self, now: Nanos) -> bool {
        self.bucket.take(1, now)
    }

    /// When a message that waits will be, or when it is to be told again that it must reset.
    pub(crate) fn next(&self) -> Option<Nanos> {
        let message = self.waiting.as_ref().map(|_| self.bucket.next_at());
        let last = self.last_nack.filter(|_| self.nack_due);
        let nack = last.map(|last| last.saturating_add(NACK_GAP + 1));
        message.into_iter().chain(nack).min()
    }

    /// Notes what it was refused. `true` when that is the end of it.
    pub(crate) fn refuse(&mut self, what: What, count: u64, now: Nanos) -> bool {
        self.log.note(what, count, now);
        let total = &mut self.refused[what as usize];
        *total = total.saturating_add(count);
        let counts = match what {
            What::Spoofed | What::Storm => self.policy.strict,
            _ => what.is_misdeed(),
        };
        if !counts || self.down.is_some() {
            return false;
        }
        let Some(bucket) = &mut self.misdeeds else {
            return false;
        };
        // Frames are told of now and then, many at once: each of them counts.
        let borne = bucket.take(count.saturating_mul(60), now);
        if !borne {
            self.down = Some(Down::Misbehaved(what));
            self.log.shut_down();
        }
        !borne
    }

    /// Whether a VF that has read its mailbox without having completed a reset is told now that it must. Where the last
    /// time is too short ago, it is told when the gap is over: Linux's igbvf resets once in 10 s at most, and forgets what
    /// it heard meanwhile (`igbvf_has_link`).
    pub(crate) fn may_nack(&mut self, now: Nanos) -> bool {
        let due = self
            .last_nack
            .is_none_or(|last| now.saturating_sub(last) > NACK_GAP);
        if due {
            self.last_nack = Some(now);
        }
        self.nack_due = !due;
        due
    }

    /// Whether the gap is over for a VF that is to be told again.
    pub(crate) fn nack_again(&mut self, now: Nanos) -> bool {
        self.nack_due && self.may_nack(now)
    }

    /// Does what a message asks, if it may be. `taken` says whether an address is another's.
    pub(crate) fn answer(
        &mut self,
        words: &[u32; WORDS],
        taken: impl Fn(MacAddr) -> bool,
    ) -> Answer {
        self.messages += 1;
        let first = words[0];
        let request = Request::decode(words);
        if request == Request::Echo {
            return Answer::Nothing;
        }
        if request == Request::Reset {
            self.reset();
            self.clear_to_send = true;
            return Answer::Reply(Message::address(self.mac), None);
        }
        if !self.clear_to_send {
            return Answer::NotReset(Message::not_yet(first));
        }
        let refused = self.follow(request, taken);
        Answer::Reply(Message::outcome(first, refused.is_none()), refused)
    }

    fn follow(&mut self, request: Request, taken: impl Fn(MacAddr) -> bool) -> Option<What> {
        let may_choose = !self.policy.mac_set || self.policy.trust;
        let refuse_mac = |mac: MacAddr| {
            if !mac.is_unicast() {
                Some(What::BadAddress)
            } else if !may_choose {
                Some(What::MacOverride)
            } else if taken(mac) {
                Some(What::AddressTaken)
            } else {
                None
            }
        };
        match request {
            // What it has it may ask for again: its driver does, at every start.
            Request::SetMac(mac) if mac == self.mac => None,
            Request::SetMac(mac) => {
                let refused = refuse_mac(mac);
                if refused.is_none() {
                    self.mac = mac;
                    self.further.retain(|other| *other != mac);
                }
                refused
            }
            Request::ClearMacs => {
                self.further.clear();
                None
            }
            Request::AddMac(mac) if self.mac == mac || self.further.contains(&mac) => None,
            Request::AddMac(mac) => {
                let full = self.further.len() >= FURTHER_MACS;
                let refused = refuse_mac(mac).or(full.then_some(What::TooManyAddresses));
                if refused.is_none() {
                    self.further.push(mac);
                }
                refused
            }
            Request::Multicast { hashes, more } => {
                // Those that did not fit into the message would be lost: all groups, as igb.
                self.all_groups = more;
                self.hashes = hashes;
                None
            }
            Request::Vlan { id, join } => {
                let wanted = id != 0;
                match self.policy.vlan {
                    // Linux joins VLAN 0, which is none, by itself.
                    Some(_) if join && wanted => Some(What::VlanOverride),
                    Some(_) => None,
                    None => {
                        if wanted {
                            let vlans = std::mem::replace(&mut self.vlans, VlanSet::none());
                            self.vlans = match join {
                                true => vlans.with(id),
                                false => vlans.without(id),
                            };
                        }
                        None
                    }
                }
            }
            Request::MaxFrame(bytes) => match u16::try_from(bytes) {
                Ok(size) if (SHORTEST_FRAME..=LONGEST_FRAME).contains(&bytes) => {
                    self.max_frame = size;
                    None
                }
                _ => Some(What::BadFrameSize),
            },
            Request::Promisc { multicast, other } => {
                self.all_groups = multicast;
                other.then_some(What::Promiscuous)
            }
            Request::Unknown => Some(What::UnknownMessage),
            Request::Reset | Request::Echo => None,
        }
    }
}

/// A full bucket; both at least 1.
fn bucket(per_second: u32, burst: u32, now: Nanos) -> Bucket {
    let limit = Limit {
        per_second: per_second.max(1).into(),
        burst: burst.max(1).into(),
    };
    Bucket::new(limit, now)
}

/// What becomes of a message.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A reply, and what was refused with it.
    Reply(Message, Option<What>),
    /// It has to complete a reset first; it is told so now and then.
    NotReset(Message),
    /// Nothing.
    Nothing,
}
