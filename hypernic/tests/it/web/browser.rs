//! The page in Chromium, driven over the DevTools protocol's pipe.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use drivers::SocketBus;
use drivers::e1000::{Config, Driver, TxOpts};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Web, hostile};
use crate::lab::Lab;

/// How long anything may take.
const LONG: Duration = Duration::from_secs(60);

/// A browser with one page.
struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    number: u64,
    session: Option<String>,
    /// What it has told by itself.
    events: Vec<Value>,
    _profile: TempDir,
}

impl Browser {
    fn start() -> Browser {
        let profile = tempfile::tempdir().expect("folder");
        // The protocol's pipe is descriptors 3 and 4.
        let script = "exec chromium \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null";
        let mut command = Command::new("sh");
        command.args([
            "-c",
            script,
            "chromium",
            "--headless=new",
            "--remote-debugging-pipe",
            "--disable-gpu",
            "--no-first-run",
        ]);
        command.args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-dev-shm-usage",
        ]);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        if rustix::process::geteuid().is_root() {
            command.arg("--no-sandbox");
        }
        let child = command
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = child.expect("sh");
        let (to, from) = (
            child.stdin.take().expect("pipe"),
            child.stdout.take().expect("pipe"),
        );
        let from = BufReader::new(from);
        let mut browser = Browser {
            child,
            to,
            from,
            number: 0,
            session: None,
            events: Vec::new(),
            _profile: profile,
        };
        let target =
            browser.call("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let session = browser.call(
            "Target.attachToTarget",
            json!({"targetId": target, "flatten": true}),
        );
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let mut message = json!({"id": self.number, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let sent = self.to.write_all(format!("{message}\0").as_bytes());
        sent.expect("chromium (scripts/setup long installs it)");
        loop {
            let mut bytes = Vec::new();
            self.from.read_until(0, &mut bytes).expect("an answer");
            assert_eq!(
                bytes.pop(),
                Some(0),
                "chromium has ended (scripts/setup long installs it)"
            );
            let message: Value = serde_json::from_slice(&bytes).expect("JSON");
            if message["id"] == self.number {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    fn look(&mut self, width: u32, height: u32, scheme: &str) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        self.call("Emulation.setEmulatedMedia", json!({"features": [feature]}));
    }

    #[track_caller]
    fn eval(&mut self, script: &str) -> Value {
        let how = json!({"expression": script, "awaitPromise": true, "returnByValue": true});
        let told = self.call("Runtime.evaluate", how);
        assert!(told["exceptionDetails"].is_null(), "{script}: {told}");
        told["result"]["value"].clone()
    }

    #[track_caller]
    fn until(&mut self, script: &str) {
        let end = Instant::now() + LONG;
        while self.eval(script) != true {
            if Instant::now() > end {
                let page = self.eval("document.body.innerText");
                panic!("{script} does not come: {page}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn press(&mut self, key: &str) {
        let text = match key {
            "Enter" => "\r",
            key if key.len() == 1 => key,
            _ => "",
        };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let code = if key == "Enter" { 13 } else { 0 };
            let event =
                json!({"type": kind, "key": key, "text": text, "windowsVirtualKeyCode": code});
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// For people: a picture, where a folder for pictures is named.
    fn picture(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("HYPERNIC_SCREENSHOTS") else {
            return;
        };
        let data = self.call("Page.captureScreenshot", json!({}))["data"].clone();
        let bytes = base64(data.as_str().expect("text"));
        std::fs::write(PathBuf::from(folder).join(name), bytes).expect("written");
    }

    /// The console is empty, and all that was asked for is of the page's origin.
    #[track_caller]
    fn all_was_well(&self, origin: &str) {
        let mut asked = 0;
        for event in &self.events {
            let params = &event["params"];
            let wrong = match event["method"].as_str() {
                Some("Runtime.exceptionThrown") => true,
                Some("Runtime.consoleAPICalled") => params["type"] != "log",
                Some("Log.entryAdded") => params["entry"]["level"] != "verbose",
                Some("Network.requestWillBeSent") => {
                    asked += 1;
                    !params["request"]["url"]
                        .as_str()
                        .is_some_and(|url| url.starts_with(origin))
                }
                Some(
                    "Network.webSocketCreated" | "Page.windowOpen" | "Page.javascriptDialogOpening",
                ) => true,
                _ => false,
            };
            assert!(!wrong, "{event}");
        }
        assert!(asked > 10, "only {asked} requests seen");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text
        .bytes()
        .filter_map(|byte| DIGITS.iter().position(|digit| *digit == byte));
    let (mut bytes, mut bits, mut have) = (Vec::new(), 0_u32, 0);
    for digit in digits {
        bits = bits << 6 | digit as u32;
        have += 6;
        if have >= 8 {
            have -= 8;
            bytes.push((bits >> have) as u8);
        }
    }
    bytes
}

const LOOKS: &str = "Number(document.getElementById('main')?.dataset.looks || 0)";

/// A page of a real daemon, with traffic, is alive in a browser; keys open and close a NIC; changes are made.
#[test]
#[ignore = "needs Chromium; run by make test-long"]
fn long_a_browser_shows_live_values_and_asks_nobody_else() {
    let lab = Lab::with(|dir| {
        format!(
            "[[switch]]\nname = \"lan\"\nports = [\"null\"]\n[[nic]]\nname = \"a\"\nport = \"switch:lan\"\nsocket-path = {:?}\n\
             [[nic]]\nname = \"p0\"\nmodel = \"82576\"\nvfs = 2\nvf-socket-path = {:?}\nport = \"switch:lan\"\n",
            dir.join("a.sock"),
            dir.join("vf{}.sock"),
        )
    });
    let web = Web::start(&lab, &["--allow-changes"]);
    let origin = format!("http://{}/", web.serving.at);
    let bus = SocketBus::connect(lab.dir.path().join("a.sock")).expect("connect");
    let mut driver = Driver::new(bus, Config::poll()).expect("driver");
    let frame = [&[0xff; 6][..], &driver.mac(), &[0x88, 0xb5], &[0; 1000]].concat();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                driver.send(&[&frame], &TxOpts::default()).expect("send");
                std::thread::sleep(Duration::from_millis(3));
            }
        });
        let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            page_lives(&lab, &web, &origin)
        }));
        done.store(true, Ordering::Relaxed);
        looked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn page_lives(lab: &Lab, web: &Web, origin: &str) {
    let mut browser = Browser::start();
    browser.look(1440, 900, "light");
    let address = &web.serving.line;
    browser.call("Page.navigate", json!({"url": address}));
    browser.until(&format!("{LOOKS} > 2"));
    // The key does not stay in the address.
    assert_eq!(browser.eval("location.href"), origin);
    browser.until("document.querySelector('[data-nic=\"a\"] .goes').textContent.includes('bit/s')");
    browser.until("[...document.querySelectorAll('.lines .busy')].some((one) => Number(one.getAttribute('stroke-width')) > 2)");
    browser.picture("host.png");
    // By keys alone: filter, go to the NIC, open it, close it.
    browser.press("/");
    assert_eq!(browser.eval("document.activeElement.id"), "filter");
    browser.press("a");
    browser.until("document.querySelectorAll('[data-nic]').length === 1 || document.querySelectorAll('[data-nic]').length === 3");
    browser.eval("document.querySelector('[data-nic=\"a\"]').focus()");
    browser.press("Enter");
    browser.until("!document.getElementById('nic').hidden && document.querySelectorAll('#nic tbody tr').length > 20");
    let value = "[...document.querySelectorAll('#nic tr')].find((row) => row.firstChild.textContent === 'tx_frames')?.lastChild.textContent";
    let before = browser.eval(value);
    browser.until(&format!("({value}) !== {before}"));
    let register = "[...document.querySelectorAll('#nic tr')].find((row) => row.firstChild.textContent === 'TDT')?.children[2].textContent";
    let before = browser.eval(register);
    browser.until(&format!("({register}) !== {before}"));
    browser.until("document.querySelector('#nic tr.fresh') !== null");
    browser.picture("nic.png");
    browser.look(400, 800, "dark");
    browser.until("document.getElementById('nic').getBoundingClientRect().width > innerWidth - 20");
    // Nothing is wider than the page, once it has followed.
    browser.until("document.documentElement.scrollWidth <= innerWidth");
    browser.picture("narrow.png");
    browser.press("Escape");
    browser.until("document.getElementById('nic').hidden");
    browser.look(1440, 900, "dark");
    // The link of a VF goes down by a button, and by one that asks first a NIC goes.
    let press = |label: &str| {
        format!(
            "[...document.querySelectorAll('button')].find((one) => one.textContent === '{label}').click()"
        )
    };
    browser.eval("document.querySelector('#filter').value = ''; document.querySelector('#filter').dispatchEvent(new Event('input'))");
    browser.eval("document.querySelector('[data-nic=\"p0vf0\"]').dispatchEvent(new MouseEvent('click', {bubbles: true}))");
    browser.until("document.querySelectorAll('#nic .buttons button').length > 3");
    browser.eval(&press("Link down"));
    lab.until("the link", || {
        lab.said("show p0vf0")
            .contains("state disable")
            .then_some(())
    });
    browser.until("document.querySelector('#nic .buttons [aria-pressed=\"true\"]').textContent === 'Link down'");
    browser.press("Escape");
    let wait = lab.ran(
        "nic add b --port null --socket-path {}"
            .replace("{}", &lab.dir.path().join("b.sock").display().to_string())
            .as_str(),
    );
    assert!(wait.contains("done"));
    browser.until("document.querySelector('[data-nic=\"b\"]') !== null");
    browser.eval("document.querySelector('[data-nic=\"b\"]').dispatchEvent(new MouseEvent('click', {bubbles: true}))");
    browser.until("[...document.querySelectorAll('button')].some((one) => one.textContent === 'Remove this NIC')");
    browser.eval(&press("Remove this NIC"));
    browser.until("document.getElementById('ask').open");
    browser.eval("document.getElementById('ask-yes').click()");
    lab.until("its end", || {
        (!lab.ran("nic list").contains("b.sock")).then_some(())
    });
    browser.until("document.getElementById('log-list').textContent.includes('removed')");
    browser.eval("document.querySelector('[data-port=\"null\"]').focus()");
    browser.press("Enter");
    browser.until("document.getElementById('ask').open");
    browser.picture("sure.png");
    browser.eval("document.getElementById('ask-yes').click()");
    browser.until("document.querySelector('[data-port]') === null");
    assert!(!lab.ran("port list").contains("null"));
    browser.picture("dark.png");
    browser.all_was_well(origin);
}

/// Whatever a daemon tells, and so whatever a guest, a VMM or another operator could have it tell, stays text.
#[test]
#[ignore = "needs Chromium; run by make test-long"]
fn long_hostile_words_stay_text_in_a_browser() {
    let lab = Lab::with(|_| String::new());
    let control = lab.dir.path().join("hostile.sock");
    hostile::serve(&control);
    let mut command = Command::new(crate::lab::HYPERNIC);
    command.args(["web", "--listen", "127.0.0.1:0", "--allow-changes"]);
    let web = Web::with_daemon(command, &control);
    let origin = format!("http://{}/", web.serving.at);
    let mut browser = Browser::start();
    browser.look(1440, 900, "dark");
    browser.call("Page.navigate", json!({"url": web.serving.line}));
    browser.until(&format!("{LOOKS} > 2"));
    browser.eval("document.querySelector('[data-nic]').focus()");
    browser.press("Enter");
    browser.until("document.querySelectorAll('#nic tbody tr').length > 3");
    browser.until("document.querySelectorAll('#log-list li').length > 5");
    browser.eval("for (const one of document.querySelectorAll('details')) one.open = true");
    browser.eval(&format!("document.querySelector('#filter').value = {}; document.querySelector('#filter').dispatchEvent(new Event('input'))", json!("<img")));
    let looks = browser.eval(LOOKS);
    browser.until(&format!("{LOOKS} > {looks} + 1"));
    browser.picture("hostile.png");
    // What turns or hides the words around it is not shown as it is.
    let words = json!(hostile::WORDS.replace(['\u{202e}', '\u{1b}'], "\u{fffd}"));
    for place in [
        "#state",
        "#picture",
        "#nic h2",
        "#nic .facts",
        "#nic table",
        "#losses-list",
        "#log-list",
        "#workers-list",
    ] {
        let script = format!("document.querySelector('{place}').textContent.includes({words})");
        // The picture shortens what is shown; its titles are whole.
        assert_eq!(browser.eval(&script), true, "{place}");
    }
    assert_eq!(browser.eval("document.title"), "hypernic");
    assert_eq!(
        browser.eval("document.querySelectorAll('script').length"),
        1
    );
    assert_eq!(
        browser.eval("[...document.images].map((one) => one.getAttribute('src')).join()"),
        "/icon.svg"
    );
    let handlers = "[...document.querySelectorAll('*')].some((one) => one.getAttributeNames().some((name) => name.startsWith('on')))";
    assert_eq!(browser.eval(handlers), false);
    // And should a script forget itself, the browser refuses.
    let forgets = "(() => { try { document.body.innerHTML = '<b>x</b>'; return 'done'; } catch (error) { return error.name; } })()";
    assert_eq!(browser.eval(forgets), "TypeError");
    // Its word for that is no fault of the page's.
    browser
        .events
        .retain(|event| !event.to_string().contains("TrustedHTML"));
    browser.all_was_well(&origin);
}
