//! Keys of logs.

use crate::key::{Ancestry, Key, key};
use crate::kind::{Choice, Kind};
use crate::settings::{LogLevel, LogOutput};

pub(super) const KEYS: &[Key] = &[
    key(
        "logger.level",
        Kind::Choice(&[
            Choice("debug", |settings| settings.log.level = LogLevel::Debug),
            Choice("info", |settings| settings.log.level = LogLevel::Info),
            Choice("notice", |settings| settings.log.level = LogLevel::Warning),
            Choice("warning", |settings| settings.log.level = LogLevel::Warning),
            Choice("error", |settings| settings.log.level = LogLevel::Error),
            Choice("critical", |settings| settings.log.level = LogLevel::Error),
            Choice("alert", |settings| settings.log.level = LogLevel::Error),
            Choice("emergency", |settings| settings.log.level = LogLevel::Error),
            Choice("none", |settings| settings.log.level = LogLevel::None),
        ]),
        "info",
        "The least severe event that is logged. \
         Of Riak's levels, `notice` is taken as `warning`, \
         and `critical`, `alert` and `emergency` as `error`.",
    ),
    Key {
        ancestry: Ancestry::RiakAs("`log.console` up to 2.2"),
        ..Key::new(
            "logger.output",
            Kind::Choice(&[
                Choice("off", |settings| settings.log.output = LogOutput::Off),
                Choice("console", |settings| {
                    settings.log.output = LogOutput::Console;
                }),
                Choice("file", |settings| settings.log.output = LogOutput::File),
                Choice("both", |settings| settings.log.output = LogOutput::Both),
            ]),
            None,
            "The destination of log lines: standard error (`console`), `logger.file` (`file`), \
             `both`, or nowhere (`off`). Not set, it is `both` if `logger.file` is set, else \
             `console`.",
        )
    },
    key(
        "logger.file",
        Kind::Path(|settings, value| settings.log.file = value),
        "$(platform_log_dir)/console.log",
        "The log file. It is renamed to `FILE.1` when it has `logger.max_file_size`. If logrotate \
         does that, set `logger.max_file_size` above its size, and let it use `copytruncate`.",
    ),
    Key {
        ancestry: Ancestry::RiakAs("a template of Erlang's logger, which has no effect here"),
        ..key(
            "logger.format",
            Kind::LogFormat(|settings, value| settings.log.format = value),
            "logfmt",
            "The form of a line, which is one event: `logfmt` for `name=\"value\"` pairs, `json` \
             for an object. Each line has `time`, `level` and `event`; a line with a node's \
             identity has the node's name beside it.",
        )
    },
    key(
        "logger.max_file_size",
        Kind::Bytes(16 << 10.., |settings, value| {
            settings.log.file_bytes_max = value;
        }),
        "10MB",
        "A log file of this length is renamed to `FILE.1`, and a new one is begun.",
    ),
    key(
        "logger.max_files",
        Kind::Integer(0..=1000, |settings, value| settings.log.files_max = value),
        "10",
        "The number of old log files that are kept; `FILE.1` is the newest.",
    ),
];
