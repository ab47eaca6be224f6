//! The suite that every engine passes.

use kvorum_backend_conformance::conformance_suite;

use crate::engine::Engine;

conformance_suite!(Engine);
