//! Where adapters listen, and how they are found.

use crate::nearest::nearest;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// `$XDG_RUNTIME_DIR/rnic`, or a folder of this user in the temporary folder; only this user may enter it.
pub fn default_folder() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) => Path::new(&dir).join("rnic"),
        None => std::env::temp_dir().join(format!("rnic-{}", rustix::process::getuid().as_raw())),
    }
}

/// Makes the folder if it is not there. One that is there is taken as it is, and only if nobody else can write there and so
/// put another socket in the place of ours; the sockets themselves are for their owner alone.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let data = std::fs::metadata(folder)?;
    let own = data.uid() == rustix::process::getuid().as_raw();
    if own && data.mode() & 0o022 == 0 {
        return Ok(());
    }
    let what =
        if own { "others can write there: chmod 700 it, or choose another one" } else { "it is somebody else's" };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("no folder for sockets, {what}")))
}

/// An adapter as others attach to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adapter {
    pub name: String,
    pub socket: PathBuf,
    /// Of the Ethernet function, if it is served.
    pub ethernet_socket: Option<PathBuf>,
}

impl Adapter {
    /// The sockets of its functions, function 0 first.
    pub fn functions(&self) -> Vec<&Path> {
        [Some(&self.socket), self.ethernet_socket.as_ref()].into_iter().flatten().map(PathBuf::as_path).collect()
    }
}

/// The Ethernet function of an adapter listens beside it.
fn ethernet_socket(socket: &Path) -> PathBuf {
    socket.with_extension(ETHERNET_EXTENSION)
}

const ETHERNET_EXTENSION: &str = "net.sock";

/// The adapter that somebody names: by the name under which it is served in `folder`, where somebody must listen, or by
/// the path of its socket, which need not be there yet.
pub fn find(named: &str, folder: &Path) -> Result<Adapter, String> {
    if named.contains('/') {
        return by_path(Path::new(named));
    }
    let served = served(folder);
    if let Some(adapter) = served.iter().find(|adapter| adapter.name == named) {
        return Ok(adapter.clone());
    }
    let names: Vec<_> = served.iter().map(|adapter| adapter.name.as_str()).collect();
    if names.is_empty() {
        return Err(format!(
            "no adapter is served in {}: start `rnic serve`, or give the path of a socket",
            folder.display()
        ));
    }
    let meant = nearest(named, names.iter().copied()).map_or(String::new(), |name| format!("did you mean {name}? "));
    Err(format!("no adapter {named:?} is served in {}: {meant}served are {}", folder.display(), names.join(", ")))
}

fn by_path(path: &Path) -> Result<Adapter, String> {
    const LONGEST: usize = 107;
    let absolute = std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))?;
    if absolute.as_os_str().len() > LONGEST {
        return Err(format!("the path {} is too long for a Unix socket (at most {LONGEST} bytes)", absolute.display()));
    }
    let stem = absolute.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let name = stem.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '-' }).collect();
    let ethernet_socket = Some(ethernet_socket(&absolute)).filter(|socket| is_listened_on(socket));
    Ok(Adapter { name, socket: absolute, ethernet_socket })
}

/// The adapters in `folder` on whose sockets somebody listens, by name.
pub fn served(folder: &Path) -> Vec<Adapter> {
    let listening = listening();
    let Ok(folder) = folder.canonicalize() else { return Vec::new() };
    let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut adapters: Vec<Adapter> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()))
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sock") && listening.contains(path))
        .filter_map(|path| {
            let name = path.file_stem()?.to_str()?.to_owned();
            let ethernet_socket = Some(ethernet_socket(&path)).filter(|socket| listening.contains(socket));
            Some(Adapter { name, socket: path, ethernet_socket })
        })
        .collect();
    let ethernet: Vec<_> = adapters.iter().filter_map(|adapter| adapter.ethernet_socket.clone()).collect();
    adapters.retain(|adapter| !ethernet.contains(&adapter.socket));
    adapters.sort_by(|a, b| a.name.cmp(&b.name));
    adapters
}

/// Somebody listens on this socket.
pub fn is_listened_on(socket: &Path) -> bool {
    let canonical = socket.canonicalize();
    listening().iter().any(|path| path == socket || canonical.as_ref().is_ok_and(|known| known == path))
}

/// Paths of the sockets that somebody listens on, as the kernel lists them: asking it disturbs no server.
fn listening() -> Vec<PathBuf> {
    let table = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    // Number, references, protocol, flags, type, state, inode, path, which may hold blanks.
    const ACCEPTS: u32 = 1 << 16;
    let path = |line: &str| {
        let mut rest = line;
        let mut flags = 0;
        for field in 0..7 {
            let (word, behind) = rest.trim_start().split_once(' ')?;
            if field == 3 {
                flags = u32::from_str_radix(word, 16).ok()?;
            }
            rest = behind;
        }
        (flags & ACCEPTS != 0 && rest.starts_with('/')).then(|| PathBuf::from(rest))
    };
    table.lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_sockets_that_somebody_listens_on_are_served() {
        let folder = tempfile::Builder::new().prefix("a b").tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let _listener = UnixListener::bind(path("B.sock")).expect("bound");
        drop(UnixListener::bind(path("dead.sock")).expect("bound"));
        std::fs::write(path("file.sock"), "").expect("written");
        let names = || served(folder.path()).into_iter().map(|adapter| adapter.name).collect::<Vec<_>>();
        assert_eq!(names(), ["B"]);
        let _ethernet = UnixListener::bind(path("B.net.sock")).expect("bound");
        assert_eq!(names(), ["B"], "a function is no adapter of its own");
        let both = find("B", folder.path()).expect("served");
        assert_eq!(both.functions().len(), 2);
        assert_eq!(find("B", folder.path()).map(|adapter| adapter.name), Ok("B".into()));
        let wrong = find("b", folder.path()).expect_err("another name");
        assert!(wrong.contains("did you mean B?"), "{wrong}");
        let none = find("A", &path("nowhere")).expect_err("no folder");
        assert!(none.contains("start `rnic serve`"), "{none}");
    }

    #[test]
    fn a_folder_that_others_can_write_is_refused_and_left_as_it_is() {
        use std::fs::Permissions;
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let mode = |mode| std::fs::set_permissions(folder.path(), Permissions::from_mode(mode)).expect("set");
        mode(0o1777);
        let refused = make_folder(folder.path()).expect_err("anybody's");
        assert!(refused.to_string().contains("others can write there"), "{refused}");
        assert_eq!(std::fs::metadata(folder.path()).expect("there").mode() & 0o7777, 0o1777);
        mode(0o755);
        make_folder(folder.path()).expect("ours");
        assert_eq!(std::fs::metadata(folder.path()).expect("there").mode() & 0o7777, 0o755);
        let fresh = folder.path().join("a/b");
        make_folder(&fresh).expect("made");
        assert_eq!(std::fs::metadata(&fresh).expect("there").mode() & 0o7777, 0o700);
    }

    #[test]
    fn a_path_needs_no_server() {
        let adapter = find("/run/lab/my nic.sock", Path::new("/nowhere")).expect("a path");
        assert_eq!((adapter.name.as_str(), adapter.socket.as_path()), ("my-nic", Path::new("/run/lab/my nic.sock")));
        assert!(find("./A.sock", Path::new("/")).is_ok_and(|adapter| adapter.socket.is_absolute()));
        assert!(find(&format!("/{}", "x".repeat(108)), Path::new("/")).is_err_and(|error| error.contains("too long")));
    }
}
