//! Making tables of known content.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use kvorum_disk::{Disk, MemoryDisk, OpenMode};
use kvorum_encoding::SegmentFilter;
use kvorum_sst::{
    DamageSink, Facts, Gap, KnownTable, ReadContext, ScanItem, ScanOptions, Table, TableDamage,
    TableId, TableOptions, TableScan, TableWriter, hash_key,
};

pub(crate) const ID: TableId = TableId {
    store: 77,
    number: 3,
};
pub(crate) const PATH: &str = "3.sst";

pub(crate) type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A map of this many keys, each with its key in the value.
pub(crate) fn map(keys: usize) -> Map {
    let key = |number: usize| format!("key {:05}", number * 3).into_bytes();
    let value = |number: usize| {
        format!("value {number} ")
            .repeat(1 + number % 7)
            .into_bytes()
    };
    (0..keys)
        .map(|number| (key(number), value(number)))
        .collect()
}

pub(crate) fn facts(number: usize) -> Facts {
    Facts {
        sequence: number as u64 + 1,
        last_modified: 1_000 + number as u64,
        segment: u32::try_from(number).unwrap() * 7919,
        ..Facts::default()
    }
}

/// The filter for the segments of these entries, which are in the order of the entries.
pub(crate) fn segments_of(numbers: &[usize]) -> SegmentFilter {
    SegmentFilter::Segments(numbers.iter().map(|it| facts(*it).segment).collect())
}

pub(crate) fn small_options() -> TableOptions {
    TableOptions {
        block_bytes: 300,
        restart_interval: 4,
        index_block_bytes: 120,
        ..TableOptions::default()
    }
}

pub(crate) fn write(disk: &MemoryDisk, map: &Map, options: TableOptions) -> KnownTable {
    let mut writer = TableWriter::create(disk, Path::new(PATH), ID, options).unwrap();
    for (number, (key, value)) in map.iter().enumerate() {
        writer.add(key, value, &facts(number)).unwrap();
    }
    writer.finish().unwrap()
}

/// Stores the reported damage.
#[derive(Default)]
pub(crate) struct Reported(pub(crate) Mutex<Vec<TableDamage>>);

impl DamageSink for Reported {
    fn met(&self, damage: TableDamage) {
        self.0.lock().unwrap().push(damage);
    }
}

pub(crate) fn open(disk: &dyn Disk, written: &KnownTable, reported: &Reported) -> Arc<Table> {
    let opened = Table::open(disk, Path::new(PATH), written.clone(), 1, reported);
    Arc::new(opened.unwrap())
}

pub(crate) fn get(
    table: &Table,
    key: &[u8],
    context: &ReadContext<'_>,
) -> Result<Option<Vec<u8>>, kvorum_sst::SstError> {
    let found = table.get(key, hash_key(key), context)?;
    Ok(found.map(|found| found.value.to_vec()))
}

/// All entries and gaps of a scan.
pub(crate) fn scan(
    table: &Arc<Table>,
    options: ScanOptions,
    context: &ReadContext<'_>,
) -> (Map, Vec<Gap>) {
    let mut scan = TableScan::new(table.clone(), options);
    let (mut seen, mut gaps) = (Map::new(), Vec::new());
    loop {
        match scan.advance(context).unwrap() {
            ScanItem::Entry => {
                let is_behind = seen
                    .last_key_value()
                    .is_none_or(|(last, _)| &last[..] < scan.key());
                assert!(is_behind, "out of order");
                seen.insert(scan.key().to_vec(), scan.value().to_vec());
            }
            ScanItem::Gap(gap) => gaps.push(gap),
            ScanItem::End => return (seen, gaps),
        }
    }
}

pub(crate) fn flip(disk: &MemoryDisk, offset: u64, bits: u8) {
    let file = disk.open(Path::new(PATH), OpenMode::ReadWrite).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, offset, kvorum_disk::Reading::MayBlock)
        .unwrap();
    file.write_at(&[byte[0] ^ bits], offset).unwrap();
}
