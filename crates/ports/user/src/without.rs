//! A program without the C library: it has no user network.

use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;

use rustix::process::Pid;

use crate::config::{UserConfig, UserError};

/// Would start processes of networks.
#[derive(Clone, Debug)]
pub struct Launcher(());

impl Launcher {
    /// See the program that has the library.
    #[must_use]
    pub fn new(_: OwnedFd) -> Self {
        Self(())
    }

    /// See the program that has the library.
    #[must_use]
    pub fn of_threads() -> Self {
        Self(())
    }

    /// See the program that has the library.
    ///
    /// # Errors
    /// Always.
    pub fn socket() -> io::Result<(OwnedFd, OwnedFd)> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A program without the C library has no such network.
///
/// # Errors
/// Always.
pub fn open(_: &UserConfig, _: &Launcher, _: bool) -> Result<port::Port, UserError> {
    Err(UserError::NotBuilt)
}

/// A program without the C library starts none.
///
/// # Errors
/// Always.
pub fn attend(
    _: OwnedFd,
    _: impl FnOnce() -> io::Result<()>,
    _: &dyn Fn() -> Result<Pid, String>,
    _: &dyn Fn(OwnedFd, Pid) -> i32,
) -> io::Result<Infallible> {
    Err(io::Error::other(UserError::NotBuilt))
}

/// A program without the C library is none.
pub fn serve(_: OwnedFd, _: impl FnOnce(&UserConfig) -> Result<(), String>, _: impl Fn() -> u64) {}
