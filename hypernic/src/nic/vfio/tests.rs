use super::*;
use crate::worker::WOKEN;

#[test]
fn messages_are_looked_for_at_least_every_few_turns_and_whenever_somebody_called() {
    let mut looks = Looks::default();
    assert!(
        (0..10).all(|_| looks.next(0) == Look::All),
        "told of everything"
    );
    looks.watching = true;
    for _ in 0..10 {
        assert!((0..SPARED).all(|_| looks.next(0) == Look::Nowhere));
        assert_eq!(looks.next(0), Look::All);
    }
    assert_eq!(looks.next(WOKEN), Look::All);
    assert_eq!(looks.next(TRIED), Look::Messages);
    looks.watching = false;
    assert_eq!(looks.next(0), Look::All);
}
