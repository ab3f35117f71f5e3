//! Requests of HTTP/1, and what they are answered.

use httparse::{EMPTY_HEADER, Request, Status};

use crate::client::Exposition;

/// Most bytes of a request's head.
pub(super) const MOST: usize = 8 << 10;
/// Most fields of it.
const FIELDS: usize = 64;

/// What is wanted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// More bytes, to know that.
    More,
    /// The metrics; without the text for `HEAD`.
    Metrics { form: Exposition, head: bool },
    /// A page that says where the metrics are.
    Root,
    /// Nothing that there is: status, reason and a line for people.
    Wrong(&'static str, &'static str),
}

/// Reads a request. `local`: only this host may be meant by it.
pub(super) fn parse(bytes: &[u8], local: bool) -> Wanted {
    let mut fields = [EMPTY_HEADER; FIELDS];
    let mut request = Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(Status::Complete(_)) => {}
        Ok(Status::Partial) if bytes.len() < MOST => return Wanted::More,
        Ok(Status::Partial) => {
            return Wanted::Wrong(
                "431 Request Header Fields Too Large",
                "the request is too long",
            );
        }
        Err(_) => return Wanted::Wrong("400 Bad Request", "this is no request of HTTP/1"),
    }
    let field = |name: &str| {
        let mut all = request.headers.iter();
        let found = all.find(|field| field.name.eq_ignore_ascii_case(name));
        found.and_then(|field| std::str::from_utf8(field.value).ok())
    };
    if local && !field("host").is_none_or(is_this_host) {
        // DNS rebinding: a web page whose host name was made to resolve to this host.
        return Wanted::Wrong(
            "421 Misdirected Request",
            "this exporter is asked by address, or as localhost",
        );
    }
    let head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Wanted::Wrong("405 Method Not Allowed", "only GET and HEAD are known"),
    };
    let path = request.path.unwrap_or("/");
    match path.split('?').next() {
        Some("/metrics") => Wanted::Metrics {
            form: form(field("accept").unwrap_or("")),
            head,
        },
        Some("/") => Wanted::Root,
        _ => Wanted::Wrong("404 Not Found", "there is /metrics"),
    }
}

/// Whether a host is written as an address, or as `localhost`.
fn is_this_host(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => return rest.split(']').next().is_some_and(is_address),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || is_address(name)
}

fn is_address(text: &str) -> bool {
    text.parse::<std::net::IpAddr>().is_ok()
}

/// The text that an `Accept` prefers; the older one if it says nothing of the newer.
fn form(accept: &str) -> Exposition {
    let (mut open, mut plain) = (0.0, 0.0);
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or("");
        let mut quality = 1.0;
        let mut known = true;
        for part in parts {
            match part.split_once('=') {
                Some(("q", q)) => quality = q.parse().unwrap_or(0.0),
                Some(("version", version)) if kind == "application/openmetrics-text" => {
                    known = matches!(version, "1.0.0" | "0.0.1");
                }
                _ => {}
            }
        }
        match kind {
            "application/openmetrics-text" if known => open = f32::max(open, quality),
            "text/plain" | "text/*" => plain = f32::max(plain, quality),
            _ => {}
        }
    }
    if open > 0.0 && open >= plain {
        return Exposition::Openmetrics;
    }
    Exposition::Prometheus
}

/// An answer: its head, and its text.
pub(super) fn answer(status: &str, kind: &str, text: &str, head: bool) -> Vec<u8> {
    let allow = match status.starts_with("405") {
        true => "Allow: GET, HEAD\r\n",
        false => "",
    };
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{allow}\
         X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
        text.len()
    );
    if !head {
        answer += text;
    }
    answer.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
                       text/plain;version=0.0.4;q=0.3,*/*;q=0.2";

    fn asked(text: &str) -> Wanted {
        parse(text.as_bytes(), true)
    }

    #[test]
    fn the_form_is_negotiated() {
        use Exposition::{Openmetrics, Prometheus};
        for (accept, wanted) in [
            (NEW, Openmetrics),
            ("", Prometheus),
            ("*/*", Prometheus),
            ("application/openmetrics-text", Openmetrics),
            ("application/openmetrics-text;version=2.0.0", Prometheus),
            ("application/openmetrics-text;q=0.1, text/plain", Prometheus),
            ("application/openmetrics-text;q=0", Prometheus),
            ("application/openmetrics-text;q=x", Prometheus),
            (
                "application/vnd.google.protobuf;q=0.9, text/plain;q=0.2",
                Prometheus,
            ),
        ] {
            assert_eq!(form(accept), wanted, "{accept}");
        }
        let text =
            format!("GET /metrics?x=1 HTTP/1.1\r\nHost: localhost:9479\r\nAccept: {NEW}\r\n\r\n");
        let wanted = Wanted::Metrics {
            form: Openmetrics,
            head: false,
        };
        assert_eq!(asked(&text), wanted);
        for end in 0..text.len() {
            assert_eq!(asked(&text[..end]), Wanted::More, "{end}");
        }
    }

    #[test]
    fn what_is_no_request_or_not_for_us_has_its_error() {
        let wrong = |text: &str, status: &str| match asked(text) {
            Wanted::Wrong(said, _) => assert!(said.starts_with(status), "{text:?}: {said}"),
            other => panic!("{text:?}: {other:?}"),
        };
        wrong("GET /nowhere HTTP/1.1\r\n\r\n", "404");
        wrong("POST /metrics HTTP/1.1\r\n\r\n", "405");
        wrong("\0\0\0\0", "400");
        wrong("GET /metrics HTTP/9.9\r\n\r\n", "400");
        wrong(&format!("GET /{} HTTP/1.1\r\n", "x".repeat(MOST)), "431");
        let many = "a: b\r\n".repeat(FIELDS + 1);
        wrong(&format!("GET / HTTP/1.1\r\n{many}\r\n"), "400");
        for host in [
            "evil.example",
            "evil.example:9479",
            "127.0.0.1.evil.example",
        ] {
            wrong(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"), "421");
        }
        for host in ["127.0.0.1", "[::1]:9479", "LOCALHOST", "10.0.0.1:80"] {
            assert_eq!(
                asked(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")),
                Wanted::Root
            );
        }
        // An exporter that other hosts reach may be called by any name.
        let text = "GET / HTTP/1.1\r\nHost: host.example\r\n\r\n";
        assert_eq!(parse(text.as_bytes(), false), Wanted::Root);
    }
}
