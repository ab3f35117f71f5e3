//! The words for what a NIC or a port may do on its switch.

use std::fmt;
use std::str::FromStr;

use clap::Args;
use eswitch::{DEFAULT_BURST_MS, VlanSet};
use serde::Deserialize;
use toml::Spanned;
use vale::PortConfig;

use crate::spec::NicMac;

/// Longest silence that may be made up for at once: a minute.
const MAX_BURST_MS: u64 = 60_000;
/// Most addresses a port may learn; the switch's table has 16384.
const MAX_MACS: usize = 16_384;
/// Most addresses that may be named for a port.
const MAX_NAMED: usize = 64;

/// A rate as users write it: `1gbit`, `200kpps`, `500mbit,100kpps,burst=20ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(pub eswitch::Rate);

/// Storm limits as users write them: `broadcast=100,multicast=1000,unknown=100`, in frames a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Storm(pub eswitch::Storm);

/// Everything a port of a switch may be kept from; nothing by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// Most that comes from it.
    pub tx_rate: Option<Rate>,
    /// Most that goes to it.
    pub rx_rate: Option<Rate>,
    /// Most flooded frames from it.
    pub storm: Storm,
    /// Most addresses learned on it.
    pub max_macs: Option<usize>,
    /// The only addresses frames may come from.
    pub allow_macs: Vec<NicMac>,
    /// The VLANs it is a member of.
    pub vlans: Option<VlanSet>,
    /// It has to do with uplinks only.
    pub private: bool,
}

impl Guard {
    /// Puts it into a port's configuration.
    pub(crate) fn apply(&self, config: &mut PortConfig) {
        config.rate_in = self.tx_rate.map(|rate| rate.0);
        config.rate_out = self.rx_rate.map(|rate| rate.0);
        config.storm = self.storm.0;
        config.max_macs = self.max_macs.unwrap_or(config.max_macs);
        let allowed = self.allow_macs.iter().map(|mac| wire::MacAddr(mac.0));
        config.only.extend(allowed);
        config.vlans.clone_from(&self.vlans);
        config.private = self.private;
    }
}

/// The same on the command line, for every NIC of it.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Guards: limits for NICs on a shared switch, off by default")]
pub struct GuardArgs {
    /// The most each NIC sends: bits and frames per second, and the burst allowed after a silence
    /// (1gbit, 200kpps, 500mbit,100kpps,burst=20ms). Excess frames wait in its ring.
    #[arg(long, value_name = "RATE", value_parser = str::parse::<Rate>)]
    pub tx_rate: Option<Rate>,
    /// The most each NIC receives.
    #[arg(long, value_name = "RATE", value_parser = str::parse::<Rate>)]
    pub rx_rate: Option<Rate>,
    /// The most flooded frames per second from each NIC: broadcast=N,multicast=N,unknown=N.
    #[arg(long, value_name = "LIMITS", value_parser = str::parse::<Storm>)]
    pub storm: Option<Storm>,
    /// The most addresses the switch learns on each NIC's port.
    #[arg(long, value_name = "N", value_parser = max_macs)]
    pub max_macs: Option<usize>,
    /// VLANs each NIC is a member of: untagged,10,20-29. Frames of other VLANs are dropped.
    #[arg(long, value_name = "VLANS", value_parser = str::parse::<VlanSet>)]
    pub vlans: Option<VlanSet>,
    /// NICs exchange frames with uplinks (the switch's other ports) only, not with each other.
    #[arg(long)]
    pub private: bool,
}

impl GuardArgs {
    /// As a port has it.
    pub(crate) fn into_guard(self) -> Guard {
        Guard {
            tx_rate: self.tx_rate,
            rx_rate: self.rx_rate,
            storm: self.storm.unwrap_or_default(),
            max_macs: self.max_macs,
            allow_macs: Vec::new(),
            vlans: self.vlans,
            private: self.private,
        }
    }
}

/// The same in a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct RawGuard {
    tx_rate: Option<Spanned<String>>,
    rx_rate: Option<Spanned<String>>,
    storm: Option<Spanned<String>>,
    max_macs: Option<Spanned<u64>>,
    #[serde(default)]
    allow_macs: Vec<Spanned<NicMac>>,
    vlans: Option<Spanned<String>>,
    #[serde(default)]
    private: bool,
}

/// Byte of the text and what is wrong there.
pub(crate) type At = (usize, String);

fn parse<T: FromStr<Err: fmt::Display>>(text: Option<Spanned<String>>) -> Result<Option<T>, At> {
    let Some(text) = text else { return Ok(None) };
    let value = text.get_ref().parse();
    let value = value.map_err(|error: T::Err| (text.span().start, error.to_string()));
    Ok(Some(value?))
}

impl RawGuard {
    /// Checks it.
    pub(crate) fn check(self) -> Result<Guard, At> {
        let macs = self.max_macs.map(|n| {
            let bad = |why| (n.span().start, why);
            max_macs(&n.get_ref().to_string()).map_err(bad)
        });
        if let Some(mac) = self.allow_macs.get(MAX_NAMED) {
            let why = format!("allow-macs takes at most {MAX_NAMED} addresses");
            return Err((mac.span().start, why));
        }
        Ok(Guard {
            tx_rate: parse(self.tx_rate)?,
            rx_rate: parse(self.rx_rate)?,
            storm: parse(self.storm)?.unwrap_or_default(),
            max_macs: macs.transpose()?,
            allow_macs: self.allow_macs.iter().map(|mac| *mac.get_ref()).collect(),
            vlans: parse(self.vlans)?,
            private: self.private,
        })
    }
}

fn max_macs(text: &str) -> Result<usize, String> {
    let n = text.parse().ok().filter(|n| (1..=MAX_MACS).contains(n));
    n.ok_or_else(|| format!("max-macs must be between 1 and {MAX_MACS}"))
}

/// A number with a unit of thousands: `10`, `2.5k`, `1m`, `40g`.
fn number(text: &str) -> Option<u64> {
    let (digits, scale) = match text.as_bytes().last()? {
        b'k' => (&text[..text.len() - 1], 1_000u64),
        b'm' => (&text[..text.len() - 1], 1_000_000),
        b'g' => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let all_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if part.len() > 9 || !all_digits(whole) || !all_digits(part) {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let tenths: u64 = part.parse().ok()?;
    let part = tenths.checked_mul(scale)? / 10u64.pow(part.len() as u32);
    let number = whole.checked_mul(scale)?.checked_add(part)?;
    (1..=1_000_000_000_000).contains(&number).then_some(number)
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = |part: &str, why: &str| {
            format!(
                "bad rate \"{part}\": {why}; write 1gbit, 200kpps or 500mbit,100kpps,burst=20ms"
            )
        };
        let mut rate = eswitch::Rate {
            bits: None,
            packets: None,
            burst_ms: DEFAULT_BURST_MS,
        };
        for part in text.split(',').map(str::trim) {
            let small = part.to_ascii_lowercase();
            if let Some(burst) = small.strip_prefix("burst=") {
                let ms = burst.strip_suffix("ms").and_then(|ms| ms.parse().ok());
                rate.burst_ms = ms
                    .filter(|ms| (1..=MAX_BURST_MS).contains(ms))
                    .ok_or_else(|| bad(part, "a burst is 1ms to 60000ms"))?;
            } else if let Some(bits) = small.strip_suffix("bit") {
                rate.bits = Some(number(bits).ok_or_else(|| bad(part, "it is not a number"))?);
            } else if let Some(packets) = small.strip_suffix("pps") {
                rate.packets =
                    Some(number(packets).ok_or_else(|| bad(part, "it is not a number"))?);
            } else {
                return Err(bad(part, "it has no unit (bit, pps)"));
            }
        }
        if rate.bits.is_none() && rate.packets.is_none() {
            return Err(bad(text, "it sets no limit"));
        }
        Ok(Rate(rate))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(bits) = self.0.bits {
            write!(f, "{bits}bit,")?;
        }
        if let Some(packets) = self.0.packets {
            write!(f, "{packets}pps,")?;
        }
        write!(f, "burst={}ms", self.0.burst_ms)
    }
}

impl FromStr for Storm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut storm = eswitch::Storm::default();
        for part in text.split(',').map(str::trim) {
            let bad = || {
                format!(
                    "bad storm limit \"{part}\": write broadcast=N, multicast=N or unknown=N, in \
                     frames a second"
                )
            };
            let (kind, n) = part.split_once('=').ok_or_else(bad)?;
            let place = match kind {
                "broadcast" => &mut storm.broadcast,
                "multicast" => &mut storm.multicast,
                "unknown" => &mut storm.unknown,
                _ => return Err(bad()),
            };
            *place = Some(number(n).ok_or_else(bad)?);
        }
        Ok(Storm(storm))
    }
}

impl fmt::Display for Storm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = [
            ("broadcast", self.0.broadcast),
            ("multicast", self.0.multicast),
            ("unknown", self.0.unknown),
        ];
        let mut limits = kinds.iter().filter_map(|(kind, n)| Some((kind, (*n)?)));
        let Some((kind, n)) = limits.next() else {
            return f.write_str("none");
        };
        write!(f, "{kind}={n}")?;
        limits.try_for_each(|(kind, n)| write!(f, ",{kind}={n}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_written() {
        for (text, bits, packets, burst_ms) in [
            ("1gbit", Some(1_000_000_000), None, 10),
            ("2.5Gbit", Some(2_500_000_000), None, 10),
            ("200kpps", None, Some(200_000), 10),
            ("64000bit, 1pps, burst=1000ms", Some(64_000), Some(1), 1000),
        ] {
            let rate: Rate = text.parse().expect(text);
            let want = eswitch::Rate {
                bits,
                packets,
                burst_ms,
            };
            assert_eq!(rate.0, want, "{text}");
            assert_eq!(rate.to_string().parse(), Ok(rate));
        }
        for (bad, why) in [
            ("1g", "no unit"),
            ("bit", "not a number"),
            ("-1bit", "not a number"),
            ("1.2.3bit", "not a number"),
            ("0bit", "not a number"),
            ("99999999gbit", "not a number"),
            ("burst=5ms", "sets no limit"),
            ("1gbit,burst=5", "is 1ms to 60000ms"),
            ("1gbit,burst=0ms", "is 1ms to 60000ms"),
            ("", "no unit"),
        ] {
            let error = bad.parse::<Rate>().expect_err(bad);
            assert!(error.contains(why) && error.contains("1gbit"), "{error}");
        }
    }

    #[test]
    fn storm_limits_are_read() {
        let storm: Storm = "broadcast=100,unknown=2k".parse().expect("good");
        let want = eswitch::Storm {
            broadcast: Some(100),
            multicast: None,
            unknown: Some(2000),
        };
        assert_eq!(storm.0, want);
        for bad in ["", "broadcast", "all=3", "unknown=x", "multicast=0"] {
            let error = bad.parse::<Storm>().expect_err(bad);
            assert!(error.contains("frames a second"), "{error}");
        }
    }
}
