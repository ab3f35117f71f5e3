//! Reads the machine's own apt configuration to learn which Debian mirror it uses (sources.list(5)).

use std::fs;
use std::path::Path;

/// A Debian archive this machine is configured to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// The archive's URI as apt writes it.
    pub uri: String,
    /// The `Signed-By` value that goes with it: a key ring's path or an embedded key, if one is named.
    pub signed_by: Option<String>,
}

/// Suites of Debian's main archive; anything else (security, third parties, other distributions) does not
/// carry the packages a guest is made of.
const SUITES: [&str; 11] = [
    "stable",
    "oldstable",
    "testing",
    "unstable",
    "sid",
    "bullseye",
    "bookworm",
    "trixie",
    "forky",
    "duke",
    "rc-buggy",
];

/// Reads one-line style (`.list`): `deb [options] uri suite components...`.
#[must_use]
pub fn parse_list(text: &str) -> Vec<Mirror> {
    let mut mirrors = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let Some(rest) = line
            .strip_prefix("deb")
            .filter(|r| r.starts_with([' ', '\t']))
        else {
            continue;
        };
        let rest = rest.trim_start();
        let (options, rest) = match rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
            Some((options, rest)) => (options, rest),
            None => ("", rest),
        };
        let words: Vec<&str> = rest.split_whitespace().collect();
        let [uri, suite, components @ ..] = words.as_slice() else {
            continue;
        };
        let option = |name: &str| {
            options.split_whitespace().find_map(|o| {
                let (key, value) = o.split_once('=')?;
                (key == name).then(|| value.to_owned())
            })
        };
        if is_debian(&[suite], components) {
            mirrors.push(Mirror {
                uri: (*uri).to_owned(),
                signed_by: option("signed-by"),
            });
        }
    }
    mirrors
}

/// Reads deb822 style (`.sources`): stanzas of `Field: value` with continuation lines.
#[must_use]
pub fn parse_deb822(text: &str) -> Vec<Mirror> {
    let mut mirrors = Vec::new();
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in text.lines().chain([""]) {
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            mirrors.extend(stanza(&fields));
            fields.clear();
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = fields.last_mut() {
                value.push('\n');
                value.push_str(line);
            }
        } else if let Some((key, value)) = line.split_once(':') {
            fields.push((key.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    mirrors
}

fn stanza(fields: &[(String, String)]) -> Vec<Mirror> {
    let get = |name: &str| {
        let field = fields.iter().find(|(key, _)| key == name);
        field.map_or("", |(_, value)| value.as_str())
    };
    let words = |name| get(name).split_whitespace().collect::<Vec<_>>();
    let enabled = !get("enabled").eq_ignore_ascii_case("no");
    if !enabled
        || !words("types").contains(&"deb")
        || !is_debian(&words("suites"), &words("components"))
    {
        return Vec::new();
    }
    let signed_by = Some(get("signed-by").to_owned()).filter(|s| !s.is_empty());
    let uris = words("uris").into_iter();
    uris.map(|uri| Mirror {
        uri: uri.to_owned(),
        signed_by: signed_by.clone(),
    })
    .collect()
}

fn is_debian(suites: &[&str], components: &[&str]) -> bool {
    suites.iter().any(|s| SUITES.contains(s)) && components.contains(&"main")
}

/// The Debian mirrors named under an apt configuration folder (`/etc/apt`), best first. Sources that need a
/// medium (`cdrom:`, `file:`, `copy:`) are left out, as they hold one release only.
#[must_use]
pub fn mirrors(etc_apt: &Path) -> Vec<Mirror> {
    let mut found: Vec<Mirror> = Vec::new();
    let mut read = |path: &Path| {
        let Ok(text) = fs::read_to_string(path) else {
            return;
        };
        let more = match path.extension().and_then(|e| e.to_str()) {
            Some("list") => parse_list(&text),
            Some("sources") => parse_deb822(&text),
            _ => return,
        };
        for mirror in more {
            let scheme = mirror.uri.split(':').next().unwrap_or_default();
            let medium = ["cdrom", "file", "copy"].contains(&scheme);
            if !medium && !found.contains(&mirror) {
                found.push(mirror);
            }
        }
    };
    read(&etc_apt.join("sources.list"));
    let parts = fs::read_dir(etc_apt.join("sources.list.d"));
    let mut parts: Vec<_> = parts.into_iter().flatten().flatten().collect();
    parts.sort_by_key(fs::DirEntry::file_name);
    for part in parts {
        read(&part.path());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirror(uri: &str, signed_by: Option<&str>) -> Mirror {
        Mirror {
            uri: uri.into(),
            signed_by: signed_by.map(Into::into),
        }
    }

    #[test]
    fn one_line_style() {
        let text = "\
# deb http://commented.example/debian trixie main
deb-src http://src.example/debian trixie main
deb http://a.example/debian bookworm main contrib # trailing
deb [arch=amd64 signed-by=/k.gpg] https://b.example/debian/ trixie main
deb http://a.example/debian-security bookworm-security main
deb [trusted=yes] http://vendor.example/apt nodistro main
deb http://c.example/debian sid non-free
deb
";
        assert_eq!(
            parse_list(text),
            [
                mirror("http://a.example/debian", None),
                mirror("https://b.example/debian/", Some("/k.gpg"))
            ]
        );
    }

    #[test]
    fn deb822_style() {
        let text = "\
Types: deb deb-src
# a comment inside
URIs: http://a.example/debian http://b.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://a.example/debian-security
Suites: bookworm-security
Components: main

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: trixie
Components: main


Types: deb
URIs: http://c.example/debian
Suites: trixie
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQINB
 -----END PGP PUBLIC KEY BLOCK-----";
        let keyring = Some("/usr/share/keyrings/debian-archive-keyring.gpg");
        let found = parse_deb822(text);
        assert_eq!(found[0], mirror("http://a.example/debian", keyring));
        assert_eq!(found[1], mirror("http://b.example/debian", keyring));
        assert_eq!(found.len(), 3);
        let key = found[2].signed_by.as_deref().unwrap();
        assert!(
            key.starts_with("\n -----BEGIN") && key.ends_with("-----END PGP PUBLIC KEY BLOCK-----")
        );
    }

    #[test]
    fn both_styles_are_found_in_a_folder_and_media_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let parts = dir.path().join("sources.list.d");
        fs::create_dir(&parts).unwrap();
        fs::write(
            dir.path().join("sources.list"),
            "deb cdrom:[Debian 12]/ bookworm main\n",
        )
        .unwrap();
        fs::write(
            parts.join("b.sources"),
            "Types: deb\nURIs: http://b.example/debian\nSuites: trixie\nComponents: main\n",
        )
        .unwrap();
        fs::write(
            parts.join("a.list"),
            "deb http://a.example/debian trixie main\n",
        )
        .unwrap();
        fs::write(
            parts.join("c.bak"),
            "deb http://no.example/debian trixie main\n",
        )
        .unwrap();
        let uris: Vec<_> = mirrors(dir.path()).into_iter().map(|m| m.uri).collect();
        assert_eq!(uris, ["http://a.example/debian", "http://b.example/debian"]);
        assert!(mirrors(Path::new("/nonexistent")).is_empty());
    }
}
