//! Programs that need nothing else: static ones, and the image that has nothing but them.

use std::path::{Path, PathBuf};
use std::process::Command;

use hypernic_tests::binary;
use hypernic_tests::installed::{apart, run};

/// Below the folder that cargo builds in.
fn built(path: &str) -> PathBuf {
    let binary = binary().unwrap();
    binary.ancestors().nth(2).unwrap().join(path)
}

/// Runs the program of a root in that root, with /proc.
fn within(root: &Path, words: &str) -> String {
    let outer = "mkdir -p \"$0/proc\" && mount -t proc p \"$0/proc\" && \
                 exec timeout -k 20 -s TERM 3 chroot \"$0\" /usr/bin/hypernic \"$@\"";
    let output = apart(outer)
        .arg(root)
        .args(words.split(' '))
        .output()
        .unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
#[ignore = "needs root, skopeo and an image: `make test-long`"]
fn long_the_image_is_whole_and_serves_where_nothing_else_is() {
    let image = format!("oci:{}", built("oci").display());
    let said = run(Command::new("skopeo").args(["inspect", &image])).unwrap();
    assert!(
        said.contains("\"org.opencontainers.image.title\": \"hypernic\""),
        "{said}"
    );
    // It checks every digest on the way.
    let dir = tempfile::tempdir().unwrap();
    let copy = format!("dir:{}", dir.path().join("copy").display());
    run(Command::new("skopeo").args(["--insecure-policy", "copy", &image, &copy])).unwrap();
    let root = dir.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let mut layers = Command::new("sh");
    let unpack = "for f in \"$0\"/*; do gzip -t \"$f\" 2>/dev/null && tar -xzf \"$f\" -C \"$1\"; done; [ -x \"$1/usr/bin/hypernic\" ]";
    run(layers
        .args(["-c", unpack])
        .arg(dir.path().join("copy"))
        .arg(&root))
    .unwrap();
    let program = root.join("usr/bin/hypernic");
    let kind = run(Command::new("readelf").args(["-l", "-d"]).arg(&program)).unwrap();
    assert!(
        !kind.contains("INTERP") && !kind.contains("NEEDED"),
        "{kind}"
    );
    assert!(within(&root, "--version").starts_with("hypernic "));
    let said = within(&root, "serve --sandbox strict /etc/hypernic/host.toml");
    assert!(
        said.contains("serving") && said.contains("signal 15: closing"),
        "{said}"
    );
    let said = within(
        &root,
        "run --sandbox strict --socket-path /run/hypernic/a --port null",
    );
    assert!(
        said.contains("serving") && said.contains("vfio-user-pci"),
        "{said}"
    );
    let said = within(&root, "run --socket-path /run/hypernic/a --port user");
    assert!(said.contains("has no user network"), "{said}");
}
