//! What bytes mean as a request, for who tries many of them.

use super::request::{self, Heard, Method, Names, Rules};

/// A request as it is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `HEAD` or `POST`.
    pub method: &'static str,
    /// Before the question mark.
    pub path: String,
    /// Behind it.
    pub query: String,
    /// The fields of its head, in order.
    pub fields: Vec<(String, String)>,
    /// What was sent with it.
    pub body: Vec<u8>,
}

/// Reads a request for `localhost`, this host's addresses or `nics.example`. `None`: more has to come. An error is the
/// whole answer.
pub fn hear(bytes: &[u8], posts: bool) -> Option<Result<Request, Vec<u8>>> {
    let rules = Rules {
        names: Names::ThisHost(vec!["nics.example".into()]),
        posts,
    };
    match request::parse(bytes, &rules) {
        Heard::More => None,
        Heard::Wrong(answer) => {
            let head = request::head(&answer, "", posts);
            Some(Err([head.as_bytes(), &answer.body].concat()))
        }
        Heard::Asked(asked) => Some(Ok(Request {
            method: match asked.method {
                Method::Get => "GET",
                Method::Head => "HEAD",
                Method::Post => "POST",
            },
            path: asked.path,
            query: asked.query,
            fields: asked.fields,
            body: asked.body,
        })),
    }
}
