//! The control socket as systemd's `varlinkctl` of Debian 13 sees it.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hypernic_tests::installed::{repository, run};
use rig::Root;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli_config::{LAN, Lab, nic};

/// A user who may look.
const MONITOR: u32 = 61_001;
/// One who may nothing.
const STRANGER: u32 = 61_999;

/// The program with its libraries, where every user may go.
struct Varlinkctl(TempDir);

impl Varlinkctl {
    fn new() -> Self {
        let root = Root::of_programs("varlinkctl", &["systemd"]).expect("systemd of Debian 13");
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let libraries = "usr/lib/x86_64-linux-gnu";
        // Its own library stands apart from the others.
        let script = "cp \"$0\"/usr/bin/varlinkctl \"$0\"/$2/*.so* \"$0\"/$2/systemd/*.so* \"$1\"";
        let mut copy = Command::new("sh");
        copy.args(["-ec", script]).arg(root.dir());
        run(copy.arg(dir.path()).arg(libraries)).unwrap();
        Self(dir)
    }

    /// `varlinkctl …`.
    fn command(&self, words: &[&str]) -> Command {
        let at = self.0.path();
        let mut command = Command::new(at.join("ld-linux-x86-64.so.2"));
        command.arg("--library-path").arg(at);
        command.arg(at.join("varlinkctl")).args(words);
        command
    }

    fn ran(&self, words: &[&str]) -> String {
        run(&mut self.command(words)).unwrap()
    }
}

/// A daemon and the client.
struct Scene {
    lab: Lab,
    client: Varlinkctl,
    /// The socket, as the client wants it.
    address: String,
}

impl Scene {
    fn new(words: &str) -> Self {
        let lab = Lab::new(words);
        let address = format!("unix:{}", lab.at("control.sock").display());
        Self {
            lab,
            client: Varlinkctl::new(),
            address,
        }
    }

    fn call(&self, method: &str, parameters: &str) -> Value {
        let words = ["-j", "call", &self.address, method, parameters];
        let said = self.client.ran(&words);
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{method}: {error}: {said}"))
    }

    /// The name of the error, and its parameters.
    fn error(&self, as_user: Option<u32>, method: &str, parameters: &str) -> (String, Value) {
        let words = ["-j", "call", &self.address, method, parameters];
        let mut command = self.client.command(&words);
        if let Some(user) = as_user {
            command.uid(user).gid(user);
        }
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{method} {parameters}: {said}");
        let name = said.trim_end().rsplit(' ').next().unwrap().to_owned();
        let told = serde_json::from_slice(&output.stdout);
        (name, told.unwrap_or(Value::Null))
    }
}

/// The files that the interfaces are published in.
fn files() -> Vec<PathBuf> {
    let files = std::fs::read_dir(repository("crates/control/idl")).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

fn interface(file: &Path) -> String {
    let name = file.file_name().unwrap().to_str().unwrap();
    name.strip_suffix(".varlink").unwrap().to_owned()
}

#[test]
fn varlinkctl_finds_every_interface_as_it_is_published() {
    let scene = Scene::new("");
    let info = scene.client.ran(&["info", &scene.address]);
    assert!(info.contains("Product: hypernic"), "{info}");
    let listed = scene.client.ran(&["list-interfaces", &scene.address]);
    let published: Vec<_> = files().iter().map(|file| interface(file)).collect();
    assert_eq!(listed.lines().collect::<Vec<_>>(), published);
    let methods = scene.client.ran(&["list-methods", &scene.address]);
    // It prints what it has understood, with its own blanks and enumerations first.
    let parts = |text: &str| {
        let words = |part: &str| part.split_whitespace().collect::<String>();
        let mut parts: Vec<String> = text.split("\n\n").map(words).collect();
        parts.sort();
        parts
    };
    for file in files() {
        let text = std::fs::read_to_string(&file).unwrap();
        scene.client.ran(&["validate-idl", file.to_str().unwrap()]);
        let name = interface(&file);
        let told = scene.client.ran(&["introspect", &scene.address, &name]);
        assert_eq!(parts(&told), parts(&text), "{name}");
        for method in text.lines().filter_map(|line| line.strip_prefix("method ")) {
            let method = method.split(' ').next().unwrap();
            let listed = methods
                .lines()
                .any(|line| line == format!("{name}.{method}"));
            assert!(listed, "{name}.{method}: {methods}");
        }
    }
}

/// Calls, their parameters, and what stands where in their replies. `@` is the folder of sockets.
const CALLS: &str = r#"
org.varlink.service.GetInfo {} /product "hypernic"
io.hypernic.Control.GetStatus {} /generation 0
io.hypernic.Nic.Add {"nic":{"name":"b","port":"switch:lan","socket_path":"@/b"}} /changed true
io.hypernic.Nic.Add {"nic":{"name":"b","port":"switch:lan","socket_path":"@/b"}} /changed false
io.hypernic.Nic.List {"name":"b"} /nics/0/config/port "switch:lan"
io.hypernic.Nic.Inspect {"name":"b","register":"STATUS"} /registers/0/name "STATUS"
io.hypernic.Switch.List {} /switches/0/config/name "lan"
io.hypernic.Port.Add {"switch":"lan","port":"loopback"} /changed true
io.hypernic.Chip.List {} /chips/0/config/name "p0"
io.hypernic.Vf.Show {"nic":"p0vf0"} /vfs/0/nic "p0vf0"
io.hypernic.Capture.List {} /captures []
io.hypernic.Upgrade.GetStates {"nic":"a"} /model "e1000"
io.hypernic.Migrate.Save {"id":"m1","nic":"b"} /nic/name "b"
io.hypernic.Migrate.Abort {"id":"m1"} /changed true
io.hypernic.Migrate.List {} /moves/0/step "aborted"
io.hypernic.Drops.Explain {"name":"rx_missed"} /reasons/0/name "rx_missed"
io.hypernic.Nic.Remove {"name":"b"} /changed true
"#;

/// Calls that cannot be, their errors, and a parameter of each.
const ERRORS: &str = r#"
io.hypernic.Nic.Burn {} org.varlink.service.MethodNotFound method
io.hypernic.Fire.Burn {} org.varlink.service.InterfaceNotFound interface
io.hypernic.Nic.Add {"nick":1} org.varlink.service.InvalidParameter parameter
io.hypernic.Nic.Remove {"name":"z"} io.hypernic.Control.Unknown message
io.hypernic.Switch.Remove {"name":"lan"} io.hypernic.Control.InUse by
io.hypernic.Switch.Add {"switch":{"name":"lan","ageing_seconds":99}} io.hypernic.Control.Exists differs
io.hypernic.Nic.Remove {"name":"a","if_generation":999} io.hypernic.Control.Stale message
io.hypernic.Switch.Add {"switch":{"name":"x","ageing_seconds":1}} io.hypernic.Control.Invalid message
io.hypernic.Migrate.Save {"id":"m2","nic":"q0vf0"} io.hypernic.Control.CannotMove nic
io.hypernic.Migrate.Commit {"id":"m1"} io.hypernic.Control.MoveDecided step
"#;

/// The lines of a table, each of four words.
fn rows(table: &str) -> impl Iterator<Item = [&str; 4]> {
    table.trim().lines().map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        words.try_into().expect("four words")
    })
}

#[test]
fn varlinkctl_calls_each_interface_and_names_each_error() {
    let chip = "[[nic]]\nname = \"p0\"\nmodel = \"82576\"\nvfs = 1\nvf-socket-path = \"@/vf{}\"\nport = \"null\"\n\
                [[nic]]\nname = \"q0\"\nmodel = \"82576\"\nvfs = 1\npf = \"guest\"\nsocket-path = \"@/q\"\nvf-socket-path = \"@/q{}\"\n\
                port = \"null\"\n";
    let roles = format!("control-monitor = [\"{MONITOR}\"]\n");
    let scene = Scene::new(&format!("{roles}{LAN}{}{chip}", nic("a", "")));
    let folder = scene.lab.dir.path().display().to_string();
    for [method, parameters, pointer, is] in rows(CALLS) {
        let told = scene.call(method, &parameters.replace('@', &folder));
        let is: Value = serde_json::from_str(is).unwrap();
        assert_eq!(told.pointer(pointer), Some(&is), "{method}: {told}");
    }
    let dump = scene.call("io.hypernic.Config.Dump", "{}");
    assert!(dump["text"].as_str().unwrap().contains("p0"), "{dump}");
    let metrics = scene.call("io.hypernic.Metrics.Get", "{}");
    assert!(metrics.to_string().contains("turns"), "{metrics}");
    for [method, parameters, name, member] in rows(ERRORS) {
        let (error, told) = scene.error(None, method, parameters);
        assert_eq!(error, name, "{method}: {told}");
        assert!(told.get(member).is_some(), "{method}: {told}");
    }
    if rustix::process::geteuid().is_root() {
        std::fs::set_permissions(scene.lab.dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let words = ["call", &scene.address, "io.hypernic.Nic.List", "{}"];
        let mut list = scene.client.command(&words);
        run(list.uid(MONITOR).gid(MONITOR)).unwrap();
        for (user, method, parameters) in [
            (MONITOR, "io.hypernic.Nic.Remove", "{\"name\":\"a\"}"),
            (STRANGER, "io.hypernic.Nic.List", "{}"),
        ] {
            let (error, told) = scene.error(Some(user), method, parameters);
            assert_eq!(error, "io.hypernic.Control.NotAllowed", "{user}: {told}");
        }
    }
}

#[test]
fn varlinkctl_is_told_what_changes() {
    let scene = Scene::new("");
    let words = ["-j", "--more", "--timeout=infinity", "call", &scene.address];
    let mut told = scene.client.command(&words);
    told.args(["io.hypernic.Monitor.Subscribe", "{}"]);
    let mut told = told.stdout(Stdio::piped()).spawn().unwrap();
    let mut replies = BufReader::new(told.stdout.take().unwrap())
        .lines()
        .map(|line| {
            let line = line.unwrap();
            // Each begins with a record separator (RFC 7464).
            let line = line.trim_start_matches('\u{1e}');
            serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"))
        });
    let first = replies.next().unwrap();
    assert_eq!(first["state"]["switches"], json!([]), "{first}");
    scene.call("io.hypernic.Switch.Add", "{\"switch\":{\"name\":\"lan\"}}");
    let second = replies.next().unwrap();
    let event = &second["events"][0];
    assert_eq!(
        (event["what"].as_str(), event["name"].as_str()),
        (Some("switch_added"), Some("lan")),
        "{second}"
    );
    told.kill().unwrap();
    told.wait().unwrap();
}
