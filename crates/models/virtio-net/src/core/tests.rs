//! Rings of both formats, with honest drivers and with others.

mod driver;
mod honest;
mod hostile;
mod kept;
