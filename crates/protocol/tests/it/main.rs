//! The codec from outside: golden bytes, round trips, and input nobody asked for.

// `cfg(test)` always holds here; it tells the lints that functions shared by tests are tests too.
#[cfg(test)]
mod frames;
mod generated;
#[cfg(test)]
mod hostile_input;
