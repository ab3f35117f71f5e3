//! What is installed: unit files, the configuration that comes with them, and the package as a whole.

mod alone;
mod package;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use hypernic_tests::installed::{repository, run};
use hypernic_tests::{binary, scratch};

/// The most that `systemd-analyze security` may say, in tenths.
const EXPOSURE: &str = "15";

fn dist() -> PathBuf {
    repository("dist")
}

fn units() -> Vec<PathBuf> {
    let files = std::fs::read_dir(dist().join("systemd")).unwrap();
    let paths = files.map(|file| file.unwrap().path());
    let is_unit = |path: &PathBuf| {
        let kind = path.extension().and_then(|kind| kind.to_str());
        matches!(kind, Some("service" | "socket"))
    };
    let mut units: Vec<_> = paths.filter(is_unit).collect();
    units.sort();
    assert_eq!(units.len(), 7, "{units:?}");
    units
}

#[test]
fn units_parse() {
    let dir = scratch().unwrap();
    let mut words = Vec::new();
    for unit in units() {
        let name = unit.file_name().unwrap().to_str().unwrap();
        // The program is not installed here.
        let text = std::fs::read_to_string(&unit).unwrap();
        let text = text.replace("/usr/bin/hypernic", "/bin/true");
        let copy = dir.path().join(name);
        std::fs::write(&copy, text).unwrap();
        std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o644)).unwrap();
        words.push(dir.path().join(name.replace('@', "@tenant")));
    }
    let mut command = Command::new("systemd-analyze");
    let said = run(command.args(["verify", "--man=no"]).args(words)).unwrap();
    // It warns of what it does not know, and that is no error to it.
    let ours = |line: &&str| line.contains("hypernic");
    assert_eq!(
        said.lines().filter(ours).collect::<Vec<_>>(),
        Vec::<&str>::new()
    );
}

#[test]
fn units_leave_little_exposed() {
    for unit in units() {
        if unit.extension().is_some_and(|kind| kind == "service") {
            let mut command = Command::new("systemd-analyze");
            command.args(["security", "--offline=true", "--no-pager"]);
            command.arg(format!("--threshold={EXPOSURE}")).arg(unit);
            let said = run(&mut command).unwrap();
            assert!(said.contains("exposure level"), "{said}");
        }
    }
}

#[test]
fn the_configuration_that_is_installed_can_be_served() {
    let dir = scratch().unwrap();
    let file = dir.path().join("host.toml");
    let text = std::fs::read_to_string(dist().join("host.toml")).unwrap();
    // The users and groups of the package are not here.
    let words = [
        ("\"hypernic-exporter\"", "\"root\""),
        ("\"hypernic-web\"", "\"root\""),
        ("\"@hypernic\"", "\"@root\""),
        ("\"kvm\"", "\"root\""),
    ];
    let here = |text: String, (word, other): (&str, &str)| {
        assert!(text.contains(word), "{word}: {text}");
        text.replace(word, other)
    };
    let text = words.into_iter().fold(text, here);
    let check = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(binary().unwrap());
        run(command.args(["serve", "--check"]).arg(&file)).unwrap()
    };
    check(&text);
    // So can what it has as an example.
    let (before, example) = text.split_once("# [[switch]]").unwrap();
    let example = format!("[[switch]]{example}")
        .replace("\n# ", "\n")
        .replace("\n#\n", "\n\n");
    let said = check(&format!("{before}{example}"));
    assert!(said.contains("web"), "{said}");
}
