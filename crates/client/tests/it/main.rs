//! The client against a scripted server on an in-memory stream.

// `cfg(test)` always holds here; it tells the lints that functions shared by tests are tests too.
#[cfg(test)]
mod failures;
#[cfg(test)]
mod fake_server;
#[cfg(test)]
mod requests;
