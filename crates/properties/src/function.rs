//! Properties that name functions: the key hash and the link function, in Riak's JSON forms, and
//! the form that hooks share with them.

use serde_json::{Map, Value, json};

/// An Erlang function by module and name, as Riak's clients write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleFunction {
    /// The module.
    pub module: String,
    /// The function's name.
    pub function: String,
}

/// The part of a key's address that decides its place on the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum KeyFunction {
    /// `riak_core_util:chash_std_keyfun`: bucket and key.
    #[default]
    Standard,
    /// `riak_core_util:chash_bucketonly_keyfun`: only the bucket.
    BucketOnly,
}

/// The function that takes links out of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkFunction {
    /// `{"mod": ..., "fun": ...}`.
    Module(ModuleFunction),
    /// `{"jsfun": ...}`: a JavaScript function by its name.
    Named(String),
    /// `{"jsanon": ...}`: a JavaScript function by its source.
    Source(String),
}

const KEY_FUNCTION_MODULE: &str = "riak_core_util";

/// The function that takes links out of the Link metadata.
const LINK_FUNCTION_MODULE: &str = "riak_kv_wm_link_walker";
const LINK_FUNCTION: &str = "mapreduce_linkfun";

impl ModuleFunction {
    /// The function `module:function`.
    pub fn new(module: &str, function: &str) -> Self {
        Self {
            module: module.to_owned(),
            function: function.to_owned(),
        }
    }

    pub(crate) fn from_json(object: &Map<String, Value>) -> Option<Self> {
        let module = object.get("mod")?.as_str()?;
        let function = object.get("fun")?.as_str()?;
        let complete = object.len() == 2 && !module.is_empty() && !function.is_empty();
        complete.then(|| Self::new(module, function))
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({"mod": self.module, "fun": self.function})
    }
}

impl KeyFunction {
    /// The key function of this name; `None` for a function that only Erlang could run.
    pub fn from_module_function(function: &ModuleFunction) -> Option<Self> {
        let of_name = |known: &Self| known.to_module_function() == *function;
        [Self::Standard, Self::BucketOnly].into_iter().find(of_name)
    }

    /// Riak's name for it.
    pub fn to_module_function(self) -> ModuleFunction {
        let function = match self {
            Self::Standard => "chash_std_keyfun",
            Self::BucketOnly => "chash_bucketonly_keyfun",
        };
        ModuleFunction::new(KEY_FUNCTION_MODULE, function)
    }

    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        Self::from_module_function(&ModuleFunction::from_json(value.as_object()?)?)
    }

    pub(crate) fn to_json(self) -> Value {
        self.to_module_function().to_json()
    }
}

impl LinkFunction {
    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        let object = value.as_object()?;
        ModuleFunction::from_json(object)
            .map(Self::Module)
            .or_else(|| sole_text(object, "jsfun").map(Self::Named))
            .or_else(|| sole_text(object, "jsanon").map(Self::Source))
    }

    /// True for the function that link phases run: Riak's own function, under its name or its former name
    /// before Riak 1.0.
    pub(crate) fn is_run(&self) -> bool {
        let Self::Module(ModuleFunction { module, function }) = self else {
            return false;
        };
        let is_riaks = [LINK_FUNCTION_MODULE, "raw_link_walker"].contains(&module.as_str());
        is_riaks && function == LINK_FUNCTION
    }

    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Module(function) => function.to_json(),
            Self::Named(name) => json!({"jsfun": name}),
            Self::Source(source) => json!({"jsanon": source}),
        }
    }
}

impl Default for LinkFunction {
    fn default() -> Self {
        Self::Module(ModuleFunction::new(LINK_FUNCTION_MODULE, LINK_FUNCTION))
    }
}

/// The text of an object's only member, if it has this name.
pub(crate) fn sole_text(object: &Map<String, Value>, name: &str) -> Option<String> {
    let text = object.get(name)?.as_str()?;
    (object.len() == 1 && !text.is_empty()).then(|| text.to_owned())
}
