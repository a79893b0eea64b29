//! Where servers are found: a management socket `NAME.management` beside the adapters' sockets, in a folder that only its
//! user may enter.

use std::io;
use std::path::{Path, PathBuf};

const EXTENSION: &str = "management";

/// The management socket of a server.
pub fn socket_of(folder: &Path, server: &str) -> PathBuf {
    folder.join(format!("{server}.{EXTENSION}"))
}

/// Names of servers that have a socket in the folder, alive or not, in order. A folder that is not there has none.
pub fn servers(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == EXTENSION)
            && let Some(name) = path.file_stem().and_then(|stem| stem.to_str())
        {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_told_from_adapters_and_a_missing_folder_has_none() {
        let folder = tempfile::tempdir().expect("a folder");
        for file in ["A.sock", "main.management", "a.b.management", "management", "main.management.old"] {
            std::fs::write(folder.path().join(file), "").expect("a file");
        }
        assert_eq!(servers(folder.path()).expect("names"), ["a.b", "main"]);
        assert_eq!(socket_of(folder.path(), "a.b"), folder.path().join("a.b.management"));
        assert!(servers(&folder.path().join("missing")).expect("none").is_empty());
    }
}
