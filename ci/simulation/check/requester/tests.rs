use super::*;

fn sent(check: &mut RequesterCheck, psns: std::ops::Range<u32>, now_ns: u64) {
    psns.for_each(|psn| assert!(check.on_sent(psn & 0xff_ffff, now_ns).is_ok(), "{psn}"));
}

#[test]
fn a_row_a_nak_and_a_timeout_are_as_they_must_be() {
    let mut check = RequesterCheck::new(0xff_fffe, 16, 1000, 7);
    sent(&mut check, 0xff_fffe..0x100_0004, 0);
    assert!(check.on_answer(1, Answer::SequenceNak, 10));
    assert_eq!(check.on_sent(1, 20).unwrap().jump, Some(Jump::Nak));
    assert!(check.on_sent(1, 30).unwrap_err().contains("no NAK"));
    let mut check = RequesterCheck::new(0, 16, 1000, 7);
    sent(&mut check, 0..4, 0);
    assert!(check.on_sent(0, 999).is_err());
    let mut check = RequesterCheck::new(0, 16, 1000, 7);
    sent(&mut check, 0..4, 0);
    assert!(check.on_answer(1, Answer::Ack, 500));
    assert!(check.clone().on_sent(2, 999).is_err(), "the timer of what is answered is none any more");
    // From 1000 on the answer may have waited for a context while the first timer fired.
    assert!(check.on_sent(2, 1500).unwrap().again);
}

#[test]
fn nobody_skips_exceeds_the_window_or_comes_before_the_receiver_is_ready() {
    let mut check = RequesterCheck::new(0, 4, 1000, 7);
    sent(&mut check, 0..4, 0);
    assert!(check.clone().on_sent(5, 0).unwrap_err().contains("never was"));
    assert!(check.clone().on_sent(4, 0).unwrap_err().contains("window"));
    assert!(check.on_answer(2, Answer::ReceiverNotReady { delay_ns: 100 }, 50));
    assert!(check.clone().on_sent(2, 149).is_err());
    assert_eq!(check.on_sent(2, 150).unwrap().jump, Some(Jump::ReceiverNotReady));
    assert!(!check.on_answer(1, Answer::Ack, 160), "a ghost");
    assert!(!check.on_answer(9, Answer::Ack, 160), "nobody sent it");
}

#[test]
fn retries_are_counted() {
    let mut check = RequesterCheck::new(0, 4, 1000, 2);
    sent(&mut check, 0..1, 0);
    assert!(check.on_sent(0, 1000).is_ok() && check.on_sent(0, 2000).is_ok());
    assert!(check.on_sent(0, 3000).unwrap_err().contains("retry_cnt"));
    assert!(!check.may_have_given_up(2999) && check.may_have_given_up(3000));
    assert!(check.on_answer(0, Answer::SequenceNak, 1500) && check.may_have_given_up(2000));
    assert!(check.on_answer(0, Answer::ReceiverNotReady { delay_ns: 1 }, 1500) && !check.may_have_lost_patience(1));
    assert!(check.may_have_lost_patience(0) && check.on_answer(0, Answer::Ack, 1800));
    assert!(!check.may_have_given_up(9_000_000), "it had progress before");
}

#[test]
fn who_hears_late_may_have_gone_back_by_an_older_timer() {
    let late = RequesterCheck::new(0, 16, 1000, 7).lagging(500);
    for (mut check, right) in [(late, true), (RequesterCheck::new(0, 16, 1000, 7), false)] {
        sent(&mut check, 0..2, 0);
        assert!(check.on_answer(1, Answer::Ack, 900) && check.on_sent(2, 950).is_ok());
        assert_eq!(check.on_sent(2, 1100).is_ok(), right);
    }
}
