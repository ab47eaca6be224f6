//! The codec from outside: golden bytes, round trips, and hostile input.

// `cfg(test)` always holds here; it marks functions shared by tests as test code for the lints.
#[cfg(test)]
mod frames;
mod generated;
#[cfg(test)]
mod hostile_input;
