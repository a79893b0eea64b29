//! Every rule that can be broken is broken, and a test notices.
//!
//! It builds engine, wire and simulation once more, with `--cfg mutants`, in a folder of the target folder.

use rnic_simulation::mutants;
use std::path::Path;

#[test]
fn every_broken_rule_is_noticed() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutants");
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let results = mutants::run(&workspace, &target, &[], threads).expect("a run");
    let table = mutants::read(mutants::TABLE).expect("a table");
    assert_eq!(results.len(), table.len());
    let survivors = mutants::survivors(&results);
    assert_eq!(survivors, [0; 0], "no test notices that these rules of ci/simulation/mutants.txt are broken");
    println!("mutants {}, all caught", results.len());
}
