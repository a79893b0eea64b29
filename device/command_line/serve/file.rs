//! The TOML file of `rnic serve`: read, with a sentence for each mistake that names the line, what is wrong there, and
//! what would be right; and written back.

use super::configuration::Configuration;
use crate::nearest::nearest;
use serde::Deserialize;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use toml::Spanned;

pub fn read(path: &Path) -> Result<Configuration, String> {
    const LARGEST_BYTES: u64 = 1 << 20;
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut text = String::new();
    // A device or a pipe has no size that could be asked for.
    let read = File::open(path).and_then(|file| file.take(LARGEST_BYTES + 1).read_to_string(&mut text));
    if read.map_err(failed)? as u64 > LARGEST_BYTES {
        return Err(format!("{}: more than {LARGEST_BYTES} bytes are no configuration", path.display()));
    }
    parse(&text).map_err(|mistake| format!("{}{mistake}", path.display()))
}

/// The configuration in `text`; a mistake begins with `:LINE: `.
pub fn parse(text: &str) -> Result<Configuration, String> {
    let configuration: Configuration = toml::from_str(text).map_err(|error| explain(text, &error))?;
    match repeated_name(text) {
        Some(mistake) => Err(mistake),
        None => Ok(configuration),
    }
}

/// The same as TOML that [`parse`] reads back as the same, with the keys that have no value as comments.
pub fn write(configuration: &Configuration) -> Result<String, String> {
    let set =
        toml::to_string(configuration).map_err(|error| format!("the configuration cannot be written: {error}"))?;
    let receive = configuration.adapters.last().map(|adapter| &adapter.receive);
    let lacks = |key: bool, text: &'static str| if key { "" } else { text };
    let top =
        [lacks(configuration.capture.is_some(), CAPTURE), lacks(!configuration.plain_ports.is_empty(), PLAIN_PORTS)];
    let of_adapter = [
        lacks(receive.is_none_or(|receive| receive.reorder.is_some()), REORDER),
        lacks(receive.is_none_or(|receive| receive.rate.is_some()), RATE),
    ];
    Ok(top.concat() + &set + &of_adapter.concat())
}

const CAPTURE: &str = "# capture = \"frames.pcapng\"\n";
const PLAIN_PORTS: &str = "# plain_ports = [\"P\"]\n";
const REORDER: &str = "
# Of the adapter above; each adapter may have it.
# [adapter.receive.reorder]
# probability = 0.01
# frames = 3
# timeout_us = 1000
";
const RATE: &str = "
# Of the adapter above; each adapter may have it, with or without the marking.
# [adapter.receive.rate]
# bits_per_second = 10000000000
# queue_bytes = 1048576
# [adapter.receive.rate.marking]
# min_bytes = 65536
# max_bytes = 524288
# probability = 0.1
";

fn explain(text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map_or(1, |span| line_of(text, span.start));
    format!(":{line}: {}", cure(error.message()))
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count()
}

/// serde says which names it knows; the one that was meant is named first.
fn cure(message: &str) -> String {
    let message = message.replace('\n', " ");
    let Some(rest) = message.strip_prefix("unknown field ") else { return message };
    let mut quoted = rest.split('`').skip(1).step_by(2);
    let unknown = quoted.next().unwrap_or_default();
    let known: Vec<&str> = quoted.collect();
    let meant = nearest(unknown, known.iter().copied()).map(|name| format!("; did you mean `{name}`?"));
    format!("there is no key `{unknown}` here{} Keys: {}", meant.unwrap_or_else(|| ".".into()), known.join(", "))
}

fn repeated_name(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Names {
        #[serde(default)]
        adapter: Vec<Name>,
    }
    #[derive(Deserialize)]
    struct Name {
        name: Spanned<String>,
    }
    let names = toml::from_str::<Names>(text).ok()?.adapter;
    let (at, twice) = names
        .iter()
        .enumerate()
        .find(|(at, later)| names[..*at].iter().any(|earlier| earlier.name.get_ref() == later.name.get_ref()))?;
    let first = names[..at].iter().find(|earlier| earlier.name.get_ref() == twice.name.get_ref())?;
    let line = |name: &Name| line_of(text, name.name.span().start);
    Some(format!(
        ":{}: the adapter {:?} is there already, in line {}: give each a name of its own",
        line(twice),
        twice.name.get_ref(),
        line(first)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
capture = "wire.pcapng"

[switch]
ring_frames = 64

[[adapter]]
name = "left"
mac = "02:00:00:00:00:01"
mtu = 1024
gids = ["10.0.0.1", "fe80::1"]
link = { generation = 4, width = 8 }
caches = { qp = 1 }

[adapter.receive]
loss = 0.01
reorder = { probability = 0.5, frames = 3 }
rate = { bits_per_second = 1000000, marking = { min_bytes = 1000, max_bytes = 2000, probability = 0.1 } }

[[adapter]]
name = "right"
"#;

    #[test]
    fn what_is_written_is_read_back_as_the_same() {
        for text in ["", WHOLE] {
            let configuration = parse(text).expect("right");
            let written = write(&configuration).expect("written");
            assert_eq!(parse(&written), Ok(configuration), "{written}");
        }
        let names = |text| parse(text).expect("right").adapters.iter().map(|a| a.name.to_string()).collect::<Vec<_>>();
        assert_eq!(names(""), ["A", "B"]);
        assert_eq!(names(WHOLE), ["left", "right"]);
    }

    /// Every key stands in what is printed: with its value, or as a comment that is right as it stands.
    #[test]
    fn what_has_no_value_is_a_comment_to_be_used() {
        let written = write(&parse("").expect("right")).expect("written");
        let used: String = written
            .lines()
            .map(|line| {
                line.strip_prefix("# ").filter(|rest| rest.contains(['=', '['])).unwrap_or(line).to_owned() + "\n"
            })
            .collect();
        let configuration = parse(&used).unwrap_or_else(|mistake| panic!("{mistake}\n{used}"));
        let receive = &configuration.adapters[1].receive;
        assert!(configuration.capture.is_some() && configuration.plain_ports.len() == 1, "{used}");
        assert!(
            receive.reorder.is_some() && receive.rate.as_ref().is_some_and(|rate| rate.marking.is_some()),
            "{used}"
        );
        assert!(!write(&configuration).expect("written").contains('#'), "nothing is left to be named");
    }

    /// The line, and the words that must stand in the sentence.
    #[test]
    fn every_mistake_names_its_line_and_its_cure() {
        let mistakes: &[(&str, usize, &[&str])] = &[
            ("[switch]\nring_frame = 4", 2, &["`ring_frame`", "did you mean `ring_frames`"]),
            ("[swich]", 1, &["`swich`", "did you mean `switch`"]),
            ("\n[[adapter]]\nname = \"A\"\nmtu = 1500", 4, &["1500", "2048 or 4096"]),
            ("[[adapter]]\nname = \"A\"\nlink = { generation = 6 }", 3, &["6", "1 to 5"]),
            ("[[adapter]]\nname = \"A\"\n[adapter.receive]\nloss = 2.0", 4, &["0.0 to 1.0"]),
            ("[[adapter]]\nname = \"A\"\n[adapter.receive]\nlos = 0.1", 4, &["did you mean `loss`"]),
            ("[[adapter]]\nname = \"a b\"", 2, &["no name for an adapter"]),
            ("[[adapter]]\nname = \"A\"\n[[adapter]]\nname = \"A\"", 4, &["line 2", "name of its own"]),
            ("[[adapter]]\nmtu = 256", 1, &["missing field `name`"]),
            ("[[adapter]]\nname = \"A\"\nmac = \"x\"", 3, &["02:00:00:00:00:01"]),
            ("[[adapter]]\nname = \"A\"\ngids = [\"10.0.0.1\", \"10.0.0\"]", 3, &["10.0.0.1"]),
            ("[[adapter]]\nname = \"A\"\nmtu = -1", 3, &["-1"]),
            ("[[adapter]]\nname = \"A\"\nmtu = \"big\"", 3, &["string", "u64"]),
            ("capture = 3", 1, &["string"]),
            ("capture = \"x\"\n[[adapter", 2, &["]"]),
            ("a = 1\na = 2", 2, &["duplicate key"]),
            (
                "[[adapter]]\nname = \"A\"\n[adapter.receive.rate]\nbits_per_second = 1000\nmarking = { min_bytes = 9, max_bytes = 3, probability = 1.0 }",
                5,
                &["min_bytes 9 is above max_bytes 3"],
            ),
        ];
        for (text, line, words) in mistakes {
            let mistake = parse(text).expect_err(text);
            assert!(mistake.starts_with(&format!(":{line}: ")), "{text}\n{mistake}");
            assert!(words.iter().all(|word| mistake.contains(word)), "{text}\n{mistake}");
            assert!(!mistake.contains('\n'), "one sentence: {mistake}");
        }
    }

    #[test]
    fn any_text_is_read_or_refused() {
        use proptest::prelude::*;
        let pieces =
            "(\\[\\[adapter\\]\\]|\\[switch\\]|name|mtu|loss|=|\"A\"|1|0\\.5|\\n|\\{|\\}|\\[|\\]|,|é|\\PC){0,40}";
        proptest!(ProptestConfig::with_cases(2000), |(text in pieces)| {
            if let Err(mistake) = parse(&text) {
                prop_assert!(mistake.starts_with(':'), "{}", mistake);
            }
        });
    }
}
