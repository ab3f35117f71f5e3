use super::request::Request;

/// The bytes are not a whole, well-formed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}", name(*.request))]
pub struct Malformed {
    /// The request's number.
    pub request: u32,
    /// What is wrong with it.
    pub what: &'static str,
}

fn name(request: u32) -> &'static str {
    Request::from_u32(request).map_or("unknown request", Request::name)
}
