//! What would become of a frame, without effect.

use frame::Batch;
use wire::Offload;

use super::Host;
use crate::spec::PortSpec;

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

/// Decisions in their order, and the NICs and ports that would get the frame.
pub type Traced = (Vec<Step>, Vec<String>);

impl Host {
    /// Follows a frame that the guest of a NIC sends, or with `received` one that comes to the NIC. `None`: there is no
    /// such NIC.
    pub fn trace(&self, nic: &str, frame: &[u8], received: bool) -> Option<Traced> {
        let attached = self.nics.get(nic)?;
        let mut batch = Batch::new();
        batch.push_bytes(frame);
        batch.end(Offload::NONE);
        let mut steps = Vec::new();
        let mut reached = Vec::new();
        if received {
            self.admit(nic, &batch, &mut steps, &mut reached);
            return Some((steps, reached));
        }
        let step = |at: &str, what: String| Step {
            at: at.to_owned(),
            what,
            counter: None,
        };
        let running = match &attached.config.port {
            PortSpec::Switch(name) if attached.switch.is_some() => self.switches.get(name),
            _ => None,
        };
        let Some(running) = running else {
            let to = match attached.config.vf.is_some() || attached.config.rules.is_some() {
                true => "its chip, whose pools are not traced".to_owned(),
                false => format!("its own port {}", attached.config.port),
            };
            steps.push(step(nic, format!("goes to {to}")));
            return Some((steps, reached));
        };
        let switch = &running.config.name;
        let mut tell = |what: String, counter| {
            steps.push(Step {
                at: format!("{switch}/{nic}"),
                what,
                counter,
            });
        };
        let ports = running.switch.trace(nic, &batch, &mut tell);
        let ports = ports.unwrap_or_default();
        for port in ports.iter().take(MOST) {
            match self.nics.contains_key(port) {
                true => self.admit(port, &batch, &mut steps, &mut reached),
                false => reached.push(format!("{switch}/{port}")),
            }
        }
        if let more @ 1.. = ports.len().saturating_sub(MOST) {
            steps.push(step(
                switch,
                format!("{more} more ports, which were not asked"),
            ));
        }
        Some((steps, reached))
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
