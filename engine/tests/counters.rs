//! QUERY_COUNTERS: every counter by its number, as the datasheet and the kernel module name them.

mod rig;

use rig::*;
use rnic_abi::command::*;
use rnic_abi::registers::REG_CONTROL;
use rnic_abi::{CommandOpcode, WorkOpcode};
use rnic_engine::{Counters, EngineConfig};
use rnic_pcie::{Class, DmaPort};
use zerocopy::{FromBytes, IntoBytes};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn query(group: u8, first: u16) -> QueryCounters {
    QueryCounters { group, first: first.into(), ..QueryCounters::zeroed() }
}

/// A whole group, as a driver asks for it.
fn group(host: &mut Host, group: u8) -> Vec<u64> {
    let mut values = Vec::new();
    loop {
        let answer = host.must(CommandOpcode::QUERY_COUNTERS, query(group, values.len() as u16).as_bytes());
        let (answer, _) = CounterValues::read_from_prefix(&answer).unwrap();
        let (total, count) = (usize::from(answer.total.get()), usize::from(answer.count.get()));
        assert!(count > 0 && values.len() + count <= total);
        assert!(answer.values[count..].iter().all(|value| value.get() == 0));
        values.extend(answer.values[..count].iter().map(|value| value.get()));
        if values.len() == total {
            return values;
        }
    }
}

fn rnic_classes() -> Vec<Class> {
    Class::ALL.iter().copied().filter(|class| !class.name().starts_with("net_")).collect()
}

#[test]
fn they_are_what_the_device_has_counted_and_a_reset_keeps_them() {
    let mut fabric = Fabric::new(EngineConfig::default(), 5);
    fabric.a.send(&Request::new(WorkOpcode::WRITE, 700));
    fabric.run();
    let host = &mut fabric.a;
    let expected: Vec<u64> = host.engine.counters().named().into_iter().map(|(_, value)| value).collect();
    assert_eq!(group(host, COUNTERS_PORT), expected);
    let before: Vec<u64> = rnic_classes().into_iter().map(|class| host.port.crossings(class)).collect();
    let told = group(host, COUNTERS_CROSSINGS);
    for ((class, before), told) in rnic_classes().into_iter().zip(before).zip(told) {
        // Asking crosses, too.
        let asks = [Class::CommandFetch, Class::CommandCompletion, Class::RegisterWrite];
        if asks.contains(&class) {
            assert!(told > before && told <= host.port.crossings(class), "{class:?}");
        } else {
            assert_eq!(told, before, "{class:?}");
        }
    }
    let sent = host.engine.counters().sent_pkts;
    assert!(sent > 0);
    fabric.a.write(0, REG_CONTROL.into(), &0u32.to_le_bytes());
    assert_eq!(fabric.a.engine.counters().sent_pkts, sent);
}

#[test]
fn a_number_or_a_group_that_is_not_there_is_out_of_range() {
    let mut fabric = Fabric::new(EngineConfig::default(), 5);
    let total = Counters::default().named().len() as u16;
    for body in [query(COUNTERS_PORT, total), query(2, 0), query(COUNTERS_CROSSINGS, u16::MAX)] {
        let refused = fabric.a.try_command(CommandOpcode::QUERY_COUNTERS, body.as_bytes());
        assert_eq!(refused, (2, "ParameterRange"));
    }
    let reserved = QueryCounters { reserved0: 1, ..query(COUNTERS_PORT, 0) };
    let refused = fabric.a.try_command(CommandOpcode::QUERY_COUNTERS, reserved.as_bytes());
    assert_eq!(refused, (2, "CommandReserved"));
}

/// Numbers are places in lists: datasheet and kernel module have the same ones.
#[test]
fn documents_and_module_number_them_alike() {
    let read = |name: &str| std::fs::read_to_string(format!("{ROOT}/{name}")).unwrap();
    let datasheet = read("docs/hardware-abi.md");
    let table = |head: &str| -> Vec<String> {
        let rows = datasheet.lines().skip_while(|line| *line != head).skip(2).take_while(|line| line.starts_with('|'));
        let rows = rows.enumerate().map(|(number, row)| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            assert_eq!(cells[1], number.to_string(), "{row}");
            cells[2].trim_matches('`').to_owned()
        });
        rows.collect()
    };
    let port: Vec<String> = Counters::default().named().into_iter().map(|(name, _)| name.to_owned()).collect();
    let classes: Vec<String> = rnic_classes().into_iter().map(|class| class.name().to_owned()).collect();
    assert_eq!(table("| number | counter | counts |"), port);
    assert_eq!(table("| number | class |"), classes);
    let module = read("guest-driver-shim/linux/counters.c");
    let names: Vec<&str> =
        module.lines().filter_map(|line| line.trim().strip_prefix("{ .name = \"")?.strip_suffix("\" },")).collect();
    let expected: Vec<String> =
        port.iter().cloned().chain(classes.iter().map(|class| format!("pcie_{class}"))).collect();
    assert_eq!(names, expected);
    assert!(module.contains(&format!("#define PORT_COUNTERS {}\n", port.len())));
}
