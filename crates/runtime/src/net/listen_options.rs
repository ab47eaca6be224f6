//! Options of a listening socket.

/// How a listening socket behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// How many connections may wait to be accepted; the system may allow fewer.
    pub backlog: u32,
    /// Lets several sockets of one user share the port, each getting a part of the connections. Off by
    /// default, because a second server on the same port would then go unnoticed.
    pub reuse_port: bool,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            backlog: 1024,
            reuse_port: false,
        }
    }
}
