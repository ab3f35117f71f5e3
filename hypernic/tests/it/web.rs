//! `hypernic web`: what the page and its data are, who may ask for them, and who may change what.

mod browser;
mod changing;
mod hostile;

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use drivers::SocketBus;
use drivers::e1000::{Config, Driver, TxOpts};
use serde_json::{Value, json};

use crate::http::{LONG, Serving, ask};
use crate::lab::{HYPERNIC, Lab};
use crate::metrics::lab;

/// A page that is served.
pub struct Web {
    pub serving: Serving,
    key: String,
}

impl Web {
    pub fn start(lab: &Lab, words: &[&str]) -> Web {
        let mut command = Command::new(HYPERNIC);
        command.args(["web", "--listen", "127.0.0.1:0"]).args(words);
        Web::run(command, lab)
    }

    fn run(command: Command, lab: &Lab) -> Web {
        Web::with_daemon(command, &lab.control())
    }

    fn with_daemon(command: Command, control: &Path) -> Web {
        let serving = Serving::start(command, control);
        let key = serving
            .line
            .split_once("#key=")
            .map_or("", |(_, key)| key)
            .to_owned();
        Web { serving, key }
    }

    /// Status and text of what is asked with these fields besides `Host`.
    fn say(&self, line: &str, fields: &str, body: &str) -> (u16, String) {
        let length = match body {
            "" => String::new(),
            body => format!("Content-Length: {}\r\n", body.len()),
        };
        let at = &self.serving.at;
        let request = format!("{line} HTTP/1.1\r\nHost: {at}\r\n{fields}{length}\r\n{body}");
        let (head, text) = ask(self.serving.connect(), &request);
        (status(&head), text)
    }

    fn with_key(&self) -> String {
        format!("Authorization: Bearer {}\r\n", self.key)
    }

    #[track_caller]
    fn get(&self, path: &str) -> Value {
        let (status, text) = self.say(&format!("GET {path}"), &self.with_key(), "");
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).expect("JSON")
    }

    /// Asks for a change as the page does.
    fn change(&self, wish: &Value) -> (u16, String) {
        let fields = format!("{}Origin: http://{}\r\n", self.with_key(), self.serving.at);
        self.say("POST /api/change", &fields, &wish.to_string())
    }

    fn generation(&self, lab: &Lab) -> u64 {
        // What is new, if the last look is still young.
        let now: Value = serde_json::from_str(&lab.ran("config dump --json")).expect("JSON");
        let generation = now["generation"].as_u64().expect("a generation");
        lab.until("the generation", || {
            (self.get("/api/now")["generation"] == generation).then_some(generation)
        })
    }
}

fn status(head: &str) -> u16 {
    let word = head.split(' ').nth(1).expect("a status");
    word.parse().expect("a number")
}

const FILES: [&str; 7] = [
    "/",
    "/page.css",
    "/page.js",
    "/picture.js",
    "/nic.js",
    "/words.js",
    "/icon.svg",
];

#[test]
fn the_page_forbids_what_it_does_not_need_and_makes_no_markup_of_text() {
    let lab = lab();
    let web = Web::start(&lab, &[]);
    let at = &web.serving.at;
    for path in FILES {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\n\r\n");
        let (head, text) = ask(web.serving.connect(), &request);
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {head}");
        for field in [
            "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
             connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
             require-trusted-types-for 'script'; trusted-types 'none'",
            "X-Content-Type-Options: nosniff",
            "X-Frame-Options: DENY",
            "Referrer-Policy: no-referrer",
            "Cross-Origin-Resource-Policy: same-origin",
            "Cache-Control: no-store",
            "Connection: close",
        ] {
            assert!(
                head.contains(&format!("\r\n{field}")),
                "{path} has no {field}"
            );
        }
        assert!(!head.contains("Access-Control"), "{path}: {head}");
        // Nothing from elsewhere, nothing inline, nothing that makes markup of text.
        let elsewhere = text.replace("http://www.w3.org/2000/svg", "");
        for word in [
            "http:",
            "https:",
            "//cdn",
            "innerHTML",
            "outerHTML",
            "insertAdjacent",
            "document.write",
            "eval(",
            "DOMParser",
            "style=",
            "<style",
        ] {
            assert!(!elsewhere.contains(word), "{path} has {word}");
        }
        if path == "/" {
            assert_eq!(
                text.matches("<script").count(),
                text.matches("<script type=\"module\" src=\"/").count()
            );
            let handler = |word: &str| word.starts_with("on") && word.contains('=');
            assert!(
                !text.split([' ', '\n']).any(handler),
                "a handler in the page"
            );
        }
    }
    // A wrong answer has them, too.
    let (head, _) = ask(
        web.serving.connect(),
        "GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n",
    );
    assert!(
        head.starts_with("HTTP/1.1 404") && head.contains("default-src 'none'"),
        "{head}"
    );
    let (head, text) = ask(
        web.serving.connect(),
        "HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    );
    assert!(head.starts_with("HTTP/1.1 200") && text.is_empty());
}

#[test]
fn other_names_origins_sites_methods_and_keys_are_refused() {
    let lab = lab();
    let web = Web::start(&lab, &["--allow-host", "nics.example"]);
    let (at, key) = (&web.serving.at, web.with_key());
    let told = |text: &str| {
        let (head, text) = ask(web.serving.connect(), text);
        assert!(!text.contains("\"nics\""), "{text}");
        status(&head)
    };
    for (host, wanted) in [
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("nics.example", 401),
        ("localhost:1", 401),
    ] {
        assert_eq!(
            told(&format!("GET /api/now HTTP/1.1\r\nHost: {host}\r\n\r\n")),
            wanted,
            "{host}"
        );
    }
    assert_eq!(
        told(&format!("GET /api/now HTTP/1.1\r\n{key}\r\n")),
        400,
        "no Host"
    );
    assert_eq!(
        told(&format!("GET /api/now HTTP/1.0\r\n{key}\r\n")),
        400,
        "no Host"
    );
    assert_eq!(
        told(&format!(
            "GET http://{at}/api/now HTTP/1.1\r\nHost: {at}\r\n{key}\r\n"
        )),
        404
    );
    for origin in [
        "http://evil.example",
        "null",
        "http://127.0.0.1:1",
        "file://",
        "http://localhost",
    ] {
        for path in ["/", "/api/now"] {
            let (status, _) = web.say(
                &format!("GET {path}"),
                &format!("{key}Origin: {origin}\r\n"),
                "",
            );
            assert_eq!(status, 403, "{origin} {path}");
        }
    }
    for site in ["cross-site", "same-site"] {
        let (status, _) = web.say(
            "GET /api/now",
            &format!("{key}Sec-Fetch-Site: {site}\r\n"),
            "",
        );
        assert_eq!(status, 403, "{site}");
    }
    let good = format!("{key}Origin: http://{at}\r\nSec-Fetch-Site: same-origin\r\n");
    assert_eq!(web.say("GET /api/now", &good, "").0, 200);
    for wrong in [
        "Bearer ",
        "Bearer 0123456789abcdef0123456789abcdef",
        "Basic eDp4",
        "",
    ] {
        assert_eq!(
            web.say("GET /api/now", &format!("Authorization: {wrong}\r\n"), "")
                .0,
            401,
            "{wrong}"
        );
    }
    assert_eq!(
        web.say(
            "GET /api/now",
            &format!("Authorization: Bearer {}0\r\n", web.key),
            ""
        )
        .0,
        401
    );
    for method in [
        "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "get",
    ] {
        let (status, _) = web.say(&format!("{method} /api/now"), &good, "");
        assert_eq!(status, 405, "{method}");
    }
    for path in [
        "/../etc/passwd",
        "/page/index.html",
        "/api/",
        "/api/now/",
        "/%2e%2e/",
        "//",
    ] {
        assert_eq!(web.say(&format!("GET {path}"), &key, "").0, 404, "{path}");
    }
}

#[test]
fn the_key_may_be_the_operators_or_none() {
    let lab = lab();
    let file = lab.dir.path().join("key");
    std::fs::write(&file, "abcdefgh12345678\n").expect("file");
    let own = Web::start(&lab, &["--key-file", file.to_str().expect("text")]);
    assert_eq!(own.key, "abcdefgh12345678");
    assert_eq!(own.get("/api/now")["up"], true);
    let open = Web::start(&lab, &["--no-key"]);
    assert_eq!(open.serving.line, format!("http://{}/", open.serving.at));
    assert_eq!(open.say("GET /api/now", "", "").0, 200);
    std::fs::write(&file, "short").expect("file");
    for (words, why) in [
        (format!("web --key-file {}", file.display()), "16 to 128"),
        ("web --no-key --allow-changes".into(), "cannot be used with"),
        ("web --listen 0.0.0.0:0".into(), "browsers on this host"),
        ("web --listen [::]:0".into(), "browsers on this host"),
    ] {
        let output = lab.run(&words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains(why),
            "{words}: {said}"
        );
    }
}

#[test]
fn it_tells_the_host_its_nics_their_losses_and_what_happened() {
    let lab = lab();
    let web = Web::start(&lab, &[]);
    let first = web.get("/api/now");
    let shape = &first["shape"];
    assert_eq!(
        (&first["up"], &first["changes"], &shape["role"]),
        (&json!(true), &json!(false), &json!("owner"))
    );
    let a = json!({"name": "a", "model": "e1000", "state": "no VMM", "port": "switch:lan", "tenant": "a",
        "mac": shape["nics"][0]["mac"], "transport": "vfio-user"});
    assert_eq!(shape["nics"][0], a);
    assert_eq!(
        shape["switches"],
        json!([{"name": "lan", "nics": 2, "chips": []}])
    );
    assert_eq!(
        shape["ports"],
        json!([{"switch": "lan", "port": "loopback"}])
    );
    // A page that has the shape is told the numbers only.
    let id = first["shape_id"].as_str().expect("text");
    assert!(web.get(&format!("/api/now?shape={id}"))["shape"].is_null());
    let bus = SocketBus::connect(lab.dir.path().join("a.sock")).expect("connect");
    let mut driver = Driver::new(bus, Config::poll()).expect("driver");
    // To a group that no bridge forwards: dropped by the switch.
    let frame = [
        &[1, 0x80, 0xc2, 0, 0, 3][..],
        &driver.mac(),
        &[0x88, 0xb5],
        &[0; 46],
    ]
    .concat();
    let now = lab.until("a rate", || {
        driver.send(&[&frame], &TxOpts::default()).expect("send");
        let now = web.get("/api/now");
        now["nics"][0][1][2]
            .as_u64()
            .is_some_and(|sent| sent > 0)
            .then_some(now)
    });
    assert_eq!(
        (&now["nics"][0][0], &now["shape"]["nics"][0]["state"]),
        (&json!(0), &json!("up"))
    );
    let lost = lab.until("a loss", || {
        let losses = web.get("/api/now")["losses"]
            .as_array()
            .expect("losses")
            .clone();
        losses.into_iter().find(|loss| loss[1] == "drop_reserved")
    });
    assert_eq!(
        (&lost[0], &lost[5][0][0]),
        (&json!("switch-port"), &json!("lan/a"))
    );
    let reasons = web.get("/api/reasons");
    let why = &reasons["switch-port drop_reserved"];
    assert_eq!(why[0], "drop");
    assert!(
        (1..5).all(|at| why[at].as_str().is_some_and(|text| !text.is_empty())),
        "{why}"
    );
    the_nic_opened(&web);
    // What happened, once.
    let log = lab.until("what happened", || {
        let log = web.get("/api/now")["log"]
            .as_array()
            .expect("a log")
            .clone();
        let has = |what: &str, name: &str| {
            log.iter()
                .any(|one| one["what"] == what && one["name"] == name)
        };
        (has("daemon_there", "") && has("client_connected", "a") && has("loss_begins", "lan/a"))
            .then_some(log)
    });
    let last = log.last().expect("one")["number"]
        .as_u64()
        .expect("a number");
    let since = web.get(&format!("/api/now?since={last}"));
    let since = since["log"].as_array().expect("a log");
    assert!(
        since.iter().all(|one| one["number"].as_u64() > Some(last)),
        "{since:?}"
    );
}

/// All about a NIC, where there is one.
fn the_nic_opened(web: &Web) {
    let nic = web.get("/api/nic?name=a");
    assert_eq!(nic["nic"]["config"]["name"], "a");
    let counter = |kind: &str, name: &str| {
        let counters = nic["counters"].as_array().expect("counters");
        counters
            .iter()
            .any(|one| one[0] == kind && one[2] == name && one[3].as_u64() > Some(0))
    };
    assert!(
        counter("nic", "tx_frames") && counter("switch-port", "drop_reserved"),
        "{nic}"
    );
    let registers = nic["registers"]["rows"].as_array().expect("registers");
    assert!(
        registers.iter().any(|row| row[0] == "TDLEN")
            && registers.iter().any(|row| row[0] == "TDT"),
        "{nic}"
    );
    assert!(
        web.get("/api/nic?name=v")["registers"]["why"]
            .as_str()
            .is_some_and(|why| why.contains("no table of registers"))
    );
    assert!(
        web.get("/api/nic?name=none")["why"]
            .as_str()
            .is_some_and(|why| why.contains("none"))
    );
}

#[test]
fn looking_at_registers_acknowledges_nothing() {
    let lab = lab();
    let web = Web::start(&lab, &[]);
    let bus = SocketBus::connect(lab.dir.path().join("a.sock")).expect("connect");
    let mut driver = Driver::new(bus, Config::poll()).expect("driver");
    let (icr, ics, imc) = (0xc0, 0xc8, 0xd8);
    use drivers::Bus as _;
    driver.bus_mut().write32(imc, u32::MAX).expect("write");
    driver.bus_mut().write32(ics, 4).expect("write");
    for _ in 0..2 {
        let nic = web.get("/api/nic?name=a");
        let rows = nic["registers"]["rows"]
            .as_array()
            .expect("registers")
            .clone();
        let found = rows.iter().find(|row| row[2] == icr).expect("ICR");
        assert_eq!(found[3].as_u64().expect("a value") & 4, 4);
        // Beyond the time for which an answer is new.
        std::thread::sleep(Duration::from_millis(950));
    }
    assert_eq!(driver.bus_mut().read32(icr).expect("read") & 4, 4);
}

#[test]
fn clients_that_say_too_little_too_much_or_read_nothing_hold_up_nobody() {
    let lab = lab();
    let web = Web::start(&lab, &["--allow-changes"]);
    let serving = &web.serving;
    let silent: Vec<_> = (0..40).map(|_| serving.connect()).collect();
    let mut half = serving.connect();
    half.write_all(b"POST /api/change HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        .expect("write");
    let mut deaf: Vec<_> = (0..8).map(|_| serving.connect()).collect();
    for stream in &mut deaf {
        let request = format!(
            "GET /api/reasons HTTP/1.1\r\nHost: localhost\r\n{}\r\n",
            web.with_key()
        );
        stream.write_all(request.as_bytes()).expect("write");
    }
    let begun = Instant::now();
    assert_eq!(web.get("/api/now")["up"], true);
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    for mut stream in silent.into_iter().chain([half]) {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    }
    let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(9000));
    let bomb = "POST /api/change HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4294967296\r\n\r\n";
    let chunked =
        "POST /api/change HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\n";
    let twice = "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n";
    let nonsense = "\u{1}\u{2}\u{3}\r\n\r\n";
    let folded = "GET / HTTP/1.1\r\nHost: localhost\r\n evil: 1\r\n\r\n";
    let spaced = "GET / HTTP/1.1\r\nHost : localhost\r\n\r\n";
    for (request, wanted) in [
        (long.as_str(), 431),
        (bomb, 413),
        (chunked, 411),
        (twice, 400),
        (nonsense, 400),
        (folded, 400),
        (spaced, 400),
    ] {
        let (head, text) = ask(serving.connect(), request);
        assert_eq!(status(&head), wanted, "{request:.60}");
        assert!(text.lines().count() == 1 && !text.contains('<'), "{text}");
    }
    drop(deaf);
    assert_eq!(web.get("/api/now")["up"], true);
}

#[test]
fn a_daemon_that_goes_is_said_to_be_gone_and_found_again() {
    let mut lab = lab();
    let web = Web::start(&lab, &["--timeout", "1"]);
    let up = || web.get("/api/now")["up"] == true;
    let words = || {
        let log = web.get("/api/now")["log"]
            .as_array()
            .expect("a log")
            .clone();
        let many = |what: &str| log.iter().filter(|one| one["what"] == what).count();
        (many("daemon_there"), many("daemon_gone"))
    };
    lab.until("the daemon", || (up() && words() == (1, 0)).then_some(()));
    lab.kill();
    let gone = lab.until("its end", || {
        let now = web.get("/api/now");
        (now["up"] == false).then_some(now)
    });
    assert!(
        gone["why"]
            .as_str()
            .is_some_and(|why| why.contains("no daemon answers")),
        "{gone}"
    );
    assert!(web.get("/api/nic?name=a")["why"].is_string());
    let file = lab.dir.path().join("host.toml");
    let mut again = Command::new(HYPERNIC);
    again
        .arg("serve")
        .arg(file)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    lab.daemon = again.spawn().expect("daemon");
    lab.until("the next daemon", || up().then_some(()));
    lab.until("a word of it", || (words() == (2, 1)).then_some(()));
}

#[test]
fn at_a_unix_socket_only_its_user_and_only_good_names_may_ask() {
    let lab = lab();
    let socket = lab.dir.path().join("web.sock");
    let mut command = Command::new(HYPERNIC);
    command.arg("web").arg("--unix").arg(&socket);
    let web = Web::run(command, &lab);
    let mode = std::fs::metadata(&socket)
        .expect("socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
    let said = |host: &str, key: &str| {
        let stream = UnixStream::connect(&socket).expect("connect");
        stream.set_read_timeout(Some(LONG)).expect("time-out");
        status(
            &ask(
                stream,
                &format!("GET /api/now HTTP/1.1\r\nHost: {host}\r\n{key}\r\n"),
            )
            .0,
        )
    };
    assert_eq!(said("localhost:8080", &web.with_key()), 200);
    assert_eq!(said("evil.example", &web.with_key()), 421);
    assert_eq!(said("localhost", ""), 401);
}

#[test]
fn servers_beside_the_daemon_give_up_what_they_do_not_need() {
    let lab = lab();
    let web = Web::start(&lab, &[]);
    assert_eq!(web.get("/api/now")["up"], true);
    let mut command = Command::new(HYPERNIC);
    command.args(["exporter", "--listen", "127.0.0.1:0"]);
    let exporter = Serving::run(command, &lab);
    let (head, _) = ask(exporter.connect(), "GET /metrics HTTP/1.1\r\n\r\n");
    assert_eq!(status(&head), 200);
    for serving in [&web.serving, &exporter] {
        assert_eq!(serving.status("Seccomp"), "2");
        assert_eq!(serving.status("NoNewPrivs"), "1");
        assert_eq!(serving.status("CapEff"), "0000000000000000");
    }
    let off = Web::start(&lab, &["--sandbox", "off"]);
    assert_eq!(
        off.serving.status("Seccomp"),
        std::fs::read_to_string("/proc/self/status")
            .map(|own| {
                own.lines()
                    .find_map(|line| line.strip_prefix("Seccomp:\t"))
                    .expect("Seccomp")
                    .to_owned()
            })
            .expect("status")
    );
}

/// Behind systemd's socket a client starts the daemon. One that was stopped stays so until a page asks for it.
#[test]
fn a_page_that_nobody_looks_at_asks_no_daemon() {
    let mut lab = lab();
    let web = Web::start(&lab, &["--timeout", "1"]);
    lab.until("the daemon", || {
        (web.get("/api/now")["up"] == true).then_some(())
    });
    lab.kill();
    let gone = || web.get("/api/now")["up"] == false;
    lab.until("its end", || gone().then_some(()));
    std::fs::remove_file(lab.control()).expect("its socket");
    let listener = std::os::unix::net::UnixListener::bind(lab.control()).expect("a socket");
    listener.set_nonblocking(true).expect("a socket");
    // The page's last question may still be under way.
    std::thread::sleep(Duration::from_secs(3));
    while listener.accept().is_ok() {}
    std::thread::sleep(Duration::from_secs(6));
    let came = listener.accept().map(drop);
    assert!(came.is_err(), "somebody asks");
    assert!(gone());
    lab.until("a question", || listener.accept().ok().map(drop));
}
