//! The shapes of Riak's HTTP interface: headers, query parameters and bodies, as pure functions.
//!
//! Each file has one shape, in both directions if there are two. Values arrive as raw bytes:
//! buckets, keys and metadata need not be text. Names follow Riak's Webmachine generation of the
//! interface, which every published client was written against. Methods, routes and status codes
//! are outside. Errors with a text for clients offer it as `response_text`.

mod accept;
mod content_type;
mod date;
mod entity_tag;
mod exact;
mod index;
mod link;
mod multipart;
mod object_headers;
mod parameter;
mod percent;
mod query;
mod user_metadata;
mod vclock;

pub use accept::{choose_charset, choose_encoding, choose_media_type};
pub use content_type::{ContentType, ContentTypeError};
pub use date::{format_http_date, parse_http_date};
pub use entity_tag::{EntityTags, format_entity_tag};
pub use exact::{EXACT_HEADER, ExactError, ExactFields};
pub use index::{
    INDEX_HEADER_PREFIX, IndexEntry, IndexFieldError, index_response_text, parse_index_header,
    parse_index_value,
};
pub use link::{Link, LinkError, UrlGeneration, format_links, parse_links};
pub use multipart::{MultipartWriter, PartHead};
pub use object_headers::{DEFAULT_MEDIA_TYPE, ObjectHeaders, StoredFields};
pub use parameter::{
    ParameterError, parse_boolean, parse_quorum, parse_timeout_ms, parse_tristate,
};
pub use percent::{decode_percent, decode_percent_and_plus, encode_percent, encode_percent_plus};
pub use query::QueryParameters;
pub use user_metadata::{USER_METADATA_HEADER_PREFIX, metadata_header_value, user_metadata_key};
pub use vclock::{VclockError, decode_vclock, encode_vclock};
