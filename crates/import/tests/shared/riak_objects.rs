//! A small writer of Riak's objects of both versions. It shares no code with the decoders under
//! test.

pub(crate) fn sized16(bytes: &[u8]) -> Vec<u8> {
    let len = u16::try_from(bytes.len()).unwrap().to_be_bytes();
    [&len[..], bytes].concat()
}

/// A complete external term.
pub(crate) fn term(inner: &[u8]) -> Vec<u8> {
    [&[131], inner].concat()
}

pub(crate) fn binary(text: impl AsRef<[u8]>) -> Vec<u8> {
    let text = text.as_ref();
    let len = u32::try_from(text.len()).unwrap().to_be_bytes();
    [&[109], &len[..], text].concat()
}

pub(crate) fn string(text: &str) -> Vec<u8> {
    [&[107], &sized16(text.as_bytes())[..]].concat()
}

pub(crate) fn atom(name: &str) -> Vec<u8> {
    [&[100], &sized16(name.as_bytes())[..]].concat()
}

pub(crate) fn integer(value: u32) -> Vec<u8> {
    [&[98], &value.to_be_bytes()[..]].concat()
}

pub(crate) fn tuple(elements: &[Vec<u8>]) -> Vec<u8> {
    let count = u8::try_from(elements.len()).unwrap();
    [&[104, count], &elements.concat()[..]].concat()
}

pub(crate) fn list(elements: &[Vec<u8>]) -> Vec<u8> {
    if elements.is_empty() {
        return vec![106];
    }
    let count = u32::try_from(elements.len()).unwrap().to_be_bytes();
    [&[108], &count[..], &elements.concat(), &[106]].concat()
}

/// A clock: actors with their counts.
pub(crate) fn clock(entries: &[(&str, u32)]) -> Vec<u8> {
    let entry = |(actor, count): &(&str, u32)| tuple(&[binary(actor), stamped(*count)]);
    list(&entries.iter().map(entry).collect::<Vec<_>>())
}

fn stamped(count: u32) -> Vec<u8> {
    // Seconds since the year 0, as a big integer.
    tuple(&[integer(count), vec![110, 5, 0, 0, 0x9f, 0xbc, 0xe0, 0x0e]])
}

/// A sibling to be written.
#[derive(Clone, Default)]
pub(crate) struct Sibling {
    pub(crate) value: Vec<u8>,
    pub(crate) modified: (u32, u32, u32),
    pub(crate) deleted: bool,
    pub(crate) dot: Option<(&'static str, u32)>,
    /// Names and their values as inner terms.
    pub(crate) metadata: Vec<(&'static str, Vec<u8>)>,
}

/// A sibling with a plain value.
pub(crate) fn plain(value: &str) -> Sibling {
    Sibling {
        value: value.into(),
        modified: (1700, 123_456, 42),
        metadata: vec![("content-type", string("text/plain"))],
        ..Sibling::default()
    }
}

/// A sibling with a plain value and a dot.
pub(crate) fn dotted(value: &str, actor: &'static str, count: u32) -> Sibling {
    Sibling {
        dot: Some((actor, count)),
        ..plain(value)
    }
}

fn pairs(sibling: &Sibling) -> Vec<(&'static str, Vec<u8>)> {
    let dot = sibling
        .dot
        .map(|(actor, count)| ("dot", tuple(&[binary(actor), stamped(count)])));
    sibling.metadata.iter().cloned().chain(dot).collect()
}

fn sized32(bytes: &[u8]) -> Vec<u8> {
    let len = u32::try_from(bytes.len()).unwrap().to_be_bytes();
    [&len[..], bytes].concat()
}

/// An object of version 1.
pub(crate) fn object_v1(entries: &[(&str, u32)], siblings: &[Sibling]) -> Vec<u8> {
    let mut out = vec![53, 1];
    out.extend(sized32(&term(&clock(entries))));
    out.extend(u32::try_from(siblings.len()).unwrap().to_be_bytes());
    for sibling in siblings {
        out.extend(sized32(&[&[1], &sibling.value[..]].concat()));
        let (mega, secs, micros) = sibling.modified;
        let mut metadata = [mega, secs, micros].map(u32::to_be_bytes).concat();
        metadata.extend([3]);
        metadata.extend(b"abc");
        metadata.push(u8::from(sibling.deleted));
        for (name, value) in pairs(sibling) {
            metadata.extend(sized32(&[&[1], name.as_bytes()].concat()));
            metadata.extend(sized32(&[&[0], &term(&value)[..]].concat()));
        }
        out.extend(sized32(&metadata));
    }
    out
}

/// An object of version 0: an external term with dictionaries.
pub(crate) fn object_v0(entries: &[(&str, u32)], siblings: &[Sibling]) -> Vec<u8> {
    let contents: Vec<_> = siblings
        .iter()
        .map(|sibling| {
            let (mega, secs, micros) = sibling.modified;
            let mut pairs = pairs(sibling);
            let modified = tuple(&[integer(mega), integer(secs), integer(micros)]);
            pairs.push(("X-Riak-Last-Modified", modified));
            pairs.push(("X-Riak-VTag", string("abc")));
            if sibling.deleted {
                pairs.push(("X-Riak-Deleted", string("true")));
            }
            tuple(&[
                atom("r_content"),
                dictionary(&pairs),
                binary(&sibling.value),
            ])
        })
        .collect();
    let fields = [
        atom("r_object"),
        binary("bucket in the value"),
        binary("key in the value"),
        list(&contents),
        clock(entries),
        dictionary(&[("clean", atom("true"))]),
        atom("undefined"),
    ];
    term(&tuple(&fields))
}

/// An Erlang dict. Cells `[Name|Value]` are written as in Erlang: with a string or a list as the
/// value, the cell is one longer list.
fn dictionary(pairs: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut slots = vec![list(&[]); 16];
    for (number, (name, value)) in pairs.iter().enumerate() {
        let cell = match value[0] {
            106 => list(&[binary(name)]),
            107 => {
                let characters = value[3..].iter().map(|byte| vec![97, *byte]);
                list(
                    &std::iter::once(binary(name))
                        .chain(characters)
                        .collect::<Vec<_>>(),
                )
            }
            108 => {
                let count = u32::from_be_bytes(value[1..5].try_into().unwrap()) + 1;
                [&[108], &count.to_be_bytes()[..], &binary(name), &value[5..]].concat()
            }
            _ => [&[108, 0, 0, 0, 1], &binary(name)[..], value].concat(),
        };
        slots[number % 16] = list(&[cell]);
    }
    let number = |value: u8| vec![97, value];
    tuple(&[
        atom("dict"),
        number(u8::try_from(pairs.len()).unwrap()),
        number(16),
        number(16),
        number(8),
        number(80),
        number(48),
        tuple(&vec![list(&[]); 16]),
        tuple(&[tuple(&slots)]),
    ])
}
