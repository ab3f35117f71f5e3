#![forbid(unsafe_code)]
//! `rig`: sets up what guests need, and lets a person poke at one.

use std::io::{Read, Write};
use std::process::ExitCode;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use rig::{Boot, Guest, GuestConfig, Kernel, Netdev, Nic, Rig};
use serde_json::json;

const USAGE: &str = "\
usage: rig prepare              set everything up (once; about 160 MB of Debian packages) and try it
       rig paths                print where QEMU, kernel and initramfs are
       rig shell [OPTION]...    start a guest with its console here (Ctrl-] ends it)
           --nic MODEL          one of QEMU's models with user-mode network (e1000, igb, virtio-net-pci)
           --vfio-user SOCKET   a NIC served on a vfio-user socket
           --kernel KERNEL      oldest (6.1), stable (6.12) or newest
           --cold               boot instead of resuming the saved machine
           --firmware           run the firmware and what it finds
           --mem MIB, --smp N, --arg QEMU-ARGUMENT";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["prepare"] => prepare(),
        ["paths"] => paths(),
        ["shell", options @ ..] => shell(options),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn prepare() -> Result<(), String> {
    let start = Instant::now();
    let rig = Rig::prepare().map_err(|e| e.to_string())?;
    let accel = rig.accel().map_err(|e| e.to_string())?;
    let guest = rig
        .resume(GuestConfig::new("prepare"))
        .map_err(|e| e.to_string())?;
    let release = guest.run("uname -r").map_err(|e| e.to_string())?;
    println!(
        "ready in {:.1} s: {}; Linux {} under {accel}",
        start.elapsed().as_secs_f64(),
        rig.qemu().version(),
        release.trim()
    );
    Ok(())
}

fn paths() -> Result<(), String> {
    let rig = Rig::prepare().map_err(|e| e.to_string())?;
    let words: Vec<_> = rig
        .qemu()
        .words()
        .iter()
        .map(|w| w.to_string_lossy())
        .collect();
    println!("cache      {}", rig.cache().dir().display());
    println!("root       {}", rig.root().dir().display());
    let image = rig.image(Kernel::Stable).map_err(|e| e.to_string())?;
    println!("kernel     {}", image.kernel().display());
    println!("initramfs  {}", image.initramfs().display());
    println!("qemu       {}", words.join(" "));
    Ok(())
}

fn shell(options: &[&str]) -> Result<(), String> {
    let mut config = GuestConfig::new("shell");
    let mut cold = false;
    let mut options = options.iter();
    while let Some(&option) = options.next() {
        let mut value = || {
            options
                .next()
                .copied()
                .ok_or_else(|| format!("{option} needs a value\n{USAGE}"))
        };
        let number = |text: &str| {
            text.parse::<u32>()
                .map_err(|_| format!("`{text}` is not a number"))
        };
        let id = format!("n{}", config.nics.len());
        match option {
            "--nic" => {
                let netdev = Netdev::User { options: json!({}) };
                config.nics.push(Nic::qemu(&id, value()?, Some(netdev)));
            }
            "--vfio-user" => config.nics.push(Nic::vfio_user(&id, value()?)),
            "--kernel" => {
                config.kernel = match value()? {
                    "oldest" => Kernel::Oldest,
                    "stable" => Kernel::Stable,
                    "newest" => Kernel::Newest,
                    other => return Err(format!("there is no kernel `{other}`\n{USAGE}")),
                }
            }
            "--cold" => cold = true,
            "--firmware" => config.boot = Boot::Firmware,
            "--mem" => config.mem_mib = number(value()?)?,
            "--smp" => config.smp = number(value()?)?,
            "--arg" => config.extra_args.push(value()?.into()),
            _ => return Err(USAGE.to_owned()),
        }
    }
    let rig = Rig::prepare().map_err(|e| e.to_string())?;
    cold |= config.boot == Boot::Firmware;
    let guest = if cold {
        rig.start(config)
    } else {
        rig.resume(config)
    }
    .map_err(|e| e.to_string())?;
    let terminal = Terminal::raw();
    let result = converse(&guest);
    drop(terminal);
    result
}

/// Joins the terminal and the guest's console until either ends or Ctrl-] is typed.
fn converse(guest: &Guest) -> Result<(), String> {
    const END: u8 = 0x1d;
    let stdin = std::io::stdin();
    let mut input = stdin.lock();
    let mut out = std::io::stdout();
    let mut shown = 0;
    guest.type_text("\n").map_err(|e| e.to_string())?;
    loop {
        let ended = guest.has_ended();
        let text = guest.console_since(&mut shown);
        out.write_all(&text)
            .and_then(|()| out.flush())
            .map_err(|e| e.to_string())?;
        if ended {
            return Ok(());
        }
        let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
        let wait = Timespec {
            tv_sec: 0,
            tv_nsec: 20_000_000,
        };
        if poll(&mut ready, Some(&wait)).map_err(|e| e.to_string())? == 0 {
            continue;
        }
        let mut chunk = [0; 256];
        let typed = input.read(&mut chunk).map_err(|e| e.to_string())?;
        let typed = &chunk[..typed];
        if typed.is_empty() || typed.contains(&END) {
            return Ok(());
        }
        guest
            .type_text(&String::from_utf8_lossy(typed))
            .map_err(|e| e.to_string())?;
    }
}

/// The terminal with line editing off, put back on drop.
struct Terminal(Option<rustix::termios::Termios>);

impl Terminal {
    fn raw() -> Self {
        let stdin = std::io::stdin();
        let Ok(saved) = rustix::termios::tcgetattr(&stdin) else {
            return Self(None);
        };
        let mut raw = saved.clone();
        raw.make_raw();
        let _ = rustix::termios::tcsetattr(&stdin, rustix::termios::OptionalActions::Now, &raw);
        eprint!("Ctrl-] ends the guest\r\n");
        Self(Some(saved))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(saved) = &self.0 {
            let stdin = std::io::stdin();
            let _ = rustix::termios::tcsetattr(stdin, rustix::termios::OptionalActions::Now, saved);
        }
    }
}
