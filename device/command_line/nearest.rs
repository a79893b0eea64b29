//! What somebody may have meant.

/// The name that is most like `word`, if one is like it at all.
pub fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    const ALIKE: f64 = 0.6;
    let lower = word.to_lowercase();
    let likeness = |name: &str| strsim::jaro_winkler(&lower, &name.to_lowercase());
    let best = names.max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) >= ALIKE).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn the_nearest_is_found_and_nothing_is_not() {
        let names = ["loss", "duplication", "delay_us"];
        assert_eq!(nearest("los", names.into_iter()), Some("loss"));
        assert_eq!(nearest("Delay", names.into_iter()), Some("delay_us"));
        assert_eq!(nearest("zzz", names.into_iter()), None);
        assert_eq!(nearest("x", [].into_iter()), None);
    }
}
