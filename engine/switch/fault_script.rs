//! Faults on chosen packets: "drop the third request", as text and as a probe.
//!
//! In: a script, then the frames of one port, read but not changed. Out: what is to happen to each.
//! A script is a list of `ACTION:[KIND:]WHICH[@QPN]`, separated by commas. ACTION is `drop`, `corrupt`, `duplicate` or
//! `mark`; KIND is `request` (if left out), `response`, `ack`, `cnp` or `any`; WHICH is a number counted from 1, a range
//! `3-5`, or `psn:P` for the first packet with that PSN; `@QPN` counts only packets to that queue pair. Numbers are
//! decimal or `0x` hexadecimal. This is the only part of the switch that reads past IP.

use std::fmt;
use std::str::FromStr;

use rnic_wire::{IcrcCheck, Operation, ParsedPacket};
use thiserror::Error;

use crate::planted::planted;

/// What happens to a packet that a fault has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultAction {
    Drop,
    /// Flip a bit that the ICRC covers.
    Corrupt,
    Duplicate,
    /// Mark it Congestion Experienced, if it is capable of it.
    Mark,
}

/// Which packets a fault looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Request,
    /// Read responses and atomic acknowledges.
    Response,
    /// ACK, NAK and RNR NAK.
    Acknowledge,
    CongestionNotification,
    Any,
}

/// Which of the packets it looks at a fault chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Numbers { first: u64, last: u64 },
    Psn(u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Fault {
    action: FaultAction,
    kind: Kind,
    which: Which,
    dest_qp: Option<u32>,
    /// Packets looked at so far, or found by PSN.
    seen: u64,
}

/// A list of faults with what they have seen so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultScript(Vec<Fault>);

/// Why a text is not a fault script.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FaultScriptError {
    #[error("fault script: {fault:?} is not ACTION:[KIND:]WHICH[@QPN], as in drop:3 or drop:ack:2@0x11")]
    Shape { fault: String },
    #[error("fault script: {action:?} is not an action; they are drop, corrupt, duplicate, mark")]
    UnknownAction { action: String },
    #[error("fault script: {kind:?} is not a kind of packet; they are request, response, ack, cnp, any")]
    UnknownKind { kind: String },
    #[error("fault script: {text:?} is not a number up to {max}")]
    Number { text: String, max: u64 },
    #[error("fault script: packets are counted from 1 and ranges go upwards, not {first}-{last}")]
    EmptyRange { first: u64, last: u64 },
    #[error("fault script: more than {max} faults")]
    TooMany { max: usize },
}

const FAULTS_MAX: usize = 64;
const MAX_24_BITS: u64 = 0xff_ffff;

const ACTIONS: [(&str, FaultAction); 4] = [
    ("drop", FaultAction::Drop),
    ("corrupt", FaultAction::Corrupt),
    ("duplicate", FaultAction::Duplicate),
    ("mark", FaultAction::Mark),
];

const KINDS: [(&str, Kind); 5] = [
    ("request", Kind::Request),
    ("response", Kind::Response),
    ("ack", Kind::Acknowledge),
    ("cnp", Kind::CongestionNotification),
    ("any", Kind::Any),
];

impl FaultScript {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Looks at a frame. Every fault counts it that looks at its kind; the first that chooses it says what happens.
    pub fn probe(&mut self, frame: &[u8]) -> Option<FaultAction> {
        // A frame whose ICRC is wrong counts too: the script is about what passes here.
        let packet = rnic_wire::parse(frame, IcrcCheck::Trusted).ok()?;
        let mut action = None;
        for fault in &mut self.0 {
            if fault.chooses(&packet) {
                action = action.or(Some(fault.action));
            }
        }
        action
    }
}

impl Fault {
    fn chooses(&mut self, packet: &ParsedPacket<'_>) -> bool {
        let bth = &packet.headers.bth;
        if !self.kind.covers(packet.description.operation) || self.dest_qp.is_some_and(|qp| qp != bth.dest_qp) {
            return false;
        }
        match self.which {
            Which::Numbers { first, last } => {
                self.seen += 1;
                (first..=last).contains(&self.seen)
            }
            Which::Psn(psn) if self.seen == 0 && psn == bth.psn.get() => {
                self.seen = 1;
                true
            }
            Which::Psn(_) => false,
        }
    }
}

impl Kind {
    fn covers(self, operation: Operation) -> bool {
        let is = match operation {
            Operation::Acknowledge => Self::Acknowledge,
            Operation::CongestionNotification => Self::CongestionNotification,
            operation if operation.is_response() => Self::Response,
            _ => Self::Request,
        };
        self == Self::Any || self == is
    }
}

impl FromStr for FaultScript {
    type Err = FaultScriptError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let faults: Vec<Fault> = text.split(',').take(FAULTS_MAX + 1).map(str::parse).collect::<Result<_, _>>()?;
        if faults.len() > FAULTS_MAX {
            return Err(FaultScriptError::TooMany { max: FAULTS_MAX });
        }
        Ok(Self(faults))
    }
}

impl FromStr for Fault {
    type Err = FaultScriptError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let (chosen, dest_qp) = match text.split_once('@') {
            Some((chosen, qp)) => (chosen, Some(number(qp, MAX_24_BITS)? as u32)),
            None => (text, None),
        };
        let words: Vec<&str> = chosen.split(':').take(5).collect();
        let (action, kind, which) = match words[..] {
            [action, which] => (action, "request", numbers(which)?),
            [action, "psn", psn] => (action, "request", Which::Psn(number(psn, MAX_24_BITS)? as u32)),
            [action, kind, "psn", psn] => (action, kind, Which::Psn(number(psn, MAX_24_BITS)? as u32)),
            [action, kind, which] => (action, kind, numbers(which)?),
            _ => return Err(FaultScriptError::Shape { fault: text.to_owned() }),
        };
        let action =
            named(&ACTIONS, action).ok_or_else(|| FaultScriptError::UnknownAction { action: action.to_owned() })?;
        let kind = named(&KINDS, kind).ok_or_else(|| FaultScriptError::UnknownKind { kind: kind.to_owned() })?;
        Ok(Self { action, kind, which, dest_qp: dest_qp.filter(|_| !planted("fault_script_forgets_qp")), seen: 0 })
    }
}

fn named<T: Copy>(names: &[(&str, T)], name: &str) -> Option<T> {
    names.iter().find(|(known, _)| *known == name).map(|&(_, value)| value)
}

fn name_of<T: PartialEq>(names: &[(&'static str, T)], value: &T) -> &'static str {
    names.iter().find(|(_, known)| known == value).map_or("", |&(name, _)| name)
}

fn numbers(text: &str) -> Result<Which, FaultScriptError> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (number(first, u64::MAX)?, number(last, u64::MAX)?);
    if first == 0 || first > last {
        return Err(FaultScriptError::EmptyRange { first, last });
    }
    Ok(Which::Numbers { first, last })
}

fn number(text: &str, max: u64) -> Result<u64, FaultScriptError> {
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
    // `from_str_radix` would take a sign.
    let plain = digits.chars().all(|digit| digit.is_digit(radix));
    let value = u64::from_str_radix(digits, radix).ok().filter(|&value| plain && value <= max);
    value.ok_or_else(|| FaultScriptError::Number { text: text.to_owned(), max })
}

/// The script without what it has seen; parsing it again gives the same script.
impl fmt::Display for FaultScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, fault) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{}:{}:", name_of(&ACTIONS, &fault.action), name_of(&KINDS, &fault.kind))?;
            match fault.which {
                Which::Numbers { first, last } if first == last => write!(f, "{first}")?,
                Which::Numbers { first, last } => write!(f, "{first}-{last}")?,
                Which::Psn(psn) => write!(f, "psn:{psn:#x}")?,
            }
            if let Some(qp) = fault.dest_qp {
                write!(f, "@{qp:#x}")?;
            }
        }
        Ok(())
    }
}
