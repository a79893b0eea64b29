//! `rnic qemu-args` in an unmodified QEMU: the lines are the arguments, and a server that is stopped for a while, as in a
//! debugger, does not lose the device.

use crate::bench::laboratory;
use crate::bench::program::{PATH, command, run};
use crate::bench::serving::Serving;
use crate::bench::transaction::{Pair, over_socket};
use rnic_ci::child::{self, Output};
use rnic_ci::deadline::Deadline;
use rnic_ci::qemu::qtest::QtestMachine;
use rnic_shim::backing::Backing;
use rnic_shim::backings::qtest::{Qtest, QtestOptions};
use rnic_shim::transaction::TransactionSpec;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

fn qemu_args(arguments: &str, folder: &Path) -> Output {
    let mut command = command(&format!("qemu-args {arguments} --folder"));
    command.arg(folder);
    run(command)
}

fn patient(machine: &QtestMachine) -> Box<dyn Backing> {
    let options = QtestOptions { limit: Duration::from_secs(60), ..QtestOptions::default() };
    Box::new(Qtest::open(machine.stream().expect("a second handle on qtest"), options).expect("the adapter"))
}

pub fn its_lines_attach_an_adapter_and_a_stopped_server_loses_nothing() {
    const STOPPED: Duration = Duration::from_secs(10);
    let lab = laboratory::lab();
    let serving = Serving::start("A B");
    let printed = qemu_args("A --memory 128M", serving.folder());
    assert!(printed.status.success(), "{}", printed.standard_error);
    let arguments: Vec<OsString> = printed.standard_output.lines().map(OsString::from).collect();
    let machine = lab.qemu().start_qtest("attached", lab.run_folder(), &arguments).expect("a machine");
    let spec = TransactionSpec { timeout: 18, ..TransactionSpec::default() };
    let operate = || Pair::bring_up([patient(&machine), over_socket(&serving.socket("B"))], &spec).run();
    operate();

    let server = Pid::from_raw(serving.id() as i32).expect("a process id");
    let begin = Instant::now();
    kill_process(server, Signal::STOP).expect("stopped");
    let waker = std::thread::spawn(move || {
        std::thread::sleep(STOPPED);
        kill_process(server, Signal::CONT).expect("continued");
    });
    // Finding the device reads its registers, which waits for the server; QEMU's own limit would be 5 s.
    let device = patient(&machine);
    assert!(begin.elapsed() >= STOPPED, "nothing waited for the server: {:?}", begin.elapsed());
    drop(device);
    waker.join().expect("continued");
    operate();
}

/// `mapfile -t` takes the lines as the words that they are, whatever stands in the path.
pub fn a_shell_array_holds_one_argument_a_line() {
    let folder = tempfile::Builder::new().prefix("a b,c'\"$x ").tempdir().expect("a folder");
    let socket = folder.path().join("it's A.sock");
    let printed = run({
        let mut command = command("qemu-args --memory 1G");
        command.arg(&socket);
        command
    });
    assert!(printed.status.success(), "a path needs no server: {}", printed.standard_error);
    let mut shell = Command::new("bash");
    shell.args([
        "-c",
        "mapfile -t words < <(\"$0\" qemu-args --memory 1G \"$1\"); printf '%s\\0' \"${words[@]}\"",
        PATH,
    ]);
    shell.arg(&socket);
    let words = child::run(shell, &Deadline::new("bash runs", Duration::from_secs(20))).expect("bash runs");
    let words: Vec<_> = words.standard_output.split_terminator('\0').collect();
    assert_eq!(words, printed.standard_output.lines().collect::<Vec<_>>());
    let device: serde_json::Value = serde_json::from_str(words.last().expect("a word")).expect("JSON");
    assert_eq!(device["socket"]["path"].as_str().map(Path::new), Some(socket.as_path()));
}

pub fn its_parts_and_forms_are_what_they_say() {
    let serving = Serving::start("A B");
    let lines = |arguments: &str| {
        let printed = qemu_args(arguments, serving.folder());
        assert!(printed.status.success(), "{arguments}: {}", printed.standard_error);
        printed.standard_output
    };
    let (machine, device) = (lines("A --part machine"), lines("A --part device"));
    assert_eq!(lines("A"), format!("{machine}{device}"));
    assert!(!machine.contains("vfio-user-pci") && !device.contains("memory-backend"));
    let both = lines("A B");
    assert!(both.contains("A.sock") && both.contains("B.sock") && both.contains("slot=1") && both.contains("slot=2"));

    // Well-formed for a parser that is not ours, and the arguments come out of it as they are.
    let xml = format!(
        "<domain xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>{}</domain>",
        lines("A --format libvirt")
    );
    let script = "import sys, xml.etree.ElementTree as tree\n\
        root = tree.fromstring(sys.argv[1])\n\
        space = '{http://libvirt.org/schemas/domain/qemu/1.0}'\n\
        print(root.find('memoryBacking/access').get('mode'))\n\
        for argument in root.iter(space + 'arg'): print(argument.get('value'))";
    let python = laboratory::tools().python().clone();
    let parsed = python.run(&["-c", script, &xml], Duration::from_secs(30)).expect("python runs");
    assert!(parsed.status.success(), "{}", parsed.standard_error);
    assert_eq!(parsed.standard_output, format!("shared\n{device}"));
}

/// libvirt's own schema accepts the elements, and a QEMU that gets what libvirt makes of them has the adapter.
pub fn libvirts_elements_are_valid_and_what_they_list_boots_qemu() {
    const SCRIPT: &str = "import json, sys, xml.etree.ElementTree as tree\n\
        root = tree.parse(sys.argv[1])\n\
        space = '{http://libvirt.org/schemas/domain/qemu/1.0}'\n\
        backing = root.find('memoryBacking')\n\
        print(json.dumps(dict(memory=root.find('memory').text, unit=root.find('memory').get('unit'),\n\
            machine=root.find('os/type').get('machine'), source=backing.find('source').get('type'),\n\
            access=backing.find('access').get('mode'),\n\
            arguments=[one.get('value') for one in root.iter(space + 'arg')])))";
    let lab = laboratory::lab();
    let tools = laboratory::tools();
    let serving = Serving::start("A B");
    let printed = qemu_args("A --memory 128M --format libvirt", serving.folder());
    assert!(printed.status.success(), "{}", printed.standard_error);
    let folder = tempfile::tempdir().expect("a folder");
    let domain = |name: &str, elements: &str| {
        let path = folder.path().join(name);
        let space = "xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'";
        let text = format!("<domain type='qemu' {space}>\n<name>rnic</name>\n{elements}</domain>\n");
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("plain").to_owned()
    };
    let valid = |path: &str| {
        let schema = tools.libvirt_domain_schema().to_str().expect("plain");
        tools.xmllint().run(&["--noout", "--relaxng", schema, path], Duration::from_secs(60)).expect("xmllint runs")
    };
    let path = domain("domain.xml", &printed.standard_output);
    let judged = valid(&path);
    assert!(judged.status.success(), "{}\n{}", judged.standard_error, printed.standard_output);
    let wrong = domain("wrong.xml", &printed.standard_output.replace("mode='shared'", "mode='common'"));
    assert!(!valid(&wrong).status.success(), "the schema refuses what libvirt does not know");

    let read = tools.python().run(&["-c", SCRIPT, &path], Duration::from_secs(30)).expect("python runs");
    let read: serde_json::Value = serde_json::from_str(&read.standard_output).expect("JSON");
    assert_eq!((&read["memory"], &read["unit"]), (&"128".into(), &"MiB".into()));
    assert_eq!([&read["machine"], &read["source"], &read["access"]], ["q35", "memfd", "shared"]);
    // What libvirt gives QEMU for a machine with such memory, and then the arguments as they are.
    let object = "{\"qom-type\":\"memory-backend-memfd\",\"id\":\"pc.ram\",\"share\":true,\"size\":134217728}";
    let mut arguments: Vec<OsString> =
        ["-machine", "q35,memory-backend=pc.ram", "-m", "128", "-object", object].map(OsString::from).to_vec();
    let listed = read["arguments"].as_array().expect("arguments").iter();
    arguments.extend(listed.map(|argument| OsString::from(argument.as_str().expect("an argument"))));
    let machine = lab.qemu().start_qtest("libvirt", lab.run_folder(), &arguments).expect("a machine");
    let spec = TransactionSpec { timeout: 18, ..TransactionSpec::default() };
    Pair::bring_up([patient(&machine), over_socket(&serving.socket("B"))], &spec).run();
}

pub fn what_cannot_be_attached_is_told_with_its_cure() {
    let folder = tempfile::Builder::new().prefix("s").tempdir().expect("a folder");
    let told = |arguments: &str, code: i32, words: &str| {
        for program in ["qemu-args", "guest"] {
            let arguments = format!("{program} {arguments} --folder {}", folder.path().display());
            let output = run(command(&arguments));
            assert_eq!(output.status.code(), Some(code), "{arguments}: {}", output.standard_error);
            assert!(output.standard_error.contains(words), "{arguments}: {}", output.standard_error);
        }
    };
    told("A", 3, "start `rnic serve`");
    // A socket whose server has died, and one whose server has another name.
    drop(UnixListener::bind(folder.path().join("A.sock")).expect("bound"));
    told("A", 3, "start `rnic serve`");
    let _listener = UnixListener::bind(folder.path().join("left.sock")).expect("bound");
    told("lefty", 3, "did you mean left?");
    told("left --memory x", 2, "--memory");
}
