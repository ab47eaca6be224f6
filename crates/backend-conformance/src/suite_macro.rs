//! The macro that turns an engine into tests.

/// Generates one test per group for an engine, which has to be an expression of a type that
/// implements [`EngineUnderTest`](crate::EngineUnderTest).
///
/// It is a macro because `#[test]` functions cannot be generated in another way. The seed is fresh in each
/// run unless `KVORUM_TEST_SEED` is set; `KVORUM_RENEW_GOLDEN` writes the engine's replies into the
/// scripts; `KVORUM_TEST_LONG` chooses [`Effort::Long`](crate::Effort). Use it once per module.
#[macro_export]
macro_rules! conformance_suite {
    ($engine:expr) => {
        fn conformance_plan() -> $crate::Plan {
            use std::hash::{BuildHasher, Hasher};
            #[expect(
                clippy::disallowed_methods,
                reason = "a test's seed comes from who runs the test"
            )]
            let (seed, long) = (
                std::env::var("KVORUM_TEST_SEED"),
                std::env::var("KVORUM_TEST_LONG"),
            );
            let fresh = || std::hash::RandomState::new().build_hasher().finish();
            let seed = seed
                .ok()
                .and_then(|text| text.parse().ok())
                .unwrap_or_else(fresh);
            let effort = match long {
                Ok(_) => $crate::Effort::Long,
                Err(_) => $crate::Effort::Quick,
            };
            $crate::Plan { seed, effort }
        }

        fn conformance_group(group: $crate::Group) {
            if let Err(violation) = $crate::run(&$engine, group, &conformance_plan()) {
                panic!("{violation}");
            }
        }

        #[test]
        fn golden_scripts_give_their_replies() {
            match $crate::play_golden_scripts(&$engine, $crate::Replies::chosen()) {
                Err(difference) => panic!("{difference}"),
                Ok(run) => println!("played {:?}, skipped {:?}", run.played, run.skipped),
            }
        }

        #[test]
        fn every_sentence_of_the_contract_holds() {
            conformance_group($crate::Group::Sentences);
        }

        #[test]
        fn random_scripts_agree_with_the_model() {
            conformance_group($crate::Group::Model);
        }

        #[test]
        fn what_was_acknowledged_survives_power_cuts() {
            conformance_group($crate::Group::Crash);
        }

        #[test]
        fn failing_disk_operations_lose_nothing_acknowledged() {
            conformance_group($crate::Group::Faults);
        }

        #[test]
        fn damaged_files_never_yield_wrong_bytes() {
            conformance_group($crate::Group::Damage);
        }

        #[test]
        fn files_that_damage_leaves_out_are_listed() {
            let list = include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../../docs/scenarios.md"
            ));
            $crate::expect_left_out_listed(&$engine, list);
        }
    };
}
