//! Requests of HTTP/1.

use std::net::IpAddr;

use httparse::{EMPTY_HEADER, Request, Status};

use super::answer::Answer;

/// Most bytes of a request's head.
const HEAD: usize = 8 << 10;
/// Most bytes of what is sent with it.
const BODY: usize = 4 << 10;
/// Most bytes of a request.
pub(super) const MOST: usize = HEAD + BODY;
/// Most fields of it.
const FIELDS: usize = 64;

/// By which names (`Host`) clients may ask.
#[derive(Debug)]
pub(crate) enum Names {
    Any,
    /// Addresses, `localhost`, and these. So no web page reads the answers through a browser on this host, by a name of
    /// its own that was made to resolve to this host (DNS rebinding).
    ThisHost(Vec<String>),
}

/// What is a request.
#[derive(Debug)]
pub(crate) struct Rules {
    pub names: Names,
    /// There is something to `POST`.
    pub posts: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Head,
    Post,
}

/// A request.
#[derive(Debug)]
pub(crate) struct Asked {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub body: Vec<u8>,
    pub(super) fields: Vec<(String, String)>,
}

impl Asked {
    /// A field's text; none, if it is not there or no text.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut all = self.fields.iter();
        let found = all.find(|(field, _)| field.eq_ignore_ascii_case(name));
        found.map(|(_, text)| text.as_str())
    }

    /// A word of the query, as it was encoded.
    pub fn word(&self, name: &str) -> Option<&str> {
        let mut words = self
            .query
            .split('&')
            .filter_map(|word| word.split_once('='));
        words
            .find(|(word, _)| *word == name)
            .map(|(_, value)| value)
    }
}

/// What has come so far.
pub(super) enum Heard {
    /// Not all of it.
    More,
    Asked(Asked),
    Wrong(Answer),
}

fn wrong(status: &'static str, why: &str) -> Heard {
    Heard::Wrong(Answer::line(status, why))
}

/// Fields that mean something only if there is one of them.
const SINGLE: &[&str] = &[
    "host",
    "origin",
    "authorization",
    "content-length",
    "content-type",
];

/// Reads a request.
pub(super) fn parse(bytes: &[u8], rules: &Rules) -> Heard {
    let mut fields = [EMPTY_HEADER; FIELDS];
    let mut request = Request::new(&mut fields);
    let too_long = || {
        wrong(
            "431 Request Header Fields Too Large",
            "the request is too long",
        )
    };
    let head = match request.parse(bytes) {
        Ok(Status::Complete(head)) if head <= HEAD => head,
        Ok(Status::Partial) if bytes.len() < HEAD => return Heard::More,
        Ok(_) => return too_long(),
        Err(_) => return wrong("400 Bad Request", "this is no request of HTTP/1"),
    };
    let all = request.headers.iter();
    let text = |field: &httparse::Header<'_>| {
        let text = String::from_utf8_lossy(field.value).into_owned();
        (field.name.to_owned(), text)
    };
    let fields: Vec<_> = all.map(text).collect();
    for name in SINGLE {
        let same = |(field, _): &&(String, String)| field.eq_ignore_ascii_case(name);
        if fields.iter().filter(same).count() > 1 {
            return wrong("400 Bad Request", "a field is there twice");
        }
    }
    let path = request.path.unwrap_or("/");
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let mut asked = Asked {
        method: Method::Get,
        path: path.to_owned(),
        query: query.to_owned(),
        body: Vec::new(),
        fields,
    };
    if !asked
        .field("host")
        .is_none_or(|host| rules.names.have(host))
    {
        return wrong("421 Misdirected Request", "ask by address, or as localhost");
    }
    asked.method = match request.method {
        Some("GET") => Method::Get,
        Some("HEAD") => Method::Head,
        Some("POST") if rules.posts => Method::Post,
        _ => return wrong("405 Method Not Allowed", "this method is not known here"),
    };
    let body = &bytes[head..];
    match length(&asked) {
        Err(heard) => heard,
        Ok(length) if body.len() < length => Heard::More,
        Ok(length) => {
            asked.body = body[..length].to_vec();
            Heard::Asked(asked)
        }
    }
}

/// How much comes behind the head.
fn length(asked: &Asked) -> Result<usize, Heard> {
    if asked.field("transfer-encoding").is_some() {
        return Err(wrong(
            "411 Length Required",
            "say the length of what you send",
        ));
    }
    let length = match (asked.field("content-length"), asked.method) {
        (Some(length), _) => length,
        (None, Method::Post) => {
            return Err(wrong(
                "411 Length Required",
                "say the length of what you send",
            ));
        }
        (None, _) => return Ok(0),
    };
    let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    match length.parse() {
        Ok(0) => Ok(0),
        Ok(_) if asked.method != Method::Post => {
            Err(wrong("400 Bad Request", "nothing is sent with this method"))
        }
        Ok(length) if length <= BODY && digits => Ok(length),
        _ if digits => Err(wrong("413 Content Too Large", "this is too much")),
        _ => Err(wrong("400 Bad Request", "this is no length")),
    }
}

impl Names {
    fn have(&self, host: &str) -> bool {
        let Names::ThisHost(more) = self else {
            return true;
        };
        let name = match host.strip_prefix('[') {
            Some(rest) => return rest.split(']').next().is_some_and(is_address),
            None => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        let known = |known: &String| known.eq_ignore_ascii_case(name);
        name.eq_ignore_ascii_case("localhost") || is_address(name) || more.iter().any(known)
    }
}

fn is_address(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

/// The head of an answer. `posts`: what the site knows besides `GET` and `HEAD`.
pub(super) fn head(answer: &Answer, fields: &str, posts: bool) -> String {
    let allow = match (answer.status.starts_with("405"), posts) {
        (true, false) => "Allow: GET, HEAD\r\n",
        (true, true) => "Allow: GET, HEAD, POST\r\n",
        _ => "",
    };
    format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}{fields}\
         X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
        answer.status,
        answer.kind,
        answer.body.len()
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rules(posts: bool) -> Rules {
        Rules {
            names: Names::ThisHost(vec!["nics.example".into()]),
            posts,
        }
    }

    #[track_caller]
    fn asked(text: &str, posts: bool) -> Asked {
        match parse(text.as_bytes(), &rules(posts)) {
            Heard::Asked(asked) => asked,
            Heard::More => panic!("{text:?}: more"),
            Heard::Wrong(answer) => panic!("{text:?}: {}", answer.status),
        }
    }

    #[track_caller]
    fn refused(text: &str, posts: bool, status: &str) {
        match parse(text.as_bytes(), &rules(posts)) {
            Heard::Wrong(answer) => assert!(
                answer.status.starts_with(status),
                "{text:?}: {}",
                answer.status
            ),
            _ => panic!("{text:?} is heard"),
        }
    }

    #[test]
    fn what_is_no_request_or_not_for_us_has_its_error() {
        refused("POST /metrics HTTP/1.1\r\n\r\n", false, "405");
        refused("PUT /metrics HTTP/1.1\r\n\r\n", true, "405");
        refused("\0\0\0\0", false, "400");
        refused("GET /metrics HTTP/9.9\r\n\r\n", false, "400");
        refused(
            &format!("GET /{} HTTP/1.1\r\n", "x".repeat(HEAD)),
            false,
            "431",
        );
        refused(
            &format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(HEAD)),
            false,
            "431",
        );
        let many = "a: b\r\n".repeat(FIELDS + 1);
        refused(&format!("GET / HTTP/1.1\r\n{many}\r\n"), false, "400");
        for host in [
            "evil.example",
            "evil.example:9479",
            "127.0.0.1.evil.example",
            "[evil]",
        ] {
            refused(
                &format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"),
                false,
                "421",
            );
        }
        for host in [
            "127.0.0.1",
            "[::1]:9479",
            "LOCALHOST",
            "10.0.0.1:80",
            "Nics.example:1",
        ] {
            let asked = asked(
                &format!("GET /a?b=c&d=e HTTP/1.1\r\nHost: {host}\r\n\r\n"),
                false,
            );
            assert_eq!(
                (asked.path.as_str(), asked.word("d"), asked.word("b=c&d")),
                ("/a", Some("e"), None)
            );
            assert_eq!(asked.field("HOST"), Some(host));
        }
        // A server that other hosts reach may be called by any name.
        let text = "GET / HTTP/1.1\r\nHost: host.example\r\n\r\n";
        let any = Rules {
            names: Names::Any,
            posts: false,
        };
        assert!(matches!(parse(text.as_bytes(), &any), Heard::Asked(_)));
        for name in [
            "Host: localhost",
            "Origin: http://localhost",
            "Content-Length: 0",
            "Authorization: x",
        ] {
            refused(
                &format!("GET / HTTP/1.1\r\n{name}\r\n{name}\r\n\r\n"),
                true,
                "400",
            );
        }
    }

    #[test]
    fn what_is_sent_has_a_length_and_no_more_than_there_is_room_for() {
        let post = |fields: &str, body: &str| {
            format!("POST /x HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\n{body}")
        };
        assert_eq!(
            asked(&post("Content-Length: 2", "{}rest"), true).body,
            b"{}"
        );
        let text = post("Content-Length: 2", "{}");
        for end in 0..text.len() {
            assert!(
                matches!(parse(&text.as_bytes()[..end], &rules(true)), Heard::More),
                "{end}"
            );
        }
        refused(&post("A: b", "{}"), true, "411");
        refused(
            &post("Transfer-Encoding: chunked", "2\r\n{}\r\n0\r\n\r\n"),
            true,
            "411",
        );
        refused(
            &post("Content-Length: 2\r\nTransfer-Encoding: chunked", "{}"),
            true,
            "411",
        );
        for length in ["4097", "99999999999999999999999"] {
            refused(&post(&format!("Content-Length: {length}"), ""), true, "413");
        }
        for length in ["-1", "+1", "0x2", "1, 2", ""] {
            refused(
                &post(&format!("Content-Length: {length}"), "{}"),
                true,
                "400",
            );
        }
        refused("GET / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", true, "400");
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_odd(bytes in prop::collection::vec(any::<u8>(), 0..200), begin in 0..3usize) {
            let begin = ["", "GET / HTTP/1.1\r\n", "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: "][begin];
            let _ = parse(&[begin.as_bytes(), &bytes].concat(), &rules(true));
        }
    }
}
