use proofs::proofs;

use super::passed;

proofs! {
    fn an_event_is_passed_when_it_lies_between_old_and_new(event: u16, old: u16, steps: u16) {
        // The entries used are `old` and those behind it, `steps` of them.
        let new = old.wrapping_add(steps);
        assert_eq!(passed(event, new, old), event.wrapping_sub(old) < steps);
    }
}
