//! Bucket properties as fields of `RpbBucketProps`, in both directions.
//!
//! Properties without a field (`dvv_enabled`, `stat_tracked`, `object_tag`) are not sent over this
//! protocol. A list of hooks counts only together with its flag: an empty list with the flag set
//! clears the hooks. Fields that Riak 3.2 lacks (`node_confirms`, `sync_on_write`) are sent only if
//! they differ from the default. `expiry_secs` has a field of ours, which Riak's clients ignore.

use bytes::Bytes;
use kvorum_properties::{
    BucketProperties, CommitHook, Datatype, KeyFunction, LinkFunction, ModuleFunction,
    PropertyErrors, PropertyOverlay, Quorum, Reason, Replication, SyncOnWrite,
};
use kvorum_protocol::pb;
use kvorum_protocol::pb::RpbSyncOnWrite;
use kvorum_protocol::pb::rpb_bucket_props::RpbReplMode;

/// The message fields of these properties.
pub(crate) fn fields_of(properties: &BucketProperties) -> pb::RpbBucketProps {
    pb::RpbBucketProps {
        n_val: Some(properties.n_val),
        allow_mult: Some(properties.allow_mult),
        last_write_wins: Some(properties.last_write_wins),
        precommit: properties.precommit.iter().map(hook_field).collect(),
        has_precommit: Some(true),
        postcommit: properties.postcommit.iter().map(hook_field).collect(),
        has_postcommit: Some(true),
        chash_keyfun: Some(function_field(
            &properties.chash_keyfun.to_module_function(),
        )),
        linkfun: match &properties.linkfun {
            LinkFunction::Module(function) => Some(function_field(function)),
            // The message cannot express JavaScript functions.
            LinkFunction::Named(_) | LinkFunction::Source(_) => None,
        },
        old_vclock: Some(saturated(properties.old_vclock)),
        young_vclock: Some(saturated(properties.young_vclock)),
        big_vclock: Some(saturated(properties.big_vclock)),
        small_vclock: Some(saturated(properties.small_vclock)),
        pr: Some(properties.pr.to_wire()),
        r: Some(properties.r.to_wire()),
        w: Some(properties.w.to_wire()),
        pw: Some(properties.pw.to_wire()),
        dw: Some(properties.dw.to_wire()),
        rw: Some(properties.rw.to_wire()),
        basic_quorum: Some(properties.basic_quorum),
        notfound_ok: Some(properties.notfound_ok),
        backend: properties.backend.clone().map(Bytes::from),
        search: properties.search,
        repl: properties.repl.map(|mode| replication_field(mode).into()),
        search_index: properties.search_index.clone().map(Bytes::from),
        datatype: properties
            .datatype
            .map(|datatype| Bytes::from_static(datatype.word().as_bytes())),
        consistent: properties.consistent,
        write_once: properties.write_once,
        hll_precision: properties.hll_precision.map(u32::from),
        node_confirms: (properties.node_confirms != Quorum::Number(0))
            .then(|| properties.node_confirms.to_wire()),
        sync_on_write: (properties.sync_on_write != SyncOnWrite::Backend)
            .then(|| sync_field(properties.sync_on_write).into()),
        aae_tree_exclude: properties.aae_tree_exclude,
        expiry_secs: properties.expiry_secs,
    }
}

/// The properties that a client sets. Every field without a valid value is reported.
pub(crate) fn overlay_of(fields: &pb::RpbBucketProps) -> Result<PropertyOverlay, PropertyErrors> {
    let mut reader = Reader::default();
    let overlay = PropertyOverlay {
        n_val: fields.n_val,
        r: reader.quorum("r", fields.r),
        w: reader.quorum("w", fields.w),
        dw: reader.quorum("dw", fields.dw),
        pr: reader.quorum("pr", fields.pr),
        pw: reader.quorum("pw", fields.pw),
        rw: reader.quorum("rw", fields.rw),
        node_confirms: reader.quorum("node_confirms", fields.node_confirms),
        sync_on_write: reader.sync_on_write(fields.sync_on_write),
        basic_quorum: fields.basic_quorum,
        notfound_ok: fields.notfound_ok,
        allow_mult: fields.allow_mult,
        last_write_wins: fields.last_write_wins,
        dvv_enabled: None,
        young_vclock: fields.young_vclock.map(u64::from),
        old_vclock: fields.old_vclock.map(u64::from),
        small_vclock: fields.small_vclock.map(u64::from),
        big_vclock: fields.big_vclock.map(u64::from),
        precommit: reader.hooks("precommit", fields.has_precommit(), &fields.precommit),
        postcommit: reader.hooks("postcommit", fields.has_postcommit(), &fields.postcommit),
        chash_keyfun: reader.key_function(fields.chash_keyfun.as_ref()),
        linkfun: reader.link_function(fields.linkfun.as_ref()),
        datatype: reader.datatype(fields.datatype.as_deref()),
        hll_precision: reader.hll_precision(fields.hll_precision),
        consistent: fields.consistent,
        write_once: fields.write_once,
        backend: reader.text("backend", fields.backend.as_deref()),
        search: fields.search,
        search_index: reader.text("search_index", fields.search_index.as_deref()),
        repl: reader.replication(fields.repl),
        stat_tracked: None,
        object_tag: None,
        aae_tree_exclude: fields.aae_tree_exclude,
        expiry_secs: fields.expiry_secs,
    };
    if let Err(errors) = overlay.check_values() {
        reader.errors.pairs.extend(errors.pairs);
    }
    match reader.errors.pairs.is_empty() {
        true => Ok(overlay),
        false => Err(reader.errors),
    }
}

/// Collects the errors while fields are read.
#[derive(Default)]
struct Reader {
    errors: PropertyErrors,
}

impl Reader {
    /// Returns a value, or notes an error if there is none.
    fn or_refuse<T>(&mut self, property: &str, reason: Reason, value: Option<T>) -> Option<T> {
        if value.is_none() {
            self.errors.pairs.push((property.to_owned(), reason));
        }
        value
    }

    /// Reads a quorum. A bucket cannot have the quorum `default`.
    fn quorum(&mut self, property: &str, wire: Option<u32>) -> Option<Quorum> {
        let quorum = Quorum::from_wire(wire?);
        self.or_refuse(property, Reason::NotValidQuorum, quorum)
    }

    fn text(&mut self, property: &str, bytes: Option<&[u8]>) -> Option<String> {
        let text = str::from_utf8(bytes?).ok().map(str::to_owned);
        self.or_refuse(property, Reason::NotString, text)
    }

    fn hooks(
        &mut self,
        property: &str,
        is_given: bool,
        fields: &[pb::RpbCommitHook],
    ) -> Option<Vec<CommitHook>> {
        let hooks = is_given.then(|| fields.iter().map(hook_of).collect())?;
        self.or_refuse(property, Reason::NotFunction, hooks)
    }

    fn key_function(&mut self, field: Option<&pb::RpbModFun>) -> Option<KeyFunction> {
        let known = function_of(field?).and_then(|name| KeyFunction::from_module_function(&name));
        self.or_refuse("chash_keyfun", Reason::NotSupported, known)
    }

    fn link_function(&mut self, field: Option<&pb::RpbModFun>) -> Option<LinkFunction> {
        let function = function_of(field?).map(LinkFunction::Module);
        self.or_refuse("linkfun", Reason::NotFunction, function)
    }

    fn datatype(&mut self, word: Option<&[u8]>) -> Option<Datatype> {
        let word = String::from_utf8_lossy(word?).into_owned();
        let known = Datatype::from_word(&word);
        self.or_refuse("datatype", Reason::OtherDatatype(word), known)
    }

    fn hll_precision(&mut self, precision: Option<u32>) -> Option<u8> {
        let given = precision?;
        let small = u8::try_from(given).ok();
        self.or_refuse("hll_precision", Reason::Precision(given.to_string()), small)
    }

    fn replication(&mut self, mode: Option<i32>) -> Option<Replication> {
        let known = RpbReplMode::try_from(mode?).ok().map(|mode| match mode {
            RpbReplMode::False => Replication::Off,
            RpbReplMode::Realtime => Replication::Realtime,
            RpbReplMode::Fullsync => Replication::Fullsync,
            RpbReplMode::True => Replication::On,
        });
        self.or_refuse("repl", Reason::NotSupported, known)
    }

    fn sync_on_write(&mut self, mode: Option<i32>) -> Option<SyncOnWrite> {
        let known = RpbSyncOnWrite::try_from(mode?).ok().map(|mode| match mode {
            RpbSyncOnWrite::Backend => SyncOnWrite::Backend,
            RpbSyncOnWrite::One => SyncOnWrite::One,
            RpbSyncOnWrite::All => SyncOnWrite::All,
        });
        self.or_refuse("sync_on_write", Reason::NotValidSyncParam, known)
    }
}

fn hook_of(field: &pb::RpbCommitHook) -> Option<CommitHook> {
    if let Some(function) = &field.modfun {
        return function_of(function).map(CommitHook::of_function);
    }
    let name = str::from_utf8(field.name.as_deref()?).ok()?;
    (!name.is_empty()).then(|| CommitHook::Named(name.to_owned()))
}

fn hook_field(hook: &CommitHook) -> pb::RpbCommitHook {
    let of_function = |function: &ModuleFunction| pb::RpbCommitHook {
        modfun: Some(function_field(function)),
        name: None,
    };
    match hook {
        CommitHook::Validator(validator) => of_function(&validator.function()),
        CommitHook::Module(function) => of_function(function),
        CommitHook::Named(name) => pb::RpbCommitHook {
            modfun: None,
            name: Some(name.clone().into()),
        },
    }
}

fn function_of(field: &pb::RpbModFun) -> Option<ModuleFunction> {
    let module = str::from_utf8(&field.module).ok()?;
    let function = str::from_utf8(&field.function).ok()?;
    let is_whole = !module.is_empty() && !function.is_empty();
    is_whole.then(|| ModuleFunction::new(module, function))
}

fn function_field(function: &ModuleFunction) -> pb::RpbModFun {
    pb::RpbModFun {
        module: function.module.clone().into(),
        function: function.function.clone().into(),
    }
}

fn replication_field(mode: Replication) -> RpbReplMode {
    match mode {
        Replication::Off => RpbReplMode::False,
        Replication::Realtime => RpbReplMode::Realtime,
        Replication::Fullsync => RpbReplMode::Fullsync,
        Replication::Both | Replication::On => RpbReplMode::True,
    }
}

fn sync_field(mode: SyncOnWrite) -> RpbSyncOnWrite {
    match mode {
        SyncOnWrite::Backend => RpbSyncOnWrite::Backend,
        SyncOnWrite::One => RpbSyncOnWrite::One,
        SyncOnWrite::All => RpbSyncOnWrite::All,
    }
}

fn saturated(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(module: &'static str, function: &'static str) -> pb::RpbCommitHook {
        pb::RpbCommitHook {
            modfun: Some(pb::RpbModFun {
                module: Bytes::from_static(module.as_bytes()),
                function: Bytes::from_static(function.as_bytes()),
            }),
            name: None,
        }
    }

    #[test]
    fn what_a_client_reads_it_can_write_back() {
        let mut properties = BucketProperties::typed_defaults();
        properties.precommit = vec![CommitHook::Named("js".into())];
        properties.postcommit = vec![CommitHook::Module(ModuleFunction::new("m", "f"))];
        properties.chash_keyfun = KeyFunction::BucketOnly;
        properties.datatype = Some(Datatype::HyperLogLog);
        properties.hll_precision = Some(9);
        properties.repl = Some(Replication::On);
        properties.sync_on_write = SyncOnWrite::All;
        properties.backend = Some("disk".into());
        properties.expiry_secs = Some(60);
        properties.r = Quorum::All;
        properties.pw = Quorum::Number(2);
        let overlay = overlay_of(&fields_of(&properties)).unwrap();
        assert_eq!(
            BucketProperties::typed_defaults().with(&overlay),
            properties
        );
    }

    #[test]
    fn hooks_count_only_with_their_flag() {
        let mut fields = pb::RpbBucketProps {
            precommit: vec![hook("m", "f")],
            ..Default::default()
        };
        assert_eq!(overlay_of(&fields).unwrap().precommit, None);
        fields.has_precommit = Some(true);
        assert_eq!(overlay_of(&fields).unwrap().precommit.unwrap().len(), 1);
        fields.precommit.clear();
        assert_eq!(overlay_of(&fields).unwrap().precommit, Some(Vec::new()));
    }

    #[test]
    fn every_bad_field_is_reported() {
        let fields = pb::RpbBucketProps {
            n_val: Some(0),
            r: Some(0),
            has_precommit: Some(true),
            precommit: vec![hook("m", "")],
            chash_keyfun: hook("my", "own").modfun,
            datatype: Some(Bytes::from_static(b"tree")),
            hll_precision: Some(300),
            repl: Some(9),
            sync_on_write: Some(9),
            backend: Some(Bytes::from_static(&[0xff])),
            ..Default::default()
        };
        let errors = overlay_of(&fields).unwrap_err();
        let text = errors.to_string();
        for pair in [
            "{n_val,not_integer}",
            "{r,not_valid_quorum}",
            "{precommit,not_function}",
            "{chash_keyfun,not_supported}",
            "{datatype,\"tree not supported for bucket datatype property\"}",
            "{hll_precision,\"300 not supported for Hyperloglog precision",
            "{repl,not_supported}",
            "{sync_on_write,not_valid_sync_param}",
            "{backend,not_string}",
        ] {
            assert!(text.contains(pair), "{pair} in {text}");
        }
        assert_eq!(errors.pairs.len(), 9);
    }
}
