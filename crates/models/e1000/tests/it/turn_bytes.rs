//! What one turn of the transmitter may take is bounded in bytes too.

use crate::common::{Machine, MachineExt, PEER, TX_BUFFERS, reg};
use model::{Progress, TURN_BYTES};

#[test]
fn long_frames_end_a_turn_before_many_of_them_do() {
    const LEN: usize = 9000;
    let mut m = Machine::default();
    m.tx_on(256);
    m.poke(TX_BUFFERS, &crate::common::plain(PEER, LEN));
    for i in 0..255 {
        let command = crate::common::EOP | crate::common::IFCS | crate::common::RS;
        m.tx_desc(i, TX_BUFFERS, crate::common::legacy(LEN as u16, command));
    }
    m.nic
        .control
        .write(&m.env, 0, reg::TDT, &255u32.to_le_bytes());
    m.nic.control.take_work();
    let (mut turns, mut sent) = (0, 0);
    loop {
        let progress = m.nic.transmit.run(&m.env, &m.wire, 256);
        let frames = m.wire.take().len();
        // The frame that crosses the bound is whole.
        assert!(frames * LEN <= TURN_BYTES + LEN, "{frames} in one turn");
        turns += 1;
        sent += frames;
        if progress == Progress::Idle {
            break;
        }
        assert_eq!((progress, frames), (Progress::More, TURN_BYTES / LEN + 1));
    }
    assert_eq!((turns, sent), (6, 255));
}
