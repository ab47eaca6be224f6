//! Result directories with known contents.

use std::fs;
use std::path::Path;

/// Writes a small but whole run: three rows, with one operation idle in the second.
pub(crate) fn write_run(directory: &Path, name: &str, factor: u32) {
    fs::create_dir_all(directory).unwrap();
    let write = |file: &str, text: String| fs::write(directory.join(file), text).unwrap();
    write(
        "summary.csv",
        format!(
            "elapsed, window, total, successful, failed\n\
             10.0, 10.0, {0}, {0}, 0\n20.0, 10.0, {1}, {0}, 5\n30.0, 10.0, {0}, {0}, 0\n",
            1000 * factor,
            1000 * factor + 5
        ),
    );
    write(
        "get-unique_latencies.csv",
        "elapsed, window, n, min, mean, median, 95th, 99th, 99_9th, max, errors\n\
         10.0, 10.0, 900, 100, 250.5, 240, 400, 700, 1500, 2100, 0\n\
         20.0, 10.0, 0, 0, 0, 0, 0, 0, 0, 0, 5\n\
         30.0, 10.0, 900, 110, 260.5, 250, 410, 710, 1510, 2500000, 0\n"
            .to_owned(),
    );
    write(
        "server.csv",
        "elapsed, cpu_seconds, resident_bytes, disk_bytes, read_bytes, written_bytes, put_bytes\n\
         0, 0, 40000000, 0, , 0, 0\n30, 6, 60000000, 9000000, , 12000000, 6000000\n"
            .to_owned(),
    );
    write(
        "volume.csv",
        "elapsed, operations, payload_bytes\n0, 0, 0\n30, 3000, 3000000\n".to_owned(),
    );
    write(
        "errors.csv",
        "\"error\",\"count\"\n\"{{get_unique,get_unique},{error,<<111,118,101,114>>}}\",\"4\"\n\
         \"{{get_unique,get_unique},timeout}\",\"1\"\n"
            .to_owned(),
    );
    write("run.json", description(name));
}

fn description(name: &str) -> String {
    let name = serde_json::Value::from(name);
    format!(
        r#"{{
          "format": 1, "name": {name}, "configuration_file": "/there/x.config",
          "configuration": {{"bucket": "<<\"</script><img src=//x>\">>"}},
          "started_unix_seconds": 1795325400, "duration_seconds": 30, "warm_up_seconds": 0,
          "mode": "closed", "rate": null, "workers": 7, "scale": 1, "driver": "nhs",
          "backend": "bitcask", "durability": "none", "server": null,
          "machine": {{"cpu_model": "A & B", "cores": 2, "memory_bytes": 1e9,
                       "kernel": "k", "filesystem": "ext4", "device": "d"}},
          "totals": {{"get_unique": {{"count": 1800, "errors": 5, "misses": 450, "mean_us": 255.5,
                      "p50_us": 245, "p95_us": 405, "p99_us": 705, "p999_us": 1505,
                      "max_us": 2500000}}}},
          "operations_total": 3000, "operations_per_second": 100,
          "stalls": [{{"at_seconds": 12, "seconds": 2.5}}]
        }}"#
    )
}
