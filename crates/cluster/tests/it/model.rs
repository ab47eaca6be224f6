//! Random commands against a model that keeps layers as plain maps, through the file and back.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use kvorum_cluster::{AgreedState, Command, LocalState, TypeStatus};
use kvorum_disk::{CrashOptions, Disk, MemoryDisk};
use kvorum_encoding::{Bucket, BucketType};
use kvorum_properties::{BucketProperties, PropertyOverlay, Quorum};
use proptest::prelude::*;

use crate::{NODE_NAME, created, directory};

fn any_name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::sample::select(vec![&b"a"[..], b"b", b"default", b"\xff\n%"])
            .prop_map(<[u8]>::to_vec),
        prop::collection::vec(any::<u8>(), 0..4),
    ]
}

fn any_overlay() -> impl Strategy<Value = PropertyOverlay> {
    let quorum = prop_oneof![
        Just(Quorum::One),
        Just(Quorum::All),
        (0u32..4).prop_map(Quorum::Number)
    ];
    let last_write_wins = prop::option::weighted(0.1, any::<bool>());
    (
        prop::option::of(0u32..5),
        prop::option::of(quorum),
        last_write_wins,
    )
        .prop_map(|(n_val, r, last_write_wins)| PropertyOverlay {
            n_val,
            r,
            last_write_wins,
            ..Default::default()
        })
}

fn any_command() -> impl Strategy<Value = Command> {
    let names = || (any_name(), any_name());
    let typed = |name: Vec<u8>| BucketType::new(Bytes::from(name));
    prop_oneof![
        1 => any_overlay().prop_map(Command::SetDefaultProperties),
        1 => (any_name(), any_overlay()).prop_map(move |(name, properties)| Command::CreateType {
            bucket_type: typed(name),
            properties,
        }),
        1 => any_name().prop_map(move |name| Command::ActivateType { bucket_type: typed(name) }),
        1 => any_name().prop_map(move |name| Command::BeginTypeRemoval { bucket_type: typed(name) }),
        1 => (any_name(), 1u64..30).prop_map(move |(name, since)| Command::FinishTypeRemoval {
            bucket_type: typed(name),
            since,
        }),
        1 => (any_name(), any_overlay()).prop_map(move |(name, properties)| Command::UpdateType {
            bucket_type: typed(name),
            properties,
        }),
        3 => (names(), any_overlay()).prop_map(move |((name, bucket), properties)| {
            Command::SetBucketProperties {
                bucket_type: typed(name),
                bucket: Bucket::new(bucket),
                properties,
            }
        }),
        1 => names().prop_map(move |(name, bucket)| Command::ResetBucketProperties {
            bucket_type: typed(name),
            bucket: Bucket::new(bucket),
        }),
    ]
}

/// The layers alone; the real state decides which commands are accepted.
#[derive(Default)]
struct Model {
    defaults: PropertyOverlay,
    types: BTreeMap<BucketType, (TypeStatus, PropertyOverlay)>,
    buckets: BTreeMap<(BucketType, Bucket), PropertyOverlay>,
}

impl Model {
    fn accept(&mut self, command: Command) {
        match command {
            Command::SetDefaultProperties(properties) => self.defaults = properties,
            Command::CreateType {
                bucket_type,
                properties,
            } => {
                self.types
                    .insert(bucket_type, (TypeStatus::Created, properties));
            }
            Command::ActivateType { bucket_type } => {
                if let Some((status, _)) = self.types.get_mut(&bucket_type) {
                    *status = TypeStatus::Active;
                }
            }
            Command::BeginTypeRemoval { bucket_type } => match self.types.remove(&bucket_type) {
                Some((TypeStatus::Created, _)) | None => {}
                Some((_, overlay)) => {
                    let since = 0;
                    let status = TypeStatus::Leaving { since };
                    self.types.insert(bucket_type, (status, overlay));
                }
            },
            Command::FinishTypeRemoval { bucket_type, .. } => {
                self.types.remove(&bucket_type);
                self.buckets
                    .retain(|(of_type, _), _| *of_type != bucket_type);
            }
            Command::UpdateType {
                bucket_type,
                properties,
            } => {
                let (_, overlay) = self.types.get_mut(&bucket_type).unwrap();
                *overlay = overlay.with(&properties);
            }
            Command::SetBucketProperties {
                bucket_type,
                bucket,
                properties,
            } => {
                let overlay = self
                    .buckets
                    .entry((spelled(bucket_type), bucket))
                    .or_default();
                *overlay = overlay.with(&properties);
            }
            Command::ResetBucketProperties {
                bucket_type,
                bucket,
            } => {
                self.buckets.remove(&(spelled(bucket_type), bucket));
            }
            other => unreachable!("{other:?} is not drawn"),
        }
    }

    fn properties(&self, bucket_type: &BucketType, bucket: &Bucket) -> Option<BucketProperties> {
        let bucket_type = spelled(bucket_type.clone());
        let of_type = if bucket_type.is_default() {
            BucketProperties::untyped_defaults().with(&self.defaults)
        } else {
            let (status, overlay) = self.types.get(&bucket_type)?;
            if *status != TypeStatus::Active {
                return None;
            }
            BucketProperties::typed_defaults().with(overlay)
        };
        let of_bucket = self.buckets.get(&(bucket_type, bucket.clone()));
        Some(of_bucket.map_or(of_type.clone(), |overlay| of_type.with(overlay)))
    }
}

fn spelled(bucket_type: BucketType) -> BucketType {
    if bucket_type.is_default() {
        BucketType::default_type()
    } else {
        bucket_type
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_lookup_agrees_with_the_layers_also_after_a_crash(
        commands in prop::collection::vec(any_command(), 1..25),
    ) {
        let memory = MemoryDisk::new();
        let disk: Arc<dyn Disk> = Arc::new(memory.clone());
        let state = created(&disk);
        let mut model = Model::default();
        let mut asked = vec![(BucketType::default(), Bucket::from("a"))];
        for command in commands {
            if let Command::SetBucketProperties { bucket_type, bucket, .. } = &command {
                asked.push((bucket_type.clone(), bucket.clone()));
            }
            let before = state.current();
            match state.propose(command.clone()) {
                Ok(after) => {
                    model.accept(command);
                    let step = u64::from(after != before);
                    prop_assert_eq!(after.version(), before.version() + step);
                }
                Err(_) => prop_assert_eq!(state.current(), before),
            }
        }
        memory.crash(CrashOptions::nothing_unsynced());
        let reopened = LocalState::open(disk, directory(), NODE_NAME).unwrap();
        prop_assert!(reopened.note.is_none());
        prop_assert_eq!(&reopened.state.current(), &state.current());
        for (bucket_type, bucket) in &asked {
            for state in [&state, &reopened.state] {
                let current = state.current();
                let found = current.properties(bucket_type, bucket).ok().map(|found| (**found).clone());
                prop_assert_eq!(found, model.properties(bucket_type, bucket));
            }
        }
    }
}
