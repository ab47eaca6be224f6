//! Get, put, delete and coverage as pure machines over a preference list, and their inline driver.
