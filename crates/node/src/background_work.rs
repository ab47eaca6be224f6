//! Tests of background work over the value log and over running nodes.

mod failing_test;
mod overwrite_test;
mod running_test;
mod small_disk_test;
