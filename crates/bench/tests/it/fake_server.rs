//! A server that keeps objects in a map, with faults for tests.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use kvorum_protocol::frame::{self, Frame, FrameDecoder};
use kvorum_protocol::{MessageCode, pb};

/// A fault of the server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fault {
    None,
    /// Every put is refused.
    RefusesPuts,
    /// Every tenth request ends with the connection closed instead of an answer.
    ClosesConnections,
    /// The hundredth request waits for a second, and blocks all others.
    StallsOnce,
    /// Reads return the value with its last byte changed.
    DamagesValues,
}

type Address = (Bytes, Bytes);

#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) objects: BTreeMap<Address, pb::RpbContent>,
    pub(crate) puts_with_vclock: usize,
    /// Counters by bucket type, bucket and key.
    pub(crate) counters: BTreeMap<(Bytes, Bytes, Bytes), i64>,
    requests: usize,
}

pub(crate) struct FakeServer {
    pub(crate) port: u16,
    pub(crate) store: Arc<Mutex<Store>>,
}

impl FakeServer {
    pub(crate) fn start(fault: Fault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let store = Arc::new(Mutex::new(Store::default()));
        let shared = Arc::clone(&store);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (store, stream) = (Arc::clone(&shared), stream.unwrap());
                std::thread::spawn(move || serve(stream, &store, fault));
            }
        });
        Self { port, store }
    }
}

fn serve(mut stream: TcpStream, store: &Mutex<Store>, fault: Fault) -> io::Result<()> {
    let decoder = FrameDecoder::new(1 << 24);
    let mut input = BytesMut::new();
    loop {
        while let Some(request) = decoder.decode(&mut input).unwrap() {
            let mut output = BytesMut::new();
            let mut store = store.lock().unwrap();
            store.requests += 1;
            if fault == Fault::ClosesConnections && store.requests.is_multiple_of(10) {
                return Ok(());
            }
            if fault == Fault::StallsOnce && store.requests == 100 {
                std::thread::sleep(std::time::Duration::from_secs(1));
            }
            answer(&request, &mut store, fault, &mut output);
            drop(store);
            stream.write_all(&output)?;
        }
        let mut buffer = [0; 16384];
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        input.extend_from_slice(&buffer[..count]);
    }
}

fn answer(request: &Frame, store: &mut Store, fault: Fault, output: &mut BytesMut) {
    match request.code {
        MessageCode::RPB_GET_REQ => {
            let get: pb::RpbGetReq = request.decode().unwrap();
            let found = store.objects.get(&(get.bucket, get.key));
            let content = found.cloned().map(|content| damage(content, fault));
            let vclock = content.is_some().then(|| Bytes::from_static(b"clock"));
            let content = content.into_iter().collect();
            frame::encode(
                &pb::RpbGetResp {
                    content,
                    vclock,
                    unchanged: None,
                },
                output,
            )
            .unwrap();
        }
        MessageCode::RPB_PUT_REQ if fault == Fault::RefusesPuts => {
            frame::encode_error(b"disk full", output);
        }
        MessageCode::RPB_PUT_REQ => {
            let put: pb::RpbPutReq = request.decode().unwrap();
            store.puts_with_vclock += usize::from(put.vclock.is_some());
            store
                .objects
                .insert((put.bucket, put.key.unwrap()), put.content);
            frame::encode(&pb::RpbPutResp::default(), output).unwrap();
        }
        MessageCode::DT_UPDATE_REQ => {
            let update: pb::DtUpdateReq = request.decode().unwrap();
            let by = update.op.counter_op.unwrap().increment.unwrap();
            let place = (update.r#type, update.bucket, update.key.unwrap());
            *store.counters.entry(place).or_default() += by;
            frame::encode(&pb::DtUpdateResp::default(), output).unwrap();
        }
        MessageCode::DT_FETCH_REQ => {
            let fetch: pb::DtFetchReq = request.decode().unwrap();
            let place = (fetch.r#type, fetch.bucket, fetch.key);
            let counter_value = store.counters.get(&place).copied();
            let value = counter_value.map(|it| pb::DtValue {
                counter_value: Some(it),
                ..pb::DtValue::default()
            });
            let fetched = pb::DtFetchResp {
                value,
                ..pb::DtFetchResp::default()
            };
            frame::encode(&fetched, output).unwrap();
        }
        MessageCode::RPB_DEL_REQ => {
            let delete: pb::RpbDelReq = request.decode().unwrap();
            store.objects.remove(&(delete.bucket, delete.key));
            frame::encode_empty(MessageCode::RPB_DEL_RESP, output);
        }
        _ => frame::encode_error(b"unknown message", output),
    }
}

fn damage(content: pb::RpbContent, fault: Fault) -> pb::RpbContent {
    let mut value = content.value.to_vec();
    if fault == Fault::DamagesValues
        && let Some(last) = value.last_mut()
    {
        *last ^= 1;
    }
    pb::RpbContent {
        value: Bytes::from(value),
        ..content
    }
}
