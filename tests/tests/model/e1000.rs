//! The 82540EM model, driven by a driver that was written from the manual and knows nothing of
//! the model; frames are judged by an independent parser.

mod interrupts;
mod receive;
mod segmentation;
mod setup;
mod support;
mod transmit;
