//! Requests to the programs beside the daemon, `hypernic exporter` and `hypernic web`.

use hypernic::http::{Request, hear};

use crate::input::Input;

/// Bytes of a request at most: its head, and what is sent with it.
const MOST: usize = 12 << 10;
/// Bytes that are sent with one at most.
const BODY: usize = 4 << 10;
/// Fields that mean something only if there is one of them.
const SINGLE: [&str; 5] = [
    "host",
    "origin",
    "authorization",
    "content-length",
    "content-type",
];

/// A client that writes. The first byte says whether anything may be sent, and after which piece a look is taken; the
/// second how long a path is put before the rest, so that heads become as long as they may be.
///
/// What is not all there yet is waited for, and never for more than a request may have. A request that is there stays the
/// same whatever comes behind it, and what is none stays so. What is understood keeps the rules, and means the same when it
/// is written again. What is refused has one whole answer.
pub fn http_requests(data: &[u8]) {
    let mut input = Input::new(data);
    let (how, long) = (input.u8(), input.u8());
    let posts = how & 1 == 0;
    let mut sent = Vec::new();
    if long >= 224 {
        sent.extend_from_slice(b"GET /");
        sent.resize((8 << 10) - 96 + usize::from(long & 31), b'x');
    }
    sent.extend_from_slice(input.rest());
    // Some looks are enough for a long one.
    let step = (1 + usize::from(how >> 1) * 3).max(sent.len() / 32);
    let ends = (step..sent.len()).step_by(step).chain([sent.len()]);
    let mut before: Option<Result<Request, Vec<u8>>> = None;
    for end in ends {
        let heard = hear(&sent[..end], posts);
        match (&before, &heard) {
            (Some(Ok(was)), now) => {
                assert_eq!(now.as_ref().and_then(|now| now.as_ref().ok()), Some(was));
            }
            (Some(Err(_)), now) => assert!(matches!(now, Some(Err(_))), "heard after all"),
            (None, None) => assert!(end < MOST, "{end} bytes are waited behind"),
            (None, Some(_)) => {}
        }
        before = heard;
    }
    match before {
        Some(Ok(request)) => understood(&request, posts),
        Some(Err(answer)) => refused(&answer),
        None => {}
    }
}

fn understood(request: &Request, posts: bool) {
    let named = |name: &str| {
        let same = |(field, _): &&(String, String)| field.eq_ignore_ascii_case(name);
        request.fields.iter().filter(same).collect::<Vec<_>>()
    };
    for name in SINGLE {
        assert!(named(name).len() <= 1, "{name} is there twice");
    }
    assert!(posts || request.method != "POST");
    assert!(request.method == "POST" || request.body.is_empty());
    assert!(request.body.len() <= BODY && request.fields.len() <= 64);
    assert!(named("transfer-encoding").is_empty());
    if let [(_, length)] = named("content-length")[..] {
        assert_eq!(length.parse(), Ok(request.body.len()), "another length");
    }
    if let [(_, host)] = named("host")[..] {
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => host.rsplit_once(':').map_or(&**host, |(name, _)| name),
        };
        let known = ["localhost", "nics.example"];
        let known = known.iter().any(|known| name.eq_ignore_ascii_case(known));
        assert!(
            known || name.parse::<std::net::IpAddr>().is_ok(),
            "asked by {host}"
        );
    }
    assert!(!request.path.contains('?') && !request.path.contains(char::is_whitespace));
    let (method, path, query) = (request.method, &request.path, &request.query);
    let mut again = format!("{method} {path}?{query} HTTP/1.1\r\n");
    for (name, text) in &request.fields {
        again += &format!("{name}: {text}\r\n");
    }
    again += "\r\n";
    // What is no text takes more bytes when it is written again.
    if again.len() <= 8 << 10 {
        let again = [again.as_bytes(), &request.body].concat();
        assert_eq!(hear(&again, posts), Some(Ok(request.clone())));
    }
}

/// An answer has a head that says its length, which is that of what follows, and one line.
fn refused(answer: &[u8]) {
    let text = std::str::from_utf8(answer).expect("text");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let mut lines = head.split("\r\n");
    let status = lines
        .next()
        .and_then(|line| line.strip_prefix("HTTP/1.1 4"));
    assert!(status.is_some(), "{head}");
    let length = lines.find_map(|line| line.strip_prefix("Content-Length: "));
    assert_eq!(length.map(str::parse), Some(Ok(body.len())));
    assert_eq!(body.trim_end_matches('\n').lines().count(), 1, "{body:?}");
}
