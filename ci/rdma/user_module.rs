//! A kernel module from a folder of the user's, built for the image's kernel again and again.
//!
//! In: the folder, with a `Kbuild` or a `Makefile` as external modules have. Out: the one module that it builds, without
//! debug information. The sources are copied, so that nothing is left in the user's folder, into a build folder that
//! stays: only what has changed is compiled anew.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::sources::{self, HEADERS};
use crate::cache::{self, Cache, ContentKey};
use crate::error::file;
use crate::workshop::Workshop;
use crate::{Error, Progress, Result};

/// Source code, and no whole tree by mistake.
const MAX_FILES: usize = 5000;
const MAX_BYTES: u64 = 64 << 20;
const LIMIT: Duration = Duration::from_secs(600);
/// `KERNEL` is where the kernel is. What an earlier source built is no result of this one. Debug information takes time, and no guest
/// reads it.
const SCRIPT: &str = "cd /work
find module -name '*.ko' -delete
make -s -j2 -C KERNEL M=/work/module KCFLAGS=-g0 CONFIG_DEBUG_INFO_BTF_MODULES= modules
find module -name '*.ko' -exec strip -g {} +";

/// The module that a folder builds.
#[derive(Debug)]
pub struct UserModule {
    pub path: PathBuf,
    /// What the compiler had to say.
    pub warnings: String,
}

/// Builds it. Call it with the cache's lock held.
pub fn build(
    cache: &Cache,
    workshop: &Workshop,
    release: &str,
    folder: &Path,
    progress: &mut dyn Progress,
) -> Result<UserModule> {
    let folder = folder.canonicalize().map_err(file("look-up", folder))?;
    if !["Kbuild", "Makefile"].iter().any(|name| folder.join(name).is_file()) {
        return Err(odd(&folder, "it has neither a Kbuild nor a Makefile"));
    }
    // Another kernel or another compiler begins anew.
    let key = ContentKey::new().part(workshop.identity()).part(release).part(folder.as_os_str().as_encoded_bytes());
    let builds = cache.sub_folder("reload")?;
    let work = builds.join(key.name());
    if !work.is_dir() {
        cache::remove_unused(&builds)?;
    }
    fs::create_dir_all(&work).map_err(file("creation", &work))?;
    cache::mark_used(&work);
    cache.require_space("building a module", 256 << 20)?;
    let mut mirror = Mirror { root: &folder, files: 0, bytes: 0 };
    mirror.folder(&folder, &work.join("module"))?;
    // The interface's headers are beside the repository's own module; others find ours there.
    let beside = folder.parent().map(|parent| parent.join("include")).filter(|it| it.join("rnic_abi.h").is_file());
    match beside {
        Some(include) => mirror.folder(&include, &work.join("include"))?,
        None => sources::write_changed(&[HEADERS], &work.join("include"))?,
    }
    workshop.announce(&format!("the module of {} for {release}", folder.display()), progress);
    let printed = workshop.try_run("building a module", &work, &SCRIPT.replace("KERNEL", workshop.headers()), LIMIT)?;
    let lines = compilers_lines(&printed.text);
    if !printed.success {
        return Err(Error::ModuleBuild { folder, lines });
    }
    Ok(UserModule { path: only_module(&folder, &work.join("module"))?, warnings: lines })
}

fn odd(folder: &Path, reason: impl Into<String>) -> Error {
    Error::ModuleSource { folder: folder.to_path_buf(), reason: reason.into() }
}

/// What a person can do something about: not where make was, nor what it did.
fn compilers_lines(printed: &str) -> String {
    const MOST: usize = 200;
    let lines: Vec<&str> = printed
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with("make") && !line.starts_with("WARNING: Symbol"))
        .collect();
    let mut text = lines[..lines.len().min(MOST)].join("\n").replace("/work/module/", "");
    if lines.len() > MOST {
        text += &format!("\n({} more lines)", lines.len() - MOST);
    }
    text
}

/// What make leaves beside sources, here or where the user builds.
fn is_built(name: &str) -> bool {
    const ENDS: &[&str] = &[".o", ".ko", ".mod", ".mod.c", ".symvers", ".order", ".a"];
    name.starts_with('.') || ENDS.iter().any(|end| name.ends_with(end))
}

/// Copies what has changed, so that make sees it, and takes away what is gone.
struct Mirror<'a> {
    root: &'a Path,
    files: usize,
    bytes: u64,
}

impl Mirror<'_> {
    fn folder(&mut self, from: &Path, to: &Path) -> Result<()> {
        fs::create_dir_all(to).map_err(file("creation", to))?;
        let mut there = BTreeSet::new();
        for entry in fs::read_dir(from).map_err(file("look-up", from))? {
            let entry = entry.map_err(file("look-up", from))?;
            let name = entry.file_name();
            if is_built(&name.to_string_lossy()) {
                continue;
            }
            let (path, target) = (entry.path(), to.join(&name));
            there.insert(name);
            // Links are followed to files, not to folders, which could lead round.
            if entry.file_type().map_err(file("look-up", &path))?.is_dir() {
                self.folder(&path, &target)?;
            } else if path.is_file() {
                self.file(&path, &target)?;
            }
        }
        for entry in fs::read_dir(to).map_err(file("look-up", to))?.flatten() {
            let name = entry.file_name();
            if there.contains(&name) || is_built(&name.to_string_lossy()) {
                continue;
            }
            let path = entry.path();
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(file("removal", &path))?;
        }
        Ok(())
    }

    fn file(&mut self, from: &Path, to: &Path) -> Result<()> {
        let length = from.metadata().map_err(file("look-up", from))?.len();
        self.files += 1;
        self.bytes += length;
        if self.files > MAX_FILES || self.bytes > MAX_BYTES {
            let reason =
                format!("it holds more than {MAX_FILES} files or {} MiB: name the module's own", MAX_BYTES >> 20);
            return Err(odd(self.root, reason));
        }
        let content = fs::read(from).map_err(file("reading", from))?;
        if fs::read(to).is_ok_and(|old| old == content) {
            return Ok(());
        }
        fs::write(to, content).map_err(file("writing", to))
    }
}

fn only_module(folder: &Path, built: &Path) -> Result<PathBuf> {
    let mut modules = Vec::new();
    find_modules(built, &mut modules)?;
    match modules.as_slice() {
        [module] => Ok(module.clone()),
        [] => Err(odd(folder, "it builds no module: its Kbuild has no obj-m")),
        several => {
            let names: Vec<_> = several.iter().filter_map(|path| path.file_name()?.to_str()).collect();
            Err(odd(folder, format!("it builds several modules ({}), and one is loaded", names.join(", "))))
        }
    }
}

fn find_modules(folder: &Path, modules: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(file("look-up", folder))?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            find_modules(&path, modules)?;
        } else if path.extension().is_some_and(|end| end == "ko") {
            modules.push(path);
        }
    }
    modules.sort();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirrored(from: &Path, to: &Path) -> Result<()> {
        Mirror { root: from, files: 0, bytes: 0 }.folder(from, to)
    }

    #[test]
    fn only_what_has_changed_is_written_and_what_make_left_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("sub")).expect("made");
        for (name, text) in [("a.c", "1"), ("b.c", "2"), ("sub/c.c", "3"), ("x.o", "theirs")] {
            fs::write(from.join(name), text).expect("written");
        }
        mirrored(&from, &to).expect("copied");
        assert!(!to.join("x.o").exists() && to.join("sub/c.c").is_file());
        fs::write(to.join("a.o"), "ours").expect("written");
        let time = |name: &str| to.join(name).metadata().and_then(|data| data.modified()).expect("a time");
        let before = (time("a.c"), time("b.c"));
        std::thread::sleep(Duration::from_millis(20));
        fs::write(from.join("b.c"), "4").expect("written");
        fs::remove_dir_all(from.join("sub")).expect("removed");
        mirrored(&from, &to).expect("copied");
        assert_eq!(time("a.c"), before.0);
        assert!(time("b.c") > before.1);
        assert!(to.join("a.o").is_file() && !to.join("sub").exists());
    }

    #[test]
    fn a_folder_is_the_source_of_one_module() {
        let folder = tempfile::tempdir().expect("a folder");
        let sentence = |result: Result<PathBuf>| result.expect_err("refused").to_string();
        assert!(sentence(only_module(Path::new("/x"), folder.path())).contains("no module"));
        fs::write(folder.path().join("a.ko"), "").expect("written");
        assert!(only_module(Path::new("/x"), folder.path()).expect("one").ends_with("a.ko"));
        fs::write(folder.path().join("b.ko"), "").expect("written");
        assert!(sentence(only_module(Path::new("/x"), folder.path())).contains("a.ko, b.ko"));
    }

    #[test]
    fn the_compilers_lines_name_the_users_files() {
        let printed = "make[1]: Entering directory\n/work/module/a.c:3:1: error: no\n  CC [M]\nmake: *** [x] Error 2\n";
        assert_eq!(compilers_lines(printed), "a.c:3:1: error: no\n  CC [M]");
        assert!(compilers_lines(&"x\n".repeat(300)).ends_with("(100 more lines)"));
    }
}
