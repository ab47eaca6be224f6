//! A server that a test drives, one frame at a time.

use bytes::{Bytes, BytesMut};
use kvorum_client::{Client, ClientSettings, Frame, MessageCode};
use kvorum_protocol::CodedMessage;
use kvorum_protocol::frame::{self, FrameDecoder};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

/// The far end of a client's stream.
pub(crate) struct FakeServer {
    stream: DuplexStream,
    incoming: BytesMut,
}

/// A client and its server.
pub(crate) fn connected() -> (Client<DuplexStream>, FakeServer) {
    connected_with(&ClientSettings::default(), 1 << 16)
}

/// The same with settings, and a stream with `stream_bytes` of buffer in each direction.
pub(crate) fn connected_with(
    settings: &ClientSettings,
    stream_bytes: usize,
) -> (Client<DuplexStream>, FakeServer) {
    let (near, far) = tokio::io::duplex(stream_bytes);
    (
        Client::over(near, settings),
        FakeServer {
            stream: far,
            incoming: BytesMut::new(),
        },
    )
}

impl FakeServer {
    /// The next request.
    pub(crate) async fn receive(&mut self) -> Frame {
        let decoder = FrameDecoder::new(1 << 24);
        loop {
            if let Some(frame) = decoder.decode(&mut self.incoming).unwrap() {
                return frame;
            }
            let count = self.stream.read_buf(&mut self.incoming).await.unwrap();
            assert_ne!(count, 0, "the client hung up");
        }
    }

    /// The next request, which must be an `M`.
    pub(crate) async fn receive_as<M: CodedMessage>(&mut self) -> M {
        let frame = self.receive().await;
        assert_eq!(frame.code, M::CODE);
        frame.decode().unwrap()
    }

    pub(crate) async fn answer(&mut self, message: &impl CodedMessage) {
        let mut buffer = BytesMut::new();
        frame::encode(message, &mut buffer).unwrap();
        self.send(&buffer).await;
    }

    pub(crate) async fn answer_empty(&mut self, code: MessageCode) {
        self.send(&[0, 0, 0, 1, code.0]).await;
    }

    pub(crate) async fn answer_error(&mut self, text: &str) {
        let mut buffer = BytesMut::new();
        frame::encode_error(text.as_bytes(), &mut buffer);
        self.send(&buffer).await;
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }
}

pub(crate) fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}
