//! Who may ask: pages of other origins, and others on this host, may not.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::Error;
use crate::hex;
use crate::http::{Answer, Asked, Method};

/// What each answer says to the browser: nothing from elsewhere, no script but the page's files, no frame, and no text
/// that becomes markup, whatever a script does.
pub(super) const FIELDS: &str = "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; \
img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
require-trusted-types-for 'script'; trusted-types 'none'\r\n\
X-Frame-Options: DENY\r\n\
Referrer-Policy: no-referrer\r\n\
Cross-Origin-Opener-Policy: same-origin\r\n\
Cross-Origin-Resource-Policy: same-origin\r\n";

/// Bytes of a new key.
const LENGTH: usize = 16;

/// What a client has to know.
#[derive(Debug)]
pub(super) struct Guard {
    key: Option<String>,
}

/// Whether a request comes from the page itself, or from no page.
///
/// # Errors
/// It does not: the answer.
pub(super) fn from_here(asked: &Asked) -> Result<(), Answer> {
    let Some(host) = asked.field("host") else {
        return Err(Answer::line("400 Bad Request", "say which host is asked"));
    };
    let elsewhere = || Answer::line("403 Forbidden", "another origin may not ask");
    match asked.field("origin") {
        Some(origin) => {
            let ours = ["http://", "https://"].iter();
            let mut ours = ours.filter_map(|scheme| origin.strip_prefix(scheme));
            if !ours.any(|name| name.eq_ignore_ascii_case(host)) {
                return Err(elsewhere());
            }
        }
        // Browsers say so with each request that changes something.
        None if asked.method == Method::Post => return Err(elsewhere()),
        None => {}
    }
    Ok(())
}

impl Guard {
    /// Nothing.
    pub fn open() -> Self {
        Self { key: None }
    }

    /// The key of a file, or a new one.
    pub fn with_key(file: Option<&Path>) -> Result<Self, Error> {
        let key = match file {
            Some(file) => {
                let refused = |why: &str| {
                    Error::Host(format!("cannot take the key of {}: {why}", file.display()))
                };
                let text =
                    std::fs::read_to_string(file).map_err(|error| refused(&error.to_string()))?;
                let key = text.trim();
                let fine = key.bytes().all(|byte| byte.is_ascii_alphanumeric());
                if !fine || !(16..=128).contains(&key.len()) {
                    return Err(refused("write 16 to 128 letters and digits"));
                }
                key.to_owned()
            }
            None => {
                let mut bytes = [0; LENGTH];
                let read =
                    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
                read.map_err(|source| Error::Os {
                    what: "cannot make a key",
                    source,
                })?;
                hex::of(&bytes)
            }
        };
        Ok(Self { key: Some(key) })
    }

    /// The end of the page's address. A browser sends it nowhere.
    pub fn fragment(&self) -> String {
        self.key
            .as_ref()
            .map_or(String::new(), |key| format!("#key={key}"))
    }

    /// Whether a request for data may be answered.
    ///
    /// # Errors
    /// It may not: the answer.
    pub fn admit(&self, asked: &Asked) -> Result<(), Answer> {
        // What a browser asks for on behalf of another site, it says.
        if !matches!(
            asked.field("sec-fetch-site"),
            None | Some("same-origin" | "none")
        ) {
            return Err(Answer::line("403 Forbidden", "another site may not ask"));
        }
        let Some(key) = &self.key else { return Ok(()) };
        let given = asked
            .field("authorization")
            .and_then(|text| text.strip_prefix("Bearer "));
        match given.is_some_and(|given| same(given.as_bytes(), key.as_bytes())) {
            true => Ok(()),
            false => Err(Answer::line(
                "401 Unauthorized",
                "open the page with the address that hypernic web has printed: it has the key",
            )),
        }
    }
}

/// In a time that does not tell how much of it is right.
fn same(given: &[u8], key: &[u8]) -> bool {
    let differ = given
        .iter()
        .zip(key)
        .fold(0, |differ, (a, b)| differ | (a ^ b));
    given.len() == key.len() && std::hint::black_box(differ) == 0
}
