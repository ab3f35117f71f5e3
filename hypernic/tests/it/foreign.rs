//! The control socket as an independent implementation of Varlink sees it: the crate `varlink`.

use std::sync::{Arc, RwLock};

use serde_json::{Value, json};
use varlink::{Connection, ErrorKind, MethodCall, OrgVarlinkServiceInterface};
use varlink_parser::IDL;

use crate::lab::Lab;

fn connect(lab: &Lab) -> Arc<RwLock<Connection>> {
    let address = format!("unix:{}", lab.control().display());
    Connection::with_address(&address).expect("connect")
}

fn call(to: &Arc<RwLock<Connection>>, method: &str, told: Value) -> Result<Value, varlink::Error> {
    let method = method.to_owned();
    MethodCall::<Value, Value, varlink::Error>::new(Arc::clone(to), method, told).call()
}

#[test]
fn it_finds_all_interfaces_and_can_parse_them() {
    let lab = Lab::with(|_| String::new());
    let mut service = varlink::OrgVarlinkServiceClient::new(connect(&lab));
    let info = service.get_info().expect("info");
    assert_eq!(info.product, "hypernic");
    assert!(info.interfaces.iter().any(|name| name == "io.hypernic.Nic"));
    for name in &info.interfaces {
        let reply = service.get_interface_description(name.to_string());
        let text = reply.expect("described").description.expect("text");
        let idl = IDL::try_from(text.as_str()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(idl.name, name);
        assert!(!idl.methods.is_empty());
    }
    let error = service.get_interface_description("io.hypernic.None");
    let error = error.expect_err("none").kind().clone();
    assert_eq!(
        error,
        ErrorKind::InterfaceNotFound("io.hypernic.None".into())
    );
}

#[test]
fn it_changes_the_host_and_understands_errors() {
    let lab = Lab::with(|_| String::new());
    let to = connect(&lab);
    let socket = lab.dir.path().join("n0.sock");
    let nic = json!({"name": "n0", "port": "switch:lan", "socket_path": socket});
    let added = |generation: u64| json!({"changed": true, "generation": generation});
    let lan = json!({"switch": {"name": "lan"}});
    assert_eq!(
        call(&to, "io.hypernic.Switch.Add", lan).expect("switch"),
        added(1)
    );
    let add = json!({"nic": nic});
    assert_eq!(
        call(&to, "io.hypernic.Nic.Add", add.clone()).expect("NIC"),
        added(2)
    );
    let again = call(&to, "io.hypernic.Nic.Add", add).expect("NIC");
    assert_eq!(again, json!({"changed": false, "generation": 2}));
    assert!(socket.exists());
    let list = call(&to, "io.hypernic.Nic.List", json!({})).expect("list");
    assert_eq!(list["nics"][0]["config"]["name"], "n0");
    assert_eq!(list["nics"][0]["connected"], false);
    let wrong = |method: &str, told: Value| {
        let error = call(&to, method, told).expect_err("refused");
        error.kind().clone()
    };
    let ErrorKind::InvalidParameter(why) = wrong("io.hypernic.Nic.Add", json!({"nick": 1})) else {
        panic!("another error");
    };
    assert!(why.contains("nick"), "{why}");
    let missing = wrong("io.hypernic.Nic.Burn", json!({}));
    assert_eq!(
        missing,
        ErrorKind::MethodNotFound("io.hypernic.Nic.Burn".into())
    );
    let ErrorKind::VarlinkErrorReply(reply) =
        wrong("io.hypernic.Switch.Remove", json!({"name": "lan"}))
    else {
        panic!("another error");
    };
    assert_eq!(reply.error.as_deref(), Some("io.hypernic.Control.InUse"));
    assert_eq!(reply.parameters.expect("parameters")["by"], json!(["n0"]));
}
