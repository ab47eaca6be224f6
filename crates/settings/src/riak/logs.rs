//! Keys of logs, of both generations.

use super::family::{Family, RiakKey, ignored, mapped};

pub(super) const FAMILY: Family = Family {
    title: "Logs",
    keys: KEYS,
};

const FORMAT: &str = "lines have one form, which the logger of Erlang does not describe";

const ERRORS: &str = "errors go where the other log lines go";

const CRASH: &str = "there is no crash log: a crash is reported on standard error";

const SYSLOG: &str =
    "the server does not write to syslog: let the service manager take its standard error";

const KEYS: &[RiakKey] = &[
    mapped("log.console", "logger.output"),
    mapped("log.console.level", "logger.level"),
    mapped("log.console.file", "logger.file"),
    ignored("logger.default_filters", FORMAT),
    ignored("logger.additional_handlers", FORMAT),
    ignored("log.error.file", ERRORS),
    ignored("log.error.redirect", ERRORS),
    ignored("log.error.messages_per_second", ERRORS),
    ignored("sasl", ERRORS),
    ignored("log.crash", CRASH),
    ignored("log.crash.file", CRASH),
    ignored("log.crash.maximum_message_size", CRASH),
    ignored("log.crash.size", CRASH),
    ignored("log.crash.rotation", CRASH),
    ignored("log.crash.rotation.keep", CRASH),
    ignored("log.syslog", SYSLOG),
    ignored("log.syslog.ident", SYSLOG),
    ignored("log.syslog.facility", SYSLOG),
    ignored("log.syslog.level", SYSLOG),
];
