//! Assembles messages from fragments, within bounds. Pure.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};

use crate::error::ProtocolError;
use crate::message::Message;

/// Partly received messages.
#[derive(Debug)]
pub(crate) struct Assembly {
    parts: BTreeMap<u64, Part>,
    /// Total length of all parts.
    bytes: usize,
    message_bytes_max: usize,
    messages_max: usize,
}

#[derive(Debug)]
struct Part {
    head_len: usize,
    len: usize,
    bytes: BytesMut,
}

impl Assembly {
    pub(crate) fn new(message_bytes_max: usize, messages_max: usize) -> Self {
        Self {
            parts: BTreeMap::new(),
            bytes: 0,
            message_bytes_max,
            messages_max,
        }
    }

    /// Takes the first fragment of a message; returns the message if it is complete.
    pub(crate) fn begin(
        &mut self,
        stream: u64,
        head_len: u32,
        len: u64,
        fragment: Bytes,
    ) -> Result<Option<Message>, ProtocolError> {
        let max = self.message_bytes_max;
        let too_long = ProtocolError::MessageLength { got: len, max };
        let Some(len) = usize::try_from(len).ok().filter(|len| *len <= max) else {
            return Err(too_long);
        };
        let head_len = usize::try_from(head_len).unwrap_or(usize::MAX);
        if fragment.len() > len || head_len > len {
            return Err(ProtocolError::Overlong { stream });
        }
        if self.parts.contains_key(&stream) {
            return Err(ProtocolError::BegunTwice { stream });
        }
        if fragment.len() == len {
            return Ok(Some(cut(fragment, head_len)));
        }
        if self.parts.len() >= self.messages_max {
            let max = self.messages_max;
            return Err(ProtocolError::TooMany { max });
        }
        self.take_room(fragment.len())?;
        // The buffer grows with the bytes that arrive: an announced length alone takes no memory.
        let bytes = BytesMut::from(&fragment[..]);
        self.parts.insert(
            stream,
            Part {
                head_len,
                len,
                bytes,
            },
        );
        Ok(None)
    }

    /// Takes the next fragment of a message; returns the message once it is complete.
    pub(crate) fn go_on(
        &mut self,
        stream: u64,
        fragment: &[u8],
    ) -> Result<Option<Message>, ProtocolError> {
        let part = self.parts.get_mut(&stream);
        let part = part.ok_or(ProtocolError::StrayFragment { stream })?;
        if part.bytes.len() + fragment.len() > part.len {
            return Err(ProtocolError::Overlong { stream });
        }
        part.bytes.extend_from_slice(fragment);
        let is_whole = part.bytes.len() == part.len;
        self.take_room(fragment.len())?;
        if !is_whole {
            return Ok(None);
        }
        let whole = self.remove(stream);
        Ok(whole.map(|part| cut(part.bytes.freeze(), part.head_len)))
    }

    /// Takes room for arriving messages: at most twice the largest. Senders queue far less at once.
    fn take_room(&mut self, bytes: usize) -> Result<(), ProtocolError> {
        let max = self.message_bytes_max.saturating_mul(2);
        self.bytes += bytes;
        if self.bytes > max {
            return Err(ProtocolError::TooManyBytes { max });
        }
        Ok(())
    }

    fn remove(&mut self, stream: u64) -> Option<Part> {
        let part = self.parts.remove(&stream)?;
        self.bytes -= part.bytes.len();
        Some(part)
    }

    /// Drops a message whose rest will not come, or is not wanted.
    pub(crate) fn forget(&mut self, stream: u64) {
        self.remove(stream);
    }
}

fn cut(mut bytes: Bytes, head_len: usize) -> Message {
    let head = bytes.split_to(head_len);
    Message { head, body: bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_whose_fragments_alternate_come_out_whole() {
        let mut assembly = Assembly::new(100, 4);
        assert_eq!(assembly.begin(1, 2, 6, Bytes::from_static(b"ab")), Ok(None));
        assert_eq!(assembly.begin(2, 0, 3, Bytes::from_static(b"x")), Ok(None));
        assert_eq!(assembly.go_on(1, b"cd"), Ok(None));
        let second = assembly.go_on(2, b"yz").unwrap().unwrap();
        assert_eq!(
            (&second.head[..], &second.body[..]),
            (&b""[..], &b"xyz"[..])
        );
        let first = assembly.go_on(1, b"ef").unwrap().unwrap();
        assert_eq!(
            (&first.head[..], &first.body[..]),
            (&b"ab"[..], &b"cdef"[..])
        );
    }

    #[test]
    fn what_is_under_way_is_bounded_in_bytes() {
        let mut assembly = Assembly::new(10, 100);
        let nine = || Bytes::from_static(b"123456789");
        assert_eq!(assembly.begin(1, 0, 10, nine()), Ok(None));
        assert_eq!(assembly.begin(2, 0, 10, nine()), Ok(None));
        assert!(assembly.go_on(1, b"0").unwrap().is_some());
        assert_eq!(assembly.begin(3, 0, 10, nine()), Ok(None));
        assembly.forget(3);
        assert_eq!(assembly.begin(4, 0, 10, nine()), Ok(None));
        let max = 20;
        let beyond = Err(ProtocolError::TooManyBytes { max });
        assert_eq!(assembly.begin(5, 0, 10, nine()), beyond);
    }

    #[test]
    fn what_does_not_keep_to_its_announcement_is_refused() {
        let mut assembly = Assembly::new(10, 1);
        let some = || Bytes::from_static(b"abc");
        assert!(matches!(
            assembly.begin(1, 0, 11, some()),
            Err(ProtocolError::MessageLength { .. })
        ));
        assert!(matches!(
            assembly.begin(1, 0, 2, some()),
            Err(ProtocolError::Overlong { .. })
        ));
        assert!(matches!(
            assembly.begin(1, 9, 8, some()),
            Err(ProtocolError::Overlong { .. })
        ));
        assert_eq!(assembly.begin(1, 0, 5, some()), Ok(None));
        assert!(matches!(
            assembly.begin(1, 0, 5, some()),
            Err(ProtocolError::BegunTwice { .. })
        ));
        assert!(matches!(
            assembly.begin(2, 0, 5, some()),
            Err(ProtocolError::TooMany { .. })
        ));
        assert!(matches!(
            assembly.go_on(1, b"def"),
            Err(ProtocolError::Overlong { .. })
        ));
        assembly.forget(1);
        assert!(matches!(
            assembly.go_on(1, b"de"),
            Err(ProtocolError::StrayFragment { .. })
        ));
    }
}
