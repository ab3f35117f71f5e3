//! Words, messages and descriptions.

mod schema;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

fn parsed(call: &Value) -> Result<Call, Failure> {
    let request = Request::parse(call.to_string().as_bytes())?;
    Call::parse(&request.method, request.parameters)
}

#[test]
fn the_words_are_these() {
    let call = json!({
        "method": "io.hypernic.Vf.Set",
        "parameters": {"nic": "p0vf1", "change": {
            "mac": "52:54:00:00:00:01", "vlan": 7, "state": "disable", "max_tx_rate": 100, "storm": {"broadcast": 10}
        }}
    });
    let change = VfChange {
        mac: Some("52:54:00:00:00:01".into()),
        vlan: Some(7),
        max_tx_rate: Some(100),
        state: Some(State::Disable),
        storm: Some(Storm {
            broadcast: Some(10),
            multicast: None,
        }),
        ..VfChange::default()
    };
    let nic = "p0vf1".to_owned();
    let set = Call::VfSet(VfSet {
        nic,
        change,
        ..VfSet::default()
    });
    assert_eq!(
        (set.method(), set.role()),
        ("io.hypernic.Vf.Set", Role::Operate)
    );
    assert_eq!(parsed(&call), Ok(set));
    // What is absent may be left out with its parameters.
    for list in [
        json!({"method": "io.hypernic.Nic.List"}),
        json!({"method": "io.hypernic.Nic.List", "parameters": null, "more": null}),
        json!({"method": "io.hypernic.Nic.List", "parameters": {"name": null}}),
    ] {
        assert_eq!(parsed(&list), Ok(Call::NicList(NicList { name: None })));
    }
}

#[test]
fn unknown_words_are_refused_by_name() {
    let vf = |change: Value| json!({"method": "io.hypernic.Vf.Set", "parameters": {"nic": "a", "change": change}});
    for (call, word) in [
        (
            json!({"method": "io.hypernic.Vf.Sit"}),
            "io.hypernic.Vf.Sit",
        ),
        (json!({"method": "io.hypernic.Vg.Set"}), "io.hypernic.Vg"),
        (json!({"method": "Set"}), "no interface"),
        (vf(json!({"maxtxrate": 1})), "maxtxrate"),
        (vf(json!({"state": "up"})), "up"),
        (vf(json!({"vlan": -1})), "-1"),
        (
            json!({"method": "io.hypernic.Vf.Set", "parameters": {"nic": "a"}}),
            "change",
        ),
        (
            json!({"method": "io.hypernic.Nic.List", "parameter": {}}),
            "parameter",
        ),
        (json!({"methods": 3}), "methods"),
        (json!([1]), "invalid"),
    ] {
        let refused = parsed(&call).expect_err("refused");
        assert!(refused.to_string().contains(word), "{refused}");
        assert!(refused.is_malformed());
    }
}

#[test]
fn a_reply_is_parameters_or_a_named_error() {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    let told = PortInfo {
        switch: "lan".into(),
        ..PortInfo::default()
    };
    let done = text(reply(&told, true));
    assert!(
        done.starts_with("{\"continues\":true,\"parameters\":{\"switch\":\"lan\",")
            && done.ends_with("}}\0"),
        "{done}"
    );
    assert!(!done.contains("null"), "what is absent is not said: {done}");
    assert!(!text(reply(&told, false)).contains("continues"));
    let unknown = Failure::unknown("NIC", "n\n9", ["n0", "n1"]);
    let refused = text(refusal(unknown.clone()));
    assert!(
        refused.contains("\"error\":\"io.hypernic.Control.Unknown\""),
        "{refused}"
    );
    assert!(refused.ends_with('\0'));
    let message = unknown.to_string();
    assert!(
        message.contains("there is: n0, n1") && !message.contains('\n'),
        "{message}"
    );
    let back: Failure = serde_json::from_str(refused.trim_end_matches('\0')).expect("a failure");
    assert_eq!(back, unknown);
}

#[test]
fn many_names_make_no_long_line() {
    let names: Vec<String> = (0..1000).map(|n| format!("nic{n}")).collect();
    let message = Failure::unknown("NIC", "x", names.iter().map(String::as_str)).to_string();
    assert!(message.ends_with("nic7 and 992 more)"), "{message}");
}

#[test]
fn messages_end_with_a_nul_and_have_a_most() {
    let mut messages = Messages::new(8);
    messages.push(b"abc\0de");
    assert_eq!(messages.pop(), Ok(Some(b"abc".to_vec())));
    assert_eq!(messages.pop(), Ok(None));
    messages.push(b"fghij");
    assert_eq!(messages.pop(), Ok(None));
    messages.push(b"k\0");
    assert_eq!(messages.pop(), Ok(Some(b"defghijk".to_vec())));
    assert!(messages.is_empty());
    for long in [&b"123456789"[..], b"123456789\0"] {
        let mut messages = Messages::new(8);
        messages.push(long);
        assert_eq!(messages.pop(), Err(TooLong(8)));
    }
}

#[test]
fn who_is_not_there_is_named_with_the_cure() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("none.sock");
    let error = ask(&path, &NicList { name: None }).expect_err("nobody");
    let text = error.to_string();
    assert!(
        text.contains("none.sock") && text.contains("--control"),
        "{text}"
    );
}

/// A client that reads the description of one interface knows no other.
#[test]
fn every_interface_defines_all_types_that_it_names() {
    for interface in INTERFACES {
        let text = interface.description();
        let said = text
            .lines()
            .filter(|line| !line.trim_start().starts_with('#'));
        let words = said.flat_map(|line| line.split([' ', '(', ')', ',', '?', '[', ']']));
        let named = words.filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase()));
        for name in named {
            let is_there = ["type", "method", "error"].iter().any(|kind| {
                text.lines()
                    .any(|line| line.starts_with(&format!("{kind} {name} ")))
            });
            assert!(is_there, "{name} in\n{text}");
        }
    }
}

#[test]
fn the_descriptions_are_fresh() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("idl");
    for interface in INTERFACES {
        let file = dir.join(format!("{}.varlink", interface.name));
        if std::env::var_os("HYPERNIC_WRITE").is_some() {
            std::fs::create_dir_all(&dir).expect("folder");
            std::fs::write(&file, interface.description()).expect("file");
        }
        let kept = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            kept == interface.description(),
            "{} is stale: make docs",
            file.display()
        );
    }
    let files = std::fs::read_dir(&dir).expect("folder").count();
    assert_eq!(
        files,
        INTERFACES.len(),
        "an interface that went has left its file"
    );
}

/// One thing of an interface as a section of the page: a method with its comment, or a type or an error as it is.
fn section(block: &str) -> String {
    let Some(at) = block.lines().position(|line| line.starts_with("method ")) else {
        return String::new();
    };
    let lines: Vec<&str> = block.lines().collect();
    let name = lines[at].trim_start_matches("method ");
    let name = name.split(' ').next().expect("a name");
    let comments = lines[..at].iter();
    let comments: Vec<_> = comments.map(|line| line.trim_start_matches("# ")).collect();
    let definition = lines[at..].join("\n");
    let about = comments.join("\n");
    format!("### {name}\n\n{about}\n\n```varlink\n{definition}\n```\n\n")
}

/// docs/api.md.
fn page() -> String {
    let mut page = String::from(
        "# Reference of the control socket\n\nMade from the Rust types of `crates/control` (`make docs`); [the protocol](protocol.md) says how \
         to use it.\n\n",
    );
    for interface in INTERFACES {
        page += &format!(
            "- [{}](#{})\n",
            interface.name,
            interface.name.to_lowercase().replace('.', "")
        );
    }
    for interface in INTERFACES {
        let text = interface.description();
        let blocks: Vec<&str> = text.split("\n\n").collect();
        let head = blocks[0].lines().filter(|line| line.starts_with('#'));
        let head: Vec<_> = head.map(|line| line.trim_start_matches("# ")).collect();
        page += &format!("\n## {}\n\n{}\n\n", interface.name, head.join("\n"));
        for block in &blocks[1..] {
            page += &section(block.trim_end());
        }
        let is_other = |block: &&&str| section(block.trim_end()).is_empty();
        let others: Vec<_> = blocks[1..]
            .iter()
            .filter(is_other)
            .map(|block| block.trim_end())
            .collect();
        if !others.is_empty() {
            page += &format!("### Words\n\n```varlink\n{}\n```\n", others.join("\n\n"));
        }
    }
    page
}

#[test]
fn the_reference_page_is_fresh() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api.md");
    let page = page();
    if std::env::var_os("HYPERNIC_WRITE").is_some() {
        std::fs::write(&file, &page).expect("file");
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(kept == page, "docs/api.md is stale: make docs");
    for call in ["### Inspect", "### Apply", "### Subscribe", "error Stale"] {
        assert!(page.contains(call), "{call}");
    }
}

#[test]
fn an_errors_words_are_one_line_whatever_a_caller_says() {
    let failure = Failure::unknown("NIC", "x\n\u{1b}[2Jy", ["a"]).printable();
    assert!(!failure.to_string().contains(char::is_control), "{failure}");
    let failure = Failure::invalid("a\nb").printable();
    assert_eq!(failure, Failure::invalid("a\\nb"));
    let other = Failure::Exists {
        kind: "NIC".into(),
        name: "n".into(),
        differs: vec!["mac".into()],
        message: "é is fine".into(),
    };
    assert_eq!(other.clone().printable(), other);
}

proptest! {
    #[test]
    fn no_message_is_too_odd(message in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(request) = Request::parse(&message) {
            let _ = Call::parse(&request.method, request.parameters);
        }
    }

    #[test]
    fn no_parameter_is_too_odd(which in 0..INTERFACES.len(), name in "[a-z_]{1,12}", n in any::<i64>()) {
        for method in ["Add", "Remove", "List", "Set", "Get", "Explain", "GetInfo"] {
            let method = format!("{}.{method}", INTERFACES[which].name);
            let parameters: Map<String, Value> = [(name.clone(), json!(n))].into_iter().collect();
            let _ = Call::parse(&method, parameters);
        }
    }

    #[test]
    fn however_bytes_come_the_messages_are_the_same(
        bytes in proptest::collection::vec(0..4u8, 0..60), cut in 1..10usize,
    ) {
        let mut messages = Messages::new(1000);
        let mut found = Vec::new();
        for part in bytes.chunks(cut) {
            messages.push(part);
            while let Some(message) = messages.pop().expect("short") {
                found.push(message);
            }
        }
        let mut whole: Vec<_> = bytes.split(|b| *b == 0).map(<[u8]>::to_vec).collect();
        whole.pop();
        prop_assert_eq!(found, whole);
    }
}
