//! The conformance suite over stores of several children, one of which has all puts of the suite: the suite
//! compares sequences and puts batches over several buckets, and a sequence or a batch belongs to one child
//! (see the crate's documentation). Buckets that are spread over children are in `routing.rs`.

use std::sync::Arc;

use kvorum_backend::{Backend, Capabilities, Result};
use kvorum_backend_conformance::{EngineUnderTest, Opening};
use kvorum_backend_multi::{FixedRoutes, RouteTable};

use crate::children::{self, Engine};

/// A store whose first child has all data.
struct Multi {
    children: &'static [(&'static str, Engine)],
}

impl Multi {
    fn has(&self, engine: Engine) -> bool {
        self.children.iter().any(|(_, it)| *it == engine)
    }
}

impl EngineUnderTest for Multi {
    fn name(&self) -> &'static str {
        "multi"
    }

    fn capabilities(&self) -> Capabilities {
        let is_kept = !self.has(Engine::Memory);
        Capabilities {
            persistent: is_kept,
            cheap_heads: true,
            ordered: !self.has(Engine::Bitcask),
            indexes: self.has(Engine::Leveldb) || self.has(Engine::Memory),
            backups: is_kept,
            drops_entries: false,
        }
    }

    fn open(&self, opening: &Opening) -> Result<Box<dyn Backend>> {
        let routes = Arc::new(FixedRoutes::new(RouteTable::to(0)));
        let (directory, draw) = (&opening.directory, &opening.draw);
        let opened = children::open(&opening.disk(), directory, self.children, routes, draw)?;
        Ok(Box::new(opened))
    }

    /// The store's own segments: the log of a store without a value log.
    fn left_out_after_kill(&self) -> &'static [&'static str] {
        &["*.segment"]
    }

    /// Several stores have to be opened.
    fn slowness(&self) -> usize {
        4
    }

    /// The keys of a block of leveldb.
    fn keys_lost_per_flip_max(&self) -> usize {
        match self.has(Engine::Leveldb) {
            true => 10,
            false => 1,
        }
    }
}

mod of_leveldb {
    use kvorum_backend_conformance::conformance_suite;

    use super::{Engine, Multi};

    const MULTI: Multi = Multi {
        children: &[("ldb", Engine::Leveldb), ("bc", Engine::Bitcask)],
    };

    conformance_suite!(MULTI);
}

mod of_bitcask {
    use kvorum_backend_conformance::conformance_suite;

    use super::{Engine, Multi};

    const MULTI: Multi = Multi {
        children: &[("bc", Engine::Bitcask), ("bc2", Engine::Bitcask)],
    };

    conformance_suite!(MULTI);
}

mod of_memory {
    use kvorum_backend_conformance::conformance_suite;

    use super::{Engine, Multi};

    const MULTI: Multi = Multi {
        children: &[("m", Engine::Memory), ("m2", Engine::Memory)],
    };

    conformance_suite!(MULTI);
}
