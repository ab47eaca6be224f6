//! The queue of a connection: messages take turns, a fragment each.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Buf, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::frame::{FRAGMENT_BYTES_MAX, FrameHead, put_frame};
use crate::message::Message;

/// Bytes gathered for one write: enough to be worth a system call, and no more, since gathered
/// frames can no longer be overtaken.
const BATCH_BYTES: usize = 256 * 1024;
/// The most waiting frames without a message. A peer that causes more and reads none is given up.
const SIGNALS_MAX: usize = 100_000;
/// Shorter fragments are copied after their fields, which is cheaper than one more part of a
/// write.
const COPIED_BYTES_MAX: usize = 4 * 1024;

/// The beginning of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Opening {
    Request { wait_ms: u32 },
    Answer,
}

/// The queue towards a peer on one connection.
#[derive(Debug)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    filled: Notify,
    /// Notified when messages have gone out.
    drained: Notify,
    is_overrun: AtomicBool,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct State {
    signals: VecDeque<FrameHead>,
    /// An upper bound on the tasks that wait for room.
    waiting: usize,
    messages: VecDeque<Outgoing>,
    /// Total unsent length of messages.
    bytes: usize,
    /// When everything queued has been sent, a farewell is sent, and nothing afterwards.
    is_leaving: bool,
    is_closed: bool,
}

#[derive(Debug)]
struct Outgoing {
    stream: u64,
    opening: Opening,
    message: Message,
    sent: usize,
}

/// The reason why a message was not queued.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// There is no room for the message, which is returned.
    Full(Message),
    Closed,
}

impl Outbox {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            state: Mutex::default(),
            filled: Notify::new(),
            drained: Notify::new(),
            is_overrun: AtomicBool::new(false),
            bytes_max,
        }
    }

    /// Queues a message. When nothing waits, a message of any size is queued.
    pub(crate) fn push(
        &self,
        stream: u64,
        opening: Opening,
        message: Message,
    ) -> Result<(), NotTaken> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(NotTaken::Closed);
        }
        if !state.has_room(&message, self.bytes_max) {
            return Err(NotTaken::Full(message));
        }
        state.bytes += message.len();
        state.messages.push_back(Outgoing {
            stream,
            opening,
            message,
            sent: 0,
        });
        drop(state);
        self.filled.notify_one();
        Ok(())
    }

    /// Queues a message once there is room for it, unless the outbox is closed before.
    pub(crate) async fn push_when_drained(
        &self,
        stream: u64,
        opening: Opening,
        mut message: Message,
    ) {
        while let Err(NotTaken::Full(returned)) = self.push(stream, opening, message) {
            message = returned;
            let drained = self.drained.notified();
            tokio::pin!(drained);
            // Enabled before the check, so that no room is missed.
            drained.as_mut().enable();
            let is_full = {
                let mut state = self.state.lock();
                let is_full = !state.is_closed && !state.has_room(&message, self.bytes_max);
                state.waiting += usize::from(is_full);
                is_full
            };
            if is_full {
                drained.await;
            }
        }
    }

    /// True when the peer has caused too many frames without reading them.
    pub(crate) fn is_overrun(&self) -> bool {
        self.is_overrun.load(Ordering::Relaxed)
    }

    /// Queues a frame without a message, before all messages.
    pub(crate) fn signal(&self, head: FrameHead) {
        let mut state = self.state.lock();
        state.signals.push_back(head);
        if state.signals.len() > SIGNALS_MAX {
            self.is_overrun.store(true, Ordering::Relaxed);
        }
        drop(state);
        self.filled.notify_one();
    }

    /// Withdraws a request; a peer that has received a part of it gets a notice.
    pub(crate) fn cancel(&self, stream: u64) {
        let mut state = self.state.lock();
        let place = state.messages.iter().position(|it| it.stream == stream);
        let taken = place.and_then(|place| state.messages.remove(place));
        if let Some(taken) = &taken {
            state.bytes -= taken.message.len() - taken.sent;
        }
        if taken.is_none_or(|taken| taken.sent > 0) {
            state.signals.push_back(FrameHead::Cancelled { stream });
            drop(state);
            self.filled.notify_one();
        }
    }

    /// True for a message that was not sent completely.
    pub(crate) fn holds(&self, stream: u64) -> bool {
        let state = self.state.lock();
        state.messages.iter().any(|it| it.stream == stream)
    }

    /// Sends everything queued and then a farewell; then the outbox is closed.
    pub(crate) fn take_leave(&self) {
        self.state.lock().is_leaving = true;
        self.filled.notify_one();
    }

    /// Closes the outbox: it takes and sends nothing more.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.filled.notify_one();
        self.drained.notify_waiters();
    }

    /// Waits for the next frames; `None` when closed.
    ///
    /// When woken, the task first lets other ready tasks run, so that their frames go out with the
    /// same system call.
    pub(crate) async fn next_batch(&self) -> Option<Batch> {
        loop {
            {
                let mut state = self.state.lock();
                if state.is_closed {
                    return None;
                }
                let batch = state.batch();
                if batch.has_remaining() {
                    let waiting = std::mem::take(&mut state.waiting);
                    drop(state);
                    if waiting > 0 {
                        self.drained.notify_waiters();
                    }
                    return Some(batch);
                }
            }
            self.filled.notified().await;
            tokio::task::yield_now().await;
        }
    }
}

impl State {
    /// When nothing waits, there is always room for one message.
    fn has_room(&self, message: &Message, bytes_max: usize) -> bool {
        self.bytes == 0 || self.bytes + message.len() <= bytes_max
    }

    fn batch(&mut self) -> Batch {
        let mut batch = Batch::default();
        while let Some(head) = self.signals.pop_front() {
            put_frame(&mut batch.open, head, &[]);
        }
        while batch.len() < BATCH_BYTES {
            let Some(mut outgoing) = self.messages.pop_front() else {
                break;
            };
            let before = outgoing.sent;
            outgoing.put_fragment(&mut batch);
            self.bytes -= outgoing.sent - before;
            if outgoing.sent < outgoing.message.len() {
                self.messages.push_back(outgoing);
            }
        }
        if self.is_leaving && self.messages.is_empty() {
            put_frame(&mut batch.open, FrameHead::Farewell, &[]);
            self.is_closed = true;
        }
        batch.seal();
        batch
    }
}

impl Outgoing {
    fn put_fragment(&mut self, batch: &mut Batch) {
        let stream = self.stream;
        let head = if self.sent > 0 {
            FrameHead::More { stream }
        } else {
            self.first_head()
        };
        let room = FRAGMENT_BYTES_MAX;
        let from_head = part(&self.message.head, self.sent, room);
        let behind = self.sent.saturating_sub(self.message.head.len());
        let from_body = if self.sent + from_head.len() >= self.message.head.len() {
            part(&self.message.body, behind, room - from_head.len())
        } else {
            Bytes::new()
        };
        put_frame(&mut batch.open, head, &[&from_head, &from_body]);
        self.sent += from_head.len() + from_body.len();
        batch.put(from_head);
        batch.put(from_body);
    }

    fn first_head(&self) -> FrameHead {
        let head_len = u32::try_from(self.message.head.len()).unwrap_or(u32::MAX);
        let len = u64::try_from(self.message.len()).unwrap_or(u64::MAX);
        let stream = self.stream;
        match self.opening {
            Opening::Request { wait_ms } => FrameHead::Request {
                stream,
                wait_ms,
                head_len,
                len,
            },
            Opening::Answer => FrameHead::Answer {
                stream,
                head_len,
                len,
            },
        }
    }
}

fn part(bytes: &Bytes, from: usize, len_max: usize) -> Bytes {
    let from = from.min(bytes.len());
    bytes.slice(from..bytes.len().min(from + len_max))
}

/// Frames ready to be written: fields and short fragments in buffers, long ones as they are.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    parts: VecDeque<Bytes>,
    parts_len: usize,
    open: BytesMut,
}

impl Batch {
    fn len(&self) -> usize {
        self.parts_len + self.open.len()
    }

    fn put(&mut self, fragment: Bytes) {
        if fragment.len() <= COPIED_BYTES_MAX {
            self.open.extend_from_slice(&fragment);
            return;
        }
        self.seal();
        self.parts_len += fragment.len();
        self.parts.push_back(fragment);
    }

    fn seal(&mut self) {
        if !self.open.is_empty() {
            self.parts_len += self.open.len();
            self.parts.push_back(self.open.split().freeze());
        }
    }
}

impl Buf for Batch {
    fn remaining(&self) -> usize {
        self.parts_len
    }

    fn chunk(&self) -> &[u8] {
        self.parts.front().map_or(&[], |part| &part[..])
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [std::io::IoSlice<'a>]) -> usize {
        let filled = slices.iter_mut().zip(&self.parts);
        filled
            .map(|(slice, part)| *slice = std::io::IoSlice::new(part))
            .count()
    }

    fn advance(&mut self, mut count: usize) {
        self.parts_len -= count;
        while let Some(part) = self.parts.front_mut().filter(|_| count > 0) {
            if part.len() > count {
                part.advance(count);
                return;
            }
            count -= part.len();
            self.parts.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assembly::Assembly;
    use crate::frame::take_frame;

    fn message(head: &[u8], body_len: usize) -> Message {
        Message {
            head: Bytes::copy_from_slice(head),
            body: Bytes::from(vec![7; body_len]),
        }
    }

    /// The streams and messages in the order in which they are complete on the other side.
    fn delivered(outbox: &Outbox) -> Vec<(u64, Message)> {
        let mut assembly = Assembly::new(usize::MAX, 100);
        let mut whole = Vec::new();
        loop {
            let mut batch = outbox.state.lock().batch();
            if !batch.has_remaining() {
                return whole;
            }
            let mut input = BytesMut::new();
            while batch.has_remaining() {
                let count = batch.chunk().len().min(1000);
                input.extend_from_slice(&batch.chunk()[..count]);
                batch.advance(count);
            }
            while let Some(frame) = take_frame(&mut input).unwrap() {
                let (stream, done) = match frame.head {
                    FrameHead::Request {
                        stream,
                        head_len,
                        len,
                        ..
                    } => (
                        stream,
                        assembly.begin(stream, head_len, len, frame.fragment),
                    ),
                    FrameHead::More { stream } => (stream, assembly.go_on(stream, &frame.fragment)),
                    other => panic!("{other:?}"),
                };
                whole.extend(done.unwrap().map(|message| (stream, message)));
            }
        }
    }

    #[test]
    fn a_small_message_overtakes_a_large_one() {
        let outbox = Outbox::new(usize::MAX);
        let request = Opening::Request { wait_ms: 1 };
        let large = message(b"large", 3 * BATCH_BYTES + 17);
        outbox.push(1, request, large.clone()).unwrap();
        outbox.push(2, request, message(b"small", 10)).unwrap();
        outbox.push(3, request, message(b"", 0)).unwrap();
        let whole = delivered(&outbox);
        let order: Vec<u64> = whole.iter().map(|(stream, _)| *stream).collect();
        assert_eq!(order, [2, 3, 1]);
        assert_eq!(whole[2].1, large);
        assert_eq!(outbox.state.lock().bytes, 0);
    }

    #[test]
    fn a_head_longer_than_a_fragment_goes_through() {
        let outbox = Outbox::new(usize::MAX);
        let long = message(&vec![1; FRAGMENT_BYTES_MAX + 5], FRAGMENT_BYTES_MAX);
        outbox
            .push(1, Opening::Request { wait_ms: 1 }, long.clone())
            .unwrap();
        assert_eq!(delivered(&outbox), [(1, long)]);
    }

    #[test]
    fn what_waits_is_bounded_and_one_message_always_goes() {
        let outbox = Outbox::new(100);
        outbox.push(1, Opening::Answer, message(b"", 500)).unwrap();
        assert_eq!(
            outbox.push(2, Opening::Answer, message(b"", 1)),
            Err(NotTaken::Full(message(b"", 1)))
        );
        outbox.cancel(1);
        assert_eq!(outbox.push(2, Opening::Answer, message(b"", 1)), Ok(()));
        outbox.close();
        assert_eq!(
            outbox.push(3, Opening::Answer, message(b"", 1)),
            Err(NotTaken::Closed)
        );
    }

    #[test]
    fn a_message_is_held_until_its_last_fragment_is_on_its_way() {
        let outbox = Outbox::new(usize::MAX);
        let request = Opening::Request { wait_ms: 1 };
        outbox
            .push(1, request, message(b"", 2 * BATCH_BYTES))
            .unwrap();
        outbox.push(2, request, message(b"", 10)).unwrap();
        assert!(outbox.holds(1) && outbox.holds(2));
        let first = outbox.state.lock().batch();
        assert!(first.has_remaining() && outbox.holds(1) && !outbox.holds(2));
        outbox.close();
        assert!(outbox.holds(1));
    }

    #[test]
    fn an_answer_that_finds_no_room_waits_for_it() {
        let executor = kvorum_runtime::Runtime::simulated(1).unwrap();
        let runtime = executor.runtime();
        executor.block_on(async move {
            let outbox = std::sync::Arc::new(Outbox::new(100));
            let large = message(b"", 2 * BATCH_BYTES);
            outbox.push(1, Opening::Answer, large).unwrap();
            let waiting = outbox.clone();
            let pushing = runtime.spawn("pushing", async move {
                let small = message(b"", 10);
                waiting.push_when_drained(2, Opening::Answer, small).await;
            });
            runtime.yield_now().await;
            assert!(!outbox.holds(2));
            while outbox.holds(1) {
                outbox.next_batch().await.unwrap();
            }
            pushing.await.unwrap();
            assert!(outbox.holds(2));
        });
    }

    #[test]
    fn a_peer_that_never_reads_is_noticed() {
        let outbox = Outbox::new(100);
        for stream in 0..=100_000 {
            assert!(!outbox.is_overrun());
            outbox.signal(FrameHead::Overload { stream });
        }
        assert!(outbox.is_overrun());
    }

    #[test]
    fn who_waits_for_room_does_not_outlive_the_connection() {
        let executor = kvorum_runtime::Runtime::simulated(1).unwrap();
        let runtime = executor.runtime();
        executor.block_on(async move {
            let outbox = std::sync::Arc::new(Outbox::new(100));
            outbox.push(1, Opening::Answer, message(b"", 200)).unwrap();
            let waiting = outbox.clone();
            let pushing = runtime.spawn("pushing", async move {
                let small = message(b"", 10);
                waiting.push_when_drained(2, Opening::Answer, small).await;
            });
            runtime.yield_now().await;
            outbox.close();
            pushing.await.unwrap();
            assert!(!outbox.holds(2));
        });
    }

    #[test]
    fn a_peer_gets_a_cancellation_if_it_has_the_request() {
        let outbox = Outbox::new(usize::MAX);
        outbox
            .push(1, Opening::Request { wait_ms: 1 }, message(b"", 10))
            .unwrap();
        outbox.cancel(1);
        assert!(!outbox.state.lock().batch().has_remaining());
        outbox
            .push(2, Opening::Request { wait_ms: 1 }, message(b"", 10))
            .unwrap();
        assert!(outbox.state.lock().batch().has_remaining());
        outbox.cancel(2);
        let mut batch = outbox.state.lock().batch();
        let mut input = BytesMut::from(&batch.copy_to_bytes(batch.remaining())[..]);
        let frame = take_frame(&mut input).unwrap().unwrap();
        assert_eq!(frame.head, FrameHead::Cancelled { stream: 2 });
    }
}
