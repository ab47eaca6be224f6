//! Builds a worker's key generator from its term, and refuses terms that cannot work.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use bytes::Bytes;

use super::format::Format;
use super::key::{Key, Kind};
use super::line_file::LineFile;
use super::node::{HashAlgorithm, KeyGenerator, Node};
use crate::value_generator::{SourceBlocks, ValueGenerator, function_refusal};
use kvorum_erlang_terms::Term;

/// Levels of wrappers around a source of keys.
const DEPTH_MAX: u32 = 64;

/// Wider binaries are surely a mistake.
const BITS_MAX: i128 = 8 * 4096;

/// State that the generators of all workers share.
#[derive(Debug)]
pub struct KeySources<'run> {
    blocks: &'run SourceBlocks,
    concurrent: u32,
    files: BTreeMap<String, Arc<LineFile>>,
    /// Counters of named sequences, by worker and name.
    names: BTreeMap<(u32, String), Arc<AtomicI64>>,
    /// `sequential_int_state_dir`: the directory in which sequences keep their position.
    state_directory: Option<PathBuf>,
}

impl<'run> KeySources<'run> {
    /// Sources for this many workers.
    pub fn new(blocks: &'run SourceBlocks, concurrent: u32) -> Self {
        Self {
            blocks,
            concurrent,
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            state_directory: None,
        }
    }

    /// Lets sequences keep their position in a directory, one file for each worker.
    #[must_use]
    pub fn with_state_in(mut self, directory: Option<PathBuf>) -> Self {
        self.state_directory = directory;
        self
    }

    /// The key generator of a worker (ids begin at 1). The error is a text about the term.
    pub fn build(&mut self, term: &Term, worker: u32) -> Result<KeyGenerator, String> {
        Ok(KeyGenerator {
            node: self.node(term, worker, 0)?,
        })
    }

    fn node(&mut self, term: &Term, worker: u32, depth: u32) -> Result<Node, String> {
        if depth > DEPTH_MAX {
            return Err(format!(
                "expected at most {DEPTH_MAX} wrappers around each other"
            ));
        }
        let elements = match term {
            Term::Atom(name) if name == "uuid_v4" => return Ok(Node::Uuid),
            Term::Atom(name) if name == "uuid_v4_s" => return uuid_text("-"),
            Term::Binary(bytes) => {
                return Ok(Node::Constant(Key::Binary(Bytes::from(bytes.clone()))));
            }
            Term::String(_) | Term::List(_) => return constant_string(term),
            Term::Tuple(elements) => elements,
            _ => return Err(unknown(term)),
        };
        let (tag, arguments) = elements.split_first().ok_or_else(|| unknown(term))?;
        match tag {
            Term::Atom(name) => match self.source(name, arguments, worker)? {
                Some(source) => Ok(source),
                None => self
                    .wrapper(name, arguments, worker, depth)?
                    .ok_or_else(|| unknown(term)),
            },
            Term::Tuple(parameters) => self
                .parameterized(parameters, arguments, worker, depth)?
                .ok_or_else(|| unknown(term)),
            _ => Err(unknown(term)),
        }
    }

    /// Builds a generator that makes keys by itself.
    fn source(
        &mut self,
        name: &str,
        arguments: &[Term],
        worker: u32,
    ) -> Result<Option<Node>, String> {
        let node = match (name, arguments) {
            ("uniform_int", [max]) => Node::Uniform {
                start: 1,
                count: above_zero(max)?,
            },
            ("uniform_int", [start, count]) => Node::Uniform {
                start: integer(start)?,
                count: above_zero(count)?,
            },
            ("eightytwenty_int", [max]) => eighty_twenty(above_zero(max)?)?,
            ("pareto_int", [max]) => Node::Pareto {
                scale: pareto_scale(max)?,
                max: None,
            },
            ("truncated_pareto_int", [max]) => Node::Pareto {
                scale: pareto_scale(max)?,
                max: Some(integer(max)?),
            },
            ("sequential_int", [max]) => self.resumed(Node::sequence(0, integer(max)?), worker)?,
            ("sequential_int", [start, max]) => {
                self.resumed(Node::sequence(integer(start)?, integer(max)?), worker)?
            }
            ("named_sequential_int", [name, max]) => {
                let node = Node::sequence(0, integer(max)?);
                self.named(name, worker, node)
            }
            ("named_partitioned_sequential_int", [name, start, count]) => {
                let node = self.partition(integer(start)?, integer(count)?, worker);
                self.named(name, worker, node)
            }
            ("uuid_v4_s", []) => uuid_text("-")?,
            ("uuid_v4_s", [separator]) => {
                let separator = separator.as_text();
                uuid_text(&separator.ok_or("expected {uuid_v4_s, \"separator\"}")?)?
            }
            ("timestamp_ms", []) => Node::TimestampMs,
            ("partitioned_sequential_int", [count]) => {
                self.resumed(self.partition(0, integer(count)?, worker), worker)?
            }
            ("partitioned_sequential_int", [start, count]) => {
                let node = self.partition(integer(start)?, integer(count)?, worker);
                self.resumed(node, worker)?
            }
            ("random_dynamo_style_string", [_]) => Node::DynamoStyle,
            ("file_line_bin", [path]) => self.lines(path, true)?,
            ("file_line_bin", [path, mode]) => {
                self.lines(path, mode.as_atom() == Some("repeat"))?
            }
            ("valgen", [values]) => {
                Node::Value(Box::new(ValueGenerator::build(values, self.blocks)?))
            }
            ("function" | "external", _) => return Err(function_refusal()),
            (name, _) if name.starts_with("ts_") || name.contains("timeseries") => {
                return Err("it makes rows of Riak's time series tables".to_owned());
            }
            _ => return self.suffixed(name, arguments, worker),
        };
        Ok(Some(node))
    }

    /// Builds a generator with a name of 2010: a source of numbers, with the form of its keys as a
    /// suffix. Binaries had 32 bits in the machine's byte order, little-endian.
    fn suffixed(
        &mut self,
        name: &str,
        arguments: &[Term],
        worker: u32,
    ) -> Result<Option<Node>, String> {
        if let Some(plain) = name.strip_suffix("_int_bin") {
            let inner = self.source(&format!("{plain}_int"), arguments, worker)?;
            return inner.map(|inner| to_binary(4, false, inner)).transpose();
        }
        let Some(plain) = name.strip_suffix("_int_str") else {
            return Ok(None);
        };
        let inner = self.source(&format!("{plain}_int"), arguments, worker)?;
        Ok(inner.map(|inner| Node::IntegerToString(Box::new(inner))))
    }

    /// A sequence that continues where an earlier run ended, if the run keeps positions.
    fn resumed(&self, node: Node, worker: u32) -> Result<Node, String> {
        let Some(directory) = &self.state_directory else {
            return Ok(node);
        };
        let Node::Sequence(mut sequence) = node else {
            return Ok(node);
        };
        let path = directory.join(worker.to_string());
        sequence
            .resume(&path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Ok(Node::Sequence(sequence))
    }

    /// A sequence that all generators of this name in this worker share.
    fn named(&mut self, name: &Term, worker: u32, node: Node) -> Node {
        let Node::Sequence(mut sequence) = node else {
            return node;
        };
        let key = (worker, name.to_string());
        let shared = self.names.entry(key).or_insert_with(|| sequence.counter());
        sequence.share(shared);
        Node::Sequence(sequence)
    }

    /// Builds a generator that shapes the keys of another.
    fn wrapper(
        &mut self,
        name: &str,
        arguments: &[Term],
        worker: u32,
        depth: u32,
    ) -> Result<Option<Node>, String> {
        if name == "int_to_bin" {
            return Err(
                "its byte order is that of the machine; expected int_to_bin_bigendian or \
                        int_to_bin_littleendian"
                    .to_owned(),
            );
        }
        let mut inner = |term: &Term| self.node(term, worker, depth + 1);
        let node = match (name, arguments) {
            ("int_to_bin_bigendian", [term]) => to_binary(4, true, inner(term)?)?,
            ("int_to_bin_littleendian", [term]) => to_binary(4, false, inner(term)?)?,
            ("int_to_str", [term]) => {
                Node::IntegerToString(of_kind(inner(term)?, &[Kind::Integer], name)?)
            }
            ("to_str", [format, term]) => formatted(format, inner(term)?, Kind::String)?,
            ("to_binstr", [format, term]) => formatted(format, inner(term)?, Kind::Binary)?,
            ("str_to_bin", [term]) => {
                let inner = of_kind(inner(term)?, &[Kind::String], name)?;
                Node::Recast {
                    kind: Kind::Binary,
                    inner,
                }
            }
            ("bin_to_str", [term]) => {
                let inner = of_kind(inner(term)?, &[Kind::Binary], name)?;
                Node::Recast {
                    kind: Kind::String,
                    inner,
                }
            }
            ("base64", [term]) => {
                Node::Base64(of_kind(inner(term)?, &[Kind::Binary, Kind::String], name)?)
            }
            ("concat_binary", [first, second]) => {
                let first = of_kind(inner(first)?, &[Kind::Binary], name)?;
                Node::Concatenation(first, of_kind(inner(second)?, &[Kind::Binary], name)?)
            }
            ("concat_string", [first, second]) => {
                let first = of_kind(inner(first)?, &[Kind::String], name)?;
                let second = of_kind(inner(second)?, &[Kind::String], name)?;
                Node::Recast {
                    kind: Kind::String,
                    inner: Box::new(Node::Concatenation(first, second)),
                }
            }
            ("iolist_to_bin", [term]) => Node::Recast {
                kind: Kind::Binary,
                inner: of_kind(inner(term)?, &[Kind::Binary, Kind::String], name)?,
            },
            ("term_to_bin", [term]) => Node::TermToBinary(Box::new(inner(term)?)),
            _ => return Ok(None),
        };
        Ok(Some(node))
    }

    /// `{{int_to_bin_..., Bits}, G}` and `{{crypto_hash, Type}, G}`.
    fn parameterized(
        &mut self,
        parameters: &[Term],
        arguments: &[Term],
        worker: u32,
        depth: u32,
    ) -> Result<Option<Node>, String> {
        let ([Term::Atom(name), parameter], [inner]) = (parameters, arguments) else {
            return Ok(None);
        };
        let inner = self.node(inner, worker, depth + 1)?;
        let node = match name.as_str() {
            "int_to_bin_bigendian" => to_binary(width(parameter)?, true, inner)?,
            "int_to_bin_littleendian" => to_binary(width(parameter)?, false, inner)?,
            "crypto_hash" => Node::Hash {
                algorithm: algorithm(parameter)?,
                inner: of_kind(inner, &[Kind::Binary, Kind::String], name)?,
            },
            _ => return Ok(None),
        };
        Ok(Some(node))
    }

    /// This worker's share of `count` keys; the last worker takes the rest.
    fn partition(&self, start: i64, count: i64, worker: u32) -> Node {
        let workers = i64::from(self.concurrent.max(1));
        let index = i64::from(worker.saturating_sub(1));
        let range = count / workers;
        let first = start.saturating_add(range.saturating_mul(index));
        let last = index + 1 == workers;
        let end = if last {
            start.saturating_add(count)
        } else {
            first.saturating_add(range)
        };
        Node::sequence(first, end)
    }

    fn lines(&mut self, path: &Term, repeat: bool) -> Result<Node, String> {
        let path = path.as_text().ok_or("expected {file_line_bin, \"path\"}")?;
        if let Some(file) = self.files.get(&path) {
            return Ok(Node::Lines(Arc::clone(file)));
        }
        let file = LineFile::open(Path::new(&path), repeat)
            .map_err(|error| format!("cannot open {path}: {error}"))?;
        let file = Arc::new(file);
        self.files.insert(path, Arc::clone(&file));
        Ok(Node::Lines(file))
    }
}

fn constant_string(term: &Term) -> Result<Node, String> {
    let bytes = term.as_bytes().ok_or_else(|| unknown(term))?;
    Ok(Node::Constant(Key::String(Bytes::from(bytes))))
}

/// The text of a random identifier, its five groups joined by a separator.
fn uuid_text(separator: &str) -> Result<Node, String> {
    if separator.len() > 16 {
        return Err("expected a separator of at most 16 characters".to_owned());
    }
    Ok(Node::UuidText(separator.to_owned()))
}

fn eighty_twenty(max: u64) -> Result<Node, String> {
    let step = max / 5;
    if step == 0 {
        return Err("expected {eightytwenty_int, Max} with Max of at least 5".to_owned());
    }
    Ok(Node::EightyTwenty { step })
}

/// The scale with which a Pareto law of shape 1.5 has a mean of a fifth of Max.
#[expect(
    clippy::cast_precision_loss,
    reason = "a scale needs no more than a float's precision"
)]
fn pareto_scale(max: &Term) -> Result<f64, String> {
    let max = above_zero(max)? as f64;
    Ok((0.2 * max).trunc() * 0.5)
}

fn to_binary(bytes: usize, big_endian: bool, inner: Node) -> Result<Node, String> {
    let inner = of_kind(inner, &[Kind::Integer], "int_to_bin")?;
    Ok(Node::IntegerToBinary {
        bytes,
        big_endian,
        inner,
    })
}

fn formatted(format: &Term, inner: Node, kind: Kind) -> Result<Node, String> {
    let format = format
        .as_text()
        .ok_or("expected a format string as the first argument")?;
    let format = Format::parse(&format)?;
    if !format.accepts(inner.kind()) {
        return Err(format!(
            "the format does not take keys that are {}",
            inner.kind().name()
        ));
    }
    Ok(Node::Formatted {
        format,
        kind,
        inner: Box::new(inner),
    })
}

fn of_kind(node: Node, allowed: &[Kind], wrapper: &str) -> Result<Box<Node>, String> {
    if allowed.contains(&node.kind()) {
        return Ok(Box::new(node));
    }
    let allowed: Vec<&str> = allowed.iter().map(|kind| kind.name()).collect();
    Err(format!(
        "{wrapper} expects a generator of {}, and the one inside makes {}",
        allowed.join(" or "),
        node.kind().name()
    ))
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Integer => "integers",
            Self::String => "strings",
            Self::Binary => "binaries",
        }
    }
}

fn width(bits: &Term) -> Result<usize, String> {
    bits.as_integer()
        .filter(|bits| (8..=BITS_MAX).contains(bits) && bits % 8 == 0)
        .and_then(|bits| usize::try_from(bits / 8).ok())
        .ok_or_else(|| format!("expected a width in bits, a multiple of 8, not {bits}"))
}

fn algorithm(term: &Term) -> Result<HashAlgorithm, String> {
    match term.as_atom().unwrap_or_default() {
        "md4" => Ok(HashAlgorithm::Md4),
        "md5" => Ok(HashAlgorithm::Md5),
        "ripemd160" => Ok(HashAlgorithm::Ripemd160),
        "sha" => Ok(HashAlgorithm::Sha1),
        "sha224" => Ok(HashAlgorithm::Sha224),
        "sha256" => Ok(HashAlgorithm::Sha256),
        "sha384" => Ok(HashAlgorithm::Sha384),
        "sha512" => Ok(HashAlgorithm::Sha512),
        _ => Err(format!(
            "expected md4, md5, ripemd160, sha, sha224, sha256, sha384 or sha512, not {term}"
        )),
    }
}

fn integer(term: &Term) -> Result<i64, String> {
    term.as_integer()
        .and_then(|value| i64::try_from(value).ok())
        .ok_or_else(|| format!("expected an integer of 64 bits, not {term}"))
}

fn above_zero(term: &Term) -> Result<u64, String> {
    integer(term)?
        .try_into()
        .ok()
        .filter(|value| *value > 0)
        .ok_or_else(|| format!("expected an integer above 0, not {term}"))
}

fn unknown(term: &Term) -> String {
    format!(
        "{term} is no key generator; expected {{uniform_int, Max}}, {{uniform_int, Start, Num}}, \
         {{eightytwenty_int, Max}}, {{pareto_int, Max}}, {{truncated_pareto_int, Max}}, \
         {{sequential_int, Max}}, {{partitioned_sequential_int, Num}}, \
         {{partitioned_sequential_int, Start, Num}}, uuid_v4, uuid_v4_s, \
         {{random_dynamo_style_string, N}}, {{file_line_bin, Path}}, {{valgen, Generator}}, a \
         binary or a string, or one of the wrappers int_to_bin_bigendian, \
         int_to_bin_littleendian, int_to_str, to_str, to_binstr, str_to_bin, bin_to_str, base64, \
         crypto_hash, concat_binary, concat_string, iolist_to_bin or term_to_bin"
    )
}
