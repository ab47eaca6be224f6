//! Settings of several backends on one node: the ones without effect, and the reason.
//!
//! Such a setting has its effect on a node of several backends, if it is one of its backend's engine.
//! The rest is named as ignored: a report that calls it honoured hides a slip in a name.

use crate::catalogue::BUCKET_PREFIX;
use crate::name::Name;
use crate::settings::{Settings, StorageBackend};

/// The reason that `multi_backend.default` has no effect, if it has none; fits after "ignored because".
pub(crate) fn default_without_effect(settings: &Settings) -> Option<String> {
    let engine = settings.node.storage_backend;
    (engine != StorageBackend::Multi).then(|| one_engine(engine))
}

/// The reason that `multi_backend.NAME.REST` has no effect, if it has none; fits after "ignored because".
pub(crate) fn without_effect(name: &str, rest: &Name, settings: &Settings) -> Option<String> {
    default_without_effect(settings).or_else(|| match &*rest.to_string() {
        "storage_backend" => None,
        BUCKET_PREFIX => (!settings.multi.goes_by_prefix).then(|| GOES_BY_PREFIX.to_owned()),
        _ => of_another_engine(name, rest, settings),
    })
}

const GOES_BY_PREFIX: &str =
    "`storage_backend` is multi, and beginnings of names count with prefix_multi alone";

fn one_engine(engine: StorageBackend) -> String {
    format!(
        "`storage_backend` is {}: several backends count with multi and prefix_multi alone",
        engine.name()
    )
}

fn of_another_engine(name: &str, rest: &Name, settings: &Settings) -> Option<String> {
    let backend = settings.multi.backends.iter().find(|it| it.name == name)?;
    let engine = backend.settings.node.storage_backend;
    let family = rest.words().first()?;
    (family != family_of(engine)).then(|| {
        format!(
            "`multi_backend.{name}.storage_backend` is {}, to which keys of `{family}` mean nothing",
            engine.name()
        )
    })
}

/// The first word of an engine's keys.
fn family_of(engine: StorageBackend) -> &'static str {
    match engine {
        StorageBackend::Memory => "memory_backend",
        engine => engine.name(),
    }
}
