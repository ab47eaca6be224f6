//! Segments over a disk that loses power, fills up, fails and corrupts data.

mod anatomy;
mod faults;
mod log;
mod rot;
mod round_trip;
mod torn;
