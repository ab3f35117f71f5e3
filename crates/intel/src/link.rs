//! The link as the control part sees it: auto-negotiation, the cable, commands to the PHY.

use std::time::Duration;

use model::{Env, Nanos};

use crate::bits::{ctrl, status};
use crate::mdio;
use crate::phy::{Effect, Phy, PhyModel, Speed};
use crate::saved;

/// What a NIC has at its end of the cable.
#[derive(Debug)]
pub struct Port {
    /// The PHY.
    pub phy: Phy,
    /// How long auto-negotiation takes.
    pub negotiation: Nanos,
}

impl Port {
    /// With the cable in or out, and a partner that offers pause frames or none.
    pub fn new(model: PhyModel, cable: bool, pause: bool, negotiation: Duration) -> Self {
        Self {
            phy: Phy::new(cable, model, pause),
            negotiation: u64::try_from(negotiation.as_nanos()).unwrap_or(u64::MAX / 2),
        }
    }

    /// The bits of STATUS that are about the link: FD, LU, SPEED and ASDV. `forced`: the speed is what CTRL says.
    pub fn status(&self, ctrl: u32, forced: bool, up: bool) -> u32 {
        let (detected, full) = self.phy.resolved();
        let full = if ctrl & ctrl::FRCDPX != 0 {
            ctrl & ctrl::FD != 0
        } else {
            full
        };
        let flag = |on: bool, bit: u32| if on { bit } else { 0 };
        flag(full, status::FD)
            | flag(up, status::LU)
            | self.speed(ctrl, forced) << status::SPEED_SHIFT
            | (detected as u32) << status::ASDV_SHIFT
    }

    /// The speed of the wire as STATUS encodes it: forced by CTRL, or detected.
    pub fn speed(&self, ctrl: u32, forced: bool) -> u32 {
        if forced || ctrl & ctrl::FRCSPD != 0 {
            (ctrl >> ctrl::SPD_SHIFT & ctrl::SPD).min(Speed::M1000 as u32)
        } else {
            self.phy.resolved().0 as u32
        }
    }

    /// How far ahead a saved end of auto-negotiation may be.
    pub fn longest_negotiation(&self) -> i64 {
        let ours = i64::try_from(self.negotiation).unwrap_or(i64::MAX);
        ours.max(saved::NEGOTIATION)
    }
}

/// The control part of a NIC with a PHY.
pub trait Link {
    /// Its port.
    fn port(&mut self) -> &mut Port;
    /// Has the NIC's timer fire when auto-negotiation ends.
    fn set_link_timer(&self, env: &Env, at: Option<Nanos>);
    /// Brings STATUS.LU in line with PHY and CTRL.SLU, and tells the guest of a change.
    fn update_link(&mut self, env: &Env);

    /// Starts auto-negotiation, if there is a partner.
    fn negotiate(&mut self, env: &Env) {
        let Port { phy, negotiation } = self.port();
        let (takes, can) = (*negotiation, phy.can_negotiate());
        let at = can.then(|| env.clock.now() + takes);
        if at.is_some() && takes == 0 {
            // No time passes, but drivers still see the link go and come.
            self.update_link(env);
            self.port().phy.negotiation_done();
            self.set_link_timer(env, None);
        } else {
            self.set_link_timer(env, at);
        }
    }

    /// Auto-negotiation has ended.
    fn negotiated(&mut self, env: &Env) {
        self.port().phy.negotiation_done();
        self.update_link(env);
    }

    /// The cable is plugged in or pulled out. Whether it was not so before.
    fn plug(&mut self, env: &Env, cable: bool) -> bool {
        if self.port().phy.cable == cable {
            return false;
        }
        self.port().phy.set_cable(cable);
        self.negotiate(env);
        self.update_link(env);
        true
    }

    /// Carries out an MDIC command; `reads` is told what MDIC reads afterwards. Whether it is to raise an
    /// interrupt.
    fn command_phy(&mut self, env: &Env, value: u32, reads: impl FnOnce(&Self, u32)) -> bool
    where
        Self: Sized,
    {
        let (result, effect) = mdio::mdic(&mut self.port().phy, value);
        reads(self, result);
        match effect {
            Effect::None => {}
            Effect::Link => self.update_link(env),
            Effect::Restart => {
                self.negotiate(env);
                self.update_link(env);
            }
        }
        mdio::wants_interrupt(value)
    }
}
