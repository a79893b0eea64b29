//! Where adapters listen.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// `$XDG_RUNTIME_DIR/rnic`, or a folder of this user in the temporary folder; only this user may enter it.
pub fn default_folder() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) => Path::new(&dir).join("rnic"),
        None => std::env::temp_dir().join(format!("rnic-{}", rustix::process::getuid().as_raw())),
    }
}

/// Makes the folder if it is not there.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    std::fs::set_permissions(folder, Permissions::from_mode(0o700))
}
