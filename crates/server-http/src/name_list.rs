//! Lists of names in JSON: keys, buckets, entries of an index.
//!
//! Names are bytes and JSON is text. A name that is not UTF-8 is in a second list, percent-encoded;
//! so every listed name is readable.
//!
//! ```text
//! {"keys":["a","b"],"percent_encoded_keys":["k%FF"]}
//! {"results":[{"term":"key"}],"percent_encoded_results":[{"t%FF":"key"}]}
//! ```

use kvorum_protocol::http_fields::encode_percent;

use crate::body::Abandoned;

/// Maximum bytes of the second list, which waits for the end of the first.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// A list under construction. It appends to an object whose last member is the list.
pub(crate) struct NameList {
    field: &'static str,
    is_first: bool,
    /// The second list's elements.
    encoded: Vec<u8>,
}

impl NameList {
    /// An empty list, whose name and opening bracket are already in the object.
    pub(crate) fn new(field: &'static str) -> Self {
        Self {
            field,
            is_first: true,
            encoded: Vec::new(),
        }
    }

    /// Appends a name.
    pub(crate) fn push(&mut self, json: &mut Vec<u8>, name: &[u8]) {
        match std::str::from_utf8(name) {
            Ok(name) => put_text(self.next_in(json), name),
            Err(_) => put_text(self.next_encoded(), &encode_percent(name)),
        }
    }

    /// Appends an object of a term and a name.
    pub(crate) fn push_pair(&mut self, json: &mut Vec<u8>, term: &[u8], name: &[u8]) {
        match (std::str::from_utf8(term), std::str::from_utf8(name)) {
            (Ok(term), Ok(name)) => put_pair(self.next_in(json), term, name),
            _ => put_pair(
                self.next_encoded(),
                &encode_percent(term),
                &encode_percent(name),
            ),
        }
    }

    /// Ends the list and the object.
    pub(crate) fn end(self, json: &mut Vec<u8>) {
        self.end_list(json);
        json.push(b'}');
    }

    /// Ends the list; the object may continue.
    pub(crate) fn end_list(self, json: &mut Vec<u8>) {
        json.push(b']');
        if !self.encoded.is_empty() {
            json.extend(format!(",\"percent_encoded_{}\":[", self.field).bytes());
            json.extend_from_slice(&self.encoded);
            json.push(b']');
        }
    }

    /// Bytes that wait for the end.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.encoded.len()
    }

    /// Fails if too many bytes wait for the end.
    pub(crate) fn check(&self) -> Result<(), Abandoned> {
        if self.encoded.len() <= WAITING_BYTES_MAX {
            return Ok(());
        }
        let reason = format!(
            "more than {WAITING_BYTES_MAX} bytes of {} are no UTF-8; ask for a stream",
            self.field
        );
        Err(Abandoned { reason })
    }

    fn next_in<'a>(&mut self, json: &'a mut Vec<u8>) -> &'a mut Vec<u8> {
        if !std::mem::take(&mut self.is_first) {
            json.push(b',');
        }
        json
    }

    fn next_encoded(&mut self) -> &mut Vec<u8> {
        if !self.encoded.is_empty() {
            self.encoded.push(b',');
        }
        &mut self.encoded
    }
}

fn put_pair(json: &mut Vec<u8>, term: &str, name: &str) {
    json.push(b'{');
    put_text(json, term);
    json.push(b':');
    put_text(json, name);
    json.push(b'}');
}

/// Appends a text in quotes.
pub(crate) fn put_text(json: &mut Vec<u8>, text: &str) {
    // Writing into memory cannot fail.
    let _ = serde_json::to_writer(json, text);
}
