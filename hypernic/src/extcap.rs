//! `hypernic extcap`: Wireshark's own list has the NICs of a running daemon.
//!
//! Wireshark runs each program of its extcap folder and asks it what interfaces it has; the one that the user chooses it
//! runs again, with a pipe to write to. It is run as `hypernic-extcap`, a link to this program.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use control::{CaptureStart, NicInfo, NicList};

use crate::client::{Place, capture};
use crate::error::Error;

/// What Wireshark's names of our interfaces begin with.
const PREFIX: &str = "hypernic-";
/// Ethernet, as pcapng has it.
const ETHERNET: u32 = 1;
/// Names the control socket where Wireshark lists interfaces, which it does without options.
const SOCKET: &str = "HYPERNIC_CONTROL";

/// `hypernic extcap`.
#[derive(Args, Debug)]
pub struct ExtcapCommand {
    #[command(flatten)]
    place: Place,
    /// Wireshark asks for the interfaces.
    #[arg(long)]
    extcap_interfaces: bool,
    /// Wireshark's version.
    #[arg(long, value_name = "VERSION")]
    extcap_version: Option<String>,
    /// The interface that is meant.
    #[arg(long, value_name = "NAME")]
    extcap_interface: Option<String>,
    /// Wireshark asks what the interface's frames are.
    #[arg(long)]
    extcap_dlts: bool,
    /// Wireshark asks what can be chosen.
    #[arg(long)]
    extcap_config: bool,
    /// A capture filter, which there is none of.
    #[arg(long, value_name = "FILTER")]
    extcap_capture_filter: Option<String>,
    /// Wireshark wants frames.
    #[arg(long)]
    capture: bool,
    /// Where they go.
    #[arg(long, value_name = "PIPE")]
    fifo: Option<PathBuf>,
    /// Bytes of each frame; 0 for all.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    snaplen: u32,
    /// Only frames that the NIC's switch loses.
    #[arg(long)]
    drops: bool,
}

impl ExtcapCommand {
    /// Answers Wireshark's question. Returns what it reads.
    ///
    /// # Errors
    /// An interface that is none of ours; what a capture may fail of.
    pub fn execute(mut self) -> Result<String, Error> {
        if let Some(socket) = std::env::var_os(SOCKET)
            && self.place.is_default()
        {
            self.place.control = socket.into();
        }
        if self.extcap_interfaces {
            // Without a daemon there are no interfaces, which is nothing to complain of.
            let nics = self.place.ask(&NicList { name: None });
            return Ok(interfaces(&nics.map(|told| told.nics).unwrap_or_default()));
        }
        let name = self.extcap_interface.as_deref().unwrap_or("");
        let nic = name.strip_prefix(PREFIX).ok_or_else(|| {
            Error::Usage(format!(
                "Wireshark runs this from its extcap folder (docs/looking.md); the interface {name:?} is none of hypernic's"
            ))
        })?;
        if self.extcap_dlts {
            return Ok(format!(
                "dlt {{number={ETHERNET}}}{{name=EN10MB}}{{display=Ethernet}}\n"
            ));
        }
        if self.extcap_config {
            return Ok(self.choices());
        }
        let filter = self.extcap_capture_filter.as_deref().unwrap_or("");
        if !self.capture {
            // Anything that is printed says that the filter is wrong.
            return Ok(match filter {
                "" => String::new(),
                _ => "hypernic filters nothing while it captures: use a display filter\n".into(),
            });
        }
        let Some(fifo) = &self.fifo else {
            return Err(Error::Usage("--capture needs --fifo PIPE".into()));
        };
        if !filter.is_empty() {
            tracing::warn!("hypernic filters nothing while it captures: use a display filter");
        }
        let call = CaptureStart {
            nic: nic.to_owned(),
            snaplen: Some(self.snaplen).filter(|bytes| *bytes > 0),
            drops: Some(self.drops),
        };
        // The pipe first: Wireshark waits for it, whatever the daemon says.
        let output = capture::open(fifo)?;
        let begun = capture::begin(&self.place, &call)?;
        capture::pass_on(begun, output, fifo)?;
        Ok(String::new())
    }

    fn choices(&self) -> String {
        let socket = escaped(&self.place.control.to_string_lossy());
        format!(
            "arg {{number=0}}{{call=--snaplen}}{{display=Bytes of each frame}}{{tooltip=0 captures frames whole}}\
             {{type=unsigned}}{{range=0,262144}}{{default=0}}\n\
             arg {{number=1}}{{call=--control}}{{display=Control socket}}\
             {{tooltip=The control socket of the daemon}}{{type=string}}{{default={socket}}}\n\
             arg {{number=2}}{{call=--drops}}{{display=Only lost frames}}\
             {{tooltip=Frames that the switch loses, with the reason as a comment}}{{type=boolflag}}{{default=false}}\n"
        )
    }
}

fn interfaces(nics: &[NicInfo]) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut text = format!("extcap {{version={version}}}{{display=hypernic}}\n");
    for nic in nics {
        let config = &nic.config;
        let model = config.model.as_deref().unwrap_or("NIC");
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "interface {{value={PREFIX}{name}}}{{display=hypernic {name}: {model} on {port}}}",
            name = escaped(&config.name),
            port = escaped(&config.port),
        );
    }
    text
}

/// A text without what ends a value.
fn escaped(text: &str) -> String {
    let harmless = |c: char| {
        if c.is_control() || matches!(c, '{' | '}') {
            '?'
        } else {
            c
        }
    };
    text.chars().map(harmless).collect()
}

#[cfg(test)]
mod tests {
    use control::NicConfig;

    use super::*;

    #[test]
    fn each_nic_is_an_interface_and_no_name_breaks_the_line() {
        let nic = |name: &str| NicInfo {
            config: NicConfig {
                name: name.into(),
                port: "switch:lan".into(),
                model: Some("e1000".into()),
                ..NicConfig::default()
            },
            ..NicInfo::default()
        };
        let text = interfaces(&[nic("n0"), nic("a}\n{b")]);
        let lines: Vec<_> = text.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "interface {value=hypernic-n0}{display=hypernic n0: e1000 on switch:lan}",
                "interface {value=hypernic-a???b}{display=hypernic a???b: e1000 on switch:lan}",
            ]
        );
    }
}
