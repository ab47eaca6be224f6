//! Names of headers in Riak's spelling.
//!
//! In the standard, the case of a name has no meaning, but some clients compare names byte by byte:
//! a client that searches for `x-riak-index-` in small letters would lose every index of an object
//! that it updates. hyper capitalises each word of a name, unless the answer's extensions have
//! another spelling, in a type that only its parser can make. So a spelling is made by letting
//! hyper parse a request with these names from a pipe in memory, in one poll. That takes
//! microseconds, so spellings are kept. A copy takes a few tenths of one, and an application has
//! few sets of index names.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use http::{Extensions, Request};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;

use crate::reply::{Answer, empty};

/// Riak's spelling of the one fixed name that hyper would write differently.
const ENTITY_TAG: &[u8] = b"ETag";

/// The spelling of most answers.
static FIXED: LazyLock<Extensions> = LazyLock::new(|| parsed(&[]));

/// Spellings that were made, each under its names.
static MADE: LazyLock<Mutex<HashMap<Vec<Vec<u8>>, Extensions>>> = LazyLock::new(Mutex::default);

/// Maximum of kept spellings. Beyond it all are dropped, which costs little.
const MADE_MAX: usize = 256;

/// Names of more bytes than this together are parsed each time.
const MADE_NAME_BYTES_MAX: usize = 1 << 10;

/// Makes the names of an answer's headers appear as Riak writes them.
pub(crate) fn spell_fixed(answer: &mut Answer) {
    answer.extensions_mut().extend(FIXED.clone());
}

/// The same, with these names as they are given.
pub(crate) fn spell(answer: &mut Answer, names: &[Vec<u8>]) {
    let spelling = if names.is_empty() {
        FIXED.clone()
    } else {
        made(names)
    };
    answer.extensions_mut().extend(spelling);
}

fn made(names: &[Vec<u8>]) -> Extensions {
    if names.iter().map(Vec::len).sum::<usize>() > MADE_NAME_BYTES_MAX {
        return parsed(names);
    }
    if let Some(spelling) = locked(&MADE).get(names) {
        return spelling.clone();
    }
    let spelling = parsed(names);
    let mut made = locked(&MADE);
    if made.len() >= MADE_MAX {
        made.clear();
    }
    made.insert(names.to_vec(), spelling.clone());
    spelling
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn parsed(names: &[Vec<u8>]) -> Extensions {
    let mut request = b"GET / HTTP/1.1\r\n".to_vec();
    for name in names.iter().map(Vec::as_slice).chain([ENTITY_TAG]) {
        request.extend_from_slice(name);
        request.extend_from_slice(b": -\r\n");
    }
    request.extend_from_slice(b"\r\n");
    let spelling = Arc::new(Mutex::new(Extensions::new()));
    let taken = spelling.clone();
    let take = service_fn(move |mut request: Request<Incoming>| {
        let spelling = std::mem::take(request.extensions_mut());
        *locked(&taken) = spelling;
        async { Ok::<_, Infallible>(empty(http::StatusCode::OK)) }
    });
    let mut protocol = http1::Builder::new();
    protocol
        .preserve_header_case(true)
        .header_read_timeout(None)
        .max_headers(names.len() + 2)
        .max_buf_size(request.len() + BUFFER_BYTES_MIN)
        .keep_alive(false);
    let connection = protocol.serve_connection(Memory { unread: request }, take);
    // The whole request is there. An invalid name leaves every name capitalised.
    let _ = connection.now_or_never();
    std::mem::take(&mut *locked(&spelling))
}

/// The smallest bound of a connection's buffer that hyper accepts.
const BUFFER_BYTES_MIN: usize = 8 << 10;

/// A connection whose other end has finished sending, and takes any answer.
struct Memory {
    unread: Vec<u8>,
}

impl Read for Memory {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let bytes = self.unread.len().min(into.remaining());
        into.put_slice(&self.unread[..bytes]);
        self.unread.drain(..bytes);
        Poll::Ready(Ok(()))
    }
}

impl Write for Memory {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
