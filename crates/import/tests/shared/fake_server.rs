//! A server with the rules of the real one for objects, and configurable faults.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kvorum_object::{
    Clock, Content, IndexEntry, Link, Metadata, Object, Resolution, Timestamp, UserMetadata,
};
use kvorum_protocol::frame::{self, Frame, FrameDecoder};
use kvorum_protocol::{MessageCode, pb};
use kvorum_runtime::{ListenOptions, Runtime, Stream};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Objects and behaviour of the server.
#[derive(Default)]
pub(crate) struct Store {
    /// Objects by type, bucket and key.
    pub(crate) objects: BTreeMap<(String, String, String), Object>,
    pub(crate) bucket_types: Vec<&'static str>,
    pub(crate) keeps_siblings: bool,
    pub(crate) puts: usize,
    /// The number of puts after which every further one is answered with "overload".
    pub(crate) overload_after: Option<usize>,
    /// The number of requests after which a connection is closed instead of an answer.
    pub(crate) close_every: Option<usize>,
    /// A key that is always refused.
    pub(crate) refused_key: Option<&'static str>,
    /// Called before each accepted put.
    pub(crate) on_put: Option<Box<dyn FnMut() + Send>>,
    requests: usize,
}

pub(crate) struct FakeServer {
    pub(crate) address: SocketAddr,
    pub(crate) store: Arc<Mutex<Store>>,
}

impl FakeServer {
    pub(crate) fn start(runtime: &Runtime) -> Self {
        let address = "127.0.0.1:0".parse().unwrap();
        let listener = runtime.listen(address, ListenOptions::default()).unwrap();
        let address = listener.local_address();
        let store = Arc::new(Mutex::new(Store {
            keeps_siblings: true,
            ..Store::default()
        }));
        let (shared, spawner) = (store.clone(), runtime.clone());
        let _runs_on = runtime.spawn("fake server", async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _runs_on = spawner.spawn("connection", serve(stream, shared.clone()));
            }
        });
        Self { address, store }
    }

    /// The values under a key, sorted; tombstones are shown as "(deleted)".
    pub(crate) fn values(&self, bucket_type: &str, bucket: &str, key: &str) -> Vec<String> {
        let store = self.store.lock();
        let name = (bucket_type.into(), bucket.into(), key.into());
        let Some(object) = store.objects.get(&name) else {
            return Vec::new();
        };
        let mut values: Vec<String> = object
            .siblings()
            .iter()
            .map(|sibling| match sibling.metadata.deleted {
                true => "(deleted)".to_owned(),
                false => String::from_utf8_lossy(&sibling.value).into_owned(),
            })
            .collect();
        values.sort();
        values
    }

    /// Name and short value of each object with a readable data type.
    pub(crate) fn data_types(&self) -> Vec<(String, String)> {
        let store = self.store.lock();
        let shown = |((bucket_type, bucket, key), object): (&(String, String, String), &Object)| {
            let [only] = object.siblings() else {
                return None;
            };
            let read = kvorum_data_types::decode_riak_value(&only.value).ok()?;
            let value = format!("{:?}", read.value.value());
            Some((format!("{bucket_type}/{bucket}/{key}"), value))
        };
        store.objects.iter().filter_map(shown).collect()
    }

    pub(crate) fn object(&self, bucket: &str, key: &str) -> Object {
        let name = ("default".into(), bucket.into(), key.into());
        self.store.lock().objects[&name].clone()
    }
}

async fn serve(mut stream: Stream, store: Arc<Mutex<Store>>) {
    let decoder = FrameDecoder::new(1 << 24);
    let mut input = BytesMut::new();
    loop {
        while let Some(request) = decoder.decode(&mut input).unwrap() {
            let mut output = BytesMut::new();
            if !answer(&request, &mut store.lock(), &mut output) {
                return;
            }
            if stream.write_all(&output).await.is_err() {
                return;
            }
        }
        if stream.read_buf(&mut input).await.unwrap_or(0) == 0 {
            return;
        }
    }
}

fn answer(request: &Frame, store: &mut Store, output: &mut BytesMut) -> bool {
    store.requests += 1;
    if store
        .close_every
        .is_some_and(|every| store.requests.is_multiple_of(every))
    {
        return false;
    }
    match request.code {
        MessageCode::RPB_PUT_REQ => put(request, store, output),
        MessageCode::RPB_GET_BUCKET_REQ => props(store, output),
        MessageCode::RPB_GET_BUCKET_TYPE_REQ => {
            let asked: pb::RpbGetBucketTypeReq = request.decode().unwrap();
            let has = |name: &&&str| name.as_bytes() == asked.r#type;
            match store.bucket_types.iter().find(has) {
                Some(_) => props(store, output),
                None => frame::encode_error(b"Invalid bucket type", output),
            }
        }
        code => panic!("unexpected request {code}"),
    }
    true
}

fn props(store: &Store, output: &mut BytesMut) {
    let props = pb::RpbBucketProps {
        allow_mult: Some(store.keeps_siblings),
        ..Default::default()
    };
    frame::encode(&pb::RpbGetBucketResp { props }, output).unwrap();
}

fn put(request: &Frame, store: &mut Store, output: &mut BytesMut) {
    let put: pb::RpbPutReq = request.decode().unwrap();
    assert!(put.asis());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let key = text(put.key.as_deref().unwrap());
    if store
        .overload_after
        .is_some_and(|after| store.puts >= after)
    {
        return frame::encode_error(b"overload", output);
    }
    if store.refused_key.is_some_and(|refused| key == refused) {
        return frame::encode_error(b"{too_large,77}", output);
    }
    if let Some(look) = &mut store.on_put {
        look();
    }
    store.puts += 1;
    let clock = Clock::decode(put.vclock()).unwrap();
    let object = Object::as_is(clock, content_of(put.content), Timestamp::from_micros(1));
    let bucket_type = put.r#type.map_or("default".to_owned(), |name| text(&name));
    let resolution = match store.keeps_siblings {
        true => Resolution::KeepSiblings,
        false => Resolution::NewestWins,
    };
    let name = (bucket_type, text(&put.bucket), key);
    let object = match store.objects.remove(&name) {
        Some(stored) => kvorum_object::merge(stored, object, resolution),
        None => object,
    };
    store.objects.insert(name, object);
    frame::encode_empty(MessageCode::RPB_PUT_RESP, output);
}

/// The content as the real server stores it.
fn content_of(message: pb::RpbContent) -> Content {
    let micros = u64::from(message.last_mod()) * 1_000_000 + u64::from(message.last_mod_usecs());
    let deleted = message.deleted();
    let entry = |pair: pb::RpbPair| (pair.key, pair.value.unwrap_or_default());
    let indexes = message.indexes.into_iter().map(entry);
    let indexes = indexes.map(|(field, value)| IndexEntry { field, value });
    let user_metadata = message.usermeta.into_iter().map(|pair| UserMetadata {
        name: pair.key,
        value: pair.value,
    });
    let links = message.links.into_iter().map(|link| Link {
        bucket: link.bucket.unwrap(),
        key: link.key.unwrap(),
        tag: link.tag.unwrap(),
    });
    let metadata = Metadata {
        last_modified: Timestamp::from_micros(micros),
        expires_at: message.expires_at_usecs.map(Timestamp::from_micros),
        deleted,
        content_type: message.content_type.unwrap_or_default(),
        charset: message.charset.unwrap_or_default(),
        content_encoding: message.content_encoding.unwrap_or_default(),
        links: links.collect(),
        user_metadata: user_metadata.collect(),
        indexes: indexes.collect(),
        ..Metadata::default()
    };
    let value = if deleted { Bytes::new() } else { message.value };
    Content { metadata, value }
}
