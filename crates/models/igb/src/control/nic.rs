//! A function put together of its parts.

use std::sync::Arc;

use model::{Control, Identity, Nic};

use crate::core::function::Function;
use crate::rx::Receiver;
use crate::tx::Sender;

/// A function taken apart.
pub(crate) fn nic(identity: Identity, control: Box<dyn Control>, function: Arc<Function>) -> Nic {
    let receive = Arc::new(Receiver::new(Arc::clone(&function)));
    Nic {
        identity,
        control,
        transmit: Box::new(Sender::new(function, Arc::clone(&receive))),
        receive,
        revision: 1,
    }
}
