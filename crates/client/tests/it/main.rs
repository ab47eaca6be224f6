//! The client against a scripted server on an in-memory stream.

// `cfg(test)` always holds here; it marks functions shared by tests as test code for the lints.
#[cfg(test)]
mod failures;
#[cfg(test)]
mod fake_server;
#[cfg(test)]
mod requests;
