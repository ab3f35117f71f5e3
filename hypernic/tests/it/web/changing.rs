//! Changes: who may make them, and what they do.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use drivers::SocketBus;
use drivers::e1000::{Config, Driver};
use serde_json::{Value, json};

use super::Web;
use crate::lab::{Lab, copy_program};

#[test]
fn without_leave_nothing_is_changed() {
    let lab = Lab::new();
    let web = Web::start(&lab, &[]);
    let before = lab.ran("config dump --json");
    let generation = web.generation(&lab);
    let wish =
        json!({"what": "vf_link", "nic": "p0vf0", "state": "disable", "generation": generation});
    assert_eq!(web.change(&wish).0, 405);
    assert_eq!(web.say("GET /api/change", &web.with_key(), "").0, 403);
    assert_eq!(lab.ran("config dump --json"), before);
}

#[test]
fn changes_need_the_key_the_origin_the_generation_and_the_daemons_leave() {
    let lab = Lab::with(|dir| {
        format!(
            "control-monitor = [\"61001\"]\n[[switch]]\nname = \"lan\"\nports = [\"null\"]\n[[nic]]\nname = \"n\"\nport = \"switch:lan\"\n\
             socket-path = {:?}\n[[nic]]\nname = \"p0\"\nmodel = \"82576\"\nvfs = 1\nvf-socket-path = {:?}\nport = \"null\"\n",
            dir.join("n.sock"),
            dir.join("vf{}.sock"),
        )
    });
    let web = Web::start(&lab, &["--allow-changes"]);
    assert_eq!(web.get("/api/now")["changes"], true);
    let wish = |mut wish: Value| {
        wish["generation"] = json!(web.generation(&lab));
        wish
    };
    let down = json!({"what": "vf_link", "nic": "p0vf0", "state": "disable"});
    let state = || lab.said("show p0vf0").contains("state disable");
    let (at, key) = (&web.serving.at, web.with_key());
    let body = wish(down.clone()).to_string();
    for (fields, wanted) in [
        // What a page of another site can have a browser send.
        (format!("Origin: http://evil.example\r\n{key}"), 403),
        (format!("Origin: null\r\n{key}"), 403),
        (key.clone(), 403),
        (
            format!("Origin: http://{at}\r\n{key}Sec-Fetch-Site: cross-site\r\n"),
            403,
        ),
        (format!("Origin: http://{at}\r\n"), 401),
        (
            format!("Origin: http://{at}\r\nCookie: key={}\r\n", web.key),
            401,
        ),
    ] {
        assert_eq!(
            web.say("POST /api/change", &fields, &body).0,
            wanted,
            "{fields}"
        );
    }
    for bad in [
        json!({}),
        json!({"what": "nic_add"}),
        json!([]),
        json!({"what": "nic_remove", "nic": "n"}),
        json!({"what": "nic_remove", "nic": "n", "generation": 0, "persist": true}),
    ] {
        assert_eq!(web.change(&bad).0, 400, "{bad}");
    }
    assert!(!state(), "nothing of this has an effect");
    let (status, text) = web.change(&json!({"what": "nic_remove", "nic": "n", "generation": 999}));
    assert!(
        status == 409 && text.contains("look again"),
        "{status} {text}"
    );
    // The VF's link goes down, and up.
    assert_eq!(web.change(&wish(down.clone())).0, 200);
    assert!(state());
    assert_eq!(
        web.change(&wish(
            json!({"what": "vf_link", "nic": "p0vf0", "state": "auto"})
        ))
        .0,
        200
    );
    assert!(!state());
    let (status, text) = web.change(&wish(json!({"what": "vf_revive", "nic": "n"})));
    assert!(
        status == 409 && text.lines().count() == 1,
        "{status} {text}"
    );
    // A NIC goes, and its VMM is disconnected.
    let bus = SocketBus::connect(lab.dir.path().join("n.sock")).expect("connect");
    let mut driver = Driver::new(bus, Config::poll()).expect("driver");
    assert_eq!(
        web.change(&wish(json!({"what": "nic_remove", "nic": "n"})))
            .0,
        200
    );
    use drivers::Bus as _;
    assert!(driver.bus_mut().read32(8).is_err(), "it is still served");
    assert_eq!(
        web.change(&wish(
            json!({"what": "port_remove", "switch": "lan", "port": "null"})
        ))
        .0,
        200
    );
    assert!(!lab.ran("port list").contains("lan"));
    roles(&lab, &down);
}

/// The daemon's roles hold for the page's process.
fn roles(lab: &Lab, down: &Value) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    std::fs::set_permissions(lab.dir.path(), PermissionsExt::from_mode(0o755)).expect("mode");
    let program = lab.dir.path().join("hypernic");
    copy_program(&program);
    let mut command = Command::new(program);
    command
        .args(["web", "--allow-changes", "--listen", "127.0.0.1:0"])
        .uid(61_001)
        .gid(61_001);
    let web = Web::run(command, lab);
    assert_eq!(web.get("/api/now")["shape"]["role"], "monitor");
    let mut wish = down.clone();
    wish["generation"] = json!(web.generation(lab));
    let (status, text) = web.change(&wish);
    assert!(status == 403 && text.contains("operate"), "{status} {text}");
}
