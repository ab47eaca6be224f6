//! The requests of a connection.

use bytes::Bytes;
use kvorum_protocol::frame::{self, Frame};
use kvorum_protocol::request::{Delete, DeleteOptions, Get, GetOptions, Put, PutOptions};
use kvorum_protocol::{CodedMessage, MessageCode, pb};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio::time;

use crate::answers::Answers;
use crate::connection::{Connection, lost};
use crate::error::Error;
use crate::settings::ClientSettings;

/// The content type of [`Client::put_value`].
const VALUE_CONTENT_TYPE: &[u8] = b"application/octet-stream";

/// A connection to a node.
///
/// Every request may fail with any [`Error`]. After a refusal by the server the connection stays usable.
/// After any other failure on the way, and after a request future was dropped before its end, the
/// connection is unusable and a new client has to be made ([`Client::is_usable`] is false).
///
/// Answers have slices of the receive buffer, which is reused once they are dropped.
#[derive(Debug)]
pub struct Client<S = TcpStream> {
    connection: Connection<S>,
}

impl Client<TcpStream> {
    /// Connects to a node's protocol-buffer port.
    ///
    /// # Errors
    /// [`Error::ConnectionLost`] and [`Error::Timeout`].
    pub async fn connect(
        address: impl ToSocketAddrs,
        settings: &ClientSettings,
    ) -> Result<Client<TcpStream>, Error> {
        let after = settings.connect_timeout;
        let connected = time::timeout(after, TcpStream::connect(address)).await;
        let stream = connected
            .map_err(|_elapsed| Error::Timeout { after })?
            .map_err(|source| lost("connecting", source))?;
        stream
            .set_nodelay(true)
            .map_err(|source| lost("connecting", source))?;
        Ok(Client::over(stream, settings))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    /// Uses a stream that the caller has opened.
    pub fn over(stream: S, settings: &ClientSettings) -> Client<S> {
        Client {
            connection: Connection::new(stream, settings),
        }
    }

    /// True if another request may be made.
    pub fn is_usable(&self) -> bool {
        self.connection.is_in_step()
    }

    /// Checks that the server answers.
    pub async fn ping(&mut self) -> Result<(), Error> {
        self.ask_empty(MessageCode::RPB_PING_REQ, MessageCode::RPB_PING_RESP)
            .await
    }

    /// The node's name and version.
    pub async fn server_info(&mut self) -> Result<pb::RpbGetServerInfoResp, Error> {
        frame::encode_empty(
            MessageCode::RPB_GET_SERVER_INFO_REQ,
            self.connection.begin()?,
        );
        self.connection.exchange_for().await
    }

    /// The id last set on this connection.
    pub async fn client_id(&mut self) -> Result<Bytes, Error> {
        frame::encode_empty(MessageCode::RPB_GET_CLIENT_ID_REQ, self.connection.begin()?);
        let answer: pb::RpbGetClientIdResp = self.connection.exchange_for().await?;
        Ok(answer.client_id)
    }

    /// Sets the connection's id, which the server stores and does not use.
    pub async fn set_client_id(&mut self, client_id: Bytes) -> Result<(), Error> {
        let request = pb::RpbSetClientIdReq { client_id };
        self.ask(&request, MessageCode::RPB_SET_CLIENT_ID_RESP)
            .await
    }

    /// Reads an object. An answer without content and vclock means that there is none.
    pub async fn get(&mut self, get: &Get<'_>) -> Result<pb::RpbGetResp, Error> {
        get.encode(self.connection.begin()?)?;
        self.connection.exchange_for().await
    }

    /// Reads an object of the default type with the bucket's settings.
    pub async fn get_key(&mut self, bucket: &[u8], key: &[u8]) -> Result<pb::RpbGetResp, Error> {
        let options = GetOptions::default();
        self.get(&Get {
            bucket_type: None,
            bucket,
            key,
            options: &options,
        })
        .await
    }

    /// Stores an object.
    pub async fn put(&mut self, put: &Put<'_>) -> Result<pb::RpbPutResp, Error> {
        put.encode(self.connection.begin()?)?;
        self.connection.exchange_for().await
    }

    /// Stores a value in the default type with the bucket's settings, without a vclock.
    pub async fn put_value(
        &mut self,
        bucket: &[u8],
        key: &[u8],
        value: Bytes,
    ) -> Result<(), Error> {
        let options = PutOptions::default();
        let content_type = Some(Bytes::from_static(VALUE_CONTENT_TYPE));
        let content = pb::RpbContent {
            value,
            content_type,
            ..Default::default()
        };
        let put = Put {
            bucket_type: None,
            bucket,
            key: Some(key),
            vclock: None,
            content: &content,
            options: &options,
        };
        self.put(&put).await.map(drop)
    }

    /// Deletes an object; a missing one counts as deleted.
    pub async fn delete(&mut self, delete: &Delete<'_>) -> Result<(), Error> {
        delete.encode(self.connection.begin()?)?;
        self.connection
            .exchange_expecting(MessageCode::RPB_DEL_RESP)
            .await
            .map(drop)
    }

    /// Deletes an object of the default type, at any vclock.
    pub async fn delete_key(&mut self, bucket: &[u8], key: &[u8]) -> Result<(), Error> {
        let options = DeleteOptions::default();
        let delete = Delete {
            bucket_type: None,
            bucket,
            key,
            vclock: None,
            options: &options,
        };
        self.delete(&delete).await
    }

    /// Lists the keys of a bucket, in messages as they are found.
    pub async fn list_keys(
        &mut self,
        request: &pb::RpbListKeysReq,
    ) -> Result<Answers<'_, S, pb::RpbListKeysResp>, Error> {
        frame::encode(request, self.connection.begin()?)?;
        self.connection.send().await?;
        Ok(Answers::new(&mut self.connection, false))
    }

    /// Lists the buckets of a type: in messages as they are found if the request has `stream`, else in
    /// one message.
    pub async fn list_buckets(
        &mut self,
        request: &pb::RpbListBucketsReq,
    ) -> Result<Answers<'_, S, pb::RpbListBucketsResp>, Error> {
        frame::encode(request, self.connection.begin()?)?;
        self.connection.send().await?;
        Ok(Answers::new(&mut self.connection, !request.stream()))
    }

    /// Queries a secondary index: in messages as results are found if the request has `stream`, else in
    /// one message.
    pub async fn query_index(
        &mut self,
        request: &pb::RpbIndexReq,
    ) -> Result<Answers<'_, S, pb::RpbIndexResp>, Error> {
        frame::encode(request, self.connection.begin()?)?;
        self.connection.send().await?;
        Ok(Answers::new(&mut self.connection, !request.stream()))
    }

    /// Reads the value of a data type.
    pub async fn fetch_data_type(
        &mut self,
        request: &pb::DtFetchReq,
    ) -> Result<pb::DtFetchResp, Error> {
        frame::encode(request, self.connection.begin()?)?;
        self.connection.exchange_for().await
    }

    /// Carries out an operation on a data type. Without an answer the operation may have been made:
    /// an increment that is sent again may count twice.
    pub async fn update_data_type(
        &mut self,
        request: &pb::DtUpdateReq,
    ) -> Result<pb::DtUpdateResp, Error> {
        frame::encode(request, self.connection.begin()?)?;
        self.connection.exchange_for().await
    }

    /// The properties of a bucket.
    pub async fn bucket_properties(
        &mut self,
        bucket_type: Option<Bytes>,
        bucket: Bytes,
    ) -> Result<pb::RpbBucketProps, Error> {
        let request = pb::RpbGetBucketReq {
            bucket,
            r#type: bucket_type,
        };
        frame::encode(&request, self.connection.begin()?)?;
        let answer: pb::RpbGetBucketResp = self.connection.exchange_for().await?;
        Ok(answer.props)
    }

    /// Changes the given properties of a bucket.
    pub async fn set_bucket_properties(
        &mut self,
        bucket_type: Option<Bytes>,
        bucket: Bytes,
        props: pb::RpbBucketProps,
    ) -> Result<(), Error> {
        let request = pb::RpbSetBucketReq {
            bucket,
            props,
            r#type: bucket_type,
        };
        self.ask(&request, MessageCode::RPB_SET_BUCKET_RESP).await
    }

    /// Resets a bucket to the properties of its type.
    pub async fn reset_bucket_properties(
        &mut self,
        bucket_type: Option<Bytes>,
        bucket: Bytes,
    ) -> Result<(), Error> {
        let request = pb::RpbResetBucketReq {
            bucket,
            r#type: bucket_type,
        };
        self.ask(&request, MessageCode::RPB_RESET_BUCKET_RESP).await
    }

    /// The properties of a bucket type.
    pub async fn bucket_type_properties(
        &mut self,
        bucket_type: Bytes,
    ) -> Result<pb::RpbBucketProps, Error> {
        let request = pb::RpbGetBucketTypeReq {
            r#type: bucket_type,
        };
        frame::encode(&request, self.connection.begin()?)?;
        let answer: pb::RpbGetBucketResp = self.connection.exchange_for().await?;
        Ok(answer.props)
    }

    /// Changes the given properties of a bucket type.
    pub async fn set_bucket_type_properties(
        &mut self,
        bucket_type: Bytes,
        props: pb::RpbBucketProps,
    ) -> Result<(), Error> {
        let request = pb::RpbSetBucketTypeReq {
            r#type: bucket_type,
            props,
        };
        self.ask(&request, MessageCode::RPB_SET_BUCKET_RESP).await
    }

    /// Sends any payload under any code and returns the one answer, whatever its code; an error
    /// answer is an error.
    pub async fn request(&mut self, code: MessageCode, payload: Bytes) -> Result<Frame, Error> {
        Frame { code, payload }.encode(self.connection.begin()?)?;
        self.connection.exchange().await
    }

    /// Sends all frames without waiting in between and returns as many answers, errors included.
    /// For requests with exactly one answer each.
    pub async fn send_pipelined(&mut self, frames: &[Frame]) -> Result<Vec<Frame>, Error> {
        let outgoing = self.connection.begin()?;
        for frame in frames {
            frame.encode(outgoing)?;
        }
        self.connection.exchange_many(frames.len()).await
    }

    async fn ask(&mut self, message: &impl CodedMessage, answer: MessageCode) -> Result<(), Error> {
        frame::encode(message, self.connection.begin()?)?;
        self.connection.exchange_expecting(answer).await.map(drop)
    }

    async fn ask_empty(&mut self, request: MessageCode, answer: MessageCode) -> Result<(), Error> {
        frame::encode_empty(request, self.connection.begin()?);
        self.connection.exchange_expecting(answer).await.map(drop)
    }
}
