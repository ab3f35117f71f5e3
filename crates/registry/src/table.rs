//! The entries.

use std::sync::Arc;

use e1000::Variant;
use igb::Moderation;
use model::Nic;
use r8169::Variant as RealtekVariant;

use crate::entry::{Choice, Function, Model, Models, Refusal, Settings};

/// The models of this build. The first is the default.
pub const MODELS: Models = Models(&[
    &E1000,
    &I82545EM,
    &I82544GC,
    &I82576,
    &R8168,
    &R8168H,
    &R8169S,
    &VIRTIO_NET,
]);

static E1000: Model = Model {
    name: "e1000",
    aliases: &["82540em"],
    chip: "Intel 82540EM",
    remark: "82540EM",
    make: |settings, _| e1000(Variant::I82540Em, settings),
    ..E1000_FAMILY
};

static I82545EM: Model = Model {
    name: "82545em",
    chip: "Intel 82545EM, which drivers let use 64-bit DMA",
    remark: "64-bit DMA",
    make: |settings, _| e1000(Variant::I82545Em, settings),
    ..E1000_FAMILY
};

static I82544GC: Model = Model {
    name: "82544gc",
    chip: "Intel 82544GC",
    make: |settings, _| e1000(Variant::I82544Gc, settings),
    ..E1000_FAMILY
};

/// What the 8254x have in common.
const E1000_FAMILY: Model = Model {
    name: "",
    aliases: &[],
    chip: "",
    remark: "",
    revisions: 1,
    nvm: e1000::NVM_LEN,
    // What their drivers set was made for a bus.
    moderation: Moderation::Adaptive,
    vfs: None,
    refuses: &[
        Refusal {
            choice: Choice::QueuePairs,
            with_vfs_only: false,
            reason: "e1000, 82545em and 82544gc have one queue each way: leave queue-pairs out, or choose model = \"virtio-net\"",
        },
        Refusal {
            choice: Choice::SplitRings,
            with_vfs_only: false,
            reason: "e1000, 82545em and 82544gc have rings of one kind: leave split-rings out",
        },
        Refusal {
            choice: Choice::Mtu,
            with_vfs_only: false,
            reason: "e1000, 82545em and 82544gc tell their drivers no MTU: leave mtu out, and set it in the guest",
        },
        Refusal {
            choice: Choice::Standby,
            with_vfs_only: false,
            reason: "e1000, 82545em and 82544gc cannot stand in for another NIC: leave standby out, or choose model = \"virtio-net\"",
        },
        Refusal {
            choice: Choice::HashReport,
            with_vfs_only: false,
            reason: "e1000, 82545em and 82544gc hash no frames: leave hash-report out",
        },
    ],
    make: |settings, _| e1000(Variant::I82540Em, settings),
    virtio: None,
    page_hint: Some(
        "its stock drivers have INTx only, and QEMU takes the page away at the first such interrupt: from then on each access \
         is a message again, and waits for its answer. It is for drivers that poll, and for VMMs that leave it mapped",
    ),
};

static I82576: Model = Model {
    name: "82576",
    aliases: &[],
    chip: "Intel 82576",
    remark: "16 queues, MSI-X",
    revisions: 1,
    nvm: igb::NVM_LEN,
    // Its drivers measure their traffic themselves and set EITR by it.
    moderation: Moderation::Guest,
    vfs: Some(igb::MAX_VFS),
    refuses: &[
        Refusal {
            choice: Choice::Csb,
            with_vfs_only: false,
            reason: "the 82576 has no csb: leave it out, or choose model = \"e1000\"",
        },
        Refusal {
            choice: Choice::Pause,
            // A PF with VFs obeys no pause frame: a VF may have sent it.
            with_vfs_only: true,
            reason: "the 82576 with VFs has no pause: leave it out, or choose model = \"e1000\"",
        },
        Refusal {
            choice: Choice::ReceiveThrottling,
            with_vfs_only: false,
            reason: "the 82576 has no receive throttling: leave it out, or choose model = \"e1000\"",
        },
        Refusal {
            choice: Choice::QueuePairs,
            with_vfs_only: false,
            reason: "the 82576 always has 16 queues: leave queue-pairs out",
        },
        Refusal {
            choice: Choice::SplitRings,
            with_vfs_only: false,
            reason: "the 82576 has rings of one kind: leave split-rings out",
        },
        Refusal {
            choice: Choice::Mtu,
            with_vfs_only: false,
            reason: "the 82576 tells its drivers no MTU: leave mtu out, and set it in the guest",
        },
        Refusal {
            choice: Choice::Standby,
            with_vfs_only: false,
            reason: "the 82576 cannot stand in for another NIC: leave standby out, or choose model = \"virtio-net\"",
        },
        Refusal {
            choice: Choice::HashReport,
            with_vfs_only: false,
            reason: "the 82576 reports hashes where its driver sets RSS: leave hash-report out",
        },
    ],
    make: i82576,
    virtio: None,
    page_hint: None,
};

static R8168: Model = Model {
    name: "r8168",
    aliases: &["r8169"],
    chip: "Realtek RTL8168C",
    remark: "Realtek",
    make: |settings, _| r8168(RealtekVariant::Rtl8168C, settings),
    ..R8168_FAMILY
};

static R8168H: Model = Model {
    name: "r8168h",
    chip: "Realtek RTL8168H, for drivers that know no older ones, as DPDK's",
    remark: "Realtek, for DPDK",
    make: |settings, _| r8168(RealtekVariant::Rtl8168H, settings),
    ..R8168_FAMILY
};

static R8169S: Model = Model {
    name: "r8169s",
    chip: "Realtek RTL8169S, on a PCI bus, for drivers of its time",
    remark: "Realtek, PCI",
    make: |settings, _| r8168(RealtekVariant::Rtl8169S, settings),
    ..R8168_FAMILY
};

/// What Realtek's have in common.
const R8168_FAMILY: Model = Model {
    name: "",
    aliases: &[],
    chip: "",
    remark: "",
    // Its EEPROM cannot be written.
    revisions: 1,
    nvm: 0,
    // Linux sets no moderation unless told to.
    moderation: Moderation::Adaptive,
    vfs: None,
    refuses: &[
        Refusal {
            choice: Choice::Pause,
            with_vfs_only: false,
            reason: "r8168, r8168h and r8169s have no pause: leave it out, or choose model = \"e1000\"",
        },
        Refusal {
            choice: Choice::ReceiveThrottling,
            with_vfs_only: false,
            reason: "r8168, r8168h and r8169s have no receive throttling: leave it out, or choose model = \"e1000\"",
        },
        Refusal {
            choice: Choice::QueuePairs,
            with_vfs_only: false,
            reason: "r8168, r8168h and r8169s have one queue each way: leave queue-pairs out, or choose model = \"virtio-net\"",
        },
        Refusal {
            choice: Choice::SplitRings,
            with_vfs_only: false,
            reason: "r8168, r8168h and r8169s have rings of one kind: leave split-rings out",
        },
        Refusal {
            choice: Choice::Mtu,
            with_vfs_only: false,
            reason: "r8168, r8168h and r8169s tell their drivers no MTU: leave mtu out, and set it in the guest",
        },
        Refusal {
            choice: Choice::Standby,
            with_vfs_only: false,
            reason: "r8168, r8168h and r8169s cannot stand in for another NIC: leave standby out, or choose model = \"virtio-net\"",
        },
        Refusal {
            choice: Choice::HashReport,
            with_vfs_only: false,
            reason: "r8168, r8168h and r8169s hash no frames: leave hash-report out",
        },
    ],
    make: |settings, _| r8168(RealtekVariant::Rtl8168C, settings),
    virtio: None,
    page_hint: None,
};

static VIRTIO_NET: Model = Model {
    name: "virtio-net",
    aliases: &[],
    chip: "virtio-net, modern",
    remark: "paravirtual",
    revisions: 1,
    nvm: 0,
    // Drivers that say nothing of it ask for a call for each packet.
    moderation: Moderation::Adaptive,
    vfs: None,
    refuses: &[
        Refusal {
            choice: Choice::Csb,
            with_vfs_only: false,
            reason: "virtio-net has no csb: leave it out, or choose model = \"e1000\"",
        },
        Refusal {
            choice: Choice::Pause,
            with_vfs_only: false,
            reason: "virtio-net has no pause: leave it out, or choose model = \"e1000\"",
        },
        Refusal {
            choice: Choice::ReceiveThrottling,
            with_vfs_only: false,
            reason: "virtio-net has no receive throttling: leave it out, or choose model = \"e1000\"",
        },
    ],
    make: |settings, _| virtio_net::new(virtio(settings)),
    virtio: Some(|settings| virtio_net::Device::new(virtio(settings))),
    page_hint: None,
};

fn virtio(settings: &Settings) -> virtio_net::Config {
    let packed = virtio_net::regs::feature::PACKED;
    virtio_net::Config {
        pairs: settings.queue_pairs,
        mtu: settings.mtu,
        standby: settings.standby,
        hash_report: settings.hash_report,
        moderation: settings.moderation,
        without: if settings.split_rings { packed } else { 0 },
        ..virtio_net::Config::new(settings.mac)
    }
}

fn image<const LEN: usize>(settings: &Settings) -> Option<[u8; LEN]> {
    settings.nvm.as_deref()?.try_into().ok()
}

fn e1000(variant: Variant, settings: &Settings) -> Nic {
    let mut config = e1000::Config {
        nvm: image(settings),
        pause: settings.pause,
        receive_throttling: settings.receive_throttling,
        csb: settings.csb,
        csb_poll: settings.csb_poll,
        moderation: settings.moderation,
        ..e1000::Config::of(variant, settings.mac)
    };
    if let Some(negotiation) = settings.negotiation {
        config.negotiation = negotiation;
    }
    e1000::new(config)
}

fn r8168(variant: RealtekVariant, settings: &Settings) -> Nic {
    let mut config = r8169::Config {
        csb: settings.csb,
        csb_poll: settings.csb_poll,
        moderation: settings.moderation,
        ..r8169::Config::of(variant, settings.mac)
    };
    if let Some(negotiation) = settings.negotiation {
        config.negotiation = negotiation;
    }
    r8169::new(config)
}

fn i82576(settings: &Settings, function: &Function) -> Nic {
    let mut config = igb::Config {
        moderation: settings.moderation,
        pf_places_vf_rings: settings.pf_places_vf_rings,
        ..igb::Config::new(settings.mac)
    };
    if let Some(negotiation) = settings.negotiation {
        config.negotiation = negotiation;
    }
    // A VF has neither a cable nor an NVM of its own.
    if let Function::Vf(channel) = function {
        return igb::vf(&config, Arc::clone(channel));
    }
    config.nvm = image(settings);
    config.pause = settings.pause;
    match function {
        Function::PfWithVfs(hub) => igb::pf_with_vfs(&config, Arc::clone(hub)),
        _ => igb::pf(&config),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

    #[test]
    fn every_model_is_found_by_its_names_and_made_as_the_table_says() {
        for (at, model) in MODELS.0.iter().enumerate() {
            for name in [model.name].iter().chain(model.aliases) {
                assert_eq!(MODELS.parse(name), Ok(*model));
                assert!(MODELS.0[..at].iter().all(|other| other.name != *name));
            }
            assert!(MODELS.list().contains(model.chip));
            let nic = model.nic(&Settings::new(MAC), &Function::Alone);
            let mut nic = nic.expect("it takes the defaults");
            assert_eq!(nic.identity.model, model.name);
            let new = nic.control.take_nvm().unwrap_or_default();
            assert_eq!(new.len(), model.nvm);
            if model.nvm > 0 {
                assert_eq!(new[..6], MAC);
            }
            let mut settings = Settings::new([2; 6]);
            settings.nvm = Some(new);
            assert!(model.nic(&settings, &Function::Alone).is_ok());
            settings.nvm = Some(vec![0; 7]);
            assert!(model.nic(&settings, &Function::Alone).is_err());
        }
    }

    #[test]
    fn an_option_that_a_model_does_not_take_is_refused_with_the_reason() {
        for model in MODELS.0 {
            for refusal in model.refuses {
                let mut settings = Settings::new(MAC);
                match refusal.choice {
                    Choice::Csb => settings.csb = true,
                    Choice::Pause => settings.pause = true,
                    Choice::ReceiveThrottling => settings.receive_throttling = true,
                    Choice::QueuePairs => settings.queue_pairs = 2,
                    Choice::SplitRings => settings.split_rings = true,
                    Choice::Mtu => settings.mtu = Some(1500),
                    Choice::Standby => settings.standby = true,
                    Choice::HashReport => settings.hash_report = true,
                }
                let made = model.nic(&settings, &Function::Alone);
                if refusal.with_vfs_only {
                    assert!(made.is_ok(), "{}", refusal.reason);
                } else {
                    assert_eq!(made.err().as_deref(), Some(refusal.reason));
                }
                assert!(refusal.reason.contains(model.name));
            }
        }
    }
}
