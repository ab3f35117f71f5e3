//! The shortest way through: one frame out, one frame in.

use crate::common::*;

#[test]
fn one_frame_each_way() {
    let mut m = Machine::default();
    m.tx_on(8);
    m.rx_on(8, 0x8000);
    m.w(reg::IMS, 0x81);
    let out = plain(PEER, 200);
    m.poke(TX_BUFFERS, &out);
    m.tx_desc(0, TX_BUFFERS, legacy(200, EOP | IFCS | RS));
    m.w(reg::TDT, 1);
    assert_eq!(m.wire.take(), [out]);
    assert!(m.tx_done(0));
    assert_eq!(m.r(reg::TDH), 1);
    assert!(m.line());
    assert_eq!(m.r(reg::ICR) & 0x83, 0x03);
    assert!(!m.line());

    let input = plain(MAC, 100);
    assert_eq!(m.offer(&[&input]), 1);
    let (len, status, errors, _) = m.rx_status(0);
    assert_eq!((len, status & 3, errors), (104, 3, 0));
    assert_eq!(m.peek(RX_BUFFERS, 100), input);
    assert_eq!(m.r(reg::RDH), 1);
    assert!(m.line());
    assert_eq!(m.r(reg::ICR) & 0x80, 0x80);
}
