//! `hypernic web`: a page that shows a running daemon to a browser on this host.
//!
//! A process of its own, as the exporter is: the daemon speaks no HTTP. It asks the daemon as any client of the control
//! socket does, and the daemon's roles hold for it. The page is static, and everything that it shows comes as data.

mod change;
mod detail;
mod guard;
mod log;
mod looker;
mod picture;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use jail::Mode;

use self::change::Changes;
use self::guard::{FIELDS, Guard};
use self::log::Log;
use self::looker::Looker;
use crate::client::Place;
use crate::error::Error;
use crate::http::{self, Answer, Asked, Counters, Listening, Method, Names, Rules, Site};
use crate::sandbox;

const JSON: &str = "application/json";

/// The page: path, kind, text.
const FILES: &[(&str, &str, &str)] = &[
    (
        "/",
        "text/html; charset=utf-8",
        include_str!("web/page/index.html"),
    ),
    (
        "/page.css",
        "text/css; charset=utf-8",
        include_str!("web/page/page.css"),
    ),
    (
        "/page.js",
        "text/javascript; charset=utf-8",
        include_str!("web/page/page.js"),
    ),
    (
        "/picture.js",
        "text/javascript; charset=utf-8",
        include_str!("web/page/picture.js"),
    ),
    (
        "/nic.js",
        "text/javascript; charset=utf-8",
        include_str!("web/page/nic.js"),
    ),
    (
        "/words.js",
        "text/javascript; charset=utf-8",
        include_str!("web/page/words.js"),
    ),
    (
        "/icon.svg",
        "image/svg+xml",
        include_str!("web/page/icon.svg"),
    ),
];

/// `hypernic web`.
#[derive(Args, Debug)]
pub struct WebCommand {
    #[command(flatten)]
    place: Place,
    /// Address and port to listen at, of this host only; port 0 takes a free one. Systemd's socket activation comes
    /// before it.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9480")]
    listen: String,
    /// Listen at a Unix socket instead, for ssh -L or a proxy.
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    unix: Option<PathBuf>,
    /// A name by which browsers may ask, besides addresses and localhost: that of the proxy before it.
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// A file with the key that the page is opened with, 16 to 128 letters and digits. By default a new one is made and
    /// printed.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Whoever reaches the socket may look, without a key.
    #[arg(long, conflicts_with_all = ["key_file", "allow_changes"])]
    no_key: bool,
    /// Let those with the key change what runs, as far as the daemon lets this user: links of virtual functions, and
    /// taking NICs and ports away.
    #[arg(long)]
    allow_changes: bool,
    /// Seconds that the daemon may take for an answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60))]
    timeout: u64,
    /// What this process gives up once it listens: as the daemon's word.
    #[arg(long, value_name = "MODE", default_value_t, value_parser = str::parse::<Mode>)]
    sandbox: Mode,
    /// Where it listens, and what it asks of clients.
    #[arg(skip)]
    settled: Option<(Listening, Guard)>,
}

impl WebCommand {
    /// Listens, and gives up the rest. To be called once, before there is any other thread.
    ///
    /// # Errors
    /// The address or the key is not to be had, or what a strict sandbox needs.
    pub fn settle(&mut self) -> Result<(), Error> {
        let guard = match self.no_key {
            true => Guard::open(),
            false => Guard::with_key(self.key_file.as_deref())?,
        };
        let listening = Listening::start(&self.listen, self.unix.as_deref())?;
        if !listening.is_local() && !listening.is_unix() {
            return Err(Error::Usage(
                "the page is for browsers on this host: listen at 127.0.0.1, ::1 or a Unix socket, and come from elsewhere \
                 by ssh -L"
                    .into(),
            ));
        }
        if let Some(path) = &self.unix
            && listening.is_unix()
        {
            let owner = std::fs::Permissions::from_mode(0o600);
            let _ = std::fs::set_permissions(path, owner);
        }
        self.settled = Some((listening, guard));
        sandbox::enter_beside(self.sandbox, self.unix.as_deref())
    }

    /// Serves until the process is ended. `print` is told where.
    ///
    /// # Errors
    /// It has not settled, or can start no thread.
    pub fn execute(self, print: &mut dyn FnMut(String)) -> Result<(), Error> {
        let (listening, guard) = self.settled.ok_or_else(http::not_listening)?;
        let os = |source| Error::Os {
            what: "cannot start a thread",
            source,
        };
        let control = self.place.control.clone();
        let log = Log::start(control.clone()).map_err(os)?;
        let timeout = Duration::from_secs(self.timeout);
        let web = Web {
            looker: Looker::start(self.place, timeout).map_err(os)?,
            changes: self.allow_changes.then(|| Changes::new(control)),
            log,
            rules: Rules {
                names: Names::ThisHost(self.allow_host),
                posts: self.allow_changes,
            },
            counters: Counters::default(),
            guard,
        };
        let key = web.guard.fragment();
        let shown = listening.shown(&format!("/{key}"));
        print(match listening.is_unix() {
            false => format!("{shown}\n"),
            true => format!("{shown}, by ssh -L 9480:SOCKET HOST as http://127.0.0.1:9480/{key}\n"),
        });
        http::serve(&listening, &web);
        Ok(())
    }
}

/// All that is served.
struct Web {
    looker: Looker,
    log: Arc<Log>,
    changes: Option<Changes>,
    guard: Guard,
    rules: Rules,
    counters: Counters,
}

impl Site for Web {
    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn fields(&self) -> &str {
        FIELDS
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn answer(&self, asked: &Asked) -> Answer {
        let answered =
            guard::from_here(asked).and_then(|()| match asked.path.strip_prefix("/api/") {
                Some(what) => {
                    self.guard.admit(asked)?;
                    self.told(what, asked)
                }
                None => file(asked),
            });
        answered.unwrap_or_else(|refused| refused)
    }
}

impl Web {
    fn told(&self, what: &str, asked: &Asked) -> Result<Answer, Answer> {
        let json = |text: String| Answer::new("200 OK", JSON, text);
        match (what, asked.method == Method::Post, &self.changes) {
            ("now", false, _) => Ok(json(self.now(asked))),
            ("nic", false, _) => {
                let name = asked.word("name").unwrap_or("");
                Ok(json(self.looker.nic(name)))
            }
            ("reasons", false, _) => Ok(json(picture::reasons())),
            ("change", true, Some(changes)) => {
                let made = changes.make(&asked.body);
                self.looker.forget();
                made.map(json)
            }
            ("change", _, None) => Err(Answer::line(
                "403 Forbidden",
                "this page only shows; start hypernic web with --allow-changes",
            )),
            ("now" | "nic" | "reasons" | "change", ..) => Err(Answer::line(
                "405 Method Not Allowed",
                "this is not asked so",
            )),
            _ => Err(nothing()),
        }
    }

    fn now(&self, asked: &Asked) -> String {
        let number = |word| asked.word(word).and_then(|text| text.parse().ok());
        let log = self.log.since(number("since").unwrap_or(0));
        let shape = asked.word("shape").unwrap_or("");
        self.looker.now(shape, &log, self.changes.is_some())
    }
}

fn nothing() -> Answer {
    Answer::line("404 Not Found", "there is no such page")
}

fn file(asked: &Asked) -> Result<Answer, Answer> {
    if asked.method == Method::Post {
        return Err(Answer::line("405 Method Not Allowed", "this is only read"));
    }
    let found = FILES.iter().find(|(path, ..)| *path == asked.path);
    let (_, kind, text) = found.ok_or_else(nothing)?;
    Ok(Answer::new("200 OK", kind, *text))
}
