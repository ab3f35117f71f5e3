#![forbid(unsafe_code)]
//! vhost-user.
