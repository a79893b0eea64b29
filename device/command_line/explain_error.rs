//! `rnic explain-error`: what a diagnostic number means.

use crate::exit::Exit;
use crate::nearest::nearest;
use clap::Args;
use rnic_abi::diagnostic::{RULES, Rule, Severity};
use serde_json::json;

#[derive(Debug, Args)]
#[command(after_help = "\
The number stands in a command's completion, in the vendor_err of a failed work completion, in an asynchronous event, and
in the register LAST_DIAGNOSTIC.

Examples:
  rnic explain-error 430
  rnic explain-error 0x1ae             as a register shows it
  rnic explain-error RKeyInvalid
  rnic explain-error                   all of them, one a line
  rnic explain-error 430 --json

Exit: 0 explained; 2 there is no such number or name (the nearest is named).")]
pub struct ExplainOptions {
    /// Number, decimal or with 0x, or name [default: all].
    diagnostic: Option<String>,
    /// Print JSON, one object a line.
    #[arg(long)]
    json: bool,
}

pub fn run(options: &ExplainOptions) -> Exit {
    let rules: Vec<&Rule> = match &options.diagnostic {
        None => RULES.iter().collect(),
        Some(wanted) => match find(wanted) {
            Ok(rule) => vec![rule],
            Err(message) => {
                tell!("rnic explain-error: {message}");
                return Exit::Usage;
            }
        },
    };
    let text: String = rules
        .iter()
        .map(|rule| match (options.json, options.diagnostic.is_some()) {
            (true, _) => format!("{}\n", json(rule)),
            (false, true) => long(rule),
            (false, false) => format!("{} {}: {}\n", rule.number, rule.name, rule.sentence),
        })
        .collect();
    crate::output::print("explain-error", &text)
}

fn find(wanted: &str) -> Result<&'static Rule, String> {
    let hexadecimal = wanted.strip_prefix("0x").or_else(|| wanted.strip_prefix("0X"));
    let number = match hexadecimal {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => wanted.parse().ok(),
    };
    match number {
        Some(0) => Err("0 stands for no diagnostic".into()),
        Some(number) => rnic_abi::diagnostic::rule(number).ok_or_else(|| {
            let near = RULES.iter().min_by_key(|rule| rule.number.abs_diff(number));
            let near = near.map_or(String::new(), |rule| format!("; the nearest is {} {}", rule.number, rule.name));
            format!("there is no diagnostic {number}{near}")
        }),
        None => RULES.iter().find(|rule| rule.name.eq_ignore_ascii_case(wanted)).ok_or_else(|| {
            let near = nearest(wanted, RULES.iter().map(|rule| rule.name));
            let near = near.map_or(String::new(), |name| format!("; did you mean {name}?"));
            format!("there is no diagnostic {wanted:?}{near}")
        }),
    }
}

fn long(rule: &Rule) -> String {
    let Rule { number, name, sentence, section, usual_cause, .. } = rule;
    let costs = match rule.severity() {
        Severity::Warning => "a warning: the device goes on without it; a strict device stops",
        Severity::Error => "an error: what broke it fails, and its driver is told",
    };
    format!(
        "{number} {name}\n  what    {sentence}\n  cause   usually: {usual_cause}\n  costs   {costs}\n  rule    docs/hardware-abi.md, \"{section}\"\n"
    )
}

fn json(rule: &Rule) -> serde_json::Value {
    json!({
        "number": rule.number,
        "name": rule.name,
        "sentence": rule.sentence,
        "severity": rule.severity().name(),
        "section": rule.section,
        "usual_cause": rule.usual_cause,
    })
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn numbers_and_names_lead_to_the_rule_and_others_to_the_nearest() {
        for wanted in ["430", "0x1ae", "RKeyInvalid", "rkeyinvalid"] {
            assert_eq!(find(wanted).map(|rule| rule.name), Ok("RKeyInvalid"), "{wanted}");
        }
        for (wanted, words) in [
            ("434", "nearest is 433 RKeyPd"),
            ("99999", "nearest is"),
            ("0", "no diagnostic"),
            ("RKeyInvald", "did you mean RKeyInvalid?"),
            ("-1", "there is no diagnostic"),
            ("", "there is no diagnostic"),
            ("99999999999999", "there is no diagnostic"),
        ] {
            assert!(find(wanted).is_err_and(|error| error.contains(words)), "{wanted}");
        }
    }
}
