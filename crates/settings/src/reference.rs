//! The reference page, written from the tables of keys.

use std::fmt::Write as _;

use crate::catalogue::riak_families;
use crate::former_names::FORMER_NAMES;
use crate::honoured::SECTIONS;
use crate::key::Key;
use crate::riak::Fate;

/// The page in Markdown: every key that Kvorum honours, their former names, then every other key of
/// Riak's and its fate.
pub fn reference_page() -> String {
    let mut text = String::from(INTRODUCTION);
    for section in &SECTIONS {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n## {}", section.title);
        for key in section.keys {
            write_key(&mut text, key);
        }
    }
    text.push_str(FORMER);
    for (former, present) in FORMER_NAMES {
        let _ = writeln!(text, "| `{former}` | `{present}` |");
    }
    text.push_str(RIAK);
    for family in riak_families() {
        let _ = writeln!(text, "\n### {}\n", family.title);
        let _ = writeln!(text, "| Key of Riak | Treatment here |\n|---|---|");
        for key in family.keys() {
            let _ = match key.fate {
                Fate::Mapped(to) => writeln!(text, "| `{}` | mapped to `{to}` |", key.name),
                Fate::Ignored(reason) => {
                    writeln!(text, "| `{}` | ignored because {reason} |", key.name)
                }
                Fate::Guarded(reason) => writeln!(
                    text,
                    "| `{}` | refused unless it is empty (`[]`): {reason} |",
                    key.name
                ),
            };
        }
    }
    text
}

const INTRODUCTION: &str = "\
# Configuration

This page is generated: `cargo run -p kvorum-settings --example write_reference`.

A node reads one file, `kvorum.conf`, in the form of riak.conf: `key = value` on a line, comments after `#`.
A later line wins over an earlier one, and `kvorum server --set key=value` over both.
A value in single quotes may contain `#`.
`$(key)` in a value stands for the value of that key, as in `$(platform_data_dir)/bitcask`.
There is no `include`.

- `kvorum chkconfig` reports all mistakes in the file at once.
- `kvorum describe` lists all keys with their values, `kvorum describe KEY` describes one.
- [kvorum.conf.sample](kvorum.conf.sample) has every key with its default.

An unmodified riak.conf of Riak 2.2 or 3.2 starts the server, which prints for each key whether it is honoured, mapped to another key, or ignored for a reason.
A key that neither Riak nor Kvorum has is refused with its line and the nearest right name.

### advanced.config and app.config

An `advanced.config` in the same directory is read as well, and beside a `riak.conf` also an `app.config`.
They hold Erlang terms, `[{Application, [{Key, Value}]}].`, and win over the file: first `app.config`, then `advanced.config`, then `--set`.
As in Riak, a key there replaces all of the file's settings for it: `default_bucket_props` all of `buckets.default.*`, and a list of listeners all listeners of that protocol.
Riak 2 and later uses only an `app.config`, if there is one; here the settings that it lacks come from `riak.conf`.

Each key is honoured under its name in riak.conf, ignored with a reason, or refused; the report names it as `application.key`.
A key that would change the backend or the default properties is never ignored.
A file that cannot be read is refused with line and column.
`vm.args` is not read, and a warning says so.

Durations are `500ms`, `10s`, `5m`, `1h`, `1d`, `1w` or several in a row; a bare number is in the unit that the key names.
Sizes are bytes, or `KB`, `MB`, `GB`, `TB` in powers of 1024.
Flags are `on` and `off`, `true` and `false`, or `enabled` and `disabled`.

A write is on stable storage before it is acknowledged.
This one line gives Riak's default behaviour instead: `bitcask.sync.strategy = none`.
";

const FORMER: &str = "
## Former names

A key of Kvorum's own is taken under the name that it had in earlier versions, too.

| Former name | Key |
|---|---|
";

const RIAK: &str = "
## Other keys of Riak

Each key of a backend may also stand behind `multi_backend.NAME.`; then it applies to the backend of that name.
A key that is not set there has the value of the node.
`multi_backend.NAME.storage_backend` declares a backend: one of bitcask, leveldb, leveled, hanoidb, innostore and memory.
`multi_backend.NAME.bucket_prefix` takes prefixes of bucket names, separated by commas, for `storage_backend = prefix_multi`; if several match a name, the longest one counts.
Settings of another engine than the backend's, and settings of several backends on a node with one, are named as ignored.
Backends of leveldb, leveled and hanoidb share one memory, and so do those of innostore.
Those of bitcask share the read cache, whose size is that of the first of them by name.
";

fn write_key(text: &mut String, key: &Key) {
    let _ = writeln!(text, "\n### `{}`\n", key.name);
    for sentence in sentences(key.help) {
        let _ = writeln!(text, "{sentence}");
    }
    let default = match key.default {
        Some(value) if key.name.contains('$') => {
            format!("`{value}`, with the name `{}`", key.default_word)
        }
        Some(value) => format!("`{value}`"),
        None => "not set".to_owned(),
    };
    let _ = writeln!(
        text,
        "\n- Type: {}; takes {}",
        key.kind.label(),
        key.kind.expected()
    );
    let _ = writeln!(text, "- Default: {default}");
    let _ = writeln!(text, "- To change it: {}", key.change.sentence());
    let _ = writeln!(text, "- Since: {}", key.since);
    let _ = writeln!(text, "- In Riak: {}", key.ancestry.sentence());
}

/// One sentence per line, so that a change of a sentence changes one line.
fn sentences(help: &str) -> impl Iterator<Item = &str> {
    help.split_inclusive(". ").map(str::trim_end)
}
