//! How much a whole run must at least have done, so that a suite which quietly does less fails.

use crate::tally::Tally;

const FLOORS: &str = include_str!("floors.txt");

/// The sentences of what is below its floor.
pub fn shortfalls(tally: &Tally) -> Result<Vec<String>, String> {
    let floor = |name: &str| {
        let line = FLOORS.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|number| number.trim().parse::<u64>().ok());
        number.ok_or_else(|| format!("ci/e2e/floors.txt has no number for {name}"))
    };
    let mut sentences = Vec::new();
    for (name, found) in tally.named() {
        let floor = floor(name)?;
        if found < floor {
            sentences.push(format!("{name} {found}, but the floor in ci/e2e/floors.txt is {floor}"));
        }
    }
    Ok(sentences)
}
