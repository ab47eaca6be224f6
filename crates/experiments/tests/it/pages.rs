//! The content of the pages, and the input that they refuse.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use kvorum_experiments::{Program, ReportCommand, execute};
use serde_json::Value;

use crate::directory::write_run;

#[derive(Parser)]
struct CommandLine {
    #[command(subcommand)]
    command: ReportCommand,
}

fn run(arguments: &[&str]) -> anyhow::Result<String> {
    let line = CommandLine::try_parse_from(["bench"].iter().chain(arguments))?;
    let program = Program {
        binary: PathBuf::new(),
        engines: Vec::new(),
    };
    let mut out = Vec::new();
    execute(&line.command, &program, &mut out)?;
    Ok(String::from_utf8(out)?)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The numbers that a page carries.
fn data(page: &str) -> Value {
    let (_, rest) = page.split_once("type=\"application/json\">").unwrap();
    let (json, _) = rest.split_once("</script>").unwrap();
    serde_json::from_str(json).unwrap()
}

/// The values of a line of a chart.
fn line(data: &Value, chart: &str, name: &str) -> Vec<Option<f64>> {
    let find = |list: &Value, key: &str, wanted: &str| {
        let found = list
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one[key] == wanted);
        found.unwrap_or_else(|| panic!("no {wanted}")).clone()
    };
    let line = find(&find(&data["charts"], "id", chart)["lines"], "name", name);
    let column = usize::try_from(line["y"].as_u64().unwrap()).unwrap();
    let values = data["columns"][column].as_array().unwrap().iter();
    values.map(Value::as_f64).collect()
}

#[test]
fn a_report_carries_the_values_of_the_files() {
    let folder = tempfile::tempdir().unwrap();
    write_run(folder.path(), "a run", 1);
    let said = run(&["report", text(folder.path())]).unwrap();
    assert!(said.contains("report.html"), "{said}");
    let page = fs::read_to_string(folder.path().join("report.html")).unwrap();
    let data = data(&page);
    let successful = line(&data, "throughput-time", "successful");
    assert_eq!(successful, [Some(100.0); 3]);
    let failed = line(&data, "throughput-time", "failed");
    assert_eq!(failed, [Some(0.0), Some(0.5), Some(0.0)]);
    let mean = line(&data, "latency-get-unique", "mean");
    assert_eq!(mean, [Some(250.5), None, Some(260.5)]);
    assert_eq!(line(&data, "cpu", "CPU"), [None, Some(0.2)]);
    let written = line(&data, "disk-bytes", "written");
    assert_eq!(written, [None, Some(400_000.0)]);
    for figure in [
        "data-value=\"100\"",
        "2.5\u{a0}s",
        "25\u{a0}%",
        "2,000\u{a0}\u{b5}s",
        "2,500\u{a0}ms",
        "A &amp; B",
    ] {
        assert!(page.contains(figure), "{figure}");
    }
}

#[test]
fn what_is_unknown_is_left_out_and_said() {
    let folder = tempfile::tempdir().unwrap();
    write_run(folder.path(), "a run", 1);
    for file in ["server.csv", "volume.csv", "run.json"] {
        fs::remove_file(folder.path().join(file)).unwrap();
    }
    run(&["report", text(folder.path())]).unwrap();
    let page = fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert_eq!(page.matches("class=\"missing\"").count(), 3);
    let charts = data(&page)["charts"].as_array().unwrap().len();
    assert_eq!(charts, 2);
}

#[test]
fn nothing_in_a_page_comes_from_elsewhere_or_breaks_out() {
    let folder = tempfile::tempdir().unwrap();
    write_run(folder.path(), "<img src=//evil.example onerror=x>", 1);
    run(&["report", text(folder.path())]).unwrap();
    let page = fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(!page.contains("<img"));
    assert_eq!(page.matches("</script>").count(), 2);
    for reference in ["src=\"", "<link", "@import", "url("] {
        assert!(!page.contains(reference), "{reference}");
    }
}

#[test]
fn a_comparison_has_ratios_against_the_chosen_base() {
    let folder = tempfile::tempdir().unwrap();
    let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
    write_run(&one, "one", 1);
    write_run(&two, "two", 3);
    let out = folder.path().join("pages").join("comparison.html");
    let mut arguments = vec!["compare", text(&one), text(&two), "--out", text(&out)];
    run(&arguments).unwrap();
    let page = fs::read_to_string(&out).unwrap();
    assert!(page.contains("\u{25b2}\u{a0}\u{d7}3<"), "no ratio of three");
    assert_eq!(
        line(&data(&page), "throughput-time", "two"),
        [Some(300.0); 3]
    );
    arguments.extend(["--base", text(&two)]);
    run(&arguments).unwrap();
    let page = fs::read_to_string(&out).unwrap();
    assert!(
        page.contains("\u{25bc}\u{a0}\u{d7}0.33<"),
        "no ratio of a third"
    );
}

/// Regression: a run with 6,424 failures in ten thousand looked like any other.
#[test]
fn failures_stand_at_the_top_with_their_causes() {
    let folder = tempfile::tempdir().unwrap();
    write_run(folder.path(), "a run", 1);
    run(&["report", text(folder.path())]).unwrap();
    let page = fs::read_to_string(folder.path().join("report.html")).unwrap();
    let failures = page.find("class=\"failures\"").unwrap();
    assert!(failures < page.find("class=\"tiles\"").unwrap());
    for part in [
        "5 of 3,005 operations failed (0.17\u{a0}%)",
        "{error,&lt;&lt;&quot;over&quot;&gt;&gt;}",
        "timeout",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn ratios_are_taken_between_equal_loads_only() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["one", "two", "other"];
    let paths = names.map(|name| folder.path().join(name));
    for (number, (path, name)) in paths.iter().zip(names).enumerate() {
        write_run(path, name, u32::try_from(number).unwrap() + 1);
    }
    let described = paths[2].join("run.json");
    let changed = fs::read_to_string(&described).unwrap();
    let changed = changed.replace("\"workers\": 7", "\"workers\": 70");
    fs::write(&described, changed).unwrap();
    let out = folder.path().join("comparison.html");
    let mut arguments = vec!["compare"];
    arguments.extend(paths.iter().map(|path| text(path)));
    arguments.extend(["--out", text(&out)]);
    run(&arguments).unwrap();
    let page = fs::read_to_string(&out).unwrap();
    assert!(page.contains("\u{25b2}\u{a0}\u{d7}2<"), "no ratio of two");
    assert!(!page.contains("\u{d7}3<"), "a ratio of another load");
    assert!(
        page.contains("<strong>other</strong> (concurrent)"),
        "not named"
    );
}

#[test]
fn a_run_without_a_name_is_called_by_its_configuration() {
    let folder = tempfile::tempdir().unwrap();
    write_run(folder.path(), "20261126_032021", 1);
    run(&["report", text(folder.path())]).unwrap();
    let page = fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains("<h1>x</h1>"), "the configuration is x.config");
}

#[test]
fn what_is_no_result_is_refused_with_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let directory = text(folder.path());
    let refusal = || format!("{:#}", run(&["report", directory]).unwrap_err());
    assert!(refusal().contains("summary.csv"), "{}", refusal());
    write_run(folder.path(), "x", 1);
    fs::write(folder.path().join("run.json"), "{\"format\": 9}").unwrap();
    assert!(refusal().contains("has format 9"), "{}", refusal());
    fs::write(folder.path().join("run.json"), "{").unwrap();
    assert!(refusal().contains("cannot understand"), "{}", refusal());
    fs::remove_file(folder.path().join("run.json")).unwrap();
    fs::write(folder.path().join("summary.csv"), "elapsed\n1\n").unwrap();
    assert!(
        refusal().contains("there is no column window"),
        "{}",
        refusal()
    );
}
