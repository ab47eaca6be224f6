//! A store of objects in memory, and the driver that runs a job on it.

use std::collections::BTreeMap;

use kvorum_map_reduce::{
    BucketName, Execution, Failure, Gathered, IndexRange, Inputs, JOB_BYTES_MAX, Job, Next,
    ObjectLink, ObjectSibling, Output, ReadObject, Wanted,
};

/// Index, term and key of an entry.
type Entry = (&'static str, String, String);

#[derive(Default)]
pub(crate) struct Store {
    objects: BTreeMap<(String, String, String), ReadObject>,
    entries: BTreeMap<(String, String), Vec<Entry>>,
}

/// A driver's order of reads: keys in a page, and the first of the requested objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) page_keys: usize,
    pub(crate) last_first: bool,
    pub(crate) at_a_time: usize,
}

pub(crate) const PLAIN: Reading = Reading {
    page_keys: 3,
    last_first: false,
    at_a_time: 1,
};

pub(crate) fn sibling(value: &str) -> ObjectSibling {
    ObjectSibling {
        value: value.to_string().into(),
        links: Vec::new(),
    }
}

pub(crate) fn link(bucket: &str, key: &str, tag: &str) -> ObjectLink {
    ObjectLink {
        bucket: bucket.to_string().into(),
        key: key.to_string().into(),
        tag: tag.to_string().into(),
    }
}

fn names(bucket: &BucketName) -> (String, String) {
    let text = |it: &[u8]| String::from_utf8_lossy(it).into_owned();
    let bucket_type = bucket.bucket_type.as_deref().map(text);
    (bucket_type.unwrap_or_default(), text(&bucket.bucket))
}

impl Store {
    pub(crate) fn put(
        &mut self,
        bucket_type: &str,
        bucket: &str,
        key: &str,
        siblings: Vec<ObjectSibling>,
    ) {
        let object = ReadObject {
            bucket: BucketName::new(
                Some(bucket_type.to_string().into()),
                bucket.to_string().into(),
            ),
            key: key.to_string().into(),
            siblings,
        };
        let place = (bucket_type.to_string(), bucket.to_string(), key.to_string());
        self.objects.insert(place, object);
    }

    pub(crate) fn index(&mut self, bucket_type: &str, bucket: &str, entry: Entry) {
        let entries = self
            .entries
            .entry((bucket_type.to_string(), bucket.to_string()));
        entries.or_default().push(entry);
    }

    fn keys(&self, bucket: &BucketName) -> Vec<String> {
        let (bucket_type, bucket) = names(bucket);
        let places = self.objects.keys();
        places
            .filter(|(of_type, of, _)| *of_type == bucket_type && *of == bucket)
            .map(|(_, _, key)| key.clone())
            .collect()
    }

    fn range(&self, range: &IndexRange) -> Vec<String> {
        let text = |it: &[u8]| String::from_utf8_lossy(it).into_owned();
        let (start, end) = (text(&range.start), text(&range.end));
        match range.index.as_str() {
            "$bucket" => self.keys(&range.bucket),
            "$key" => {
                let keys = self.keys(&range.bucket).into_iter();
                keys.filter(|it| *it >= start && *it <= end).collect()
            }
            index => {
                let entries = self.entries.get(&names(&range.bucket));
                let within = |(of, term, _): &&Entry| {
                    *of == index
                        && if index.ends_with("_int") {
                            let number = |it: &str| it.parse::<i128>().unwrap();
                            (number(&start)..=number(&end)).contains(&number(term))
                        } else {
                            *term >= start && *term <= end
                        }
                };
                let entries = entries.into_iter().flatten().filter(within);
                entries.map(|(_, _, key)| key.clone()).collect()
            }
        }
    }

    fn listed(&self, inputs: &Inputs) -> Vec<String> {
        match inputs {
            Inputs::Bucket(bucket) | Inputs::Filtered(bucket, _) => self.keys(bucket),
            Inputs::Index(range) => self.range(range),
            Inputs::Keys(_) => panic!("keys of the client are not listed"),
        }
    }

    fn read(&self, wanted: &Wanted) -> Option<ReadObject> {
        let (bucket_type, bucket) = names(&wanted.bucket);
        let key = String::from_utf8_lossy(&wanted.key).into_owned();
        self.objects.get(&(bucket_type, bucket, key)).cloned()
    }

    /// Runs a job; returns its outputs in their order.
    pub(crate) fn outputs(&self, job: Job, reading: Reading) -> Result<Vec<Output>, Failure> {
        let mut execution = Execution::new(job, JOB_BYTES_MAX);
        let mut pages: Option<Vec<String>> = None;
        let mut wanted: Vec<Wanted> = Vec::new();
        let mut outputs = Vec::new();
        loop {
            let next = execution.step()?;
            let waits = matches!(next, Next::Wait);
            match next {
                Next::Emit(output) => outputs.push(output),
                Next::Done => break,
                Next::ReadObject(object) => wanted.push(object),
                Next::Reduce(reducing) => execution.take_reduced(reducing.run())?,
                Next::ReadInputs => {
                    let keys = pages.get_or_insert_with(|| self.listed(execution.inputs()));
                    let page: Vec<String> =
                        keys.drain(..keys.len().min(reading.page_keys)).collect();
                    let last = keys.is_empty();
                    let page = page.into_iter().map(Into::into).collect();
                    execution.take_keys(page, last)?;
                }
                Next::Wait => assert!(!wanted.is_empty(), "waits for nothing"),
            }
            if wanted.len() >= reading.at_a_time || waits {
                let index = if reading.last_first {
                    wanted.len() - 1
                } else {
                    0
                };
                let object = wanted.remove(index);
                execution.take_object(object.ticket, self.read(&object))?;
            }
        }
        assert!(wanted.is_empty(), "the job ended before its objects came");
        assert_eq!(execution.bytes(), 0, "a job that is done holds nothing");
        Ok(outputs)
    }

    /// Runs a job; the answer as one JSON.
    pub(crate) fn answer(&self, job: Job, reading: Reading) -> Result<String, Failure> {
        let mut gathered = Gathered::new(&job, JOB_BYTES_MAX);
        for output in self.outputs(job, reading)? {
            gathered.add(&output)?;
        }
        gathered.json()
    }
}
