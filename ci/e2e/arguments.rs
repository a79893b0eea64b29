//! The command line: words that choose steps, and the flags that cargo and its users hand to every test program.

use std::path::PathBuf;

#[derive(Debug)]
pub enum Arguments {
    Run(Selection),
    List {
        terse: bool,
        selection: Selection,
    },
    /// One step in this process; where to write what it has counted.
    Step {
        name: String,
        tally: PathBuf,
    },
}

/// Which steps run.
#[derive(Debug, Default)]
pub struct Selection {
    words: Vec<String>,
    skipped: Vec<String>,
    exact: bool,
    /// Steps' output is not caught.
    pub no_capture: bool,
    /// `--ignored`: those that are left out of ordinary runs, and no others.
    pub ignored: bool,
    /// Nothing is a benchmark.
    none: bool,
}

impl Selection {
    pub fn takes(&self, name: &str) -> bool {
        let meets = |word: &String| if self.exact { name == word } else { name.contains(word.as_str()) };
        let chosen = self.words.iter().any(meets) || self.words.is_empty();
        chosen && !self.none && !self.skipped.iter().any(meets)
    }

    /// Everything runs.
    pub fn is_whole(&self) -> bool {
        self.words.is_empty() && self.skipped.is_empty() && !self.none && !self.ignored
    }
}

/// Flags of the standard test program that change nothing here, and whether a value follows.
const WITHOUT_MEANING: &[(&str, bool)] = &[
    ("--test-threads", true),
    ("--color", true),
    ("--logfile", true),
    ("--shuffle-seed", true),
    ("-Z", true),
    ("--quiet", false),
    ("-q", false),
    ("--show-output", false),
    ("--include-ignored", false),
    ("--report-time", false),
    ("--ensure-time", false),
    ("--shuffle", false),
    ("--force-run-in-process", false),
    ("--test", false),
    ("--exclude-should-panic", false),
];

impl Arguments {
    pub fn parse(words: impl Iterator<Item = String>) -> Result<Arguments, String> {
        let mut words = words.peekable();
        let mut selection = Selection::default();
        let (mut list, mut terse, mut step, mut tally) = (false, false, None, None);
        while let Some(word) = words.next() {
            let (flag, attached) = match word.split_once('=') {
                Some((flag, value)) if flag.starts_with("--") => (flag.to_owned(), Some(value.to_owned())),
                _ => (word.clone(), None),
            };
            let mut value = || attached.clone().or_else(|| words.next()).ok_or(format!("{flag} takes a value"));
            match flag.as_str() {
                "--list" => list = true,
                "--format" => terse = value()? == "terse",
                "--exact" => selection.exact = true,
                "--skip" => selection.skipped.push(value()?),
                "--nocapture" | "--no-capture" => selection.no_capture = true,
                "--ignored" => selection.ignored = true,
                "--bench" => selection.none = true,
                "--step" => step = Some(value()?),
                "--tally" => tally = Some(PathBuf::from(value()?)),
                known if WITHOUT_MEANING.contains(&(known, true)) => drop(value()?),
                known if WITHOUT_MEANING.contains(&(known, false)) => {}
                unknown if unknown.starts_with('-') => {
                    return Err(format!(
                        "{unknown} is unknown; give words of step names, --list, --exact, --skip WORD or --nocapture"
                    ));
                }
                _ => selection.words.push(word),
            }
        }
        Ok(match (list, step, tally) {
            (true, _, _) => Arguments::List { terse, selection },
            (false, Some(name), Some(tally)) => Arguments::Step { name, tally },
            (false, Some(_), None) => return Err("--step needs --tally".to_owned()),
            (false, None, _) => Arguments::Run(selection),
        })
    }
}
