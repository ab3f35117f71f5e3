//! What would become of a frame, without effect.

use frame::Batch;
use vale::Switch;
use wire::Offload;

use super::Host;
use crate::chip::{RunningChip, WIRE};

/// Receivers that are asked; a flood may have a thousand.
const MOST: usize = 64;

/// A decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The NIC or switch that decides.
    pub at: String,
    /// What it decides.
    pub what: String,
    /// The counter that would rise with it.
    pub counter: Option<&'static str>,
}

/// A switch, perhaps a chip's.
struct Place<'a> {
    name: &'a str,
    switch: &'a Switch,
    chip: Option<&'a RunningChip>,
}

/// Decisions in their order, and the NICs and ports that would get the frame.
pub type Traced = (Vec<Step>, Vec<String>);

impl Host {
    /// Follows a frame that the guest of a NIC sends, or with `received` one that comes to the NIC. `None`: there is no
    /// such NIC.
    pub fn trace(&self, nic: &str, frame: &[u8], received: bool) -> Option<Traced> {
        let attached = self.nics.get(nic)?;
        let mut steps = Vec::new();
        let mut reached = Vec::new();
        if received {
            let mut batch = Batch::new();
            batch.push_bytes(frame);
            batch.end(Offload::NONE);
            self.admit(nic, &batch, &mut steps, &mut reached);
            return Some((steps, reached));
        }
        let notes = self.tagged(nic, &mut steps);
        let mut batch = Batch::new();
        batch.push_bytes(frame);
        batch.end(notes);
        match self.begins(nic) {
            Some(place) => self.through(&place, nic, &batch, &mut steps, &mut reached),
            None => steps.push(Step {
                at: nic.to_owned(),
                what: format!("goes to its own port {}", attached.config.port),
                counter: None,
            }),
        }
        Some((steps, reached))
    }

    /// The tag that a chip gives to what one of its VFs sends.
    fn tagged(&self, nic: &str, steps: &mut Vec<Step>) -> Offload {
        let tag = self.vf_status(nic).and_then(|status| status.settings.tag);
        if let Some(tag) = tag {
            steps.push(Step {
                at: nic.to_owned(),
                what: format!("gets the tag of VLAN {}, which is laid down for it", tag.id),
                counter: None,
            });
        }
        Offload {
            vlan: tag.map(|tag| tag.id | u16::from(tag.qos) << 13),
            ..Offload::NONE
        }
    }

    /// The switch that a NIC's frames come to first, perhaps its chip's; none, if it has a port of its own.
    pub(crate) fn first_switch_of(&self, nic: &str) -> Option<&Switch> {
        self.begins(nic).map(|place| place.switch)
    }

    /// The switch that a NIC's frames come to first; none, if it has a port of its own.
    fn begins(&self, nic: &str) -> Option<Place<'_>> {
        let attached = self.nics.get(nic)?;
        if let Some(name) = attached.config.of_chip() {
            let (name, (chip, _)) = self.chips.get_key_value(name)?;
            return Some(Place {
                name,
                switch: chip.switch(),
                chip: Some(chip),
            });
        }
        self.place(attached.switch.as_ref()?)
    }

    /// A switch of the host.
    fn place(&self, name: &str) -> Option<Place<'_>> {
        let (name, running) = self.switches.get_key_value(name)?;
        Some(Place {
            name,
            switch: &running.switch,
            chip: None,
        })
    }

    /// Follows a frame that comes into a switch by a port. From a chip it goes to no chip but by a switch of the host, and from
    /// there to no other switch: three deep at most.
    fn through(
        &self,
        place: &Place<'_>,
        from: &str,
        batch: &Batch<'_>,
        steps: &mut Vec<Step>,
        reached: &mut Vec<String>,
    ) {
        let name = place.name;
        let mut tell = |what: String, counter| {
            steps.push(Step {
                at: format!("{name}/{from}"),
                what,
                counter,
            });
        };
        let ports = place.switch.trace(from, batch, &mut tell);
        let ports = ports.unwrap_or_default();
        for port in ports.iter().take(MOST) {
            match (place.chip, self.chips.get_key_value(port)) {
                (Some(chip), _) if port == WIRE => match chip.outer_name() {
                    Some(outer) if from != WIRE => {
                        if let Some(outer) = self.place(outer) {
                            self.through(&outer, name, batch, steps, reached);
                        }
                    }
                    _ => reached.push(format!("{name}/{port}")),
                },
                (None, Some((inner, (chip, _)))) => {
                    let inner = Place {
                        name: inner,
                        switch: chip.switch(),
                        chip: Some(chip),
                    };
                    self.through(&inner, WIRE, batch, steps, reached);
                }
                _ if self.nics.contains_key(port) => self.admit(port, batch, steps, reached),
                _ => reached.push(format!("{name}/{port}")),
            }
        }
        if let more @ 1.. = ports.len().saturating_sub(MOST) {
            steps.push(Step {
                at: name.to_owned(),
                what: format!("{more} more ports, which were not asked"),
                counter: None,
            });
        }
    }

    /// What stands before a guest.
    fn admit(
        &self,
        nic: &str,
        batch: &Batch<'_>,
        steps: &mut Vec<Step>,
        reached: &mut Vec<String>,
    ) {
        let (Some(attached), Some(frame)) = (self.nics.get(nic), batch.get(0)) else {
            return;
        };
        let mut tell = |what: String, counter| {
            steps.push(Step {
                at: nic.to_owned(),
                what,
                counter,
            });
        };
        match attached.nic.trace(&frame, &mut tell) {
            Some(true) => reached.push(nic.to_owned()),
            Some(false) => {}
            None => {
                let model = attached.config.model.name;
                tell(
                    format!("comes to the NIC; the {model} does not tell what it would do"),
                    None,
                );
                reached.push(nic.to_owned());
            }
        }
    }
}
