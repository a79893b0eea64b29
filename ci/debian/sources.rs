//! The address of the Debian archive, from the machine's apt sources.
//!
//! In: the text of `sources.list` files (one line an entry) and of `.sources` files (deb822 stanzas). Out: the address
//! of the entry that is the Debian main archive. Third parties publish under Debian's release names too, so an entry
//! has to look like Debian's own: component `main`, a plain release name as suite, and then the better the more of its
//! keyring and its path say Debian.

use std::fs;
use std::path::{Path, PathBuf};

use crate::planted::planted;
use crate::{Error, Result};

/// One entry of the apt sources.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SourceEntry {
    pub addresses: Vec<String>,
    pub suites: Vec<String>,
    pub components: Vec<String>,
    pub signed_by: String,
}

/// Entries of a `sources.list` file: `deb [options] address suite component…`.
pub fn parse_one_line(text: &str) -> Vec<SourceEntry> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<SourceEntry> {
    let line = line.split('#').next().unwrap_or_default().trim();
    let rest = line.strip_prefix("deb")?;
    if !rest.starts_with([' ', '\t', '[']) {
        return None;
    }
    let rest = rest.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(inside) => inside.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_whitespace().map(str::to_owned);
    let (address, suite) = (words.next()?, words.next()?);
    let signed_by = options.split_whitespace().find_map(|option| option.strip_prefix("signed-by=")).unwrap_or_default();
    Some(SourceEntry {
        addresses: vec![address],
        suites: vec![suite],
        components: words.collect(),
        signed_by: signed_by.to_owned(),
    })
}

/// Entries of a `.sources` file: stanzas of `Field: value`, a value going on in lines that begin with a blank.
pub fn parse_deb822(text: &str) -> Vec<SourceEntry> {
    let mut entries = Vec::new();
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in text.lines().chain([""]) {
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            entries.extend(entry_of_stanza(&fields));
            fields.clear();
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = fields.last_mut() {
                value.push(' ');
                value.push_str(line.trim());
            }
        } else if let Some((name, value)) = line.split_once(':') {
            fields.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    entries
}

fn entry_of_stanza(fields: &[(String, String)]) -> Option<SourceEntry> {
    let field = |name: &str| fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let words = |name: &str| field(name).unwrap_or_default().split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let disabled = matches!(field("enabled"), Some("no" | "false" | "off" | "0" | "without" | "disable"));
    if disabled || !words("types").iter().any(|kind| kind == "deb") {
        return None;
    }
    Some(SourceEntry {
        addresses: words("uris"),
        suites: words("suites"),
        components: words("components"),
        signed_by: field("signed-by").unwrap_or_default().to_owned(),
    })
}

/// Debian's release names and classes; a suite such as `bookworm-updates` or `bookworm-security` is not the main archive.
const RELEASES: &[&str] =
    &["buster", "bullseye", "bookworm", "trixie", "forky", "duke", "sid", "oldstable", "stable", "testing", "unstable"];

/// The address of the entry that looks most like the Debian main archive.
pub fn main_archive(entries: &[SourceEntry]) -> Option<String> {
    let mut best: Option<(u32, &str)> = None;
    for entry in entries {
        let is_release = entry.suites.iter().any(|suite| RELEASES.contains(&suite.as_str()));
        let has_main = entry.components.iter().any(|component| component == "main") || planted("component_ignored");
        if !is_release || !has_main {
            continue;
        }
        for address in entry.addresses.iter().filter(|address| !address.starts_with("cdrom:")) {
            let debian_key = entry.signed_by.contains("debian-archive");
            let foreign_key = !debian_key && !entry.signed_by.is_empty();
            let debian_path = address.trim_end_matches('/').ends_with("/debian");
            if foreign_key && !debian_path {
                continue;
            }
            let score = 4 * u32::from(debian_key) + 2 * u32::from(debian_path) + u32::from(!foreign_key);
            if best.is_none_or(|(known, _)| score > known) {
                best = Some((score, address));
            }
        }
    }
    best.map(|(_, address)| address.to_owned())
}

/// The archive's address: the mirror that was asked for, else what the apt sources under `apt_folder` say.
pub fn archive_address(mirror: Option<&str>, apt_folder: &Path) -> Result<String> {
    if let Some(mirror) = mirror {
        // It becomes a word of a sources.list line.
        if mirror.is_empty() || mirror.contains(|c: char| c.is_whitespace() || c.is_control() || "[]#".contains(c)) {
            return Err(Error::MirrorUnknown {
                searched: format!("the mirror address {mirror:?}, which is no address"),
            });
        }
        return Ok(mirror.to_owned());
    }
    let mut entries = Vec::new();
    for path in source_files(apt_folder) {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let deb822 = path.extension().is_some_and(|extension| extension == "sources");
        entries.extend(if deb822 { parse_deb822(&text) } else { parse_one_line(&text) });
    }
    main_archive(&entries).ok_or_else(|| Error::MirrorUnknown { searched: apt_folder.display().to_string() })
}

fn source_files(apt_folder: &Path) -> Vec<PathBuf> {
    let mut files = vec![apt_folder.join("sources.list")];
    let parts = fs::read_dir(apt_folder.join("sources.list.d")).into_iter().flatten().flatten();
    let mut parts: Vec<PathBuf> = parts.map(|part| part.path()).collect();
    parts.retain(|path| path.extension().is_some_and(|extension| extension == "list" || extension == "sources"));
    parts.sort();
    files.extend(parts);
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_LINE: &str = "
# deb http://commented.example/debian bookworm main
deb-src http://source.example/debian bookworm main
deb [arch=amd64 signed-by=/usr/share/keyrings/vendor.gpg] http://vendor.example/apt stable main
deb http://security.example/debian-security bookworm-security main
deb\t[ arch=amd64 ] http://archive.example/debian/ bookworm main contrib # the one
";

    #[test]
    fn one_line_lists_lead_to_the_main_archive() {
        let entries = parse_one_line(ONE_LINE);
        assert_eq!(entries.len(), 3);
        assert_eq!(entries[0].signed_by, "/usr/share/keyrings/vendor.gpg");
        assert_eq!(entries[2].components, ["main", "contrib"]);
        assert_eq!(main_archive(&entries).as_deref(), Some("http://archive.example/debian/"));
    }

    const DEB822: &str = "Types: deb deb-src
# a comment inside
URIs: http://archive.example/some/mirror
Suites: trixie trixie-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://archive.example/debian
Suites: bookworm
Components: main
Enabled: no

Types: deb
URIs: https://vendor.example/debian
Suites:
 bookworm
 trixie
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abcdef";

    #[test]
    fn stanzas_lead_to_the_main_archive() {
        let entries = parse_deb822(DEB822);
        assert_eq!(entries.len(), 2, "the disabled stanza does not count");
        assert_eq!(entries[1].suites, ["bookworm", "trixie"]);
        assert_eq!(main_archive(&entries).as_deref(), Some("http://archive.example/some/mirror"));
    }

    #[test]
    fn other_distributions_and_vendors_are_not_taken_for_debian() {
        let text = "deb http://archive.example/ubuntu noble main\ndeb [signed-by=/k.gpg] http://v.example/chrome stable main\ndeb cdrom:[Debian]/ trixie main";
        assert_eq!(main_archive(&parse_one_line(text)), None);
    }

    #[test]
    fn a_mirror_wins_and_a_missing_one_is_said() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert_eq!(archive_address(Some("file:/srv/debian"), folder.path()).expect("given"), "file:/srv/debian");
        assert!(matches!(archive_address(Some("two words"), folder.path()), Err(Error::MirrorUnknown { .. })));
        assert!(matches!(archive_address(None, folder.path()), Err(Error::MirrorUnknown { .. })));
    }
}
