//! The results of a campaign as a section of the page that keeps them.

use std::fmt::Write as _;

use crate::sum::Sum;

/// The section, in Markdown; `version` is the version of the runs.
pub(crate) fn section(version: &str, first: u64, sum: &Sum) -> String {
    let mut text = String::new();
    let last = first.wrapping_add(sum.runs.saturating_sub(1));
    let operations = &sum.operations;
    let failed = sum.failed_seeds.len();
    let hours = sum.virtual_time.as_secs_f64() / 3_600.0;
    // Writing to a string does not fail.
    let _written = writeln!(
        text,
        "\n## Seeds {first} to {last}\n\n\
         Version: {version}.\n\
         {} seeds, {hours:.1} hours of virtual time; {} of them were run twice with equal results.\n\n\
         | what | count |\n|---|---:|\n\
         | acknowledged operations | {} |\n\
         | of these, reads | {} |\n\
         | of these, reads checked against all writes before them | {} |\n\
         | of these, writes | {} |\n\
         | of these, deletes | {} |\n\
         | of these, listings | {} |\n\
         | requests without an answer or refused | {} |\n\
         | fault events | {} |\n\
         | merges of stores | {} |\n\
         | collections of value logs | {} |\n\
         | tombstones gone | {} |\n\
         | seeds that found something | {failed} |",
        sum.runs,
        sum.compared,
        operations.acknowledged(),
        operations.reads,
        operations.checked_reads,
        operations.writes,
        operations.deletes,
        operations.listings,
        operations.failed,
        sum.fault_count(),
        sum.upkeep.merges,
        sum.upkeep.collections,
        sum.upkeep.tombstones_reaped,
    );
    if failed > 0 {
        let _written = writeln!(
            text,
            "\nSeeds that found something: {:?}.",
            sum.failed_seeds
        );
    }
    text.push_str("\n| fault | events |\n|---|---:|\n");
    for (kind, count) in sum.faults_by_kind() {
        let _written = writeln!(text, "| {} | {count} |", kind.name());
    }
    text
}
