//! `rnic guest` with real guests: commands and their exit status, a shared folder, a kernel of one's own, the console on
//! a terminal, and nothing left behind.

use crate::bench::laboratory;
use crate::bench::processes::{is_alive, qemus_of};
use crate::bench::program::{PATH, command, run};
use crate::bench::serving::Serving;
use crate::tally;
use rnic_ci::child::{Child, Output};
use rnic_ci::deadline::Deadline;
use rnic_ci::image::cpio::CpioWriter;
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// `rnic guest A` with these words, one each.
fn guest(serving: &Serving, words: &[&str]) -> Command {
    let mut command = command("guest A --folder");
    // A kernel that unpacks itself takes long on a busy machine without KVM.
    command.arg(serving.folder()).args(["--boot-limit", "400"]).args(words);
    command
}

#[track_caller]
fn ran(serving: &Serving, words: &[&str], code: i32) -> Output {
    let output = run(guest(serving, words));
    assert_eq!(output.status.code(), Some(code), "{words:?}\n{}\n{}", output.standard_output, output.standard_error);
    output
}

pub fn a_command_runs_in_a_guest_and_its_exit_status_is_ours() {
    laboratory::lab();
    let serving = Serving::start("A B");
    let line = "grep -l 0x12b7 /sys/bus/pci/devices/*/device | wc -l; echo \"it's told\" >&2; exit 7";
    let output = ran(&serving, &["--exec", line], 7);
    assert_eq!(output.standard_output, "1\n");
    assert!(output.standard_error.contains("it's told\n"), "{}", output.standard_error);

    // A program that is sent is on the guest's PATH, and all of a long output arrives.
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("count");
    std::fs::write(&script, "#!/bin/sh\nseq 100000\n").expect("written");
    let output = ran(&serving, &["--send", script.to_str().expect("plain"), "--exec", "count"], 0);
    assert_eq!(output.standard_output.lines().count(), 100_000);
    assert!(output.standard_output.ends_with("\n100000\n"));
    tally::guests_booted(2);
}

pub fn a_folder_is_shared_and_a_kernel_of_the_users_own_boots() {
    let lab = laboratory::lab();
    let serving = Serving::start("A B");
    let folder = tempfile::Builder::new().prefix("with, comma").tempdir().expect("a folder");
    std::fs::write(folder.path().join("in"), "from the host").expect("written");
    let share = folder.path().to_str().expect("plain");
    let output = ran(&serving, &["--share", share, "--exec", "cat /share/in; echo from the guest >/share/out"], 0);
    assert_eq!(output.standard_output, "from the host");
    assert_eq!(std::fs::read_to_string(folder.path().join("out")).expect("written by the guest"), "from the guest\n");

    // Debian's own bzImage, with more memory and arguments.
    let kernel = &lab.image().packed_kernel;
    let line = "uname -r; grep -o rnic.test=1 /proc/cmdline; awk '/MemTotal/ { print ($2 > 350000) }' /proc/meminfo";
    let words =
        ["--kernel", kernel.to_str().expect("plain"), "--append", "rnic.test=1", "--memory", "512", "--exec", line];
    let output = ran(&serving, &words, 0);
    assert_eq!(output.standard_output, format!("{}\nrnic.test=1\n1\n", lab.image().kernel_release));
    tally::guests_booted(2);
}

/// Packages of the archive are there with all that they depend on; what cannot be one is told.
pub fn packages_of_the_users_choice_are_in_the_guest() {
    laboratory::lab();
    let serving = Serving::start("A B");
    let line = "strace -c -e trace=uname uname -r 2>&1 | grep -c uname; file -b /usr/bin/strace | cut -d, -f1";
    let output = ran(&serving, &["--packages", "strace,file", "--exec", line], 0);
    assert_eq!(output.standard_output, "1\nELF 64-bit LSB pie executable\n", "{}", output.standard_error);
    tally::guests_booted(1);
    let said = |packages: &str, sentence: &str| {
        let output = ran(&serving, &["--packages", packages, "--exec", "true"], 125);
        assert!(output.standard_error.contains(sentence), "{packages}: {}", output.standard_error);
    };
    said("../strace", "\"../strace\" is no name of a Debian package");
    said("", "\"\" is no name of a Debian package");
}

/// A busybox and a script of one's own: it prints on the console, sees the adapter, and ends the machine.
pub fn an_initial_file_system_of_the_users_own_boots() {
    const INIT: &str = "#!/bin/busybox sh\n\
        /bin/busybox mount -t proc proc /proc\n\
        /bin/busybox mount -t sysfs sysfs /sys\n\
        echo \"init of $(/bin/busybox cat /whose)\"\n\
        /bin/busybox grep -o rnic.test=2 /proc/cmdline\n\
        echo \"device $(/bin/busybox cat /sys/bus/pci/devices/0000:01:00.0/device)\"\n\
        /bin/busybox sleep 1\n\
        /bin/busybox poweroff -f\n";
    let lab = laboratory::lab();
    let serving = Serving::start("A B");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("root.cpio");
    let busybox = std::fs::read(&lab.image().busybox).expect("a busybox");
    let mut archive = CpioWriter::new(std::fs::File::create(&path).expect("a file"));
    let written = (|| {
        ["proc", "sys"].iter().try_for_each(|folder| archive.directory(folder))?;
        archive.character_device("dev/console", 5, 1)?;
        archive.file("bin/busybox", 0o755, &busybox)?;
        archive.file("whose", 0o644, b"the user")?;
        archive.file("init", 0o755, INIT.as_bytes())?;
        archive.finish()
    })();
    written.expect("an archive");
    let words = ["--initrd", path.to_str().expect("plain"), "--append", "rnic.test=2"];
    let output = ran(&serving, &words, 0);
    for line in ["init of the user\r\n", "rnic.test=2\r\n", "device 0x12b7\r\n"] {
        assert!(output.standard_output.contains(line), "{line:?}: {}", output.standard_output);
    }
    tally::guests_booted(1);
}

/// What is typed is done, Ctrl-C is the guest's, Ctrl-] ends it, and the terminal is as it was.
pub fn the_console_is_a_terminal_that_the_escape_key_leaves() {
    const SCRIPT: &str = r##"
import fcntl, os, pty, select, struct, sys, termios, time
master, slave = pty.openpty()
fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
before = termios.tcgetattr(slave)
child = os.fork()
if child == 0:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for number in 0, 1, 2:
        os.dup2(slave, number)
    os.execv(sys.argv[1], sys.argv[1:])
seen = b""
def until(word, seconds=60):
    global seen
    end = time.monotonic() + seconds
    while word not in seen:
        assert time.monotonic() < end, (word, seen)
        if select.select([master], [], [], 0.1)[0]:
            seen += os.read(master, 4096)
    seen = seen[seen.index(word) + len(word):]
until(b"guest-A# ")
assert termios.tcgetattr(slave) != before, "the terminal is raw"
os.write(master, b"echo $((6 * 7)); stty size\r")
until(b"42\r\n"); until(b"33 111")
os.write(master, b"sleep 1000\r")
until(b"sleep 1000\r\n"); time.sleep(1)
os.write(master, b"\x03")
until(b"guest-A# ")
os.write(master, b"\x1d")
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert termios.tcgetattr(slave) == before, "the terminal is as it was"
print("all of it")
"##;
    laboratory::lab();
    let serving = Serving::start("A B");
    let folder = serving.folder().to_str().expect("plain").to_owned();
    let python = laboratory::tools().python().clone();
    let output = python.run(&["-c", SCRIPT, PATH, "guest", "A", "--folder", &folder], Duration::from_secs(100));
    let output = output.expect("python runs");
    assert_eq!(output.standard_output, "all of it\n", "{}", output.standard_error);
    tally::guests_booted(1);
}

/// Without a terminal: what comes in is typed, and its end leaves the shell.
pub fn the_console_takes_a_script() {
    laboratory::lab();
    let serving = Serving::start("A B");
    let mut input = tempfile::tempfile().expect("a file");
    input.write_all(b"echo $((6 * 7))\ncat /sys/class/dmi/id/sys_vendor\n").expect("written");
    std::io::Seek::rewind(&mut input).expect("at its beginning");
    let mut command = guest(&serving, &[]);
    let mut output = tempfile::NamedTempFile::new().expect("a file");
    command.stdin(input).stdout(output.reopen().expect("a file")).stderr(Stdio::null());
    let mut child = Child::start(command).expect("rnic starts");
    let status = child.wait(&Deadline::new("the guest ends", LIMIT)).expect("it ends");
    let mut printed = String::new();
    std::io::Read::read_to_string(output.as_file_mut(), &mut printed).expect("read");
    assert!(status.success(), "{status}: {printed}");
    assert!(printed.contains("42\r\n") && printed.contains("QEMU\r\n"), "{printed}");
    tally::guests_booted(1);
}

/// Whoever ends it, no QEMU stays behind.
pub fn a_killed_guest_command_leaves_no_machine() {
    laboratory::lab();
    let serving = Serving::start("A B");
    for (signal, words, code) in [
        (Signal::KILL, &["--exec", "sleep 1000"][..], None),
        (Signal::TERM, &["--exec", "sleep 1000"], Some(130)),
        (Signal::INT, &["--exec", "sleep 1000", "--append", "quiet"], Some(130)),
        (Signal::TERM, &[], Some(130)),
    ] {
        let mut command = guest(&serving, words);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = Child::start(command).expect("rnic starts");
        let begin = Instant::now();
        let mut machines = Vec::new();
        while machines.is_empty() {
            assert!(begin.elapsed() < LIMIT && child.ended().is_none(), "{words:?} starts a machine");
            machines = qemus_of(child.id());
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(1500));
        kill_process(Pid::from_raw(child.id() as i32).expect("a process id"), signal).expect("the signal is sent");
        let status = child.wait(&Deadline::new("rnic ends", LIMIT)).expect("it ends");
        assert_eq!(status.code(), code, "{signal:?} of {words:?}");
        let killed = Instant::now();
        while machines.iter().any(|machine| is_alive(*machine)) {
            assert!(killed.elapsed() < Duration::from_secs(5), "{signal:?} of {words:?} leaves {machines:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

pub fn what_a_guest_cannot_be_made_of_is_told() {
    laboratory::lab();
    let serving = Serving::start("A B");
    let said = |words: &[&str], code: i32, sentence: &str| {
        let output = ran(&serving, words, code);
        assert!(output.standard_error.contains(sentence), "{words:?}: {}", output.standard_error);
    };
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
    said(&["--kernel", text], 3, "neither a bzImage nor an ELF image");
    said(&["--kernel", "/nowhere/bzImage", "--exec", "true"], 125, "/nowhere/bzImage");
    said(&["--share", "/nowhere"], 3, "/nowhere");
    said(&["--share", text], 3, "no folder");
    said(&["--initrd", text, "--exec", "true"], 2, "--exec");
    said(&["--exec", "one\ntwo"], 2, "one line");
    said(&["--qemu", "/bin/true", "--exec", "true"], 125, "cannot serve as QEMU");
    said(&["--exec", "true", "--", "-no-such-option"], 125, "-no-such-option");
    // One machine at a time: the second is refused while the first runs, and its command's number is not taken for ours.
    let first = crate::bench::transaction::over_socket(&serving.socket("A"));
    said(&["--exec", "true"], 125, "it takes one at a time");
    drop(first);
    ran(&serving, &["--exec", "exit 255"], 255);
    tally::guests_booted(1);
}
