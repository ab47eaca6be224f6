//! Addresses of hosts, by the system's names.

use std::net::{IpAddr, ToSocketAddrs as _};

use anyhow::Context as _;

/// The address of a host, by the system's names. Blocks.
///
/// # Errors
/// A name that is not known, with the name.
pub fn ip_of(host: &str) -> anyhow::Result<IpAddr> {
    let found = (host, 0).to_socket_addrs();
    let found = found
        .with_context(|| format!("find the address of {host}"))?
        .next();
    let found = found.with_context(|| format!("{host} has no address"))?;
    Ok(found.ip())
}
