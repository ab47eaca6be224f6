//! Segments over a disk that loses power, fills up, fails and corrupts data.

mod anatomy;
mod corruption;
mod faults;
mod log;
mod round_trip;
mod torn;
